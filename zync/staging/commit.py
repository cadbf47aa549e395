"""Writes the rows of a sync as Parquet files, then adds them to staging in a single Delta commit.

The files go into a folder of the sync, where no reader sees them. The commit, by this process, adds them and stores
the sync's number as Delta's `txn`. Delta refuses the commit if anything was committed since the cursor was read.
"""

import contextlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyspark.sql import DataFrame

from zync import java
from zync.errors import CommitRefusedError, OwnedError, ZyncError
from zync.lake.commit import Commit, Landed, Refused, change_files
from zync.lake.files import dataset, file_statistics, table_files
from zync.lake.paths import for_spark, is_local, locate
from zync.lake.table import first_line
from zync.spark.frames import select, spark_schema
from zync.spark.functions import constant
from zync.spark.session import commits_directly
from zync.staging.bookkeeping import Cursor, read_cursor
from zync.staging.kinds import COMPLETED_KINDS
from zync.staging.table import STAGING_SCHEMA, STATISTICS, SYNC


@dataclass(frozen=True)
class Written:
    """The files of a sync before the commit.

    Attributes:
        folder: Their folder, below the table.
        rows: Their bookkeeping rows.
        outputs: The number of output rows by topic.
        offsets: The next offset by topic.
        foreign_seqno: The lowest seqno of an output row whose transaction this sync does not complete; None if it
            completes all.
    """

    folder: str
    rows: pa.Table
    outputs: dict[str, int]
    offsets: dict[str, int]
    foreign_seqno: int | None = None

    @property
    def count(self) -> int:
        """The number of rows in the files."""
        return int(self.rows.num_rows) + sum(self.outputs.values())


BOOKKEEPING = ("kind", "seqno", "txn", "records", "count", "since", "state", "reason", "kafka")
_WITHOUT_DICTIONARY = (
    "seqno",
    "txn",
    "records.list.element.first",
    "records.list.element.last",
    "kafka.offset",
    "value",
)
"""Columns written without a Parquet dictionary: their values hardly repeat; dictionaries take 10 % of the write."""


def write(rows: DataFrame, table: DeltaTable, folder: str, number: int) -> None:
    """Writes the rows of sync `number` with Spark as Parquet files into a folder of the table.

    Columns of staging that `rows` lacks are left out of the files; readers of the table see null.
    """
    values = {name: name for name in rows.columns} | {"sync": constant(number)}
    columns = (
        f"{values[field.name]} AS {field.name}" for field in spark_schema(STAGING_SCHEMA) if field.name in values
    )
    writer = select(rows, *columns).write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    if not is_local(locate(table.table_uri, "")) and commits_directly(rows.sparkSession):
        writer = writer.option("spark.sql.parquet.output.committer.class", java.DIRECT_COMMITTER)
    for column in _WITHOUT_DICTIONARY:
        writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
    writer.parquet(f"{for_spark(table.table_uri)}/{folder}")


def write_here(rows: DataFrame, table: DeltaTable, folder: str, number: int) -> None:
    """Does the work of `write` in this process: for few rows it ends before Spark has set up a job."""
    arrow_rows = rows.toArrow()
    arrow_rows = arrow_rows.append_column("sync", pa.repeat(pa.scalar(number, pa.int64()), arrow_rows.num_rows))
    schema = pa.schema([field for field in STAGING_SCHEMA if field.name in arrow_rows.column_names])
    table_files(table).create_dir(folder)
    add_rows(table, folder, arrow_rows.select(schema.names).cast(schema), name="bookkeeping")


def _parquet_files(file_system: FileSystem, folder: str) -> list[FileInfo]:
    """Lists the Parquet files that `write` and `add_rows` left in the folder."""
    file_infos = file_system.get_file_info(FileSelector(folder, recursive=True))
    return [info for info in file_infos if info.path.endswith(".parquet")]


def read_back(table: DeltaTable, folder: str) -> Written:
    """Reads the written files of a sync: all bookkeeping rows; of output rows only counts, offsets and seqnos."""
    data = dataset(table, _parquet_files(table_files(table), folder), STAGING_SCHEMA)
    is_output = pc.field("kind") == "output"  # Parquet statistics tell which files have output rows
    rows = data.to_table(columns=list(BOOKKEEPING), filter=~is_output)
    outputs, offsets, output_seqnos = dict[str, int](), dict[str, int](), [pa.array([], pa.int64())]
    for batch in data.to_batches(columns=["seqno", "kafka"], filter=is_output):
        output_seqnos.append(pc.unique(batch["seqno"]))
        kafka = batch["kafka"]
        topic_offsets = pa.table({"topic": pc.struct_field(kafka, "topic"), "offset": pc.struct_field(kafka, "offset")})
        for counts in topic_offsets.group_by("topic").aggregate([("offset", "count"), ("offset", "max")]).to_pylist():
            topic = counts["topic"]
            outputs[topic] = outputs.get(topic, 0) + counts["offset_count"]
            offsets[topic] = max(offsets.get(topic, 0), counts["offset_max"] + 1)
    completed_seqnos = rows["seqno"].filter(pc.is_in(rows["kind"], pa.array(COMPLETED_KINDS)))
    seqnos = pa.concat_arrays(output_seqnos)
    foreign_seqno = pc.min(seqnos.filter(pc.invert(pc.is_in(seqnos, completed_seqnos)))).as_py()
    return Written(folder, rows, dict(sorted(outputs.items())), offsets, foreign_seqno)


