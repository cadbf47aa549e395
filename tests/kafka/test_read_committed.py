"""Kafka's own transactions: what was aborted never lands, what was committed all does, and the end is found."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

from tests.conftest import TopicMaker, produce, zync
from tests.kafka.conftest import Lake, transaction
from zync.ingest import group
from zync.kafka.admin import Bounds, Brokers
from zync.kafka.partition import Partition


def test_nothing_aborted_lands_and_everything_committed_does(lake: Lake, topic: TopicMaker) -> None:
    name = topic(partitions=2)
    for number in range(6):
        with transaction(lake.broker, f"{name}-{number % 2}", commit=number % 3 != 1) as producer:
            for at in range(4):
                producer.produce(name, b"%d/%d" % (number, at), partition=at % 2)
    done = lake.sync_from(name)
    assert done.lag == 0
    assert sorted(lake.values()) == sorted(b"%d/%d" % (number, at) for number in (0, 2, 3, 5) for at in range(4))


def test_the_end_is_found_behind_markers_aborted_records_and_empty_partitions(lake: Lake, topic: TopicMaker) -> None:
    name, idle = topic(partitions=4), topic("idle", partitions=2)
    with transaction(lake.broker, f"{name}-a") as producer:  # partition 0: records, then a marker
        producer.produce(name, b"0", partition=0)
    with transaction(lake.broker, f"{name}-b", commit=False) as producer:  # partition 1: aborted records only
        producer.produce(name, b"1", partition=1)
        producer.produce(name, b"2", partition=1)
    with transaction(lake.broker, f"{name}-c", commit=False) as producer:  # partition 2: ends with aborted records
        produce(lake.broker, [(name, 2, b"3")])
        producer.produce(name, b"4", partition=2)
    lake.config()  # partition 3 and the other topic are empty
    args = ("sync-from", "kafka", "raw", "--topic", name, "--topic", idle, "--until-caught-up")
    assert "lag 0" in zync(*args, cwd=lake.folder).stdout
    assert sorted(lake.values()) == [b"0", b"3"]
    assert lake.positions().next == {Partition(name, 0): 2, Partition(name, 1): 3, Partition(name, 2): 3}
    version = lake.table().version()
    again = zync(*args, cwd=lake.folder)
    assert again.stdout.startswith("0 records, 0 B")
    assert "0 commits, lag 0" in again.stdout
    assert lake.table().version() == version


def test_only_idle_topics_are_caught_up_at_once(lake: Lake, topic: TopicMaker) -> None:
    done = lake.sync_from(topic(partitions=3), "^no-topic-has-this-name")
    assert (done.records, done.commits, done.lag) == (0, 0, 0)
    assert Path(lake.raw).is_dir()


def test_an_open_transaction_does_not_keep_it_waiting_and_its_records_come_once_it_commits(
    lake: Lake, topic: TopicMaker
) -> None:
    name = topic()
    produce(lake.broker, [(name, 0, b"before")])
    producer = Producer({"bootstrap.servers": lake.broker, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(20)
    produce(lake.broker, [(name, 0, b"behind it")])
    assert lake.sync_from(name).lag == 0
    assert lake.values() == [b"before"]
    producer.commit_transaction(20)
    lake.sync_from(name)
    assert lake.values() == [b"before", b"open", b"behind it"]


def test_the_bounds_of_a_topic_made_a_moment_ago_are_found(broker: str, topic: TopicMaker) -> None:
    brokers = Brokers({"bootstrap.servers": broker})
    for _ in range(20):  # until its leaders are elected, a broker says "not leader"
        partitions = [Partition(name, partition) for name in [topic(partitions=20)] for partition in range(20)]
        assert set(brokers.bounds(partitions).values()) == {Bounds(0, 0)}


def test_at_the_end_it_waits_for_no_more_than_there_is(
    lake: Lake, topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Asked(Consumer):
        def consume(self, num_messages: int, timeout: float) -> list[Message]:
            asked.append(num_messages)
            return super().consume(num_messages, timeout)

    monkeypatch.setattr(group, "Consumer", Asked)
    name = topic(partitions=2)
    produce(lake.broker, [(name, number % 2, b"%d" % number) for number in range(25)])
    lake.sync_from(name)
    assert 25 in asked
