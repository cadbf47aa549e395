"""Raw holds what Kafka held, byte for byte."""

import os
import time
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conftest import TopicMaker, produce
from tests.kafka.conftest import Lake, wait_until
from tests.kafka.wire import Headers, send_batch
from zync.ingest import memory
from zync.operate.cat import cat


def first_offset(broker: str, name: str) -> int | None:
    """The offset of the first record that Kafka still has of partition 0."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "test"})
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        message = consumer.poll(10)
        return message.offset() if message is not None and message.error() is None else None
    finally:
        consumer.close()


def test_keys_values_headers_and_timestamps_come_verbatim(lake: Lake, topic: TopicMaker) -> None:
    name = topic("a.b-c_D.9", retention_ms="-1")  # or Kafka deletes what is so old, some time
    sent: list[tuple[bytes | None, bytes | None, Headers]] = [
        (None, None, []),
        (b"", b"", []),
        (b"k", None, [("none", None), ("empty", b""), ("", b"no name"), ("twice", b"1"), ("twice", b"2")]),
        (b"\x00\xff\xfe", b"\xff\x00not utf-8", [("bytes", b"\x00\xff"), ("ü", "ü".encode())]),
        (None, '{"price": 1.50, "ü": "\\u00fc"}'.encode(), []),
    ]
    producer = Producer({"bootstrap.servers": lake.broker})
    for at, (key, value, headers) in enumerate(sent):
        producer.produce(name, value, key, headers=headers, timestamp=1_700_000_000_000 + at)
    assert producer.flush(20) == 0
    lake.sync_from(name)
    rows = lake.rows()
    assert [(row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"]]) for row in rows] == sent
    assert {row["kafka"]["topic"] for row in rows} == {name}
    assert [row["kafka"]["timestamp"] for row in rows] == [
        datetime(2023, 11, 14, 22, 13, 20, 1000 * at, tzinfo=UTC) for at in range(len(sent))
    ]


def test_large_values_come_whole(lake: Lake, topic: TopicMaker) -> None:
    name = topic(max_message_bytes="8000000")
    values = [os.urandom(5 * 1024 * 1024) for _ in range(5)]
    producer = Producer({"bootstrap.servers": lake.broker, "message.max.bytes": 8_000_000})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(60) == 0
    done = lake.sync_from(name, commit_bytes=8 * 1024 * 1024)
    assert lake.values() == values
    assert done.num_bytes > 25 * 1024 * 1024


def test_a_timestamp_that_no_table_holds_is_null_and_its_record_comes_all_the_same(
    lake: Lake, topic: TopicMaker
) -> None:
    name = topic(message_timestamp_after_max_ms=str(2**63 - 1))
    nanoseconds = 1_700_000_000_000_000_000  # by a producer that mistook the unit
    producer = Producer({"bootstrap.servers": lake.broker})
    for at in (253_402_300_799_999, 253_402_300_800_000, nanoseconds):
        producer.produce(name, b"value", timestamp=at)
    assert producer.flush(20) == 0
    lake.sync_from(name)
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert [row["kafka"]["timestamp"] for row in lake.rows()] == [last, None, None]


def test_a_record_without_a_timestamp_comes_all_the_same(lake: Lake, topic: TopicMaker) -> None:
    """-1 is Kafka's word for none. Producers set the time where they are told so, so the batch is written by hand."""
    name = topic()
    send_batch(lake.broker, name, [(b"key", b"value", [("none", None)])], timestamp=-1)
    lake.sync_from(name)
    (row,) = lake.rows()
    assert (row["key"], row["value"], row["kafka"]["timestamp"]) == (b"key", b"value", None)
    assert row["headers"] == [{"key": "none", "value": None}]


def test_headers_that_the_client_does_not_read_are_null_and_their_record_comes_all_the_same(
    lake: Lake, topic: TopicMaker, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(retention_ms="-1")  # or Kafka deletes what is so old, some time
    good: Headers = [("good", b"1")]
    sent = [(b"0", b"a", good), (b"1", b"b", [*good, (b"\xff\xfe", b"2")]), (b"2", b"c", []), (b"3", None, good)]
    send_batch(lake.broker, name, sent, timestamp=1_700_000_000_000)
    lake.sync_from(name)
    assert [(row["key"], row["headers"]) for row in lake.rows()] == [
        (b"0", [{"key": "good", "value": b"1"}]),
        (b"1", None),
        (b"2", []),
        (b"3", [{"key": "good", "value": b"1"}]),
    ]
    (warning,) = [one.message for one in caplog.records if "header" in one.message]
    assert warning.startswith("1 record with a header whose name is not UTF-8")
    assert f"{name}/0/1" in warning
    assert [row["headers"] for row in cat(lake.raw)] == [[["good", "1"]], None, [], [["good", "1"]]]


@pytest.mark.parametrize("max_memory", [memory.DEFAULT, memory.LEAST])
def test_records_of_20_mb_come_whole(lake: Lake, topic: TopicMaker, max_memory: int) -> None:
    name = topic(max_message_bytes="25000000")
    values = [os.urandom(20_000_000) for _ in range(3)]
    producer = Producer({"bootstrap.servers": lake.broker, "message.max.bytes": 25_000_000})
    for value in values:
        producer.produce(name, value)
        assert producer.flush(60) == 0
    lake.sync_from(name, max_memory=max_memory)
    assert lake.values() == values


@pytest.mark.parametrize("compression", ["zstd", "lz4", "snappy", "gzip"])
def test_compressed_batches_come_as_they_were(lake: Lake, topic: TopicMaker, compression: str) -> None:
    name = topic()
    values = [b"%d" % number * 100 for number in range(1000)]
    produce(lake.broker, [(name, 0, value) for value in values], **{"compression.type": compression})
    lake.sync_from(name)
    assert lake.values() == values


def test_batches_that_compaction_left_empty_are_passed(lake: Lake, topic: TopicMaker) -> None:
    """Of an idempotent producer Kafka keeps the last batch, without records, to know its sequence numbers by."""
    name = topic(
        cleanup_policy="compact",
        segment_ms="200",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
        min_compaction_lag_ms="0",
    )
    for number in range(3):
        one = Producer({"bootstrap.servers": lake.broker, "enable.idempotence": True})
        one.produce(name, b"%d" % number, b"key")
        assert one.flush(20) == 0
        time.sleep(0.3)

    wait_until(lambda: first_offset(lake.broker, name) == 1, 90)  # the newest segment is left as it is
    done = lake.sync_from(name)
    assert [(row["kafka"]["offset"], row["value"]) for row in lake.rows()] == [(1, b"1"), (2, b"2")]
    assert done.lag == 0
