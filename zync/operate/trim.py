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
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import FileSelector

from zync.errors import UsageError
from zync.lake.files import DataFile, data_files, dataset, folder_files
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.operate.rewrite import is_raw, rewrite
from zync.raw.table import RAW_SCHEMA, START, TRIMMED, next_seqno
from zync.staging.bookkeeping import IN_FLIGHT_KINDS, read_cursor
from zync.staging.set_aside import REVISITS
from zync.staging.table import existing_staging
from zync.transactions.needed import _RANGES, _ranges, _rows

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
        dropped=[one for one in planned.files if not planned.touches(one)],
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


def _count_before(raw: DeltaTable, file: DataFile, seqno: int) -> int:
    return int(pc.sum(pc.less(_column(raw, file, "seqno"), seqno)).as_py())


def _column(raw: DeltaTable, file: DataFile, name: str) -> pa.ChunkedArray:
    return dataset(raw, [file.path], RAW_SCHEMA).to_table(columns=[name])[name]
