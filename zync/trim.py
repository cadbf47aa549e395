"""Raw's records that nobody will ask for again are taken away, oldest first.

A sync asks for records after its cursor and for those of transactions in flight; with a preset also for those of
transactions settled within `remember`, when more comes of them. An operator asks for those of what is set aside. What
is older than all this, in every staging that was made of raw, may go.

Before raw's new start the records of transactions stay that have records after it, too; so whatever is in raw is
there whole, and a staging made anew has the same transactions from there on.
"""

import contextlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import FileSelector

from zync.errors import UsageError
from zync.files import DataFile, data_files, dataset, folder_files
from zync.ingest.raw import RAW_SCHEMA, START, TRIMMED, first_seqno, next_seqno
from zync.lake import open_table
from zync.output import amount
from zync.places import locate
from zync.rewrite import is_raw, rewrite
from zync.staging.table import STAGING_SCHEMA, existing_staging
from zync.transactions.known import IN_FLIGHT_KINDS, Cursor, read_cursor, read_known
from zync.transactions.set_aside import REVISITS, read_set_aside

_RANGES = pa.schema([("first", pa.int64()), ("last", pa.int64())])
_COLUMNS = ["kind", "seqno", "txn", "records", "state"]
_BESIDE = ["late", "duplicate", "ignored"]
"""Kinds of rows that are about one more record of a transaction that was settled before."""


@dataclass(frozen=True)
class Plan:
    """Where raw is to start; the files that have records before that, `before` as many; and which of these stay.

    The latter as ranges, sorted: each `first`, and the highest `last` of it and all before it.
    """

    start: int
    files: list[DataFile]
    before: int
    first: np.ndarray
    last: np.ndarray

    def touches(self, file: DataFile) -> bool:
        """Whether something of the file may stay."""
        begun = np.searchsorted(self.first, file.highest, side="right")
        return file.highest >= self.start or bool(begun and self.last[begun - 1] >= file.lowest)

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of the rows that stay."""
        numbers = rows["seqno"].to_numpy()
        begun = np.searchsorted(self.first, numbers, side="right")
        stays = np.concatenate([[-1], self.last])[begun] >= numbers
        return rows.filter(pa.array(stays | (numbers >= self.start)))

    @property
    def kept(self) -> int:
        """How many records before the start stay."""
        begin = np.maximum(self.first, np.concatenate([[0], self.last[:-1] + 1]))
        return int(np.maximum(np.minimum(self.last, self.start - 1) - begin + 1, 0).sum())

    @property
    def trimmed(self) -> int:
        """How many records go."""
        return self.before - self.kept

    @property
    def files_after(self) -> int:
        """How many files there are for those: what stays of them becomes one."""
        return int(sum(one.rows for one in self.files) > self.trimmed)


def stagings(raw: DeltaTable, named: list[str]) -> list[DeltaTable]:
    """Those in raw's folder that were made of it, and those that are `named`: UsageError where one was not."""
    mine = str(raw.metadata().id)
    found = {}
    for location in named:
        table = existing_staging(location)
        if read_cursor(table).raw_id != mine:
            msg = f"{location} was not made of {raw.table_uri}"
            raise UsageError(msg)
        found[table.table_uri] = table
    folder = locate(raw.table_uri, "").rstrip("/").rpartition("/")[0]
    for one in folder_files(folder).get_file_info(FileSelector("")):
        with contextlib.suppress(UsageError):  # it is no table, or none of zync's
            other = open_table(f"{folder}/{one.base_name}")
            if other and not is_raw(other) and read_cursor(other).raw_id == mine:
                found[other.table_uri] = other
    return list(found.values())


def plan(raw: DeltaTable, made_of_it: list[DeltaTable], start: int) -> Plan:
    """What goes, and what stays, where raw is to start with the record of that seqno."""
    files = [one for one in data_files(raw, "seqno") if one.lowest < start]
    count = sum(one.rows if one.highest < start else _count_before(raw, one, start) for one in files)
    kept = pa.concat_tables([_reaching(one, start) for one in made_of_it]).sort_by("first")
    last = np.maximum.accumulate(kept["last"].to_numpy())
    return Plan(start, files, count, kept["first"].to_numpy(), last)


def trim(raw: DeltaTable, planned: Plan) -> int:
    """Takes away what the plan says, in one commit, and returns how many records that were."""
    stay = rewrite(
        raw,
        [one for one in planned.files if planned.touches(one)],
        keep=planned.keep,
        gone=[one for one in planned.files if not planned.touches(one)],
        transactions=lambda table: {START: planned.start, TRIMMED: table.version() + 1},
    )
    return sum(one.rows for one in planned.files) - stay


def first_since(raw: DeltaTable, moment: datetime) -> int:
    """The seqno of the first record that was ingested then or later; the next one that raw will have, if none was."""
    files = data_files(raw, "seqno")
    at = bisect_left(files, moment, key=lambda one: _column(raw, one, "ingested")[-1].as_py())
    if at == len(files):
        return next_seqno(raw)
    ingested = _column(raw, files[at], "ingested").to_pylist()
    return int(_column(raw, files[at], "seqno")[bisect_left(ingested, moment)].as_py())


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


def _reaching(staging: DeltaTable, start: int) -> pa.Table:
    """Which records before `start` (first, last) are of transactions that have some from there on.

    So has one of which a record came late, or again; and what was set aside till somebody decided about it.
    """
    found, beside = [_RANGES.empty_table()], set[str]()
    for rows in _rows(staging, ds.field("seqno") >= start, start - 1):
        found.append(_ranges(rows))
        for row in rows.filter(_is_beside(rows)).to_pylist():
            found.append(pa.Table.from_pylist(json.loads(row["state"] or "{}").get(REVISITS, []), _RANGES))
            beside.add(row["txn"])
    if beside:
        before = (ds.field("seqno") < start) & ds.field("txn").isin(pa.array(beside, pa.string()))
        found += map(_ranges, _rows(staging, before, 0))
    ranges = pa.concat_tables(found)
    return ranges.filter(pc.less(ranges["first"], start))


def _is_beside(rows: pa.RecordBatch) -> pa.Array:
    """Which of them are about a transaction that was settled or set aside before."""
    decided = pc.and_(pc.is_valid(rows["state"]), pc.invert(pc.is_in(rows["kind"], pa.array(IN_FLIGHT_KINDS))))
    return pc.or_(pc.is_in(rows["kind"], pa.array(_BESIDE)), decided)


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


def _count_before(raw: DeltaTable, file: DataFile, seqno: int) -> int:
    return int(pc.sum(pc.less(_column(raw, file, "seqno"), seqno)).as_py())


def _column(raw: DeltaTable, file: DataFile, name: str) -> pa.ChunkedArray:
    return dataset(raw, [file.path], RAW_SCHEMA).to_table(columns=[name])[name]
