"""What disks and brokers do to a running sync-from: nothing is lost, nothing is there twice, and `verify` agrees."""

import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import ZYNC, TopicMaker, produce, start, zync
from tests.kafka.conftest import Lake, batch, figures, get, wait_until
from tests.kafka.harms import MB, Clock, disk, frozen, full, kill_and_start_again, paused, read_only
from zync.errors import ZyncError
from zync.ingest import group
from zync.ingest.consume import Ingest, sync_from_kafka
from zync.ingest.metrics import IngestMetrics
from zync.kafka import admin
from zync.kafka.admin import Brokers
from zync.kafka.dev_broker import DevKafka, free_port
from zync.kafka.partition import Source
from zync.metrics.server import serving
from zync.raw.append import Appender
from zync.raw.table import stored_position


@pytest.fixture
def small(tmp_path: Path, broker: str) -> Iterator[Lake]:
    """A lake on a small disk of its own."""
    yield from on_a_disk(tmp_path, broker, 100 * MB)


@pytest.fixture
def roomy(tmp_path: Path, broker: str) -> Iterator[Lake]:
    """A lake on a disk of its own that has room for what `stall` sends in large messages."""
    yield from on_a_disk(tmp_path, broker, 800 * MB)


def on_a_disk(tmp_path: Path, broker: str, size: int) -> Iterator[Lake]:
    with ExitStack() as mounted:
        try:
            mounted.enter_context(disk(tmp_path / "lake", size))
        except OSError as error:
            pytest.skip(f"no disk can be mounted here: {error}")
        yield Lake(tmp_path, broker)


def stall(lake: Lake, name: str, port: int | None = None, size: int = 900_000) -> None:
    """Lets the disk stand still for twelve seconds, in which 60 records come that are more than may be in hand.

    `port`: of metrics, which say so meanwhile.
    """
    with frozen(lake.folder / "lake"):
        for _ in range(12):
            produce(lake.broker, [(name, 0, value) for value in random(5, size)], **{"message.max.bytes": 6 * MB})
            time.sleep(1)
        if port:
            wait_until(lambda: figures(port)["zync_ingest_lag_offsets", name, "0"] == 60)


def begin(lake: Lake, name: str, *args: str) -> "subprocess.Popen[str]":
    return start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", *args, cwd=lake.folder)


def end(lake: Lake, running: "subprocess.Popen[str]") -> str:
    """Stops it, and returns what it said."""
    running.send_signal(signal.SIGTERM)
    try:
        assert running.wait(60) == 0, said(lake)
    finally:
        running.kill()
    return said(lake)


def said(lake: Lake) -> str:
    return "".join(log.read_text() for log in lake.folder.glob("sync-from-*.log"))


def assert_whole(lake: Lake, name: str, count: int) -> None:
    """Each record is in raw once, in order, and `verify` finds nothing."""
    assert lake.offsets(name) == list(range(count))
    zync("verify", "raw", cwd=lake.folder)


