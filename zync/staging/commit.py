"""Stages write and commit: all rows of a sync as files, then one Delta commit that makes them be.

The files are written into a folder of their own, where nobody sees them; the commit, by this process, adds
them together with the sync's number. It is refused if anything at all was committed since the cursor was read.
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
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyspark.sql import DataFrame

from zync.errors import CommitRefusedError, CommitUnknownError, OwnedError, ZyncError
from zync.lake.files import dataset, file_statistics, table_files
from zync.lake.paths import for_spark, is_local, locate
from zync.lake.table import CHECKPOINT_EVERY, NO_HOOKS, commit_properties, first_line, open_table, refresh
from zync.spark.frames import select, spark_schema
from zync.staging.bookkeeping import read_cursor
from zync.staging.table import STAGING_SCHEMA, STATISTICS, SYNC


@dataclass(frozen=True)
class Written:
    """Files that are not committed yet: the folder, the bookkeeping rows in them, and output rows and next offsets.

    `stray`: the seqno of an output row, if there is one, that is of no transaction that goes out in them.
    """

    folder: str
    rows: pa.Table
    outputs: dict[str, int]
    offsets: dict[str, int]
    stray: int | None = None

    @property
    def count(self) -> int:
        """All rows in them."""
        return int(self.rows.num_rows) + sum(self.outputs.values())


BOOKKEEPING = ("kind", "seqno", "txn", "records", "count", "since", "state", "reason", "kafka")
_DISTINCT = ("seqno", "txn", "records.list.element.first", "records.list.element.last", "kafka.offset", "value")
"""Columns whose values hardly come twice: to look for those that do takes a tenth of the time to write them."""


def write(rows: DataFrame, table: DeltaTable, folder: str, number: int) -> None:
    """Writes the rows of sync `number` as Parquet into that folder of the table: seen by nobody before the commit.

    Columns of staging that `rows` does not have are null to all who read the table, and not in the files at all.
    """
    there = {name: name for name in rows.columns} | {"sync": f"{number}L"}
    named = (f"{there[field.name]} AS {field.name}" for field in spark_schema(STAGING_SCHEMA) if field.name in there)
    writer = select(rows, *named).write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    for column in _DISTINCT:
        writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
    writer.parquet(f"{for_spark(table.table_uri)}/{folder}")


def write_here(rows: DataFrame, table: DeltaTable, folder: str, number: int) -> None:
    """As `write`, by this process: where they are few, sooner than Spark has set up a job that writes."""
    found = rows.toArrow()
    found = found.append_column("sync", pa.repeat(pa.scalar(number, pa.int64()), found.num_rows))
    schema = pa.schema([field for field in STAGING_SCHEMA if field.name in found.column_names])
    table_files(table).create_dir(folder)
    add_rows(table, folder, found.select(schema.names).cast(schema), name="bookkeeping")


def _written(files: FileSystem, folder: str) -> list[FileInfo]:
    """What `write` and `add_rows` left in that folder."""
    found = files.get_file_info(FileSelector(folder, recursive=True))
    return [info for info in found if info.path.endswith(".parquet")]


def read_back(table: DeltaTable, folder: str) -> Written:
    """What was written, as the commit will make it be: bookkeeping rows whole, of outputs the counts and offsets."""
    names = [info.path for info in _written(table_files(table), folder)]
    data = dataset(table, names, STAGING_SCHEMA)
    is_output = pc.field("kind") == "output"  # files' statistics say which of them have any
    rows = data.to_table(columns=list(BOOKKEEPING), filter=~is_output)
    outputs, offsets, going_out = dict[str, int](), dict[str, int](), [pa.array([], pa.int64())]
    for batch in data.to_batches(columns=["seqno", "kafka"], filter=is_output):
        going_out.append(pc.unique(batch["seqno"]))
        place = batch["kafka"]
        counted = pa.table({"topic": pc.struct_field(place, "topic"), "offset": pc.struct_field(place, "offset")})
        for one in counted.group_by("topic").aggregate([("offset", "count"), ("offset", "max")]).to_pylist():
            topic = one["topic"]
            outputs[topic] = outputs.get(topic, 0) + one["offset_count"]
            offsets[topic] = max(offsets.get(topic, 0), one["offset_max"] + 1)
    whole = rows["seqno"].filter(pc.is_in(rows["kind"], pa.array(["done", "released"])))
    seqnos = pa.concat_arrays(going_out)
    stray = pc.min(seqnos.filter(pc.invert(pc.is_in(seqnos, whole)))).as_py()
    return Written(folder, rows, dict(sorted(outputs.items())), offsets, stray)


def add_rows(table: DeltaTable, folder: str, rows: pa.Table, *, name: str = "driver") -> None:
    """Adds a file of that name with the driver's own rows to the folder, which is there."""
    files = table_files(table)
    with files.open_output_stream(f"{folder}/{name}.zstd.parquet") as target:
        pq.write_table(rows, target, compression="zstd")


