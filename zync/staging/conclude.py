"""Computes the transactions in flight after a sync, hence the cursor, and the driver's rows of both (stage commit)."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zync.lake.types import TIMESTAMP
from zync.staging.bookkeeping import Bookkeeping, Cursor, advance
from zync.staging.kinds import IN_FLIGHT_KINDS
from zync.staging.table import STAGING_SCHEMA

FULL_EVERY = 64
"""Every so many syncs write a row for each transaction in flight, so that a reader goes back no further."""


@dataclass(frozen=True)
class Concluded:
    """The bookkeeping after a sync, and the rows (STAGING_SCHEMA) that the driver adds for it."""

    bookkeeping: Bookkeeping
    rows: pa.Table


def conclude(  # noqa: PLR0913 - each is a result of an earlier stage
    before: Bookkeeping,
    rows: pa.Table,
    *,
    number: int,
    head: int,
    cutoff: int,
    full: bool,
    remember: int,
    cursor: dict[str, Any],
) -> Concluded:
    """Computes the bookkeeping after a sync, and the rows that the driver adds for it.

    Args:
        before: The bookkeeping before the sync.
        rows: The bookkeeping rows that the sync wrote.
        number: The number of the sync.
        head: The largest seqno of raw that the sync read.
        cutoff: A time in microseconds. Pending transactions whose first record came at or before it expire.
        full: Whether to write a row for each transaction in flight, not only for those that expire.
        remember: For how many records below the head settled transactions are kept.
        cursor: The other columns of the cursor row.
    """
    advanced = advance(before, rows)
    in_flight = advanced.in_flight
    overdue = pc.and_(
        pc.equal(in_flight["kind"], "pending"), pc.less_equal(in_flight["since"], pa.scalar(cutoff, TIMESTAMP))
    )
    kinds = pc.if_else(overdue, "expired", in_flight["kind"])
    in_flight = in_flight.set_column(0, "kind", kinds)
    full = full or number - before.cursor.full >= FULL_EVERY
    written = pc.is_in(in_flight["txn"], rows["txn"].filter(pc.is_in(rows["kind"], pa.array(IN_FLIGHT_KINDS))))
    rewritten = in_flight.filter(pc.and_(pc.invert(written), pc.or_(overdue, full)))
    pending_seqnos = in_flight.filter(pc.equal(kinds, "pending"))["seqno"]
    cursor_seqno = pc.min(pending_seqnos).as_py() - 1 if len(pending_seqnos) else head
    cursor_row = {**cursor, "kind": "cursor", "seqno": cursor_seqno, "sync": number, "head": head}
    cursor_row["full"] = number if full else before.cursor.full
    new_cursor = Cursor(
        seqno=cursor_seqno,
        head=head,
        sync=number,
        full=cursor_row["full"],
        offsets=cursor["offsets"],
        raw_id=cursor["raw"]["id"],
        raw_version=cursor["raw"]["version"],
        digests=cursor["digests"],
        columns=cursor["state"],
    )
    settled = advanced.settled.filter(pc.greater(advanced.settled["seqno"], head - remember))
    return Concluded(
        Bookkeeping(new_cursor, settled, in_flight),
        pa.concat_tables([_as_staging(rewritten, number), pa.Table.from_pylist([cursor_row], schema=STAGING_SCHEMA)]),
    )


def _as_staging(in_flight: pa.Table, number: int) -> pa.Table:
    """Returns the rows of transactions in flight as rows of sync `number` in staging, without a Python object each."""
    columns = {name: in_flight[name] for name in in_flight.column_names}
    columns["sync"] = pa.repeat(pa.scalar(number, pa.int64()), in_flight.num_rows)
    return pa.table(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(in_flight.num_rows, field.type)
            for field in STAGING_SCHEMA
        ],
        schema=STAGING_SCHEMA,
    )
