"""The proof: TPC-B on PostgreSQL, through Debezium, Kafka and `zync run`, into tables and on to Kafka.

Each process is killed with -9 in turn: zync's, the broker, Debezium; and PostgreSQL crashes (pg_ctl -m immediate). No
snapshot of the tables, and no prefix of what a read_committed consumer gets, is a bank whose sums differ; and at the
end all is as PostgreSQL has it.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import start, zync
from tests.deliver.conftest import committed
from tests.kafka.conftest import get, wait_until
from tests.kafka.harms import kill_and_start_again
from zync.demo.bank import KEYS, SUMS, PostgresBank, consistent_sums
from zync.devkafka import DevKafka, free_port
from zync.ingest.raw import next_seqno
from zync.lake import existing_table
from zync.places import data_folder

PARTS = ("sync-from kafka", "sync raw", "sync-to kafka", "sync-to tables")
RATE = 30
"""Transfers a second: of more, many pile up on a busy machine while the processes are away."""
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


@pytest.mark.timeout(1800)
def test_no_reader_ever_sees_a_broken_bank(folder: Path, kafka: DevKafka) -> None:
    broker, port = str(kafka.servers()), free_port()
    bank = PostgresBank(folder, broker, RATE)

    def run() -> "subprocess.Popen[str]":
        return start("run", "--commit-every", "500ms", "--metrics", f"localhost:{port}", cwd=folder)

    def transfers() -> int:
        found = consistent_sums(folder)
        return found[2] if found else 0

    def head() -> int:
        return next_seqno(existing_table(str(folder / "lake" / "raw"), ""))

    running = run()
    try:
        bank.start()
        wait_until(lambda: transfers() > 0, 400)
        for words in PARTS:
            killed = part(running, words)
            assert killed
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda words=words, killed=killed: part(running, words) not in (None, killed))
            time.sleep(2)
        wait_until(lambda: get(port, "/readyz")[0] == 200, 120)
        restarts = [line for line in get(port, "/metrics")[1].splitlines() if "zync_run_restarts_total{" in line]
        assert sorted(line.split()[-1] for line in restarts) == ["1.0"] * 4
        kill_and_start_again(kafka)
        back = head()
        wait_until(lambda: head() > back + 1000, 120)  # the same sync-from goes on, beyond what it had in hand
        before = transfers()
        crash(bank)
        running.kill()
        running.wait()
        running = run()  # whose sync waits for the other's to be gone
        wait_until(lambda: transfers() > before, 400)
        bank.end()
        truth = bank.truth()
        wait_until(lambda: set((consistent_sums(folder) or ({},))[0].values()) == {truth}, 400)
        running.send_signal(signal.SIGINT)
        assert running.wait(120) == 0
        assert_no_snapshot_is_broken(folder)
        assert_no_prefix_is_broken(broker)
        assert_as_postgres_has_it(folder, bank)
    finally:
        running.terminate()
        bank.close()
        running.wait(120)
    zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=folder)
    zync("verify", cwd=folder)


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


def assert_no_prefix_is_broken(broker: str) -> None:
    """What is committed in Kafka: the snapshot's rows, and then a transaction of the source after the other."""
    seen = committed(broker, *SUMS)
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


def assert_as_postgres_has_it(folder: Path, bank: PostgresBank) -> None:
    newest = snapshots(folder)[-1]
    for name, columns in COLUMNS.items():
        there = bank.postgres.sql(f"SELECT {', '.join(columns)} FROM pgbench_{name}")
        ours = [[str(row[column]) for column in columns] for row in delivered(folder, name, newest[name])]
        assert sorted(ours) == sorted(there), name
