"""Every record is in raw exactly once, whatever happens to the processes that bring it there."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient

from tests.conftest import TopicMaker, produce, start, zync
from tests.kafka.conftest import Lake, get, records, value, wait_until
from zync.ingest import group
from zync.ingest.consume import Ingest, sync_from_kafka
from zync.kafka.dev_broker import free_port
from zync.kafka.partition import Partition
from zync.raw.append import Appended, Appender
from zync.raw.batch import Batch, Slice
from zync.raw.table import stored_id, stored_position


@contextmanager
def producing(broker: str, topic: str, partitions: int) -> Iterator[list[bytes]]:
    """Sends records, each with a value of its own, round the partitions until the block ends; yields what was sent."""
    sent: list[bytes] = []
    stop = threading.Event()

    def send() -> None:
        producer = Producer({"bootstrap.servers": broker, "linger.ms": 5})
        while not stop.wait(0.01):
            for _ in range(8):
                sent.append(b"%d" % len(sent))
                producer.produce(topic, sent[-1], partition=len(sent) % partitions)
            producer.poll(0)
        assert producer.flush(30) == 0

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


def more_arrives(lake: Lake, topic: str, partitions: int) -> None:
    """Waits until there is more in raw of each partition."""
    before = lake.positions().next
    read = [Partition(topic, number) for number in range(partitions)]
    wait_until(lambda: all(lake.positions().next.get(one, 0) > before.get(one, 0) for one in read))


def assert_each_landed_once(lake: Lake, topic: str, sent: list[bytes]) -> None:
    """Once what the others left is taken."""
    zync("sync-from", "kafka", "raw", "--topic", topic, "--until-caught-up", cwd=lake.folder)
    assert Counter(lake.values()) == Counter(sent)
    zync("verify", "raw", "--kafka", cwd=lake.folder)


def test_processes_that_join_die_and_come_back_as_zombies_lose_and_double_nothing(
    lake: Lake, topic: TopicMaker
) -> None:
    name = topic(partitions=4)
    lake.config(session_timeout_ms=6000, heartbeat_interval_ms=1000)
    admin = AdminClient({"bootstrap.servers": lake.broker})
    running: list[subprocess.Popen[str]] = []

    def sync_from(every: str) -> "subprocess.Popen[str]":
        running.append(start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", every, cwd=lake.folder))
        return running[-1]

    def members() -> int:
        group = f"zync-{lake.table().metadata().id}"
        described = admin.describe_consumer_groups([group])[group].result(20)
        return len([one for one in described.members if one.assignment.topic_partitions])

    try:
        with producing(lake.broker, name, 4) as sent:
            first, second = sync_from("100ms"), sync_from("300ms")
            wait_until(lambda: lake.count() and members() == 2)
            more_arrives(lake, name, 4)
            sync_from("100ms")
            wait_until(lambda: members() == 3)
            more_arrives(lake, name, 4)
            first.kill()
            first.wait()
            sync_from("100ms")
            more_arrives(lake, name, 4)
            wait_until(lambda: members() == 3)
            second.send_signal(signal.SIGSTOP)
            more_arrives(lake, name, 4)  # its partitions too: others took them over
            second.send_signal(signal.SIGCONT)
            wait_until(lambda: members() == 3)
            more_arrives(lake, name, 4)
        for process in running[1:]:
            process.terminate()
        assert [process.wait(30) for process in running[1:]] == [0, 0, 0]
    finally:
        for process in running:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
    assert_each_landed_once(lake, name, sent)


def test_two_processes_that_both_have_all_partitions_lose_and_double_nothing(lake: Lake, topic: TopicMaker) -> None:
    """Which no group would give them: whoever comes second with a record is refused, and goes on behind it."""
    name = topic(partitions=2)
    lake.config()
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "alone")}
    args = ("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "20ms", "--log-format", "json")
    running: list[subprocess.Popen[str]] = []
    try:
        with producing(lake.broker, name, 2) as sent:
            running += [start(*args, cwd=lake.folder, env=env) for _ in range(2)]
            for other in [*running, *running]:
                wait_until(lambda: lake.count() > 0)
                other.send_signal(signal.SIGSTOP)
                more_arrives(lake, name, 2)  # so it is late with both
                other.send_signal(signal.SIGCONT)
                time.sleep(1)
        for process in running:
            process.terminate()
        assert [process.wait(30) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    assert_each_landed_once(lake, name, sent)
    for log in lake.folder.glob("sync-from-*.log"):
        said = log.read_text()
        assert '"event":"commit"' in said
        assert f"{name}/0: another process moved it to" in said
        assert f"{name}/1: another process moved it to" in said


def test_a_rolling_restart_under_load_loses_and_repeats_nothing(lake: Lake, topic: TopicMaker) -> None:
    """Each of three is stopped as an orchestrator does it, and another begun in its place, twice around."""
    name = topic(partitions=4)
    lake.config(heartbeat_interval_ms=500)  # by which members learn of who joins and leaves
    running: list[subprocess.Popen[str]] = []

    def ready(port: int) -> bool:
        with contextlib.suppress(OSError):
            return get(port, "/readyz")[0] == 200
        return False

    def begin() -> None:
        port = free_port()
        args = ("--topic", name, "--commit-every", "50ms", "--metrics", f"localhost:{port}", "--log-format", "json")
        running.append(start("sync-from", "kafka", "raw", *args, cwd=lake.folder))
        wait_until(lambda: ready(port))

    def end(which: int = 0) -> None:
        running[which].terminate()
        assert running.pop(which).wait(60) == 0

    def said(line: str) -> int:
        return sum(log.read_text().count(f"{line}: {name}/") for log in lake.folder.glob("sync-from-*.log"))

    try:
        with producing(lake.broker, name, 4) as sent:
            for _ in range(3):
                begin()
            for _ in range(6):
                more_arrives(lake, name, 4)
                begin()
                end()
            while len(running) > 1:
                end()
            more_arrives(lake, name, 4)  # all are this one's now
            before = said("now read by others"), said("now read here")
            begin()
            wait_until(lambda: said("now read by others") > before[0])
            end(-1)
            wait_until(lambda: said("now read here") > before[1])
        end()
    finally:
        for process in running:
            process.kill()
    assert_each_landed_once(lake, name, sent)


def test_killed_at_twenty_moments_it_loses_and_repeats_nothing(lake: Lake, topic: TopicMaker) -> None:
    """Every other time after it has committed, and before that otherwise; as one that keeps its place in the group."""
    name, chance = topic(partitions=2), random.Random(20)
    lake.config(group_instance_id=name, session_timeout_ms=6000)
    with producing(lake.broker, name, 2) as sent:
        for number in range(20):
            before = lake.count() if number else 0
            one = start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "10ms", cwd=lake.folder)
            try:
                if number % 2 == 0:
                    wait_until(lambda before=before: lake.count() > before)
                    time.sleep(chance.uniform(0, 0.3))
                else:
                    time.sleep(chance.uniform(0.2, 1))
            finally:
                one.kill()
                one.wait()
    assert_each_landed_once(lake, name, sent)


def send(lake: Lake, partition: Partition, offsets: range) -> None:
    produce(lake.broker, [(*partition, value(partition, at)) for at in offsets])


def sync_from_until(lake: Lake, positions: dict[Partition, int]) -> None:
    """Runs sync-from, which nothing else stops, until it has itself committed up to these positions."""
    stop, committed = threading.Event(), dict[Partition, int]()

    def on_commit(done: Appended) -> None:
        committed.update(done.committed)
        if committed == positions:
            stop.set()

    topics = tuple(partition.topic for partition in positions)
    kafka, often = {"bootstrap.servers": lake.broker}, timedelta(milliseconds=50)
    ingest = Ingest(lake.raw, kafka, topics, commit_every=often, max_memory=40 * 10**9)  # for one call to take it all
    sync_from_kafka(ingest, stop, on_commit)


@pytest.mark.parametrize("reach", [40, 100, 130], ids=["part of", "all of", "more than"])
def test_a_zombie_that_commits_the_batch_in_between_loses_and_doubles_nothing(
    lake: Lake, topic: TopicMaker, monkeypatch: pytest.MonkeyPatch, reach: int
) -> None:
    """Position read, records taken, a zombie commits some of them, ours are dropped, reading goes on."""
    mine, other = Partition(topic(), 0), Partition(topic(), 0)
    send(lake, mine, range(100))
    send(lake, other, range(100))
    append, add, taken, interposed = Appender.append, Batch.add, threading.Event(), []

    def a_zombie_first(self: Appender, batch: Batch) -> Appended:
        if mine not in batch.slices or interposed:
            return append(self, batch)
        at = batch.slices[mine]
        interposed.append((at.begin, at.next))
        taken.clear()
        send(lake, mine, range(100, 150))
        assert taken.wait(20)  # reading goes on behind the batch that is about to be refused
        zombie = Batch(slices={mine: Slice(at.begin, reach, at.topic_id, begin_id=at.begin_id)})
        zombie.add(records(mine, range(reach)))
        assert append(Appender(lake.raw), zombie).committed == {mine: reach}
        done = append(self, batch)
        assert done.refused == {mine: reach}
        send(lake, mine, range(150, 170))  # and goes on behind what was dropped
        return done

    def notice(self: Batch, rows: pa.RecordBatch) -> None:
        add(self, rows)
        if rows["kafka"][0]["topic"].as_py() == mine.topic:
            taken.set()

    monkeypatch.setattr(Appender, "append", a_zombie_first)
    monkeypatch.setattr(Batch, "add", notice)
    sync_from_until(lake, {mine: 170, other: 100})
    assert interposed == [(None, 100)]
    assert lake.offsets(*mine) == [*range(170)]
    assert lake.offsets(*other) == [*range(100)]
    assert sorted(lake.values()) == sorted(
        [value(mine, at) for at in range(170)] + [value(other, at) for at in range(100)]
    )


def test_what_was_gathered_while_a_rebalance_moved_the_position_does_not_count(
    lake: Lake, topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of consume gathers records, and then, before it returns, runs the callback that seeks."""
    mine = Partition(topic(), 0)
    send(lake, mine, range(100))
    append, gathered, interposed = Appender.append, threading.Event(), []

    def a_zombie_first(self: Appender, batch: Batch) -> Appended:
        if not interposed:
            at = batch.slices[mine]
            interposed.append(at.next)
            send(lake, mine, range(100, 150))
            assert gathered.wait(20)
            zombie = Batch(slices={mine: Slice(at.begin, 40, at.topic_id, begin_id=at.begin_id)})
            zombie.add(records(mine, range(40)))
            append(Appender(lake.raw), zombie)
        return append(self, batch)

    class Rebalancing(Consumer):
        def subscribe(self, topics: list[str], on_assign: Callable[..., None], **callbacks: Any) -> None:
            self.on_assign = on_assign
            super().subscribe(topics, on_assign=on_assign, **callbacks)

        def consume(self, *limits: Any) -> list[Message]:
            messages = super().consume(*limits)
            if not gathered.is_set() and any(message.offset() >= 100 for message in messages if not message.error()):
                gathered.set()
                self.on_assign(self, [])
            return messages

    monkeypatch.setattr(Appender, "append", a_zombie_first)
    monkeypatch.setattr(group, "Consumer", Rebalancing)
    sync_from_until(lake, {mine: 150})
    assert interposed == [100]
    assert lake.values() == [value(mine, at) for at in range(150)]


def test_a_zombie_that_commits_again_and_again_only_delays_it(
    lake: Lake, topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    partition = Partition(name, 0)
    produce(lake.broker, [(name, 0, value(partition, at)) for at in range(100)])
    append, refusals = Appender.append, []

    def a_zombie_first(self: Appender, batch: Batch) -> Appended:
        if len(refusals) < 5:
            begin = stored_position(lake.table(), partition)
            ids = batch.slices[partition].topic_id, stored_id(lake.table(), partition)
            zombie = Batch(slices={partition: Slice(begin, (begin or 0) + 7, ids[0], begin_id=ids[1])})
            zombie.add(records(partition, range(begin or 0, (begin or 0) + 7)))
            append(Appender(lake.raw), zombie)
            refusals.append(append(self, batch))
            return refusals[-1]
        return append(self, batch)

    monkeypatch.setattr(Appender, "append", a_zombie_first)
    done = lake.sync_from(name)
    assert [one.refused for one in refusals] == [{partition: 7 * times} for times in range(1, 6)]
    assert done.records == 100 - 35
    assert lake.values() == [value(partition, at) for at in range(100)]
