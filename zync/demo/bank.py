"""`zync demo`: a bank, live; what readers of its rows see as they arrive, and what readers of zync's tables see."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow.compute as pc
from confluent_kafka import Consumer
from deltalake import DeltaTable

from zync.deliver.tables import snapshots
from zync.demo.postgres import Debezium, Postgres
from zync.demo.simulated import SimulatedBank
from zync.errors import ZyncError
from zync.kafka.dev_broker import DevKafka
from zync.text import amount

SUMS = {"accounts": "abalance", "tellers": "tbalance", "branches": "bbalance", "history": "delta"}
"""Of each table the column whose sum must be that of the others, for each transfer changes all four alike."""
KEYS = {"accounts": "aid", "tellers": "tid", "branches": "bid"}
_PATIENCE = 180
"""Seconds without a new snapshot after which zync is said to hang: its Sparks start, or a slow machine is busy."""
_LAST_LINES = 10
_ACCOUNTS = 2000
_TPC_B = r"""
\set aid random(1, {accounts})
\set bid random(1, 1)
\set tid random(1, 10)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""
"""What `pgbench --show-script=tpcb-like` shows, of one branch with so many accounts: a short snapshot to begin with."""
_SHOW_EACH = 5
"""Of the looks at one snapshot so many make a line."""
Say = Callable[[str], None]


class Source(Protocol):
    """A bank, and the connector that sends what it does to Kafka."""

    says: str

    def start(self) -> None:
        """Has it work, from now on."""

    def end(self) -> None:
        """No more work; returns once all of it is in Kafka."""

    def truth(self) -> int:
        """The sum of all accounts' balances, as the bank has it."""

    def close(self) -> None:
        """Leaves nothing running."""


class PostgresBank:
    """pgbench's TPC-B on a PostgreSQL, and Debezium."""

    says = "A real PostgreSQL, pgbench making its transfers (TPC-B), and a real Debezium."

    def __init__(self, folder: Path, servers: str, rate: int = 100) -> None:
        """`rate`: so many transfers a second."""
        # not below `folder`, which the user `postgres` may be unable to enter
        self.scratch = Path(tempfile.mkdtemp(prefix="zync-postgres-"))
        self.scratch.chmod(0o755)
        self.postgres = Postgres(self.scratch)
        self.debezium = Debezium(folder.absolute() / ".zync" / "connect", servers, self.postgres, "bank")
        self.rate = rate
        self.load: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts them, and once Debezium has all accounts the transfers."""
        self.postgres.start()
        self.postgres.pgbench("-i", "-q").wait()
        self.postgres.sql(f"CREATE TABLE pulse (x int); DELETE FROM pgbench_accounts WHERE aid > {_ACCOUNTS}")
        (self.scratch / "transfer.sql").write_text(_TPC_B.format(accounts=_ACCOUNTS))
        self.debezium.start()
        self.debezium.wait_until_streamed()
        self.transfer()

    def transfer(self) -> None:
        """Has four clients make transfers."""
        script = str(self.scratch / "transfer.sql")
        self.load = self.postgres.pgbench("-c", "4", "-R", str(self.rate), "-T", "3600", "-f", script)

    def end(self) -> None:
        """Ends the clients, and waits until Debezium has sent what they did."""
        if self.load is not None:
            self.load.terminate()
            self.load.wait()
        self.debezium.wait_until_streamed()

    def truth(self) -> int:
        """What PostgreSQL says."""
        ((total,),) = self.postgres.sql("SELECT sum(abalance) FROM pgbench_accounts")
        return int(total)

    def close(self) -> None:
        """Ends both."""
        if self.load is not None:
            self.load.terminate()
        self.debezium.kill()
        try:
            self.postgres.stop()
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)


@dataclass
class RowByRow:
    """A reader of tables that are kept row by row: it has each row as soon as it arrives, and so parts of transfers."""

    servers: str
    balances: dict[str, dict[int, int]] = field(default_factory=lambda: {name: {} for name in SUMS})
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Takes rows until it is over."""
        settings = {"bootstrap.servers": self.servers, "group.id": "row-by-row", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "topic.metadata.refresh.interval.ms": 1000})  # not all topics are there yet
        consumer.subscribe([f"bank.public.pgbench_{name}" for name in SUMS])
        while not self.over.is_set():
            for message in consumer.consume(500, timeout=0.2):
                if message.error() is None and (value := message.value()):
                    self.take(str(message.topic()).rpartition("_")[2], json.loads(value)["after"])
        consumer.close()

    def take(self, name: str, row: dict[str, int]) -> None:
        """Puts a row into its table."""
        of = self.balances[name]
        of[row[KEYS[name]] if name in KEYS else len(of)] = row[SUMS[name]]

    def sums(self) -> dict[str, int]:
        """What the tables' sums are now."""
        return {name: sum(list(of.values())) for name, of in self.balances.items()}


