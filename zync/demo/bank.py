"""`zync demo`: a live bank. Compares a reader that applies each row at its arrival with a reader of zync's tables."""

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
from zync.resources import data_folder
from zync.text import amount

SUMS = {"accounts": "abalance", "tellers": "tbalance", "branches": "bbalance", "history": "delta"}
"""The column of each table whose sum must equal the others' sums, as each transfer adds the same amount to all four."""
KEYS = {"accounts": "aid", "tellers": "tid", "branches": "bid"}
_SNAPSHOT_SECONDS = 180
"""Seconds without a new snapshot after which the demo fails: Spark has to start, maybe on a slow machine."""
_LOG_LINES = 10
_ACCOUNTS = 2000
"""As in demo/bank/transfer.sql, the transaction that pgbench repeats."""
_LOOKS_PER_LINE = 5
"""While the snapshot stays the same, a line is printed after so many looks."""
_LEAST_LOOKS = 2
"""So many there are on a slow machine, too, however short the time."""
Say = Callable[[str], None]


class Bank(Protocol):
    """A bank, with the connector that sends its changes to Kafka."""

    says: str

    def start(self) -> None:
        """Starts the transfers."""

    def end(self) -> None:
        """Stops the transfers, and returns when all their records are in Kafka."""

    def truth(self) -> int:
        """Returns the sum of all accounts' balances in the bank itself."""

    def close(self) -> None:
        """Stops all processes."""


class PostgresBank:
    """A bank of pgbench's TPC-B on a PostgreSQL, with Debezium."""

    says = "A real PostgreSQL, pgbench making its transfers (TPC-B), and a real Debezium."

    def __init__(self, folder: Path, servers: str, rate: int = 100) -> None:
        """Prepares a bank that makes `rate` transfers a second."""
        # The user `postgres` may have no access to `folder`.
        self.scratch = Path(tempfile.mkdtemp(prefix="zync-postgres-"))
        self.scratch.chmod(0o755)
        self.postgres = Postgres(self.scratch)
        self.debezium = Debezium(folder.absolute() / ".zync" / "connect", servers, self.postgres, "bank")
        self.rate = rate
        self.load: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts PostgreSQL and Debezium, and the transfers when Debezium has sent all accounts."""
        self.postgres.start()
        self.postgres.pgbench("-i", "-q").wait()
        self.postgres.sql(f"CREATE TABLE pulse (x int); DELETE FROM pgbench_accounts WHERE aid > {_ACCOUNTS}")
        shutil.copyfile(data_folder("demo") / "bank" / "transfer.sql", self._script)  # where PostgreSQL's user may read
        self.debezium.start()
        self.debezium.wait_until_streamed()
        self.transfer()

    def transfer(self) -> None:
        """Starts four clients that make transfers."""
        self.load = self.postgres.pgbench("-c", "4", "-R", str(self.rate), "-T", "3600", "-f", str(self._script))

    @property
    def _script(self) -> Path:
        return self.scratch / "transfer.sql"

    def end(self) -> None:
        """Stops the clients, and waits until Debezium has sent all their transfers."""
        if self.load is not None:
            self.load.terminate()
            self.load.wait()
        self.debezium.wait_until_streamed()

    def truth(self) -> int:
        """Returns the sum of all accounts' balances in PostgreSQL."""
        ((total,),) = self.postgres.sql("SELECT sum(abalance) FROM pgbench_accounts")
        return int(total)

    def close(self) -> None:
        """Stops PostgreSQL and Debezium."""
        if self.load is not None:
            self.load.terminate()
        self.debezium.kill()
        try:
            self.postgres.stop()
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)