def discard(table: DeltaTable, folder: str) -> None:
    """Takes away files that will not be committed."""
    files = table_files(table)
    with contextlib.suppress(OSError):
        files.delete_dir(folder)


def reclaim(table: DeltaTable, newest: int) -> None:
    """Takes away what syncs after the `newest` committed one wrote before they were killed. The lock must be held."""
    location = locate(table.table_uri, "")
    for folder in Path(location).glob("sync-*") if is_local(location) else ():
        match = re.match(r"sync-(\d+)-", folder.name)
        if match and int(match[1]) > newest:
            shutil.rmtree(folder, ignore_errors=True)


def commit(table: DeltaTable, folder: str, number: int, nonce: str, *, rows: int) -> None:
    """Adds the files of `folder`, with their `rows`, to staging as sync `number`.

    On the handle that the cursor was read from; or, if the table was only maintained since, on one that is as it was.

    Raises:
        CommitRefusedError: it did not land; trying the sync again is safe.
        CommitUnknownError: it is not known whether it landed.
        OwnedError: another writer committed a sync first; this one did not land.
    """
    added: list[AddAction | RemoveAction] = []
    now: DeltaTable | None = table
    while now:
        try:
            added = added or list(_added(now, folder, rows))
            now.create_write_transaction(
                added,
                mode="append",
                schema=now.schema(),
                commit_properties=commit_properties({SYNC: number}, userMetadata=nonce),
                post_commithook_properties=NO_HOOKS,
            )
        except (DeltaError, OSError) as error:
            now = _judge(now, number, nonce, error)
        else:
            return


def _judge(table: DeltaTable, number: int, nonce: str, error: Exception) -> DeltaTable | None:
    """After a failed commit: None if it landed all the same; the table as it is now, if only it was maintained since.

    Raises what is true otherwise.
    """
    location = table.table_uri
    try:
        now = open_table(location)
        cursor = read_cursor(now) if now else None
    except (ZyncError, DeltaError, OSError) as second:
        msg = (
            f"the commit of sync {number} to {location} failed ({first_line(error)}) and the table cannot be read "
            f"({first_line(second)}): whether it landed is not known; the next sync will see"
        )
        raise CommitUnknownError(msg) from error
    if cursor and cursor.sync == number and cursor.nonce == nonce:
        return None
    if cursor and cursor.sync >= number:
        msg = f"another writer committed sync {cursor.sync} to {location}; this one did not land"
        raise OwnedError(msg) from error
    if now and cursor and cursor.sync == number - 1 and now.version() > table.version():
        return now
    msg = f"the commit of sync {number} to {location} did not land: {first_line(error)}"
    raise CommitRefusedError(msg) from error


def checkpoint(table: DeltaTable) -> None:
    """Leaves a checkpoint every so many versions, after a commit on this handle; its failure is nobody's."""
    with contextlib.suppress(DeltaError, OSError):
        refresh(table)
        if table.version() % CHECKPOINT_EVERY == 0:
            table.create_checkpoint()


def _added(table: DeltaTable, folder: str, rows: int) -> Iterator[AddAction]:
    """The files of `folder` as actions, with the statistics that reads prune by; ZyncError where they lack `rows`."""
    files = table_files(table)
    for info in _written(files, folder):
        path = info.path.lstrip("/")
        with files.open_input_file(path) as source:
            statistics = file_statistics(pq.ParquetFile(source).metadata, STATISTICS)
        rows -= statistics["numRecords"]
        if statistics["numRecords"]:
            yield AddAction(
                path, info.size, {}, int(time.time() * 1000), data_change=True, stats=json.dumps(statistics)
            )
    if rows:
        msg = f"{rows:,} rows that were written to {table.table_uri}/{folder} are not there: were files deleted?"
        raise ZyncError(msg)