def most_memory(pid: int) -> int:
    """The bytes that the process has had at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return max((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), default=0)


def random(count: int, size: int) -> list[bytes]:
    return [os.urandom(size) for _ in range(count)]


def test_memory_stays_near_what_is_asked_for_whatever_the_messages_size(lake: Lake, topic: TopicMaker) -> None:
    name, most = topic(max_message_bytes=str(6 * MB)), 300 * MB
    for value in random(60, 5 * MB):
        produce(lake.broker, [(name, 0, value)], **{"message.max.bytes": 6 * MB})
    lake.config()
    running, peak = begin(lake, name, "--until-caught-up", "--max-memory", "300MB"), 0
    while running.poll() is None:
        peak = max(peak, most_memory(running.pid))
        time.sleep(0.02)
    assert running.returncode == 0, said(lake)
    assert 100 * MB < peak < 1.2 * most
    assert_whole(lake, name, 60)


def test_while_the_disk_stalls_nothing_more_is_read_and_the_group_is_kept(small: Lake, topic: TopicMaker) -> None:
    """Longer than Kafka waits for the next poll of a consumer."""
    name = topic()
    small.config(max_poll_interval_ms=6000, session_timeout_ms=6000)
    produce(small.broker, [(name, 0, value) for value in random(10, 1000)])
    port = free_port()
    running = begin(small, name, "--max-memory", "300MB", "--json", "--metrics", f"localhost:{port}")
    try:
        wait_until(lambda: small.count() == 10)
        stall(small, name, port)
        wait_until(lambda: small.count() == 70)
        assert most_memory(running.pid) < 1.2 * 300 * MB
    finally:
        lines = end(small, running).splitlines()
    assert {line[:9] for line in lines if line.startswith("zync: ")} == {"zync: now", "zync: raw", "zync: a c"}, lines
    assert json.loads(lines[-1])["rebalances"] <= 2  # the first, and that it leaves
    committed = [int(line.split()[1]) for line in lines if line.startswith("committed")]
    assert max(committed) <= 25, committed  # of 60 that came meanwhile, in a commit a dozen
    assert_whole(small, name, 70)


def test_while_the_disk_stalls_memory_stays_near_what_is_asked_for(roomy: Lake, topic: TopicMaker) -> None:
    """Of messages that together are more than that."""
    name, most = topic(max_message_bytes=str(6 * MB)), 300 * MB
    roomy.config(max_poll_interval_ms=6000, session_timeout_ms=6000)
    produce(roomy.broker, [(name, 0, b"first")])
    running = begin(roomy, name, "--max-memory", "300MB")
    try:
        wait_until(lambda: roomy.count() == 1)
        stall(roomy, name, size=5 * MB)
        wait_until(lambda: roomy.count() == 61)
        assert 100 * MB < most_memory(running.pid) < 1.2 * most
    finally:
        end(roomy, running)
    assert_whole(roomy, name, 61)


def test_while_the_disk_stalls_partitions_may_go_and_come_back(small: Lake, topic: TopicMaker) -> None:
    """The group is not kept waiting for a commit, and keeps who waits for it."""
    name = topic(partitions=2)
    small.config(max_poll_interval_ms=6000, session_timeout_ms=6000)
    produce(small.broker, [(name, number % 2, b"%d" % number) for number in range(10)])
    running = begin(small, name)
    try:
        wait_until(lambda: small.count() == 10)
        with frozen(small.folder / "lake"):
            produce(small.broker, [(name, number % 2, b"%d" % number) for number in range(10, 20)])
            other = Consumer(
                {
                    "bootstrap.servers": small.broker,
                    "group.id": f"zync-{small.table().metadata().id}",
                    "partition.assignment.strategy": "cooperative-sticky",
                }
            )
            other.subscribe([name])
            wait_until(lambda: other.poll(0.1) or other.assignment())
            other.close()
            time.sleep(8)
        wait_until(lambda: small.count() == 20)
    finally:
        lines = end(small, running).splitlines()
    text = "\n".join(lines)
    assert f"now read by others: {name}/" in text
    assert f"now read here: {name}/" in text
    assert "maximum poll interval" not in text
    assert "lost" not in text
    assert (small.offsets(name), small.offsets(name, 1)) == ([*range(10)], [*range(10)])
    zync("verify", "raw", cwd=small.folder)


def test_while_the_disk_stalls_it_is_not_ready(small: Lake, topic: TopicMaker) -> None:
    name, stop, metrics = topic(), threading.Event(), IngestMetrics(stuck_after=2)
    ingest = Ingest(small.raw, {"bootstrap.servers": small.broker}, (name,), commit_every=timedelta(milliseconds=50))
    running = threading.Thread(target=sync_from_kafka, args=(ingest, stop), kwargs={"metrics": metrics})
    with serving("localhost:0", metrics) as port:
        running.start()
        try:
            wait_until(lambda: get(port, "/readyz")[0] == 200)
            with frozen(small.folder / "lake"):
                produce(small.broker, [(name, 0, b"1")])
                wait_until(lambda: get(port, "/readyz")[0] == 503)
                assert get(port, "/healthz")[0] == 200
            wait_until(lambda: get(port, "/readyz")[0] == 200)
            wait_until(lambda: small.count() == 1)
        finally:
            stop.set()
            running.join()


def test_what_was_lost_to_the_group_while_the_disk_stalled_is_read_once_it_is_back(
    small: Lake, topic: TopicMaker
) -> None:
    """Its log is on that disk, too, so not even the group hears of it."""
    name = topic()
    small.config(max_poll_interval_ms=6000, session_timeout_ms=6000)
    produce(small.broker, [(name, 0, value) for value in random(10, 1000)])
    with (small.folder / "lake" / "log").open("w") as log:
        args = [*ZYNC, "sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", "--max-memory", "300MB"]
        running = subprocess.Popen(args, cwd=small.folder, stdout=log, stderr=log)
    try:
        wait_until(lambda: small.count() == 10)
        stall(small, name)
        wait_until(lambda: small.count() == 70)
    finally:
        running.terminate()
        assert running.wait(60) == 0
    assert "maximum poll interval" in (small.folder / "lake" / "log").read_text()
    assert_whole(small, name, 70)


def test_a_full_disk_ends_it_with_a_message_and_with_room_again_it_goes_on(small: Lake, topic: TopicMaker) -> None:
    name = topic()
    small.config()
    produce(small.broker, [(name, 0, value) for value in random(10, 1000)])
    running = begin(small, name)
    try:
        wait_until(lambda: small.count() == 10)
        with full(small.folder / "lake"):
            produce(small.broker, [(name, 0, value) for value in random(100, 10_000)])
            assert running.wait(60) == 1
    finally:
        running.kill()
    begun, line = [line for line in said(small).splitlines() if line.startswith("zync: ")]
    assert begun == f"zync: now read here: {name}/0"
    assert "cannot be written" in line
    assert "No space left" in line
    zync("verify", "raw", cwd=small.folder)
    zync("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", cwd=small.folder)
    assert_whole(small, name, 110)


def test_at_whatever_a_commit_runs_out_of_room_the_message_says_so_and_nothing_is_there_twice(small: Lake) -> None:
    """The rows, the log's entry, or neither: each has a message of its own."""
    small.table()
    source, landed, said = Source("t", 0), 0, set[str]()
    for blocks in range(8):
        with full(small.folder / "lake", 4096 * blocks):
            for _ in range(3):
                try:
                    begin = stored_position(small.table(), source)
                    landed += Appender(small.raw).append(batch((source, begin, (begin or 0) + 200))).rows
                except ZyncError as error:
                    said.add(str(error))
    assert small.offsets("t") == [*range(landed)]
    assert landed
    assert len(said) > 1
    for one in said:
        assert one.startswith(f"raw at {small.raw} cannot be written: ")
        assert one.endswith("No space left on device (os error 28)")


