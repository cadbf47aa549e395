"""The oldest record of raw that a staging may still ask for."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.errors import UsageError
from zync.lake.files import data_files, dataset
from zync.raw.table import TRIMMED, first_seqno
from zync.staging.bookkeeping import Cursor, read_known
from zync.staging.set_aside import read_set_aside
from zync.staging.table import STAGING_SCHEMA
from zync.text import amount

_RANGES = pa.schema([("first", pa.int64()), ("last", pa.int64())])
_COLUMNS = ["kind", "seqno", "txn", "records", "state"]


def needed_from(staging: DeltaTable, remember: int) -> tuple[int, str]:
    """The first seqno that a sync to this staging, or an operator, may ask for; and as what."""
    known, aside = read_known(staging, 0), read_set_aside(staging)
    found = [(known.cursor.seqno + 1, "not settled yet")]
    found += _firsts(known.in_flight.to_pylist(), "in flight or expired: zync txn list")
    found += _firsts(chain(*aside.quarantined.values(), aside.late.values()), "set aside, undecided: zync dlq list")
    if remember:
        recent = _rows(staging, ds.field("seqno") > known.cursor.head - remember, known.cursor.head - remember)
        firsts = filter(None, (pc.min(_ranges(rows)["first"]).as_py() for rows in recent))
        found += [(first, f"within the last {amount(remember, 'record')}: transactions.remember") for first in firsts]
    return min(found)


def _firsts(rows: Iterable[dict[str, Any]], why: str) -> list[tuple[int, str]]:
    return [(part["first"], why) for row in rows for part in row["records"]]


def check_start(raw: DeltaTable, staging: DeltaTable, cursor: Cursor) -> None:
    """Raises UsageError where raw was trimmed since that cursor's sync, and the staging needs what is gone."""
    if cursor.raw_version >= (raw.transaction_version(TRIMMED) or 0) or not cursor.sync:
        return
    if (needed := needed_from(staging, 0)[0]) < first_seqno(raw):
        msg = (
            f"{raw.table_uri} has all records from seqno {first_seqno(raw):,} on, and {staging.table_uri} needs those "
            f"from {needed:,} on: `zync maintain` did not know of it. Make it anew, under another name"
        )
        raise UsageError(msg)


def _rows(staging: DeltaTable, wanted: ds.Expression, above: int) -> Iterator[pa.RecordBatch]:
    """The rows about transactions that are `wanted`, which are in files that have seqnos above that."""
    paths = [one.path for one in data_files(staging, "seqno", above=above)]
    kind, txn = ds.field("kind"), ds.field("txn")
    nobodys = kind.isin(["output", "cursor", "trimmed"]) | (kind == "ignored") & txn.is_null()
    if paths:
        yield from dataset(staging, paths, STAGING_SCHEMA).to_batches(columns=_COLUMNS, filter=wanted & ~nobodys)


def _ranges(rows: pa.RecordBatch) -> pa.Table:
    """The ranges of all the rows, as (first, last)."""
    return pa.Table.from_struct_array(rows["records"].flatten()).cast(_RANGES)
