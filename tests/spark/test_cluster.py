"""The same sync on a real standalone cluster: a master and a worker process of the pyspark package."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import SPARK, Cluster, running_cluster
from tests.conftest import start, zync
from tests.kafka.conftest import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_a_standalone_cluster_runs_the_same_sync(demo: Path, cluster: Cluster) -> None:
    zync("load", "raw", "consume-1.jsonl", "consume-2.jsonl", cwd=demo)
    with (demo / "zync.yaml").open("a") as config:
        config.write(SPARK)
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
        assert cluster.kill_executors()
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
    code, said = killed_in_a_rule(tmp_path, cluster, SPARK)
    assert code == 0
    assert_all_is_out(said[-1], tmp_path)


def test_a_task_that_fails_for_good_with_its_executor_stops_the_sync_and_sets_nothing_aside(
    tmp_path: Path, cluster: Cluster
) -> None:
    code, said = killed_in_a_rule(tmp_path, cluster, SPARK.replace("{", "{spark.task.maxFailures: 1, ", 1))
    assert code == 1
    (line,) = said
    assert line.startswith("zync: ")
    assert "ExecutorLostFailure" in line
    assert not [row for row in zync("cat", "staging", cwd=tmp_path).stdout.splitlines() if row]
    again = zync("sync", "raw", "staging", "--master", cluster.url, "--json", cwd=tmp_path)
    assert_all_is_out(again.stdout, tmp_path)


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