def test_a_lake_that_may_not_be_written_to_ends_it_with_a_message(small: Lake, topic: TopicMaker) -> None:
    name = topic()
    small.config()
    produce(small.broker, [(name, 0, b"1")])
    process = start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", cwd=small.folder)
    try:
        wait_until(lambda: small.count() == 1)
        with read_only(small.folder / "lake"):
            produce(small.broker, [(name, 0, b"2")])
            assert process.wait(30) == 1
    finally:
        process.kill()
    (log,) = small.folder.glob("sync-from-*.log")
    line = log.read_text().splitlines()[-1]
    assert line.startswith(f"zync: raw at {small.raw} cannot be written: ")
    assert "Read-only file system" in line
    zync("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", cwd=small.folder)
    assert_whole(small, name, 2)


def test_a_full_disk_stops_a_sync_which_sets_nothing_aside_and_with_room_again_goes_on(small: Lake) -> None:
    """And its files are as the umask says, as those of `load` are."""
    (small.folder / "zync.yaml").write_text(
        'topics: {t: {id: "value:txn"}}\ntransactions: {done: "count(*) = 1"}\noutputs: [{topic: out, sql: out.sql}]\n'
    )
    (small.folder / "out.sql").write_text("SELECT seqno, value:txn::int AS txn FROM t")
    lines = [json.dumps({"topic": "t", "value": {"txn": n}}) for n in range(3)]
    zync("load", "raw", "-", cwd=small.folder, input="\n".join(lines), umask=0o027)
    with full(small.folder / "lake"):
        done = zync("sync", "raw", "staging", cwd=small.folder, check=False, umask=0o027)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "No space left" in line
    done = zync("sync", "raw", "staging", "--json", cwd=small.folder, umask=0o027)
    assert (json.loads(done.stdout)["transactions"], json.loads(done.stdout)["set_aside"]) == (3, {})
    zync("verify", cwd=small.folder)
    tables = [small.folder / "lake" / one for one in ("raw", "staging")]
    modes = {path.stat().st_mode & 0o777 for table in tables for path in table.rglob("*") if path.is_file()}
    assert modes == {0o640}


