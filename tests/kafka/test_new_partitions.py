"""What comes into being while it runs is read from its beginning."""

import uuid

from confluent_kafka.admin import NewPartitions

from tests.conftest import TopicMaker, produce, start
from tests.kafka.conftest import Lake, wait_until
from zync.kafka.partition import Partition
from zync.lake.table import open_table


def test_new_partitions_and_newly_matching_topics_are_picked_up_while_running(lake: Lake, topic: TopicMaker) -> None:
    first = topic("grow.a1")
    regex = rf"^{first.replace('.', '[.]')}(-\d+)?$"  # Python's: librdkafka knows no \d
    produce(lake.broker, [(first, 0, b"1")])
    lake.config(topic_metadata_refresh_interval_ms=300)
    process = start("sync-from", "kafka", "raw", "--topic", regex, "--commit-every", "50ms", cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 1)
        topic.admin.create_partitions([NewPartitions(first, 3)])[first].result(20)
        wait_until(lambda: len(topic.admin.list_topics(first, timeout=10).topics[first].partitions) == 3)
        produce(lake.broker, [(first, 2, b"2")])
        wait_until(lambda: lake.count() == 2)
        topic.create(f"{first}-22")
        topic.create(f"{first}-other")
        produce(lake.broker, [(f"{first}-22", 0, b"3"), (f"{first}-other", 0, b"no")])
        wait_until(lambda: lake.count() == 3)
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert lake.values() == [b"1", b"2", b"3"]
    assert lake.positions().next == {Partition(first, 0): 1, Partition(first, 2): 1, Partition(f"{first}-22", 0): 1}


def test_the_first_topics_are_not_waited_for_as_long_as_later_ones(lake: Lake, topic: TopicMaker) -> None:
    name = f"soon-{uuid.uuid4().hex[:8]}"
    lake.config(topic_metadata_refresh_interval_ms=3_600_000)
    process = start("sync-from", "kafka", "raw", "--topic", f"^{name}", "--commit-every", "50ms", cwd=lake.folder)
    try:
        wait_until(lambda: open_table(str(lake.raw)) is not None)
        for number in (1, 2):
            topic.create(f"{name}-{number}")
            produce(lake.broker, [(f"{name}-{number}", 0, b"%d" % number)])
            wait_until(lambda number=number: lake.count() == number)
    finally:
        process.kill()


def test_a_regex_finds_neither_kafkas_topics_nor_zyncs_own(lake: Lake, topic: TopicMaker) -> None:
    name = topic("regex")
    produce(lake.broker, [(name, 0, b"1"), ("__zync", 0, b"no decision")])
    lake.sync_from(f"^(__.*|{name})$")
    assert lake.values() == [b"1"]
