"""kill -9 of sync at random moments, two at once, maintenance under it: each transaction is there once, and whole."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.conftest import BRISK, ZYNC, TopicMaker, start, zync
from tests.invariants import assert_staging_is_what_raw_says
from tests.kafka.conftest import wait_until
from tests.kafka.harms import Clock
from tests.model import Record

_KILLS = int(os.environ.get("ZYNC_TEST_KILLS", "6"))
_IN_TRANSACTION = 4

_CONFIG = """\
kafka: {{bootstrap.servers: "{broker}"}}
topics: {{{a}: {{id: "value:txn"}}, {b}: {{id: "value:txn"}}}}
transactions: {{done: "count(*) = max(value:n::int)"}}
outputs: [{{topic: out, sql: out.sql, key: [txn]}}]
"""
_RULE = "SELECT seqno, record_seqno AS _order, txn, value:x::int AS x FROM records"


def rule(_seqno: int, records: list[Record]) -> list[tuple[str, str, str]]:
    return [
        (
            "out",
            json.dumps({"txn": str(r.value["txn"])}, separators=(",", ":")),
            json.dumps({"txn": str(r.value["txn"]), "x": r.value["x"]}, separators=(",", ":")),
        )
        for r in records
    ]


def version(staging: Path) -> int:
    return max((int(path.stem) for path in (staging / "_delta_log").glob("*[0-9].json")), default=-1)


def whole(records: list[Record]) -> bool:
    return len(records) == _IN_TRANSACTION


@pytest.fixture
def folder(tmp_path: Path, broker: str, topic: TopicMaker) -> Path:
    a, b = topic("a", 2), topic("b", 2)
    (tmp_path / "zync.yaml").write_text(_CONFIG.format(broker=broker, a=a, b=b) + BRISK)
    (tmp_path / "out.sql").write_text(_RULE)
    (tmp_path / "topics").write_text(f"{a} {b}")
    return tmp_path


@pytest.fixture
def end_traffic(folder: Path, broker: str) -> Iterator[Callable[[], None]]:
    """Transactions of four records, spread over two topics of two partitions, many open at once, until it is called.

    Then all that were begun are whole in Kafka.
    """
    stop = threading.Event()
    topics = (folder / "topics").read_text().split()

    def send() -> None:
        producer, chance, number = Producer({"bootstrap.servers": broker, "linger.ms": 20}), random.Random(1), 0
        open_: list[tuple[int, int]] = []
        while not stop.is_set() or open_:
            while len(open_) < 40 and not stop.is_set():
                open_ += [(number, x) for x in range(_IN_TRANSACTION)]
                number += 1
            txn, x = open_.pop(chance.randrange(len(open_)))
            value = json.dumps({"txn": txn, "n": _IN_TRANSACTION, "x": x}).encode()
            producer.produce(chance.choice(topics), value, partition=chance.randrange(2))
            if chance.random() < 0.05:
                producer.poll(0)
                time.sleep(0.4)
        producer.flush(30)

    thread = threading.Thread(target=send)

    def end() -> None:
        stop.set()
        thread.join()

    thread.start()
    yield end
    end()


@pytest.mark.timeout(300 + 60 * _KILLS)
def test_a_sync_killed_at_any_moment_neither_loses_nor_repeats(folder: Path, end_traffic: Callable[[], None]) -> None:
    ingest = start("sync-from", "kafka", "raw", "--commit-every", "200ms", cwd=folder)
    chance = random.Random(7)
    for number in range(_KILLS):
        before = version(folder / "lake" / "staging")
        follow = start("sync", "raw", "staging", "--follow", cwd=folder)
        if number % 2:  # some time after its first commit: in any stage of the syncs that follow
            until = time.monotonic() + 90
            while version(folder / "lake" / "staging") <= max(before, 0) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 2))
        else:  # some time on the way to it
            time.sleep(chance.uniform(0.2, 9))
        follow.send_signal(signal.SIGKILL)
        follow.wait()
    killed_at = version(folder / "lake" / "staging")
    end_traffic()
    ingest.send_signal(signal.SIGTERM)
    assert ingest.wait(60) == 0
    zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=folder)
    done = json.loads(zync("sync", "raw", "staging", "--json", cwd=folder).stdout)
    topics = dict.fromkeys((folder / "topics").read_text().split(), 1)
    state = assert_staging_is_what_raw_says(folder / "lake", whole, rule, topics)
    assert not state.in_flight
    assert done["cursor"] == done["head"] == state.head
    assert len(state.done) > 100
    assert killed_at >= _KILLS // 2, "too few syncs got as far as a commit before they were killed"
    assert len(state.outputs) == _IN_TRANSACTION * len(state.done)
    zync("verify", "--kafka", cwd=folder)


def maintain(folder: Path, table: str, how: str, **options: Any) -> dict[str, Any]:
    """What `zync maintain`, a process of its own, says that it did."""
    done = subprocess.run(
        [*ZYNC, "maintain", table, how, "--json"], cwd=folder, capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """With sync-from and sync following, both processes of their own, that end as they are asked to."""
    both = [
        start("sync-from", "kafka", "raw", "--commit-every", "200ms", cwd=folder),
        start("sync", "raw", "staging", "--follow", cwd=folder),
    ]
    before = version(folder / "lake" / "staging")
    try:
        wait_until(lambda: version(folder / "lake" / "staging") > before + 2, 120)
        yield
    finally:
        for one in both:
            one.send_signal(signal.SIGTERM)
        ended = [one.wait(60) for one in both]
    assert ended == [0, 0]


@pytest.mark.timeout(600)
def test_tables_that_are_maintained_under_writers_and_readers_stay_whole(
    folder: Path, end_traffic: Callable[[], None]
) -> None:
    tables, clock = ("raw", "staging"), Clock(folder)
    with at_work(folder):
        pass
    clock.set(-8 * 24 * 3600)  # what is replaced now is old enough for vacuum, then
    for table in tables:
        assert maintain(folder, table, "--compact", env=clock.env)["compacted"] > 1
        for path in (folder / "lake" / table).rglob("*.parquet"):
            os.utime(path, (time.time() - 8 * 24 * 3600,) * 2)
    stop, counts = threading.Event(), {table: [0] for table in tables}

    def read() -> None:
        while not stop.is_set():
            for table in tables:
                done = subprocess.run([*ZYNC, "cat", table], cwd=folder, capture_output=True, check=False)
                assert done.returncode == 0, done.stderr
                counts[table].append(done.stdout.count(b"\n"))

    compacted = 0
    with ThreadPoolExecutor(1) as aside, at_work(folder):
        reading = aside.submit(read)
        try:
            assert all(maintain(folder, table, "--vacuum")["deleted"] > 1 for table in tables)
            while not reading.done() and (min(map(len, counts.values())) < 5 or not compacted):
                before = version(folder / "lake" / "staging")
                compacted += sum(maintain(folder, table, "--compact")["compacted"] for table in tables)
                wait_until(lambda before=before: version(folder / "lake" / "staging") > before + 1)
        finally:
            stop.set()
        reading.result()
    assert all(one == sorted(one) for one in counts.values()), counts
    end_traffic()
    zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=folder)
    zync("sync", "raw", "staging", cwd=folder)
    topics = dict.fromkeys((folder / "topics").read_text().split(), 1)
    assert not assert_staging_is_what_raw_says(folder / "lake", whole, rule, topics).in_flight
    zync("verify", "--kafka", cwd=folder)


def test_of_two_syncs_started_together_one_works_and_the_other_exits_3(
    folder: Path, end_traffic: Callable[[], None]
) -> None:
    time.sleep(1)
    end_traffic()
    zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=folder)
    both = [
        subprocess.Popen(
            [*ZYNC, "sync", "raw", "staging"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said: list[Any] = [one.communicate(timeout=120) for one in both]
    assert sorted(one.returncode for one in both) == [0, 3]
    loser = next(index for index, one in enumerate(both) if one.returncode == 3)
    assert "another zync is writing" in said[loser][1]
    assert said[loser][0] == ""
    topics = dict.fromkeys((folder / "topics").read_text().split(), 1)
    assert_staging_is_what_raw_says(folder / "lake", whole, rule, topics)
    assert (
        len([row for row in DeltaTable(str(folder / "lake" / "staging")).history() if row["operation"] == "WRITE"]) == 1
    )