@pytest.mark.parametrize("harm", ["killed", "paused"])
def test_a_broker_that_is_harmed_while_records_come_costs_time_only(tmp_path: Path, harm: str) -> None:
    """Killed -9 and back; or paused for longer than the group's session."""
    kafka = DevKafka(tmp_path / "broker")
    lake = Lake(tmp_path, kafka.start())
    running: Any = None
    try:
        admin = AdminClient({"bootstrap.servers": lake.broker})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(20)
        lake.config(session_timeout_ms=6000)
        produced = threading.Thread(target=produce_slowly, args=(lake.broker,))
        produced.start()
        running = begin(lake, "t", "--topic", "t")
        wait_until(lambda: lake.count() > 100)
        if harm == "killed":
            kill_and_start_again(kafka)
        else:
            with paused(kafka.pid()):
                time.sleep(30)
        produced.join()
        wait_until(lambda: lake.count() >= 1000, 180)
        end(lake, running)
        zync("sync-from", "kafka", "raw", "--topic", "t", "--until-caught-up", cwd=lake.folder)
    finally:
        if running:
            running.kill()
        kafka.stop()
    values = [json.loads(value or b"") for value in lake.values()]
    assert sorted(values) == list(range(1000))
    for partition in (0, 1):
        mine = lake.offsets("t", partition)
        assert mine == list(range(len(mine)))
    zync("verify", "raw", cwd=lake.folder)


