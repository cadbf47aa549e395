"""The same sync on a real standalone cluster: a master and a worker process of the pyspark package."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from tests.conftest import QUICK, start, zync
from tests.kafka.conftest import wait_until
from zync.kafka.dev_broker import free_port

_HOME = Path(pyspark.__file__).parent
_SPARK = (
    f"spark: {{spark.executor.memory: 1g, spark.driver.host: 127.0.0.1, "
    f'spark.driver.extraJavaOptions: "{QUICK}", spark.executor.extraJavaOptions: "{QUICK}"}}\n'
)


@dataclass(frozen=True)
class Cluster:
    """A master's URL, and the folder below which the worker runs executors."""

    url: str
    work: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    ours = {"SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": QUICK}
    environment = {**os.environ, **ours}
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [
        [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())],
        [f"{deploy}.worker.Worker", "--cores", "2", "--memory", "2g", "--work-dir", str(folder / "work"), url],
    ]
    started = []
    for command in commands:
        log = (folder / f"{command[0]}.log").open("w")
        started.append(
            subprocess.Popen([str(_HOME / "bin" / "spark-class"), *command], env=environment, stdout=log, stderr=log)
        )
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
    yield Cluster(url, folder / "work")
    for process in reversed(started):
        process.terminate()
        process.wait(20)


def test_a_standalone_cluster_runs_the_same_sync(demo: Path, cluster: Cluster) -> None:
    zync("load", "raw", "consume-1.jsonl", "consume-2.jsonl", cwd=demo)
    with (demo / "zync.yaml").open("a") as config:
        config.write(_SPARK)
    outcome = json.loads(zync("sync", "raw", "staging", "--master", cluster.url, "--json", cwd=demo).stdout)
    assert (outcome["transactions"], outcome["outputs"], outcome["cursor"]) == (2, {"order": 2}, 4)
    shown = [json.loads(line) for line in zync("cat", "staging", "--kind", "output", cwd=demo).stdout.splitlines()]
    assert [row["value"]["total"] for row in shown] == [3.98, 5.99]


RULE = """
import time
from pathlib import Path

from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType

mark = Path({mark!r})


@sf.udf(IntegerType())
def slowly(x):
    if not mark.exists():
        mark.touch()
        time.sleep(60)
    return x


def rule(records):
    return records.select("seqno", slowly(sf.expr("value:x::int")).alias("x"))
"""


def killed_in_a_rule(tmp_path: Path, cluster: Cluster, spark: str) -> tuple[int, list[str]]:
    """How a sync whose executors are killed while they run a rule ends, and what it says."""
    mark = tmp_path / "it runs"
    (tmp_path / "rule.py").write_text(RULE.format(mark=str(mark)))
    (tmp_path / "zync.yaml").write_text(
        'topics: {a: {id: "value:txn"}}\ntransactions: {done: "count(*) = 1"}\n'
        f"outputs: [{{topic: out, python: rule.py}}]\n{spark}"
    )
    lines = [json.dumps({"topic": "a", "value": {"txn": n, "x": n}}) for n in range(3)]
    zync("load", "raw", "-", cwd=tmp_path, input="\n".join(lines))
    running = start("sync", "raw", "staging", "--master", cluster.url, "--json", cwd=tmp_path)
    try:
        wait_until(mark.exists, 120)
        killed = executors(cluster.work)
        assert killed
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        code = running.wait(120)
    finally:
        running.kill()
    (log,) = tmp_path.glob("sync-raw-*.log")
    return code, log.read_text().splitlines()


def assert_all_is_out(said: str, folder: Path) -> None:
    outcome = json.loads(said)
    assert (outcome["transactions"], outcome["outputs"], outcome["set_aside"]) == (3, {"out": 3}, {})
    zync("verify", cwd=folder)


def test_an_executor_that_is_killed_costs_time_and_sets_nothing_aside(tmp_path: Path, cluster: Cluster) -> None:
    code, said = killed_in_a_rule(tmp_path, cluster, _SPARK)
    assert code == 0
    assert_all_is_out(said[-1], tmp_path)


def test_a_task_that_fails_for_good_with_its_executor_stops_the_sync_and_sets_nothing_aside(
    tmp_path: Path, cluster: Cluster
) -> None:
    code, said = killed_in_a_rule(tmp_path, cluster, _SPARK.replace("{", "{spark.task.maxFailures: 1, ", 1))
    assert code == 1
    (line,) = said
    assert line.startswith("zync: ")
    assert "ExecutorLostFailure" in line
    assert not [row for row in zync("cat", "staging", cwd=tmp_path).stdout.splitlines() if row]
    again = zync("sync", "raw", "staging", "--master", cluster.url, "--json", cwd=tmp_path)
    assert_all_is_out(again.stdout, tmp_path)


def executors(work: Path) -> list[int]:
    """The processes that a cluster's worker started, which run below its folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cwd").readlink().is_relative_to(work) and b"Executor" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


APPLICATION = """
import zync
from pyspark.sql import SparkSession
from zync import java

jars = ",".join(str(jar) for jar in java.fetch(java.DELTA))
spark = (
    SparkSession.builder.master("{url}")
    .config("spark.jars", jars)
    .config("spark.driver.extraClassPath", jars.replace(",", ":"))
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
print(zync.sync_once(zync.load_config("zync.yaml"), "lake/raw", "lake/staging").transactions)
"""


def test_an_application_that_has_nothing_of_zyncs_is_given_what_decodes_on_its_executors(
    demo: Path, cluster: Cluster
) -> None:
    zync("load", "raw", "consume-1.jsonl", "consume-2.jsonl", cwd=demo)
    (demo / "application.py").write_text(APPLICATION.replace("{url}", cluster.url))
    result = subprocess.run([sys.executable, "application.py"], cwd=demo, capture_output=True, text=True, check=False)
    assert result.stdout == "2\n", result.stderr
