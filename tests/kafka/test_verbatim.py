"""Raw holds what Kafka held, byte for byte."""

import os
from datetime import UTC, datetime

from confluent_kafka import Producer

from tests.conftest import TopicMaker
from tests.kafka.conftest import Lake

Headers = list[tuple[str, bytes | None]]


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
