"""The same sync on a real standalone cluster: a master and a worker process of the pyspark package."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.conftest import zync

_HOME = Path(pyspark.__file__).parent


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    port, environment = _port(), {**os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [
        [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(_port())],
        [f"{deploy}.worker.Worker", "--cores", "2", "--memory", "2g", "--work-dir", str(tmp_path / "work"), url],
    ]
    started = []
    for command in commands:
        log = (tmp_path / f"{command[0]}.log").open("w")
        started.append(
            subprocess.Popen([str(_HOME / "bin" / "spark-class"), *command], env=environment, stdout=log, stderr=log)
        )
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
    yield url
    for process in reversed(started):
        process.terminate()
        process.wait(20)


def test_a_standalone_cluster_runs_the_same_sync(demo: Path, master: str) -> None:
    zync("load", "raw", "consume-1.jsonl", "consume-2.jsonl", cwd=demo)
    with (demo / "zync.yaml").open("a") as config:
        config.write("spark: {spark.executor.memory: 1g, spark.driver.host: 127.0.0.1}\n")
    outcome = json.loads(zync("sync", "raw", "staging", "--master", master, "--json", cwd=demo).stdout)
    assert (outcome["transactions"], outcome["outputs"], outcome["cursor"]) == (2, {"order": 2}, 4)
    shown = [json.loads(line) for line in zync("cat", "staging", "--kind", "output", cwd=demo).stdout.splitlines()]
    assert [row["value"]["total"] for row in shown] == [3.98, 5.99]
