"""The proof: TPC-B on PostgreSQL, through Debezium, Kafka and `zync run`, into tables and on to Kafka.

Each process is killed with -9 in turn, while it is at work: zync's, the broker, Debezium; and PostgreSQL crashes
(pg_ctl -m immediate). No snapshot of the tables is a bank whose sums differ, nor is what is in Kafka after any of the
source's transactions, of which each is in one of Kafka's; and at the end tables and Kafka are as PostgreSQL has it, row
by row.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from tests.conftest import start, zync
from tests.deliver.conftest import Seen, committed
from tests.kafka.conftest import get, wait_until
from tests.kafka.harms import kill_and_start_again
from zync.config.model import PROGRESS_TOPIC
from zync.demo.bank import KEYS, SUMS, PostgresBank, consistent_sums
from zync.kafka.dev_broker import DevKafka, free_port
from zync.lake.table import existing_table
from zync.raw.table import next_seqno
from zync.resources import data_folder

PARTS = ("sync-from kafka", "sync raw", "sync-to kafka", "sync-to tables")
RATE = 10
"""Transfers a second: of more, the processors are busy with what piles up while a process is away, and those that start
take minutes (of 30 a second the first snapshot took 150 s, and the next one 104 s, on a machine that others use, too).
"""
PATIENCE = 400
"""Seconds for what a part does next: zync run gives the tables a third of the processor time of others beside them."""
COLUMNS = {
    "accounts": ["aid", "bid", "abalance"],
    "tellers": ["tid", "bid", "tbalance"],
    "branches": ["bid", "bbalance"],
    "history": ["tid", "bid", "aid", "delta"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "bank"
    shutil.copytree(data_folder("demo") / "bank", made)
    return made


@pytest.fixture
def kafka(folder: Path) -> Iterator[DevKafka]:
    one = DevKafka(folder / ".zync" / "broker")
    servers = one.start()
    (folder / "zync.yaml").write_text((folder / "zync.yaml").read_text().replace("localhost:9092", servers))
    yield one
    one.stop()


def part(run: "subprocess.Popen[str]", words: str) -> int | None:
    """The process of that part, if there is one now."""
    found = subprocess.run(["pgrep", "-P", str(run.pid), "-f", words], capture_output=True, text=True, check=False)
    return int(found.stdout.split()[0]) if found.stdout else None


def kill(run: "subprocess.Popen[str]", words: str) -> None:
    """Kills the process of that part with -9, and returns when there is another."""
    killed = part(run, words)
    assert killed
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: part(run, words) not in (None, killed))


@pytest.mark.timeout(1800)
def test_no_reader_ever_sees_a_broken_bank(folder: Path, kafka: DevKafka) -> None:
    broker, port = str(kafka.servers()), free_port()
    bank = PostgresBank(folder, broker, RATE)

    def run() -> "subprocess.Popen[str]":
        return start("run", "--commit-every", "10s", "--metrics", f"localhost:{port}", cwd=folder)

    def transfers() -> int:
        found = consistent_sums(folder)
        return found[2] if found else 0

    def head() -> int:
        return next_seqno(existing_table(str(folder / "lake" / "raw"), ""))

    running = run()
    try:
        bank.start()
        wait_until(lambda: transfers() > 0, PATIENCE)
        done = {
            "sync-from kafka": head,
            "sync raw": lambda: DeltaTable(folder / "lake" / "staging").version(),
            "sync-to kafka": lambda: len(committed(broker, PROGRESS_TOPIC)),
            "sync-to tables": lambda: len(snapshots(folder)),
        }
        # The first of the tables that a delivery commits: who is killed then has delivered some and not all of them.
        at_work = {**done, "sync-to tables": lambda: DeltaTable(folder / "lake" / "tables" / "accounts").version()}
        reached = {}
        for words in reversed(PARTS):  # those whose Sparks start do so beside each other
            assert_at_work(at_work[words])
            kill(running, words)
            reached[words] = done[words]()

        def goes_on(words: str) -> None:
            wait_until(lambda: done[words]() > reached[words], PATIENCE)

        for words in PARTS[:-1]:
            goes_on(words)
        restarts = [line for line in get(port, "/metrics")[1].splitlines() if "zync_run_restarts_total{" in line]
        assert sorted(line.split()[-1] for line in restarts) == ["1.0"] * 4
        kill_and_start_again(kafka)  # of which the part whose Spark may still start knows nothing
        back = head()
        wait_until(lambda: head() > back + 300, 120)  # the same sync-from goes on, beyond what it had in hand
        goes_on(PARTS[-1])
        wait_until(lambda: get(port, "/readyz")[0] == 200, 120)
        crash(bank)
        running.kill()
        running.wait()
        before = head()
        running = run()  # whose sync waits for the other's to be gone
        wait_until(lambda: head() > before, PATIENCE)
        bank.end()
        truth = bank.truth()
        wait_until(lambda: set((consistent_sums(folder) or ({},))[0].values()) == {truth}, PATIENCE)
        running.send_signal(signal.SIGINT)
        assert running.wait(120) == 0
        zync("sync-to", "kafka", "staging", "--until-caught-up", cwd=folder)
        assert_no_snapshot_is_broken(folder)
        seen = committed(broker, *SUMS)
        assert_no_prefix_is_broken(list(seen))
        assert_none_is_in_two_transactions_of_kafka(folder, seen, committed(broker, PROGRESS_TOPIC))
        assert_as_postgres_has_it(folder, seen, bank)
    finally:
        running.terminate()
        bank.close()
        running.wait(120)
    zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=folder)
    zync("verify", cwd=folder)


def assert_at_work(done: Callable[[], int]) -> None:
    """Returns in the middle of what it does, a moment after something of it was done."""
    before = done()
    wait_until(lambda: done() > before, PATIENCE)
    time.sleep(random.uniform(0, 0.5))


def crash(bank: PostgresBank) -> None:
    """The bank and its connector end in the middle of what they do, and are started again."""
    bank.debezium.kill()
    bank.postgres.stop()
    assert bank.load
    assert bank.load.wait(60)  # its clients lost their connections
    bank.postgres.start()
    bank.debezium.start()
    bank.transfer()


def delivered(folder: Path, name: str, version: int) -> list[dict[str, Any]]:
    table = DeltaTable(folder / "lake" / "tables" / name, version=version)
    return table.to_pyarrow_table(columns=COLUMNS[name]).to_pylist()


def snapshots(folder: Path) -> list[dict[str, int]]:
    """Of each snapshot the tables' versions."""
    found = DeltaTable(folder / "lake" / "tables" / "_snapshots").to_pyarrow_table().to_pylist()
    return [dict(one["versions"]) for one in sorted(found, key=lambda one: one["sync"])]