def add_rows(table: DeltaTable, folder: str, rows: pa.Table, *, name: str = "driver") -> None:
    """Writes `rows` as a file `<name>.zstd.parquet` into an existing folder of the table."""
    file_system = table_files(table)
    with file_system.open_output_stream(f"{folder}/{name}.zstd.parquet") as stream:
        pq.write_table(rows, stream, compression="zstd")


def discard(table: DeltaTable, folder: str) -> None:
    """Deletes the files of a sync that is not committed."""
    file_system = table_files(table)
    with contextlib.suppress(OSError):
        file_system.delete_dir(folder)


def reclaim(table: DeltaTable, newest: int) -> None:
    """Deletes the folders of syncs after `newest`, the last committed sync: they were killed before their commit.

    The caller must hold the lock of the table. An object store has none, so a sync that is still at work may have
    written such a folder: there it stays until a vacuum finds it old enough.
    """
    location = locate(table.table_uri, "")
    for folder in Path(location).glob("sync-*") if is_local(location) else ():
        match = re.match(r"sync-(\d+)-", folder.name)
        if match and int(match[1]) > newest:
            shutil.rmtree(folder, ignore_errors=True)


def commit_files(table: DeltaTable, folder: str, number: int, nonce: str, *, rows: int) -> None:
    """Commits the files of `folder` to staging as sync `number`.

    If the table was only maintained since the cursor was read from `table`, the commit is tried again at its newest
    version.

    Args:
        table: The handle from which the cursor was read.
        folder: The folder of the sync's files, below the table.
        number: The number of the sync.
        nonce: A random id, by which a writer recognizes its own commit.
        rows: The number of rows in the files.

    Raises:
        CommitRefusedError: it did not land; trying the sync again is safe.
        CommitUnknownError: it is not known whether it landed.
        OwnedError: another writer committed a sync first; this one did not land.
    """
    name = f"the commit of sync {number} to {table.table_uri}"
    failure, handle = f"{name} did not land", table
    while True:

        def write(properties: CommitProperties, handle: DeltaTable = handle) -> None:
            change_files(handle, list(_add_actions(handle, folder, rows)), properties)

        commit = Commit(handle, {SYNC: number}, nonce, failure, name, "the next sync")
        outcome = commit.attempt(write)
        if isinstance(outcome, Landed):
            return
        cursor = _read_cursor(outcome, failure)
        if cursor.sync >= number:
            msg = f"another writer committed sync {cursor.sync} to {table.table_uri}; this one did not land"
            raise OwnedError(msg) from outcome.error
        if outcome.table is None or cursor.sync != number - 1:
            msg = f"{failure}: {first_line(outcome.error)}"
            raise CommitRefusedError(msg) from outcome.error
        handle = outcome.table


def _read_cursor(refused: Refused, failure: str) -> Cursor:
    """Reads the cursor of the table that refused a commit; an all-zero cursor if there is no table.

    Raises:
        CommitRefusedError: it cannot be read.
    """
    try:
        return read_cursor(refused.table) if refused.table else Cursor()
    except (ZyncError, DeltaError, OSError) as read_error:
        msg = f"{failure}: {first_line(refused.error)}, and the table cannot be read ({first_line(read_error)})"
        raise CommitRefusedError(msg) from refused.error


def _add_actions(table: DeltaTable, folder: str, rows: int) -> Iterator[AddAction]:
    """Makes an add action for each file of `folder`, with the statistics of `STATISTICS` that readers prune files by.

    Raises:
        ZyncError: the files do not hold `rows` rows.
    """
    infos = _parquet_files(table_files(table), folder)
    for info, fragment in zip(infos, dataset(table, infos, STAGING_SCHEMA).get_fragments(), strict=True):
        statistics = file_statistics(fragment.metadata, STATISTICS)
        rows -= statistics["numRecords"]
        if statistics["numRecords"]:
            path, now = info.path.lstrip("/"), int(time.time() * 1000)
            yield AddAction(path, info.size, {}, now, data_change=True, stats=json.dumps(statistics))
    if rows:
        msg = f"{rows:,} rows that were written to {table.table_uri}/{folder} are not there: were files deleted?"
        raise ZyncError(msg)
