"""A standalone cluster that loses its executors, workers and drivers while it syncs a lake in a store."""

import json
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.cluster import SPARK, Cluster, bare_python, running_cluster
from tests.conftest import Loader, start, zync
from tests.kafka.conftest import wait_until
from tests.store.choice import LAKES, SERVER
from zync.lake.table import open_table

KILLS = int(os.environ.get("ZYNC_TEST_STORE_KILLS", "1"))
"""How often each kind of process is killed."""
SEED = int(os.environ.get("ZYNC_TEST_SOAK_SEED", random.randrange(1 << 32)))
BATCH = 35_000
"""Transactions of two records that a sync has at least: with fewer a single task does nearly everything."""
RULE = """\
from pyspark.sql import functions as sf

import tax


@sf.udf("int")
def taxed(x):
    return tax.added(x)


def rule(records):
    first = records.where("value:n::int = 0")
    return first.select("seqno", sf.expr("value:txn::int AS id"), taxed(sf.expr("value:txn::int")).alias("x"))
"""


class Syncing:
    """A lake in the store, and a sync of it on the cluster, which is started again whenever it ends."""

    def __init__(self, folder: Path, cluster: Cluster, environment: Mapping[str, str]) -> None:
        self.folder, self.cluster, self.sent, self.starts = folder, cluster, 0, 0
        self.lake = f"{LAKES}/{folder.name}"
        (folder / "rule.py").write_text(RULE)
        (folder / "tax.py").write_text("def added(x):\n    return x + 10\n")
        config = {
            "lake": self.lake,
            "storage": {
                "endpoint": environment["AWS_ENDPOINT_URL"],
                "region": environment["AWS_REGION"],
                "access_key_id": environment["AWS_ACCESS_KEY_ID"],
                "secret_access_key": environment["AWS_SECRET_ACCESS_KEY"],
            },
            "topics": {"a": {"id": "value:txn"}},
            "transactions": {"done": "count(*) = 2"},
            "outputs": [{"topic": "out", "python": "rule.py", "key": ["id"]}],
            "spark": yaml.safe_load(SPARK)["spark"]
            | {
                "spark.master": cluster.url,
                "spark.pyspark.python": bare_python(folder / "bare"),
                "spark.executor.cores": "1",
                "spark.executor.memory": "700m",
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.shuffleTracking.enabled": "true",
                "spark.dynamicAllocation.minExecutors": "1",
                "spark.dynamicAllocation.executorIdleTimeout": "3s",
                "spark.dynamicAllocation.schedulerBacklogTimeout": "200ms",
            },
        }
        (folder / "zync.yaml").write_text(json.dumps(config))
        self.loader = Loader(f"{self.lake}/raw")

    def load(self) -> None:
        numbers = range(self.sent, self.sent + BATCH)
        self.loader.load([{"topic": "a", "value": {"txn": txn, "n": n}} for n in (0, 1) for txn in numbers])
        self.sent += BATCH

    def start(self) -> None:
        self.starts += 1
        words = ("sync", "raw", "staging", "--follow", "--log-format", "json")
        self.process = start(*words, cwd=self.folder, start_new_session=True)

    def kill(self) -> None:
        """Kills the driver: the process and its JVM."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.start()

    def values(self) -> list[str]:
        staging = open_table(f"{self.lake}/staging")
        rows = staging.to_pyarrow_table(columns=["kind", "value"]) if staging else None
        return [row["value"] for row in rows.to_pylist() if row["kind"] == "output"] if rows else []

    def is_synced(self) -> bool:
        """Whether staging has all that was sent; starts a sync that failed again, as a supervisor does."""
        if self.process.poll() is not None:
            assert self.process.returncode == 1, self.log()
            self.start()
        return len(self.values()) >= self.sent

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


@pytest.mark.skipif(SERVER in ("gs", "azure"), reason="the keys of this test are those of S3")
@pytest.mark.timeout(600 + 180 * KILLS)
@pytest.mark.usefixtures("s3")
def test_a_cluster_that_loses_executors_workers_and_drivers_loses_and_repeats_nothing(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """With dynamic allocation, and keys of the store that executors have of the driver alone."""
    chance = random.Random(SEED)
    (tmp_path / "cluster").mkdir()
    with running_cluster(tmp_path / "cluster", workers=2) as cluster:
        syncing = Syncing(tmp_path, cluster, environment)
        syncing.load()
        syncing.start()
        lost: list[str] = []
        try:
            for harm in (one for _ in range(KILLS) for one in ("executors", "worker", "driver")):
                wait_until(cluster.executors, 120)
                time.sleep(chance.uniform(0, 6))
                if harm == "executors":
                    lost += ["executor"] * cluster.kill_executors()
                elif harm == "worker":
                    lost.append("worker")
                    cluster.lose_worker()
                    cluster.add_worker()
                else:
                    lost.append("driver")
                    syncing.kill()
                wait_until(syncing.is_synced, 240)
                syncing.load()
            wait_until(syncing.is_synced, 240)
            syncing.process.send_signal(signal.SIGTERM)
            assert syncing.process.wait(60) == 0, syncing.log()
        finally:
            syncing.process.kill()
    print(f"seed {SEED}, {syncing.sent} transactions, {syncing.starts} starts, lost {lost}")
    assert sorted(map(json.loads, syncing.values()), key=lambda row: row["id"]) == [
        {"id": txn, "x": txn + 10} for txn in range(syncing.sent)
    ]
    verified = zync("verify", "--json", cwd=tmp_path, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
