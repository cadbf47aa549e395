"""A standalone cluster of Spark's: a master and workers, processes of the pyspark package; and bare Pythons for it."""

import contextlib
import os
import re
import signal
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.conftest import QUICK
from tests.kafka.conftest import wait_until
from zync.kafka.dev_broker import free_port

SPARK_HOME = Path(pyspark.__file__).parent
SPARK = (
    f"spark: {{spark.executor.memory: 1g, spark.driver.host: 127.0.0.1, "
    f'spark.driver.extraJavaOptions: "{QUICK}", spark.executor.extraJavaOptions: "{QUICK}"}}\n'
)
"""Of a config whose Spark is on a cluster here."""
_OF_TESTS = re.compile("PYTHONPATH$|PYSPARK_|AWS_")
"""Variables of the tests that machines of a cluster have not."""


@dataclass
class Cluster:
    """A master, whose folder has the logs, and workers, which run executors below folders of their own in it."""

    folder: Path
    port: int = field(default_factory=free_port)
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    started: int = 0

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, name: str, class_name: str, *words: str) -> "subprocess.Popen[bytes]":
        """Starts a process of the cluster, as on a machine that has Spark and nothing else: no path, no keys."""
        ours = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": QUICK}
        environment = {name: value for name, value in os.environ.items() if not _OF_TESTS.match(name)} | ours
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{class_name}", *words]
        with (self.folder / f"{name}.log").open("w") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def add_worker(self, cores: int = 2) -> None:
        """Starts a worker, and waits until the master has it."""
        self.started += 1
        name = f"worker-{self.started}"
        words = ("--cores", str(cores), "--memory", f"{cores}g", "--work-dir", str(self.folder / name))
        self.workers.append(self.start(name, "worker.Worker", *words, "--webui-port", str(free_port()), self.url))
        log = self.folder / f"{name}.log"
        wait_until(lambda: "Successfully registered with master" in log.read_text(), 60)

    def lose_worker(self) -> None:
        """Kills the oldest worker and all executors that it has, as when its machine is lost."""
        name = f"worker-{self.started + 1 - len(self.workers)}"
        worker = self.workers.pop(0)
        worker.kill()
        worker.wait()
        self.kill_executors(name)

    def kill_executors(self, worker: str = "") -> int:
        """Kills executors by SIGKILL, all or those of a worker, and returns how many there were."""
        pids = self.executors(worker)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def executors(self, worker: str = "") -> list[int]:
        """Returns the processes of executors, all or those of a worker; they run below the workers' folders."""
        pids = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_below = (folder / "cwd").readlink().is_relative_to(self.folder / worker)
                if is_below and b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                    pids.append(int(folder.name))
        return pids


@contextmanager
def running_cluster(folder: Path, workers: int = 1, cores: int = 2) -> Iterator[Cluster]:
    """Runs a master and workers."""
    cluster = Cluster(folder)
    words = ("--host", "127.0.0.1", "--port", str(cluster.port), "--webui-port", str(free_port()))
    master = cluster.start("master", "master.Master", *words)
    try:
        wait_until(lambda: "New state: ALIVE" in (folder / "master.log").read_text(), 60)
        for _ in range(workers):
            cluster.add_worker(cores)
        yield cluster
    finally:
        for process in (*cluster.workers, master):
            process.terminate()
        for process in (*cluster.workers, master):
            process.wait(30)


def bare_python(folder: Path, *packages: str) -> str:
    """Makes a Python that has nothing installed but those of this Python's packages, and returns its path."""
    venv.create(folder, with_pip=False, symlinks=True)
    for package in packages:
        source = Path(sysconfig.get_path("purelib")) / package
        (next(folder.glob("lib/python*/site-packages")) / package).symlink_to(source)
    return str(folder / "bin" / "python")
