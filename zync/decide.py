"""Operators' decisions: records of raw's reserved topic, each about one transaction, which act at their seqno.

A decision is appended at once, without Spark and without waiting for a sync; the next sync, or a replay, meets it
where it stands. It settles its transaction if that is in flight there, and does nothing otherwise.
"""

import getpass
import json
import time
from collections.abc import Iterable
from typing import Literal

import pyarrow as pa

from zync.ingest.append import Appended, Appender
from zync.ingest.batch import RECORD_SCHEMA, Batch, Slice
from zync.ingest.raw import DECISIONS, stored_position

Action = Literal["release", "discard"]


def decide(raw: str, txns: Iterable[str], action: Action, why: str, who: str | None = None) -> Appended:
    """Appends to the raw at that location that `action` was decided of each of the transactions, in one commit.

    `who`: the user that runs this, if not given.
    """
    author = who or _user()
    values = [json.dumps({"decision": action, "txn": txn, "who": author, "why": why}) for txn in txns]
    return Appender(raw).append_planned(lambda table: _batch(values, stored_position(table, DECISIONS)))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"


def _batch(values: list[str], stored: int | None) -> Batch:
    begin, now = stored or 0, time.time_ns() // 1000
    kafka = [
        {"topic": DECISIONS.topic, "partition": DECISIONS.partition, "offset": begin + index, "timestamp": now}
        for index in range(len(values))
    ]
    columns = [kafka, [None for _ in values], [value.encode() for value in values], [[] for _ in values]]
    batch = Batch(slices={DECISIONS: Slice(stored, begin + len(values))})
    arrays = [pa.array(column, one.type) for column, one in zip(columns, RECORD_SCHEMA, strict=True)]
    batch.add(pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA))
    return batch
