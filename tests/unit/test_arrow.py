"""Messages of Kafka's become rows as they came, byte for byte."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message

from zync.ingest.arrow import first_times, to_arrow
from zync.kafka.partition import Partition
from zync.lake.types import YEAR_10000
from zync.raw.batch import RECORD_SCHEMA, Batch, Slice, last_offsets

NOON = 1_769_860_800_000


def message(offset: int = 0, **more: Any) -> Message:
    given = {"topic": "t", "partition": 0, "key": None, "value": b"v", "headers": None, "timestamp": (1, NOON)}
    return Message(offset=offset, **{**given, **more})


def test_a_message_is_a_row_as_it_came() -> None:
    made = to_arrow(
        [
            message(5, key=b"k", headers=[("h", b"1"), ("h", None), ("é", b"")]),
            message(6, topic="u", partition=3, value=None),
        ]
    )
    assert made.schema == RECORD_SCHEMA
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert made.to_pylist() == [
        {
            "kafka": {"topic": "t", "partition": 0, "offset": 5, "timestamp": noon},
            "key": b"k",
            "value": b"v",
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "é", "value": b""}],
        },
        {
            "kafka": {"topic": "u", "partition": 3, "offset": 6, "timestamp": noon},
            "key": None,
            "value": None,
            "headers": [],
        },
    ]


@pytest.mark.parametrize("values", [[b"a", b"", b"\x00\xff"], [b"a", None, b""], [None, None], [b""]])
def test_bytes_are_kept_and_what_is_missing_is_null(values: list[bytes | None]) -> None:
    made = to_arrow([message(n, value=value, key=value) for n, value in enumerate(values)])
    assert made["value"].to_pylist() == values
    assert made["key"].to_pylist() == values
    made.validate(full=True)


@pytest.mark.parametrize(
    ("milliseconds", "known"),
    [(0, True), (NOON, True), (YEAR_10000 - 1, True), (YEAR_10000, False), (-1, False), (2**63 - 1, False)],
)
def test_a_time_that_no_table_can_hold_is_null(milliseconds: int, known: bool) -> None:  # noqa: FBT001
    kafka = to_arrow([message(timestamp=(1, milliseconds))])["kafka"]
    assert kafka.field(3).is_valid().to_pylist() == [known]


def test_the_first_time_of_each_partition_is_that_of_its_first_record() -> None:
    made = to_arrow(
        [
            message(1, timestamp=(1, 5_000)),
            message(2, timestamp=(1, 1_000)),
            message(1, partition=1, timestamp=(0, -1)),
            message(9, topic="u", timestamp=(1, 250)),
        ]
    )
    assert first_times(made) == {Partition("t", 0): 5.0, Partition("u", 0): 0.25}


def test_last_offsets_are_by_partition_in_order_of_appearance() -> None:
    made = to_arrow([message(7), message(3, topic="u"), message(9), message(4, topic="u")])
    assert [*last_offsets(made).items()] == [(Partition("t", 0), 9), (Partition("u", 0), 4)]


def test_a_batch_drops_a_partition_that_was_taken_away_with_its_rows() -> None:
    batch = Batch(slices={Partition("t", 0): Slice(0, 2), Partition("u", 0): Slice(0, 2)})
    batch.add(to_arrow([message(0), message(0, topic="u"), message(1)]))
    batch.add(to_arrow([message(1, topic="u")]))
    batch.drop([Partition("t", 0), Partition("never", 0)])
    assert [*batch.slices] == [Partition("u", 0)]
    assert pa.Table.from_batches(batch.rows)["kafka"].combine_chunks().field(0).to_pylist() == ["u", "u"]
    assert batch.num_rows == 2
