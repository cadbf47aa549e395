"""Kafka messages to Arrow, a call's worth at a time: the hot loop of sync-from."""

from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from zync.kafka.partition import Source
from zync.lake.types import TIMESTAMP, YEAR_10000
from zync.raw.batch import RECORD_SCHEMA

_KAFKA = RECORD_SCHEMA.field("kafka").type
_HEADERS = RECORD_SCHEMA.field("headers").type
_TIME = itemgetter(1)
"""Of a message's timestamp, which comes with its kind: in ms, -1 where it has none."""


def to_arrow(messages: list[Message]) -> pa.RecordBatch:
    """The messages, none of them an error, as rows of RECORD_SCHEMA in the same order.

    A timestamp that no table can hold is null.
    """
    count = len(messages)
    topics = list(map(Message.topic, messages))
    times = np.fromiter(list(map(_TIME, map(Message.timestamp, messages))), np.int64, count)
    kafka = pa.StructArray.from_arrays(
        [
            pa.repeat(topics[0], count) if len(set(topics)) == 1 else pa.array(topics, pa.string()),
            pa.array(np.fromiter(list(map(Message.partition, messages)), np.int32, count)),
            pa.array(np.fromiter(list(map(Message.offset, messages)), np.int64, count)),
            pa.array(times * 1000, mask=(times < 0) | (times >= YEAR_10000)).cast(TIMESTAMP),
        ],
        fields=list(_KAFKA),
    )
    headers = list(map(Message.headers, messages))
    return pa.RecordBatch.from_arrays(
        [
            kafka,
            _binary(list(map(Message.key, messages))),
            _binary(list(map(Message.value, messages))),
            pa.array([_headers(one) for one in headers], _HEADERS) if any(headers) else _no_headers(count),
        ],
        schema=RECORD_SCHEMA,
    )


def first_times(rows: pa.RecordBatch) -> dict[Source, float]:
    """The time of each partition's first record among rows of RECORD_SCHEMA, in seconds since 1970, where known."""
    kafka = rows["kafka"]
    times = pa.table([kafka.field(0), kafka.field(1), kafka.field(3).cast(pa.int64())], ["topic", "partition", "at"])
    first = times.group_by(["topic", "partition"], use_threads=False).aggregate([("at", "first")]).to_pylist()
    return {
        Source(one["topic"], one["partition"]): one["at_first"] / 1e6 for one in first if one["at_first"] is not None
    }


def _binary(values: list[bytes | None]) -> pa.Array:
    """The values in one piece of memory, joined at once where none is missing: `pa.array` lets it grow and copies."""
    try:
        joined = b"".join(values)  # type: ignore[arg-type]
    except TypeError:
        return pa.array(values, pa.binary())
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])  # type: ignore[arg-type]
    parts = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.large_binary(), len(values), parts).cast(pa.binary())


def _headers(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in headers or ()]


def _no_headers(count: int) -> pa.Array:
    """`count` empty lists, without making them one by one."""
    return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], _HEADERS.value_type))
