"""Kafka messages to Arrow, a call's worth at a time: the hot loop of sync-from."""

from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from zync.ingest.batch import RECORD_SCHEMA, TIMESTAMP

_KAFKA = RECORD_SCHEMA.field("kafka").type
_HEADERS = RECORD_SCHEMA.field("headers").type
_NO_TIMESTAMP = 0


def to_arrow(messages: list[Message]) -> pa.RecordBatch:
    """The messages, none of them an error, as rows of RECORD_SCHEMA in the same order."""
    count = len(messages)
    stamps = [message.timestamp() for message in messages]
    kafka = pa.StructArray.from_arrays(
        [
            pa.array([message.topic() for message in messages], pa.string()),
            pa.array([message.partition() for message in messages], pa.int32()),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([None if kind == _NO_TIMESTAMP else at * 1000 for kind, at in stamps], pa.int64()).cast(TIMESTAMP),
        ],
        fields=list(_KAFKA),
    )
    headers = [message.headers() for message in messages]
    return pa.RecordBatch.from_arrays(
        [
            kafka,
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.array([_headers(one) for one in headers], _HEADERS) if any(headers) else _no_headers(count),
        ],
        schema=RECORD_SCHEMA,
    )


def _headers(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in headers or ()]


def _no_headers(count: int) -> pa.Array:
    """`count` empty lists, without making them one by one."""
    return pa.ListArray.from_arrays(pa.array([0] * (count + 1), pa.int32()), pa.array([], _HEADERS.value_type))
