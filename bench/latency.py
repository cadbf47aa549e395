"""From the database's commit to where readers see it: staging, tables, Kafka; at a steady 1,000 rows a second.

The demo's bank, whose rows come at once here, through `zync run`, from when it has caught up: 250 transfers of four
rows a second.
"""

import shutil
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
from confluent_kafka import Consumer

from bench.harness import ZYNC, Result, broker, log
from zync.deliver.tables import snapshots
from zync.demo.simulated import SimulatedBank
from zync.lake.files import data_files, dataset
from zync.lake.table import open_table
from zync.resources import data_folder
from zync.staging.table import STAGING_SCHEMA

TRANSFERS = 250
COMPILED, COMPILED_BOTH, WARM_UP, SECONDS = 300.0, 900.0, 300.0, 60.0
"""It begins cold, beside what comes, and the JVM compiles for minutes what a sync runs; with tables there are two that
do. Measured is the pipeline after that, once it has caught up, or has had so much longer to."""
_CAUGHT_UP = 10.0
"""Seconds since the newest commit that staging has, at most, whenever looked at in half a minute."""
_GOAL = 2.0
_LOOK = 0.2


def run(folder: Path) -> list[Result]:
    """Seconds at p50 and p99, of the pipeline with tables and without."""
    return [*_measured(folder / "tables", tables=True), *_measured(folder / "kafka", tables=False)]


class Watch:
    """When each transaction was first seen in each place (of `time.time`)."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.lake, self.servers = folder / "lake", servers
        self.seen: dict[str, dict[str, float]] = {"staging": {}, "tables": {}, "kafka": {}}
        self.over = threading.Event()
        self.threads = [threading.Thread(target=one, daemon=True) for one in (self.staging, self.kafka)]

    def staging(self) -> None:
        """Looks at staging, and at the tables' snapshots, which say through which sync they are."""
        table, sync = None, 0
        behind: list[tuple[int, list[str]]] = []
        while not self.over.wait(_LOOK):
            table = table or open_table(str(self.lake / "staging"))
            if table is None:
                continue
            table.update_incremental()
            if files := data_files(table, "sync", above=sync):
                now, sync = time.time(), max(one.highest for one in files)
                rows = dataset(table, [one.path for one in files], STAGING_SCHEMA)
                txns = rows.to_table(columns=["txn"], filter=ds.field("kind") == "done")["txn"].to_pylist()
                self.seen["staging"].update(dict.fromkeys(txns, now))
                behind.append((sync, txns))
            newest = snapshots.newest(str(self.lake / "tables" / snapshots.NAME))
            while newest and behind and behind[0][0] <= newest.sync:
                self.seen["tables"].update(dict.fromkeys(behind.pop(0)[1], time.time()))

    def kafka(self) -> None:
        """Reads the topic `history`, read_committed: what it sees of a transaction is all there, over all topics."""
        settings = {"group.id": "latency", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": self.servers, "topic.metadata.refresh.interval.ms": 500, **settings})
        consumer.subscribe(["history"])
        while not self.over.is_set():
            for message in consumer.consume(1000, timeout=_LOOK):
                if message.error() is None:
                    self.seen["kafka"][dict(message.headers())["zync.txn"].decode()] = time.time()
        consumer.close()


def _measured(folder: Path, *, tables: bool) -> list[Result]:
    warm, late_by_place = follow(folder, TRANSFERS, COMPILED_BOTH if tables else COMPILED, SECONDS, tables=tables)
    results = []
    for place, late in late_by_place.items():
        p50, p99 = quantiles([seconds for _, seconds in late])
        of = f"from commit to {place}, at 1,000 rows/s, " + ("with tables" if tables else "without tables")
        log(f"{of}, after {warm:.0f} s: p50 {p50:.2f} s, p99 {p99:.2f} s")
        goal = _GOAL if place == "staging" else None
        results += [Result(f"p50 {of}", p50, "s", goal), Result(f"p99 {of}", p99, "s")]
    return results


def quantiles(late: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    return statistics.median(late), sorted(late)[int(0.99 * len(late))]


def follow(
    folder: Path, transfers: float, compiled: float, seconds: float, *, tables: bool
) -> tuple[float, dict[str, list[tuple[float, float]]]]:
    """Runs `zync run` on the demo's bank, and measures once it is warm.

    Args:
        folder: Where the project is made.
        transfers: Transfers a second, of four rows each.
        compiled: Seconds from the cold start that are not measured; more until it has caught up.
        seconds: For how long it is measured.
        tables: Whether it delivers to tables, too.

    Returns:
        The seconds that were not measured; by place, when each transfer was committed (seconds since the measuring
        began) and how many seconds later it was seen there, in order of commit.
    """
    shutil.copytree(data_folder("demo") / "bank", folder)
    said = "".join(
        line + "\n"
        for line in (folder / "zync.yaml").read_text().splitlines()
        if not line.startswith("spark:") and (tables or not line.startswith("  tables:"))
    )
    (folder / "zync.yaml").write_text(said)
    places = ("staging", "tables", "kafka") if tables else ("staging", "kafka")
    with broker() as servers:
        bank, watch = SimulatedBank(servers, transfers, slowest=0), Watch(folder, servers)
        bank.start()
        command = [*ZYNC, "run", "--commit-every", "200ms", "--bootstrap-servers", servers]
        with (folder / "run.log").open("w") as out:
            running = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
        try:
            for thread in watch.threads:
                thread.start()
            warm = _caught_up(bank, watch, compiled)
            began = time.time()
            time.sleep(seconds)
            ended = time.time()
            bank.end()
            measured = {txn: at for txn, at in bank.committed.items() if began < at < ended}
            _await(lambda: all(measured.keys() <= watch.seen[place].keys() for place in places), 600)
        finally:
            watch.over.set()
            running.send_signal(signal.SIGINT)
            running.wait(120)
    return warm, {
        place: [(at - began, watch.seen[place][txn] - at) for txn, at in measured.items()] for place in places
    }


def _caught_up(bank: SimulatedBank, watch: Watch, compiled: float) -> float:
    """Seconds until staging has kept up for half a minute; at least `compiled`, at most WARM_UP more."""
    began = since = time.monotonic()
    while time.monotonic() < min(max(since + 30, began + compiled), began + compiled + WARM_UP):
        time.sleep(1)
        seen = list(watch.seen["staging"])
        if not seen or time.time() - bank.committed.get(seen[-1], 0.0) > _CAUGHT_UP:
            since = time.monotonic()
    return time.monotonic() - began


def _await(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            msg = "not all transfers came through: see run.log"
            raise RuntimeError(msg)
        time.sleep(1)