@dataclass
class RowByRow:
    """A reader that applies each row at its arrival, and so sees parts of transfers."""

    servers: str
    balances: dict[str, dict[int, int]] = field(default_factory=lambda: {name: {} for name in SUMS})
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Reads rows until `over` is set."""
        settings = {"bootstrap.servers": self.servers, "group.id": "row-by-row", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "topic.metadata.refresh.interval.ms": 1000})  # topics may be created later
        consumer.subscribe([f"bank.public.pgbench_{name}" for name in SUMS])
        while not self.over.is_set():
            for message in consumer.consume(500, timeout=0.2):
                if message.error() is None and (value := message.value()):
                    self.take(str(message.topic()).rpartition("_")[2], json.loads(value)["after"])
        consumer.close()

    def take(self, name: str, row: dict[str, int]) -> None:
        """Applies a row to its table."""
        balances = self.balances[name]
        balances[row[KEYS[name]] if name in KEYS else len(balances)] = row[SUMS[name]]

    def sums(self) -> dict[str, int]:
        """Returns the current sum of each table."""
        return {name: sum(list(balances.values())) for name, balances in self.balances.items()}


def consistent_sums(folder: Path) -> tuple[dict[str, int], int, int] | None:
    """Returns the sums of zync's tables at the newest snapshot, its sync, and its number of transfers.

    None before the first snapshot.
    """
    snapshot = snapshots.newest(str(folder / "lake" / snapshots.FOLDER / snapshots.NAME))
    if snapshot is None:
        return None
    sums, count = {}, 0
    for name, column in SUMS.items():
        table = DeltaTable(folder / "lake" / snapshots.FOLDER / name, version=snapshot.versions[name])
        values = table.to_pyarrow_table(columns=[column])[column]
        sums[name], count = pc.sum(values).as_py() or 0, len(values)
    return sums, snapshot.sync, count


def play(folder: Path, source: str, seconds: float, say: Say) -> None:
    """Runs the bank in `folder`, and watches it for some seconds."""
    broker = DevKafka(folder.absolute() / ".zync" / "broker")
    say("Starting a real Kafka (the first time, its jars are fetched) ...")
    servers = broker.start()
    config = folder / "zync.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("localhost:9092", servers), encoding="utf-8")
    with ExitStack() as stack:
        stack.callback(broker.stop)
        bank: Bank = PostgresBank(folder, servers) if source == "postgres" else SimulatedBank(servers)
        stack.callback(bank.close)
        say(bank.says)
        bank.start()
        _watch(folder, servers, bank, seconds, say)


def _watch(folder: Path, servers: str, bank: Bank, seconds: float, say: Say) -> None:
    reader = RowByRow(servers)
    reader_thread = threading.Thread(target=reader.run, name="row-by-row", daemon=True)
    reader_thread.start()
    say("\n$ zync run --commit-every 500ms        (its log is run.log)")
    with (folder / "run.log").open("w", encoding="utf-8") as log:
        running = subprocess.Popen(  # noqa: S603 - zync itself
            [sys.executable, "-m", "zync.cli.part", "run", "--commit-every", "500ms"],  # ends with this process
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        say("Waiting for the first transfers in zync's tables (Spark starts) ...")
        _await(lambda _: True, running, folder)
        say("Sums of all accounts, tellers, branches and of history, which each transfer changes alike:\n")
        say(f"  {'rows as they arrive':44}   zync's tables, at the newest snapshot")
        deadline, looks, broken, shown_sync = time.monotonic() + seconds, 0, [0, 0], -1
        while time.monotonic() < deadline or looks < _LEAST_LOOKS:
            time.sleep(1)
            arrived, snapshot = reader.sums(), consistent_sums(folder)
            assert snapshot is not None  # noqa: S101 - there is always a newest snapshot after the first
            sums, sync, transfers = snapshot
            looks += 1
            for index, view in enumerate((arrived, sums)):
                broken[index] += len(set(view.values())) > 1
            if sync != shown_sync or looks % _LOOKS_PER_LINE == 0:
                shown_sync = sync
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
        reader_thread.join(10)


def _line(sums: dict[str, int]) -> str:
    verdict = "equal " if len(set(sums.values())) == 1 else "BROKEN"
    return " ".join(f"{total:9,}" for total in sums.values()) + " " + verdict


def _await(condition: Callable[[dict[str, int]], bool], running: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Waits until the sums of zync's tables fulfil `condition`, without a limit while new snapshots are taken.

    Raises:
        ZyncError: `zync run` has ended, or took no new snapshot for 180 s.
    """
    log, last_sync, since = folder / "run.log", -1, time.monotonic()
    while not ((snapshot := consistent_sums(folder)) and condition(snapshot[0])):
        if snapshot and snapshot[1] != last_sync:
            last_sync, since = snapshot[1], time.monotonic()
        code = running.poll()
        if code is not None or time.monotonic() > since + _SNAPSHOT_SECONDS:
            failure = (
                f"made no new snapshot in {_SNAPSHOT_SECONDS} s" if code is None else f"ended with exit code {code}"
            )
            last_lines = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
            msg = f"zync run {failure}; the last lines of {log}:\n{last_lines}"
            raise ZyncError(msg)
        time.sleep(0.2)
