"""Reads what is set aside in staging until an operator decides: quarantined and late records and transactions."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.lake.files import data_files, dataset
from zync.lake.ranges import SeqnoRanges
from zync.staging.kinds import UNDECIDED_KINDS
from zync.staging.table import STAGING_SCHEMA

REVISITS = "revisits"
"""The key in the state of a row that a redrive or a drop wrote: the ranges of records that the decision was about."""

Row = dict[str, Any]

_COLUMNS = ["kind", "seqno", "txn", "kafka", "records", "count", "since", "state", "reason", "rule"]


@dataclass(frozen=True)
class SetAside:
    """Staging's rows of what is set aside, by `id_of`, without those that an operator decided about.

    `records` of each row are SeqnoRanges.

    Attributes:
        quarantined: The rows of each id in order of seqno; a decision is about the first. A transaction that was
            redriven and failed again has the row of the last failure, with the records of the first.
        late: The late records of each id, joined into a single row.
    """

    quarantined: dict[str, list[Row]] = field(default_factory=dict)
    late: dict[str, Row] = field(default_factory=dict)


def id_of(row: Row) -> str:
    """Returns the transaction id of a row; for a record without transaction `topic/partition/offset`."""
    return "{topic}/{partition}/{offset}".format(**row["kafka"]) if row["txn"] is None else str(row["txn"])


def read_set_aside(table: DeltaTable, wanted: Collection[str] | None = None) -> SetAside:
    """Reads what is set aside at the version of `table`, for the ids in `wanted` only, or for all if it is None."""
    files = data_files(table, "seqno")
    if not files or (wanted is not None and not wanted):
        return SetAside()
    kind, txn = ds.field("kind"), ds.field("txn")
    row_filter = kind.isin(list(UNDECIDED_KINDS)) | kind.isin(["done", "discarded"]) & ds.field("state").is_valid()
    if wanted is not None:
        row_filter &= txn.is_null() | txn.isin(pa.array(wanted, pa.string()))
    rows = dataset(table, files, STAGING_SCHEMA).to_table(columns=_COLUMNS, filter=row_filter)
    quarantined: dict[str, list[Row]] = {}
    late: dict[str, list[Row]] = {}
    for row in rows.sort_by("seqno").to_pylist():
        row_id = id_of(row)
        if wanted is not None and row_id not in wanted:
            continue
        row["records"] = SeqnoRanges.of_structs(row["records"]) if row["state"] is None else revisited(row["state"])
        if row["state"] is not None:  # A redrive or a drop: its records are no longer set aside
            for rows_by_id in (quarantined, late):
                rows_by_id[row_id] = [
                    earlier for earlier in rows_by_id.get(row_id, []) if not row["records"].covers(earlier["records"])
                ]
        if row["kind"] in UNDECIDED_KINDS:
            (quarantined if row["kind"] == "quarantined" else late).setdefault(row_id, []).append(row)
    by_first_seqno = sorted(
        ((row_id, rows) for row_id, rows in quarantined.items() if rows), key=lambda item: item[1][0]["seqno"]
    )
    late_by_id = {row_id: _joined(rows) for row_id, rows in late.items() if rows}
    return SetAside(dict(by_first_seqno), late_by_id)


def revisited(state: str | None) -> SeqnoRanges:
    """Returns the records that a redrive or a drop was about, by the `state` of its row; of other rows no ranges."""
    return SeqnoRanges.of_structs(json.loads(state or "{}").get(REVISITS, []))


def _joined(rows: list[Row]) -> Row:
    """Joins rows into the first of them, with the records of all."""
    return {**rows[0], "records": SeqnoRanges.concat(row["records"] for row in rows), "count": len(rows)}
