"""A standalone cluster that loses its executors, workers and drivers while it syncs a lake in a store."""

import json
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow.compute as pc
import pytest
import yaml

from tests.cluster import SPARK, Cluster, bare_python, running_cluster
from tests.conftest import Loader, start, zync
from tests.kafka.conftest import wait_until
from tests.store.choice import LAKES, SERVER
from zync.lake.table import open_table

KILLS = max(1, int(os.environ.get("ZYNC_TEST_STORE_KILLS", "3")) // 4)
"""How often each kind of process is killed: less often than without a cluster, for each takes half a minute."""
SEED = int(os.environ.get("ZYNC_TEST_SOAK_SEED", random.randrange(1 << 32)))
BATCH = 35_000 if KILLS > 1 else 13_000
"""Transactions of two records that a sync has: with fewer than 12,500 a single task does nearly everything, and from
30,000 on all are spread."""
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
        """The values of staging's output rows."""
        staging = open_table(f"{self.lake}/staging")
        if staging is None:
            return []
        rows = staging.to_pyarrow_table(columns=["kind", "value"])
        return list(rows.filter(pc.equal(rows["kind"], "output"))["value"].to_pylist())

    def attend(self) -> None:
        """Starts a sync that failed again, as a supervisor does; some may fail, for their tasks lost too much."""
        if self.process.poll() is not None:
            assert self.process.returncode == 1, self.log()
            assert self.starts < 6 * KILLS, self.log()
            self.start()

    def is_synced(self) -> bool:
        """Whether staging has all that was sent."""
        self.attend()
        return len(self.values()) >= self.sent

    def has_executors(self) -> bool:
        """Whether there are executors that may be lost."""
        self.attend()
        return bool(self.cluster.executors())

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


@pytest.mark.skipif("ZYNC_TEST_STORE_KILLS" not in os.environ, reason="it takes minutes: make test-store")
@pytest.mark.skipif(SERVER in ("gs", "azure"), reason="the keys of this test are those of S3")
@pytest.mark.timeout(600 + 600 * KILLS)
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
                wait_until(syncing.has_executors, 120)
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
    # In a process of its own: the config's keys would stay those of this one.
    verified = zync("verify", "--json", cwd=tmp_path, check=False, env=os.environ.copy())
    assert verified.returncode == 0, verified.stdout + verified.stderr
