"""Operators' decisions: records of raw's reserved topic, each about one transaction, which act at their seqno.

A decision is appended at once, without Spark and without waiting for a sync; the next sync, or a replay, meets it
where it stands. It settles its transaction if that is in flight there, and does nothing otherwise.
"""

import getpass
import json
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Literal

import pyarrow as pa

from zync.errors import UsageError
from zync.ingest.append import Appended, Appender
from zync.ingest.batch import RECORD_SCHEMA, Batch, Slice
from zync.ingest.raw import DECISIONS, stored_position
from zync.operate import transactions

Action = Literal["release", "discard", "redrive", "drop"]
IN_FLIGHT = ("in-flight", "expired")


def decide(raw: str, txns: Iterable[str], action: Action, why: str, who: str | None = None) -> Appended:
    """Appends to the raw at that location that `action` was decided of each of the transactions, in one commit.

    `who`: the user that runs this, if not given.
    """
    author = who or _user()
    values = [json.dumps({"decision": action, "txn": txn, "who": author, "why": why}) for txn in txns]
    return Appender(raw).append_planned(lambda table: _batch(values, stored_position(table, DECISIONS)))


def undecided(
    raw: str,
    staging: str,
    txns: list[str],
    state: str | None,
    older: timedelta | None = None,
    among: tuple[str, ...] = IN_FLIGHT,
) -> list[str]:
    """The ids of `txns`, if all of them are in one of the states `among`; or, where none is named, of those in `state`.

    UsageError where one is in no such state, or where it is not said which.
    """
    if txns:
        there = {one.id for name in among for one in transactions(raw, staging, state=name)}
        gone = [txn for txn in txns if txn not in there]
        if gone:
            msg = f"no transaction {gone[0]!r} is {' or '.join(among)}: `zync txn list` names those that are"
            raise UsageError(msg)
        return list(dict.fromkeys(txns))
    if state not in among:
        msg = f"which transactions? Name their ids, or --state {' or '.join(among)} (and --older)"
        raise UsageError(msg)
    return [one.id for one in transactions(raw, staging, state=state, older=older)]


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
