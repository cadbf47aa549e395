"""What is set aside in staging until somebody decides: what is in quarantine, and what came late."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.lake.files import data_files, dataset
from zync.staging.table import STAGING_SCHEMA

REVISITS = "revisits"
"""Where the state of a row that a redrive or a drop made has the records that it was about, as ranges."""

Row = dict[str, Any]
Ranges = list[dict[str, int]]

_COLUMNS = ["kind", "seqno", "txn", "kafka", "records", "count", "since", "state", "reason", "rule"]


@dataclass(frozen=True)
class SetAside:
    """Staging's rows of what is set aside now, by id (a record by itself: its place in Kafka).

    quarantined: of each id those that nobody decided about, in the order of seqno: the first is the one that a decision
    is about; what was redriven and failed again has the row of the last time, with the records of the first. late: all
    of an id as one row.
    """

    quarantined: dict[str, list[Row]] = field(default_factory=dict)
    late: dict[str, Row] = field(default_factory=dict)


def id_of(row: Row) -> str:
    """The id of a row's transaction; of a record by itself, its place in Kafka."""
    return "{topic}/{partition}/{offset}".format(**row["kafka"]) if row["txn"] is None else str(row["txn"])


def read_set_aside(table: DeltaTable, wanted: Collection[str] | None = None) -> SetAside:
    """What is set aside at this version of staging; of the ids `wanted` alone, if given."""
    paths = [one.path for one in data_files(table, "seqno")]
    if not paths or (wanted is not None and not wanted):
        return SetAside()
    kind, txn = ds.field("kind"), ds.field("txn")
    mine = kind.isin(["quarantined", "late"]) | kind.isin(["done", "discarded"]) & ds.field("state").is_valid()
    if wanted is not None:
        mine &= txn.is_null() | txn.isin(pa.array(wanted, pa.string()))
    rows = dataset(table, paths, STAGING_SCHEMA).to_table(columns=_COLUMNS, filter=mine)
    quarantined: dict[str, list[Row]] = {}
    late: dict[str, list[Row]] = {}
    for row in rows.sort_by("seqno").to_pylist():
        name = id_of(row)
        if wanted is not None and name not in wanted:
            continue
        if row["state"] is not None:
            row["records"] = json.loads(row["state"])[REVISITS]
            gone = seqnos(row["records"])
            for there in (quarantined, late):
                there[name] = [one for one in there.get(name, []) if not seqnos(one["records"]) <= gone]
        if row["kind"] in ("quarantined", "late"):
            (quarantined if row["kind"] == "quarantined" else late).setdefault(name, []).append(row)
    in_order = sorted(((name, rows) for name, rows in quarantined.items() if rows), key=lambda one: one[1][0]["seqno"])
    together = {name: _together(rows) for name, rows in late.items() if rows}
    return SetAside(dict(in_order), together)


def seqnos(ranges: Ranges) -> set[int]:
    """Those that the ranges have."""
    return {seqno for one in ranges for seqno in range(one["first"], one["last"] + 1)}


def _together(rows: list[Row]) -> Row:
    return {**rows[0], "records": [one for row in rows for one in row["records"]], "count": len(rows)}
