"""Converts the Kafka messages of one call of `consume` to Arrow: the hot loop of sync-from."""

import logging
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from zync.kafka.partition import Partition
from zync.lake.types import TIMESTAMP, YEAR_10000
from zync.log import event
from zync.raw.batch import RECORD_SCHEMA
from zync.text import amount

log = logging.getLogger(__name__)

Headers = list[tuple[str, bytes | None]]

_KAFKA = RECORD_SCHEMA.field("kafka").type
_HEADERS = RECORD_SCHEMA.field("headers").type
_TIMESTAMP_VALUE = itemgetter(1)
"""The milliseconds of a message's timestamp, which is a pair of type and value; -1 if the message has none."""
_UNREADABLE: Headers = [("", None)]
"""Stands for headers that the client cannot decode; compared by identity."""


def to_arrow(messages: list[Message]) -> pa.RecordBatch:
    """Converts messages, none of them an error, to rows of RECORD_SCHEMA in the same order.

    A timestamp out of the table's range becomes null. If a header's name is not UTF-8, the client cannot decode it, and
    all headers of that record become null.
    """
    count = len(messages)
    topics = list(map(Message.topic, messages))
    times = np.fromiter(list(map(_TIMESTAMP_VALUE, map(Message.timestamp, messages))), np.int64, count)
    kafka = pa.StructArray.from_arrays(
        [
            pa.repeat(topics[0], count) if len(set(topics)) == 1 else pa.array(topics, pa.string()),
            pa.array(np.fromiter(list(map(Message.partition, messages)), np.int32, count)),
            pa.array(np.fromiter(list(map(Message.offset, messages)), np.int64, count)),
            pa.array(times * 1000, mask=(times < 0) | (times >= YEAR_10000)).cast(TIMESTAMP),
        ],
        fields=list(_KAFKA),
    )
    headers = _headers(messages)
    return pa.RecordBatch.from_arrays(
        [
            kafka,
            _binary(list(map(Message.key, messages))),
            _binary(list(map(Message.value, messages))),
            pa.array(list(map(_header_structs, headers)), _HEADERS) if any(headers) else _no_headers(count),
        ],
        schema=RECORD_SCHEMA,
    )


def first_times(rows: pa.RecordBatch) -> dict[Partition, float]:
    """Returns the timestamp of each partition's first record, in seconds since 1970, where the record has one.

    Args:
        rows: Rows of RECORD_SCHEMA.
    """
    kafka = rows["kafka"]
    times = pa.table([kafka.field(0), kafka.field(1), kafka.field(3).cast(pa.int64())], ["topic", "partition", "at"])
    first = times.group_by(["topic", "partition"], use_threads=False).aggregate([("at", "first")]).to_pylist()
    return {
        Partition(row["topic"], row["partition"]): row["at_first"] / 1e6 for row in first if row["at_first"] is not None
    }


def _binary(values: list[bytes | None]) -> pa.Array:
    """Builds a binary array from one joined buffer if no value is null; `pa.array` grows its buffer and copies."""
    try:
        joined = b"".join(values)  # type: ignore[arg-type]
    except TypeError:
        return pa.array(values, pa.binary())
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])  # type: ignore[arg-type]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers).cast(pa.binary())


def _headers(messages: list[Message]) -> list[Headers | None]:
    """Returns the headers of each message; _UNREADABLE where the client cannot decode them."""
    headers: list[Headers | None] = []
    unreadable: list[Message] = []
    remaining = map(Message.headers, messages)
    while True:
        try:
            headers.extend(remaining)
            break
        except SystemError:  # the client hides a UnicodeDecodeError behind it; a second call returns no headers
            unreadable.append(messages[len(headers)])
            headers.append(_UNREADABLE)
    if unreadable:
        first = unreadable[0]
        log.warning(
            "%s with a header whose name is not UTF-8, which the Kafka client does not read: all its headers are null "
            "in raw (the first is %s/%s/%s)",
            amount(len(unreadable), "record"),
            first.topic(),
            first.partition(),
            first.offset(),
            extra=event("unreadable_headers", records=len(unreadable), topic=first.topic(), offset=first.offset()),
        )
    return headers


def _header_structs(headers: Headers | None) -> list[dict[str, Any]] | None:
    return None if headers is _UNREADABLE else [{"key": name, "value": value} for name, value in headers or ()]


def _no_headers(count: int) -> pa.Array:
    """Builds an array of `count` empty lists from offsets alone."""
    return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], _HEADERS.value_type))
