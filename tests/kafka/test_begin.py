"""Where reading begins: as said, where raw has no position; moved only by force, and on record."""

import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import TopicMaker, produce, zync
from tests.kafka.conftest import Lake, transaction
from zync.errors import UsageError, ZyncError
from zync.ingest.start_position import Begin
from zync.kafka.admin import Bounds, Brokers
from zync.kafka.partition import Partition
from zync.raw.table import Gap

TEN = [b"%d" % number for number in range(10)]


def produced(topic: TopicMaker, partitions: int = 1) -> str:
    name = topic(partitions=partitions)
    produce(topic.broker, [(name, partition, value) for partition in range(partitions) for value in TEN])
    return name


def test_latest_takes_only_what_comes_from_now_on_after_restarts_too(lake: Lake, topic: TopicMaker) -> None:
    name = produced(topic, partitions=2)
    lake.config()
    args = ("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up")
    zync(*args, "--from", "latest", cwd=lake.folder)
    assert lake.count() == 0
    produce(lake.broker, [(name, 0, b"new"), (name, 1, b"new")])
    zync(*args, cwd=lake.folder)
    assert (lake.offsets(name), lake.offsets(name, 1)) == ([10], [10])
    assert lake.positions().gaps == ()


def test_a_time_begins_at_the_first_record_of_then_or_later(lake: Lake, topic: TopicMaker) -> None:
    name, other, then = topic(), topic(), int(time.time() * 1000) - 100_000
    producer = Producer({"bootstrap.servers": lake.broker})
    for number in range(10):
        producer.produce(name, b"%d" % number, timestamp=then + 1000 * number)
        producer.produce(other, b"%d" % number, timestamp=then - 1000 * number)
    producer.flush(20)
    lake.config()
    at = datetime.fromtimestamp(then / 1000 + 7, tz=UTC)
    topics = ("--topic", name, "--topic", other)
    zync("sync-from", "kafka", "raw", *topics, "--until-caught-up", "--from", at.isoformat(), cwd=lake.folder)
    assert (lake.offsets(name), lake.offsets(other)) == ([7, 8, 9], [])


def test_an_offset_is_for_its_partition_and_the_others_begin_at_the_earliest(lake: Lake, topic: TopicMaker) -> None:
    name = produced(topic, partitions=2)
    lake.sync_from(name, begin=Begin(offsets={Partition(name, 1): 6}))
    assert (lake.offsets(name), lake.offsets(name, 1)) == ([*range(10)], [6, 7, 8, 9])


def test_an_offset_within_aborted_records_begins_with_the_next_that_counts(lake: Lake, topic: TopicMaker) -> None:
    name = produced(topic)
    with transaction(lake.broker, name, commit=False) as producer:
        producer.produce(name, b"aborted")
    lake.sync_from(name, begin=Begin(at="latest"))
    produce(lake.broker, [(name, 0, b"new")])
    lake.sync_from(name)
    assert lake.values() == [b"new"]


@pytest.mark.parametrize("asked", [("--from", "earliest"), ("--from-offset", "{}:0=4")], ids=["from", "from-offset"])
def test_where_raw_has_a_position_it_is_refused_with_both_numbers(
    lake: Lake, topic: TopicMaker, asked: tuple[str, str]
) -> None:
    name = produced(topic)
    lake.sync_from(name)
    lake.config()
    version = lake.table().version()
    option = [one.format(name) for one in asked]
    done = zync("sync-from", "kafka", "raw", "--topic", name, *option, cwd=lake.folder, check=False)
    assert done.returncode == 2
    assert f"{name}/0 is at 10, not {4 if '=' in option[1] else 0}" in done.stderr
    assert "--force" in done.stderr
    assert lake.table().version() == version


def test_force_moves_it_forth_and_leaves_the_gap_on_record(
    lake: Lake, topic: TopicMaker, caplog: pytest.LogCaptureFixture
) -> None:
    name = produced(topic)
    lake.sync_from(name)
    produce(lake.broker, [(name, 0, value) for value in TEN])
    with caplog.at_level("WARNING"):
        lake.sync_from(name, begin=Begin(offsets={Partition(name, 0): 15}, force=True))
    assert f"{name}/0 was at 10 and goes on from 15: 5 offsets passed over, on record" in caplog.text
    assert lake.offsets(name) == [*range(10), *range(15, 20)]
    assert lake.positions().gaps == (Gap(Partition(name, 0), 10, 15),)


