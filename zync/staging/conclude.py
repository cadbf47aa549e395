"""Stage conclude: what the sync leaves in flight, hence the cursor, and the rows that the driver itself adds."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zync.lake.types import TIMESTAMP
from zync.staging.bookkeeping import Cursor, Known, advance
from zync.staging.table import STAGING_SCHEMA

FULL_EVERY = 64
"""Syncs between full sets of what is in flight: reading back goes at most so far."""


@dataclass(frozen=True)
class Concluded:
    """What staging will say after this sync, and the rows (STAGING_SCHEMA) that make it say so."""

    known: Known
    rows: pa.Table


def conclude(  # noqa: PLR0913 - each is a thing known by now
    before: Known,
    rows: pa.Table,
    *,
    number: int,
    head: int,
    cutoff: int,
    full: bool,
    remember: int,
    cursor: dict[str, Any],
) -> Concluded:
    """The state after a sync that wrote the bookkeeping `rows`.

    `cutoff`: what began at or before it (microseconds) is expired. `full`: all that is in flight is written anew.
    `cursor`: the cursor row's other columns.
    """
    known = advance(before, rows)
    in_flight = known.in_flight
    overdue = pc.and_(
        pc.equal(in_flight["kind"], "pending"), pc.less_equal(in_flight["since"], pa.scalar(cutoff, TIMESTAMP))
    )
    kinds = pc.if_else(overdue, "expired", in_flight["kind"])
    in_flight = in_flight.set_column(0, "kind", kinds)
    full = full or number - before.cursor.full >= FULL_EVERY
    written = pc.is_in(in_flight["txn"], rows["txn"].filter(pc.is_in(rows["kind"], pa.array(["pending", "expired"]))))
    again = in_flight.filter(pc.and_(pc.invert(written), True) if full else pc.and_(pc.invert(written), overdue))
    holding = in_flight.filter(pc.equal(kinds, "pending"))["seqno"]
    at = pc.min(holding).as_py() - 1 if len(holding) else head
    row = {**cursor, "kind": "cursor", "seqno": at, "sync": number, "head": head}
    row["full"] = number if full else before.cursor.full
    mine = [
        *({**one, "sync": number} for one in again.to_pylist()),
        row,
    ]
    newest = Cursor(
        seqno=at,
        head=head,
        sync=number,
        full=row["full"],
        offsets=cursor["offsets"],
        raw_id=cursor["raw"]["id"],
        raw_version=cursor["raw"]["version"],
        nonce=cursor["nonce"],
        digests=cursor["digests"],
        columns=cursor["state"],
    )
    settled = known.settled.filter(pc.greater(known.settled["seqno"], head - remember))
    mine = [{name: _pairs(value) for name, value in one.items()} for one in mine]
    return Concluded(Known(newest, settled, in_flight), pa.Table.from_pylist(mine, schema=STAGING_SCHEMA))


def _pairs(value: Any) -> Any:
    """Arrow takes maps as lists of pairs."""
    return list(value.items()) if isinstance(value, dict) and value.keys().isdisjoint({"id", "topic"}) else value