def consistent_sums(folder: Path) -> tuple[dict[str, int], int, int] | None:
    """The sums of zync's tables at the newest snapshot, its sync, and how many transfers are in it; None before."""
    there = snapshots.newest(str(folder / "lake" / snapshots.FOLDER / snapshots.NAME))
    if there is None:
        return None
    found, count = {}, 0
    for name, column in SUMS.items():
        table = DeltaTable(folder / "lake" / snapshots.FOLDER / name, version=there.versions[name])
        values = table.to_pyarrow_table(columns=[column])[column]
        found[name], count = pc.sum(values).as_py() or 0, len(values)
    return found, there.sync, count


def play(folder: Path, source: str, seconds: float, say: Say) -> None:
    """The bank in `folder`, watched for so long."""
    broker = DevKafka(folder.absolute() / ".zync" / "broker")
    say("Starting a real Kafka (the first time, its jars are fetched) ...")
    servers = broker.start()
    config = folder / "zync.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("localhost:9092", servers), encoding="utf-8")
    with ExitStack() as stack:
        stack.callback(broker.stop)
        bank: Source = PostgresBank(folder, servers) if source == "postgres" else SimulatedBank(servers)
        stack.callback(bank.close)
        say(bank.says)
        bank.start()
        _watch(folder, servers, bank, seconds, say)


def _watch(folder: Path, servers: str, bank: Source, seconds: float, say: Say) -> None:
    reader = RowByRow(servers)
    reading = threading.Thread(target=reader.run, name="row-by-row", daemon=True)
    reading.start()
    say("\n$ zync run --commit-every 500ms        (its log is run.log)")
    with (folder / "run.log").open("w", encoding="utf-8") as log:
        running = subprocess.Popen(  # noqa: S603 - zync itself
            [sys.executable, "-m", "zync.cli.part", "run", "--commit-every", "500ms"],  # which ends when we do
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        say("Waiting for the first transfers in zync's tables (two Sparks start) ...")
        _await(lambda _: True, running, folder)
        say("Sums of all accounts, tellers, branches and of history, which each transfer changes alike:\n")
        say(f"  {'rows as they arrive':44}   zync's tables, at the newest snapshot")
        until, looks, broken, shown = time.monotonic() + seconds, 0, [0, 0], -1
        while time.monotonic() < until:
            time.sleep(1)
            arrived, whole = reader.sums(), consistent_sums(folder)
            assert whole is not None  # noqa: S101 - a snapshot stays
            sums, sync, transfers = whole
            looks += 1
            for index, one in enumerate((arrived, sums)):
                broken[index] += len(set(one.values())) > 1
            if sync != shown or looks % _SHOW_EACH == 0:
                shown = sync
                say(f"  {_line(arrived)}   {_line(sums)}  {transfers:,} transfers, sync {sync}")
        times = f"{broken[0]} times as rows arrive, {broken[1]} times in zync's tables"
        say(f"\nOf {amount(looks, 'look')}, how often the bank was broken: {times}.")
        bank.end()
        truth = bank.truth()
        say(f"No more transfers; the bank itself says {truth:,} now.")
        _await(lambda sums: set(sums.values()) == {truth}, running, folder)
        say(f"zync's four tables say {truth:,}, too: all transfers are there, whole and once.")
    finally:
        reader.over.set()
        running.send_signal(signal.SIGINT)
        try:
            running.wait(120)
        finally:
            running.kill()
        reading.join(10)


def _line(sums: dict[str, int]) -> str:
    verdict = "equal " if len(set(sums.values())) == 1 else "BROKEN"
    return " ".join(f"{one:9,}" for one in sums.values()) + " " + verdict


def _await(wanted: Callable[[dict[str, int]], bool], running: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Returns once zync's tables have such sums; while there are new snapshots, that may take as long as it likes."""
    log, seen, since = folder / "run.log", -1, time.monotonic()
    while not ((there := consistent_sums(folder)) and wanted(there[0])):
        if there and there[1] != seen:
            seen, since = there[1], time.monotonic()
        ended = running.poll()
        if ended is not None or time.monotonic() > since + _PATIENCE:
            what = f"made no new snapshot in {_PATIENCE} s" if ended is None else f"ended with exit code {ended}"
            last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])
            msg = f"zync run {what}; the last lines of {log}:\n{last}"
            raise ZyncError(msg)
        time.sleep(0.2)