def assert_no_snapshot_is_broken(folder: Path) -> None:
    found = snapshots(folder)
    sums = [
        {sum(row[column] for row in delivered(folder, name, versions[name])) for name, column in SUMS.items()}
        for versions in found
    ]
    assert all(len(one) == 1 for one in sums), sums
    assert len(set(map(str, sums))) >= 4  # it was looked at while it moved


def assert_no_prefix_is_broken(seen: list[Seen]) -> None:
    """What is committed in Kafka: the snapshot's rows, and then a transaction of the source after the other."""
    lanes: dict[Any, list[bool]] = defaultdict(list)
    for one in seen:
        lanes[one.topic, one.partition, one.key].append("zync.txn" in one.headers)
    assert all(lane == sorted(lane) for lane in lanes.values())  # of each key the snapshot's row comes first
    assert not [one for one, count in Counter((one.topic, one.seqno) for one in seen).items() if count > 1]
    seen.sort(key=lambda one: ("zync.txn" in one.headers, one.seqno))
    balances: dict[str, dict[Any, int]] = {name: {} for name in SUMS}
    sums = dict.fromkeys(SUMS, 0)
    for index, one in enumerate(seen):
        row = json.loads(one.value or b"{}")
        of, key, value = balances[one.topic], row[KEYS[one.topic]] if one.topic in KEYS else index, row[SUMS[one.topic]]
        sums[one.topic] += value - of.get(key, 0)
        of[key] = value
        if index + 1 == len(seen) or seen[index + 1].seqno != one.seqno:
            assert len(set(sums.values())) == 1, (one.seqno, sums)


def assert_none_is_in_two_transactions_of_kafka(folder: Path, seen: list[Seen], progress: list[Seen]) -> None:
    """In each of Kafka's is what comes after the progress of the one before, up to its own, and all of it.

    Where one ends its partitions have a marker, which takes an offset.
    """
    staging = DeltaTable(folder / "lake" / "staging").to_pyarrow_table(columns=["kind", "sync", "head", "seqno"])
    rows = staging.filter(pc.equal(staging["kind"], "output")).to_pylist()
    places = {row["seqno"]: (row["sync"], row["head"] or row["seqno"], row["seqno"]) for row in rows}
    said = [json.loads(one.value or b"") for one in progress]
    upto = [(one["sync"], one["turn"], one["seqno"]) for one in said]
    assert upto == sorted(upto)
    by_partition: dict[Any, list[Seen]] = defaultdict(list)
    for one in seen:
        by_partition[one.topic, one.partition].append(one)
    for partition, mine in by_partition.items():
        numbers = [bisect_left(upto, places[one.seqno]) for one in mine]
        for before, after, number, following in zip(mine, mine[1:], numbers, numbers[1:], strict=False):
            assert (following > number) == (after.offset > before.offset + 1), (partition, before.offset)


def assert_as_postgres_has_it(folder: Path, seen: list[Seen], bank: PostgresBank) -> None:
    newest = snapshots(folder)[-1]
    for name, columns in COLUMNS.items():
        there = sorted(bank.postgres.sql(f"SELECT {', '.join(columns)} FROM pgbench_{name}"))
        sent = {one.key or index: json.loads(one.value or b"") for index, one in enumerate(seen) if one.topic == name}
        for rows in (delivered(folder, name, newest[name]), sent.values()):
            assert sorted([str(row[column]) for column in columns] for row in rows) == there, name
