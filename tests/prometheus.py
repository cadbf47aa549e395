"""A real Prometheus, started by a test: what `promtool` says of metrics, and what the dashboard's questions give."""

import json
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zync import java
from zync.kafka.dev_broker import free_port


def program(name: str) -> str:
    """`prometheus` or `promtool`: the one on the path, or of Debian's package, which is unpacked the first time."""
    if found := shutil.which(name):
        return found
    folder = java.cache_folder() / "prometheus"
    if not folder.is_dir():
        assert shutil.which("apt-get"), "Prometheus is needed for the tests: put prometheus and promtool on the path"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
            for command in (["apt-get", "update", "-qq"], ["apt-get", "download", "-qq", "prometheus"]):
                subprocess.run(command, cwd=scratch, capture_output=True, check=False)
            (package,) = Path(scratch).glob("prometheus_*.deb")
            subprocess.run(["dpkg-deb", "-x", str(package), f"{scratch}/unpacked"], check=True)
            (Path(scratch) / "unpacked" / "usr" / "bin").rename(folder)
    return str(folder / name)


@dataclass
class RunningPrometheus:
    """Asks those ports of this machine for metrics, each second."""

    folder: Path
    ports: tuple[int, ...]
    port: int = field(default_factory=free_port)

    def start(self) -> None:
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {"job_name": "zync", "static_configs": [{"targets": [f"localhost:{one}" for one in self.ports]}]}
            ],
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(config))  # which is YAML, too
        command = [program("prometheus"), f"--config.file={self.folder}/prometheus.yml"]
        command += [f"--storage.tsdb.path={self.folder}/prometheus", f"--web.listen-address=localhost:{self.port}"]
        with (self.folder / "prometheus.log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while True:
            try:
                self.ask("vector(1)")
            except OSError:
                assert time.monotonic() < until, (self.folder / "prometheus.log").read_text()
                time.sleep(0.2)
            else:
                return

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)

    def ask(self, expression: str) -> list[float]:
        """The values that an expression has now."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://localhost:{self.port}/api/v1/query?{query}", timeout=10) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
        return [float(one["value"][1]) for one in found["data"]["result"]]
