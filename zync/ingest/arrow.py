"""Kafka messages to Arrow, a call's worth at a time: the hot loop of sync-from."""

import logging
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from zync.kafka.partition import Source
from zync.lake.types import TIMESTAMP, YEAR_10000
from zync.log import event
from zync.raw.batch import RECORD_SCHEMA
from zync.text import amount

log = logging.getLogger(__name__)

Headers = list[tuple[str, bytes | None]]

_KAFKA = RECORD_SCHEMA.field("kafka").type
_HEADERS = RECORD_SCHEMA.field("headers").type
_TIME = itemgetter(1)
"""Of a message's timestamp, which comes with its kind: in ms, -1 where it has none."""
_UNREADABLE: Headers = [("", None)]
"""Stands for headers that the client does not read."""


def to_arrow(messages: list[Message]) -> pa.RecordBatch:
    """The messages, none of them an error, as rows of RECORD_SCHEMA in the same order.

    A timestamp that no table can hold is null; so are the headers of a record with a header whose name is not UTF-8,
    which the client does not read.
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
    headers = _headers(messages)
    return pa.RecordBatch.from_arrays(
        [
            kafka,
            _binary(list(map(Message.key, messages))),
            _binary(list(map(Message.value, messages))),
            pa.array(list(map(_row, headers)), _HEADERS) if any(headers) else _no_headers(count),
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


def _headers(messages: list[Message]) -> list[Headers | None]:
    """The headers of each message; _UNREADABLE where the client does not read them."""
    found: list[Headers | None] = []
    unreadable: list[Message] = []
    rest = map(Message.headers, messages)
    while True:
        try:
            found.extend(rest)
            break
        except SystemError:  # the client's own, over a UnicodeDecodeError; asked again it says that there are none
            unreadable.append(messages[len(found)])
            found.append(_UNREADABLE)
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
    return found


def _row(headers: Headers | None) -> list[dict[str, Any]] | None:
    return None if headers is _UNREADABLE else [{"key": name, "value": value} for name, value in headers or ()]


def _no_headers(count: int) -> pa.Array:
    """`count` empty lists, without making them one by one."""
    return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], _HEADERS.value_type))
