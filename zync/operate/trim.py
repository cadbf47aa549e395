"""Trims raw: removes the oldest records, which no sync and no operator will ask for again.

A sync reads the records after its cursor and those of transactions in flight; with a preset also those of transactions
settled within `remember`, if more records of them come. An operator asks for the records of what is set aside. Records
older than all of these, in every staging that was made of raw, can be removed.

Records before raw's new start stay if their transaction also has records after it. So raw has every transaction whole,
and a staging made anew has the same transactions from there on.
"""

import contextlib
from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import FileSelector

from zync.errors import UsageError
from zync.lake.files import DataFile, data_files, dataset, folder_files
from zync.lake.paths import locate
from zync.lake.ranges import SeqnoRanges
from zync.lake.table import open_table
from zync.operate.rewrite import is_raw, rewrite
from zync.raw.table import RAW_SCHEMA, START, TRIMMED, next_seqno
from zync.staging.bookkeeping import read_cursor
from zync.staging.kinds import FOLLOW_UP_KINDS, IN_FLIGHT_KINDS
from zync.staging.set_aside import revisited
from zync.staging.table import existing_staging
from zync.transactions.needed import rows_of


@dataclass(frozen=True)
class Plan:
    """Which records of raw are trimmed.

    Attributes:
        start: raw's new start; all records from this seqno on stay.
        files: the files that have records before the start.
        before: the number of records before the start.
        kept: the records before the start that stay.
    """

    start: int
    files: list[DataFile]
    before: int
    kept: SeqnoRanges

    def touches(self, file: DataFile) -> bool:
        """Returns whether a record of the file may stay."""
        return file.highest >= self.start or self.kept.overlaps(file.lowest, file.highest)

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows that stay."""
        seqnos = rows["seqno"].to_numpy()
        return rows.filter(pa.array(self.kept.contains(seqnos) | (seqnos >= self.start)))

    @property
    def trimmed(self) -> int:
        """Number of records that are removed."""
        return self.before - self.kept.count

    @property
    def files_after(self) -> int:
        """Number of files that replace `files`: a single file with the records that stay, if there are any."""
        return int(sum(file.rows for file in self.files) > self.trimmed)


def stagings(raw: DeltaTable, locations: list[str]) -> list[DeltaTable]:
    """Returns the stagings that were made of raw: those in its folder, and those at `locations`.

    Raises:
        UsageError: a staging at `locations` does not exist, or was made of another raw.
    """
    raw_id = str(raw.metadata().id)
    made_of_raw = {}
    for location in locations:
        table = existing_staging(location)
        if read_cursor(table).raw_id != raw_id:
            msg = f"{location} was not made of {raw.table_uri}"
            raise UsageError(msg)
        made_of_raw[table.table_uri] = table
    folder = locate(raw.table_uri, "").rstrip("/").rpartition("/")[0]
    for entry in folder_files(folder).get_file_info(FileSelector("")):
        with contextlib.suppress(UsageError):  # the entry is not a table, or not a table of zync's
            other = open_table(f"{folder}/{entry.base_name}")
            if other and not is_raw(other) and read_cursor(other).raw_id == raw_id:
                made_of_raw[other.table_uri] = other
    return list(made_of_raw.values())


def plan(raw: DeltaTable, made_of_raw: list[DeltaTable], start: int) -> Plan:
    """Plans what is removed and what stays if raw is to start with the seqno `start`.

    Args:
        raw: the raw table.
        made_of_raw: all stagings that were made of it.
        start: the seqno from which on all records stay.
    """
    files = [file for file in data_files(raw, "seqno") if file.lowest < start]
    count = sum(file.rows if file.highest < start else _count_before(raw, file, start) for file in files)
    kept = SeqnoRanges.concat(_crossing_ranges(staging, start) for staging in made_of_raw)
    return Plan(start, files, count, kept.merged)


def trim(raw: DeltaTable, planned: Plan) -> int:
    """Removes records as planned, in a single commit, and returns their number."""
    rows_kept = rewrite(
        raw,
        [file for file in planned.files if planned.touches(file)],
        keep=planned.keep,
        dropped=[file for file in planned.files if not planned.touches(file)],
        transactions=lambda table: {START: planned.start, TRIMMED: table.version() + 1},
    )
    return sum(file.rows for file in planned.files) - rows_kept


def first_since(raw: DeltaTable, moment: datetime) -> int:
    """Returns the seqno of the first record ingested at `moment` or later; if there is none, raw's next seqno."""
    files = data_files(raw, "seqno")
    index = bisect_left(files, moment, key=lambda file: _column(raw, file, "ingested")[-1].as_py())
    if index == len(files):
        return next_seqno(raw)
    ingested = _column(raw, files[index], "ingested").to_pylist()
    return int(_column(raw, files[index], "seqno")[bisect_left(ingested, moment)].as_py())


def _crossing_ranges(staging: DeltaTable, start: int) -> SeqnoRanges:
    """Returns the records before `start` of transactions that also have records from `start` on.

    That includes transactions of which a record came late or again, and those set aside before and decided about since.
    """
    parts, ids = list[SeqnoRanges](), set[str]()
    for rows in rows_of(staging, ds.field("seqno") >= start, start - 1):
        parts.append(SeqnoRanges.of_column(rows["records"]))
        for row in rows.filter(_is_follow_up(rows)).to_pylist():
            parts.append(revisited(row["state"]))
            ids.add(row["txn"])
    if ids:
        earlier = (ds.field("seqno") < start) & ds.field("txn").isin(pa.array(ids, pa.string()))
        parts += [SeqnoRanges.of_column(rows["records"]) for rows in rows_of(staging, earlier, 0)]
    return SeqnoRanges.concat(parts).between(0, start - 1)


def _is_follow_up(rows: pa.RecordBatch) -> pa.Array:
    """Returns for each row whether it is about a transaction that was settled or set aside before."""
    is_decided = pc.and_(pc.is_valid(rows["state"]), pc.invert(pc.is_in(rows["kind"], pa.array(IN_FLIGHT_KINDS))))
    return pc.or_(pc.is_in(rows["kind"], pa.array(FOLLOW_UP_KINDS)), is_decided)


def _count_before(raw: DeltaTable, file: DataFile, seqno: int) -> int:
    """Counts the file's records before a seqno."""
    return int(pc.sum(pc.less(_column(raw, file, "seqno"), seqno)).as_py())


def _column(raw: DeltaTable, file: DataFile, name: str) -> pa.ChunkedArray:
    return dataset(raw, [file], RAW_SCHEMA).to_table(columns=[name])[name]