def test_the_command_takes_offsets_and_force(lake: Lake, topic: TopicMaker) -> None:
    name = produced(topic, partitions=2)
    lake.config()
    args = ("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up")
    zync(*args, "--from", "latest", "--from-offset", f"{name}:1=6", cwd=lake.folder, umask=0o027)
    assert (lake.offsets(name), lake.offsets(name, 1)) == ([], [6, 7, 8, 9])
    back = ("--from-offset", f"{name}:1=4")
    refused = zync(*args, *back, cwd=lake.folder, check=False)
    assert (refused.returncode, "10" in refused.stderr, "4" in refused.stderr) == (2, True, True)
    twice = zync(*args, *back, "--from-offset", f"{name}:1=5", "--force", cwd=lake.folder, check=False)
    assert (twice.returncode, f"{name}:1 is to begin at two offsets" in twice.stderr) == (2, True)
    forced = zync(*args, *back, "--force", cwd=lake.folder, umask=0o027)
    assert f"{name}/1 was at 10 and goes on from 4: 6 offsets read again, on record" in forced.stderr
    assert lake.offsets(name, 1) == [*range(6, 10), *range(4, 10)]
    zync("verify", "raw", cwd=lake.folder)
    zync("maintain", "raw", cwd=lake.folder, umask=0o027)
    modes = {path.stat().st_mode & 0o777 for path in (lake.folder / "lake").rglob("*") if path.is_file()}
    assert modes == {0o640}


def test_force_moves_it_back_and_verify_knows(lake: Lake, topic: TopicMaker) -> None:
    name = produced(topic)
    lake.sync_from(name)
    lake.sync_from(name, begin=Begin(offsets={Partition(name, 0): 7}, force=True))
    assert lake.offsets(name) == [*range(10), 7, 8, 9]
    assert lake.positions().gaps == (Gap(Partition(name, 0), 10, 7),)
    lake.config()
    zync("verify", "raw", "--kafka", cwd=lake.folder)
    assert f"{name}/0 went back from offset 10 to 7" in zync("status", cwd=lake.folder).stdout


def test_each_move_is_on_record(lake: Lake, topic: TopicMaker) -> None:
    name = produced(topic)
    lake.sync_from(name)
    lake.sync_from(name, begin=Begin(offsets={Partition(name, 0): 7}, force=True))
    produce(lake.broker, [(name, 0, value) for value in TEN])
    lake.sync_from(name, begin=Begin(offsets={Partition(name, 0): 15}, force=True))
    assert lake.offsets(name) == [*range(10), 7, 8, 9, *range(15, 20)]
    assert lake.positions().gaps == (Gap(Partition(name, 0), 10, 7), Gap(Partition(name, 0), 10, 15))
    lake.config()
    zync("verify", "raw", "--kafka", cwd=lake.folder)


@pytest.mark.parametrize(
    ("begin", "says"),
    [
        (Begin(offsets={Partition("{}", 0): 11}), "has offsets 0 to 10"),
        (Begin(offsets={Partition("{}", 5): 1}), "none of the partitions"),
    ],
)
def test_an_offset_that_is_not_there_is_refused(lake: Lake, topic: TopicMaker, begin: Begin, says: str) -> None:
    name = produced(topic)
    offsets = {Partition(name, number): at for (_, number), at in begin.offsets.items()}
    with pytest.raises(UsageError, match=says):
        lake.sync_from(name, begin=Begin(offsets=offsets))
    assert lake.count() == 0


@pytest.mark.parametrize("given", [("--from", "yesterday"), ("--from-offset", "orders=5")])
def test_what_says_no_place_is_the_users_mistake(lake: Lake, given: tuple[str, str]) -> None:
    lake.config()
    done = zync("sync-from", "kafka", "raw", "--topic", "t", *given, cwd=lake.folder, check=False)
    assert done.returncode == 2
    assert given[1] in done.stderr
    assert not Path(lake.raw).exists()


def test_a_topic_that_is_made_anew_while_a_process_begins_is_waited_for(topic: TopicMaker) -> None:
    """Likewise one that is new: the brokers learn of it one after the other."""
    brokers, name = Brokers({"bootstrap.servers": topic.broker}), produced(topic)
    assert brokers.matching([name]) == {name: 1}
    topic.delete(name)
    again = threading.Timer(0.5, topic.create, [name])
    again.start()
    assert brokers.bounds([Partition(name, 0)]) == {Partition(name, 0): Bounds(0, 0)}
    again.join()


def test_a_topic_that_is_deleted_while_a_process_begins_is_named(topic: TopicMaker) -> None:
    brokers, gone, other = Brokers({"bootstrap.servers": topic.broker}), produced(topic), topic()
    brokers.bounds([Partition(gone, 0), Partition(other, 0)])
    topic.delete(gone)
    with pytest.raises(ZyncError, match=f"refuses it: {gone}/0: Broker: Unknown topic or partition"):
        brokers.bounds([Partition(gone, 0), Partition(other, 0)])