def test_a_consumer_that_knows_no_broker_any_more_is_replaced(
    lake: Lake, topic: TopicMaker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As librdkafka may forget it for good, when it asks while the only one comes back: at times in the test above."""
    name, made = topic(), []

    class DeafAtFirst(Consumer):
        def __init__(self, settings: dict[str, Any], **options: Any) -> None:
            made.append(self)
            deaf = {"bootstrap.servers": f"localhost:{free_port()}"} if len(made) == 1 else {}
            super().__init__({**settings, **deaf}, **options)

    monkeypatch.setattr(group, "Consumer", DeafAtFirst)
    monkeypatch.setattr(group, "_WITHOUT_SECONDS", 0.5)
    monkeypatch.setattr(group, "_ANSWER_SECONDS", 0.5)
    produce(lake.broker, [(name, 0, b"1")])
    with caplog.at_level(logging.INFO, "zync"):
        assert lake.sync_from(name).records == 1
    assert len(made) == 2
    assert "connecting anew" in caplog.text


def test_questions_that_nobody_answers_are_asked_anew_on_another_connection(
    lake: Lake, topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    brokers = Brokers({"bootstrap.servers": lake.broker})

    def deaf() -> AdminClient:
        return AdminClient({"bootstrap.servers": f"localhost:{free_port()}", "log_level": 0})

    with monkeypatch.context() as hasty:
        hasty.setattr(admin, "_TIMEOUT", 1.0)
        brokers.admin = deaf()
        assert brokers.topic_ids([name], patience=20)
        brokers.admin = deaf()
        threading.Timer(0.3, brokers.begin_anew).start()  # as by another thread, which asked something, too
        assert brokers.topic_ids([name], patience=20)
    for ask in (brokers.topics, brokers.cluster, lambda: brokers.bounds([Source(name, 0)])):
        brokers.admin = deaf()
        with monkeypatch.context() as hasty:
            hasty.setattr(admin, "_TIMEOUT", 1.0)
            with pytest.raises(ZyncError, match="answer"):
                ask()
        assert ask()


def produce_slowly(servers: str) -> None:
    """1,000 records in five seconds, each once, whatever becomes of the broker."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for number in range(1000):
        producer.produce("t", str(number), partition=number % 2)
        producer.poll(0.005)
    assert producer.flush(60) == 0


def test_a_clock_that_is_set_back_under_a_writer_and_before_the_next_costs_nothing(
    lake: Lake, topic: TopicMaker
) -> None:
    """By ten minutes, and ten more; `ingested` stands still till the clock is there again."""
    name, clock = topic(), Clock(lake.folder)
    lake.config()
    words = ["sync-from", "kafka", "raw", "--topic", name]

    def more() -> None:
        produce(lake.broker, [(name, 0, b"%d" % number) for number in range(10)])

    running = start(*words, "--commit-every", "50ms", cwd=lake.folder, env=clock.env)
    try:
        for number, seconds in enumerate((0, -600), 1):
            clock.set(seconds)
            more()
            wait_until(lambda number=number: lake.count() == 10 * number)
    finally:
        end(lake, running)
    for seconds in (-1200, 600):
        clock.set(seconds)
        more()
        zync(*words, "--until-caught-up", cwd=lake.folder, env=clock.env)
    assert_whole(lake, name, 40)
    stamps = [row["ingested"] for row in lake.rows()]
    assert len(set(stamps[:30])) < len(set(stamps))
    assert stamps[29] - stamps[0] < timedelta(minutes=1)
    assert stamps[30] - stamps[29] > timedelta(minutes=9)


def test_a_log_entry_that_was_cut_off_is_refused_and_nothing_is_written(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    lake.config()
    produce(lake.broker, [(name, 0, b"1")])
    args = ("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up")
    zync(*args, cwd=lake.folder)
    entry = Path(lake.raw) / "_delta_log" / f"{1:020}.json"
    whole = entry.read_bytes()
    for cut in (len(whole) // 2, 0):
        entry.write_bytes(whole[:cut])
        before = sorted(Path(lake.raw).rglob("*"))
        for command in (args, ("verify", "raw"), ("status",), ("cat", "raw")):
            done = zync(*command, cwd=lake.folder, check=False)
            assert done.returncode == 1, (command, cut, done.stdout, done.stderr)
            (line,) = done.stderr.splitlines()
            assert line.startswith("zync: ")
            assert "lake/raw" in line
        assert sorted(Path(lake.raw).rglob("*")) == before
    lines = whole.splitlines(keepends=True)
    for cut in range(1, len(lines)):  # at the end of a line
        entry.write_bytes(b"".join(lines[:cut]))
        before = sorted(Path(lake.raw).rglob("*"))
        done = zync(*args, cwd=lake.folder, check=False)
        assert (done.returncode, "was cut off" in done.stderr) == (1, True), done.stderr
        assert sorted(Path(lake.raw).rglob("*")) == before
    entry.write_bytes(whole)
    produce(lake.broker, [(name, 0, b"2")])
    zync(*args, cwd=lake.folder)
    assert_whole(lake, name, 2)
