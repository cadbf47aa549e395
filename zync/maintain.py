"""`zync maintain`: a table's small files made into large ones, what no version needs deleted, its log kept short.

Writers and readers go on meanwhile. Compaction is a commit of Delta's own library, which refuses it if one of the files
is gone already and lets appends be; the files that it replaces stay until they are vacuumed. Killed at any moment, it
leaves a file at most that nobody sees, which is vacuumed as well.
"""

import json
import math
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from zync.errors import OwnedError, UsageError, ZyncError
from zync.ingest.raw import RAW_SCHEMA
from zync.lake import (
    DataFile,
    data_files,
    dataset,
    existing_table,
    file_statistics,
    first_line,
    is_local,
    locked,
    table_files,
)
from zync.spark import jvm_class
from zync.staging.table import STAGING_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETAIN = timedelta(days=7)
"""How long files that are no longer part of a table are kept for who still reads them."""

LEAST_RETAIN = timedelta(days=1)
"""Younger files may be of a sync under way, which are no part of the table yet."""

TARGET = 128 * 1024 * 1024
"""Bytes of a file that is as large as it should be."""

_AT_ONCE = 64 * 1024 * 1024


@dataclass
class Maintained:
    """What was done, or would be. Files before and after; of those that were compacted how many, and into how many."""

    files: int
    files_after: int = 0
    compacted: int = 0
    into: int = 0
    deleted: int = 0
    dry_run: bool = False
    seconds: dict[str, float] = field(default_factory=dict)


def maintain(  # noqa: PLR0913 - what may be asked for
    location: str,
    spark: "Callable[[], SparkSession]",
    *,
    compact: bool,
    vacuum: bool,
    retain: timedelta = RETAIN,
    dry_run: bool = False,
    on_compacted: Callable[[int, int], None] = lambda _done, _all: None,
) -> Maintained:
    """Maintains the raw or staging at `location`; `spark` is called where there is something to compact.

    Raises:
        UsageError: it is no table of zync's.
        OwnedError: another maintains it. What was done until then stays done.
    """
    table = existing_table(location, "zync sync-from kafka raw` or `zync sync raw staging")
    is_raw = _is_raw(table)
    done = Maintained(files=len(table.file_uris()), dry_run=dry_run)
    with _alone(location):
        if compact:
            _timed(done, "compact", lambda: _compact(table, spark, done, on_compacted, is_raw=is_raw))
        if vacuum:
            _timed(done, "vacuum", lambda: _vacuum(table, done, max(retain, LEAST_RETAIN)))
        if not dry_run:
            _timed(done, "log", lambda: _shorten_log(table))
    done.files_after = done.files - done.compacted + done.into if dry_run else len(table.file_uris())
    return done


def _timed(done: Maintained, what: str, work: Callable[[], None]) -> None:
    started = time.monotonic()
    work()
    done.seconds[what] = round(time.monotonic() - started, 3)


def _is_raw(table: DeltaTable) -> bool:
    names = {one.name for one in table.schema().fields}
    for schema, is_raw in ((STAGING_SCHEMA, False), (RAW_SCHEMA, True)):
        if set(schema.names) <= names:
            return is_raw
    msg = f"{table.table_uri} is neither a raw nor a staging of zync's"
    raise UsageError(msg)


@contextmanager
def _alone(location: str) -> Iterator[None]:
    """Holds a lock that only `maintain` takes. An object store has none: there the commit's own check decides."""
    if not is_local(location):
        yield
        return
    path = Path(location)
    with locked(path.parent / f".{path.name}.maintain.lock", wait=0) as ours:
        if not ours:
            msg = f"another zync maintains {location}. Nothing was changed"
            raise OwnedError(msg)
        yield


def groups(files: list[DataFile], target: int = TARGET) -> list[list[DataFile]]:
    """Neighbours among `files` that are to become one file of at most `target` bytes; at least two each."""
    found: list[list[DataFile]] = [[]]
    for file in files:
        if file.size > target // 2:
            found.append([])
            continue
        if sum(one.size for one in found[-1]) + file.size > target:
            found.append([])
        found[-1].append(file)
    return [one for one in found if len(one) > 1]


def _compact(
    table: DeltaTable,
    spark: "Callable[[], SparkSession]",
    done: Maintained,
    on_compacted: Callable[[int, int], None],
    *,
    is_raw: bool,
) -> None:
    """Makes one file of each group of neighbours, each in a commit of its own.

    Neighbours by seqno in raw, by sync in staging: what readers look for stays together, and in order.
    """
    schema, column = (RAW_SCHEMA, "seqno") if is_raw else (STAGING_SCHEMA, "sync")
    statistics = ("seqno",) if is_raw else ("seqno", "sync")
    planned = groups(data_files(table, column))
    for number, group in enumerate(planned, 1):
        done.compacted, done.into = done.compacted + len(group), number
        if not done.dry_run:
            add = _written(table, group, schema, statistics)
            _replace(spark(), table, group, add)
            on_compacted(number, len(planned))


def _written(
    table: DeltaTable, group: list[DataFile], schema: pa.Schema, statistics: tuple[str, ...]
) -> dict[str, Any]:
    """Writes the rows of those files, in that order, as one; returns what the log is to say of it."""
    path, files = f"compacted-{uuid.uuid4().hex}.zstd.parquet", table_files(table)
    with files.open_output_stream(path) as target, pq.ParquetWriter(target, schema, compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for one in group:
            waiting.append(dataset(table, [one.path], schema).to_table())
            if sum(rows.nbytes for rows in waiting) >= _AT_ONCE:
                writer.write_table(pa.concat_tables(waiting))
                waiting.clear()
        if waiting:
            writer.write_table(pa.concat_tables(waiting))
    with files.open_input_file(path) as source:
        found = file_statistics(pq.ParquetFile(source).metadata, statistics)
    if found["numRecords"] != sum(one.rows for one in group):
        msg = f"{table.table_uri}: {len(group)} files have other rows than the log says: `zync verify` names them"
        raise ZyncError(msg)
    now = int(time.time() * 1000)
    return {
        "path": path,
        "partitionValues": {},
        "size": files.get_file_info(path).size,
        "modificationTime": now,
        "dataChange": False,
        "stats": json.dumps(found),
    }


def _replace(spark: "SparkSession", table: DeltaTable, group: list[DataFile], add: dict[str, Any]) -> None:
    """Commits that one file stands for those, of the version that `table` is at: the same rows, no change of data."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415

    removes = [
        {
            "path": one.logged,
            "deletionTimestamp": add["modificationTime"],
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": one.size,
        }
        for one in group
    ]
    delta, option = "org.apache.spark.sql.delta", jvm_class(spark, "scala.Option")
    none, sequence = option.empty(), jvm_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq
    action = jvm_class(spark, f"{delta}.actions.Action").fromJson
    actions = [action(json.dumps(one)) for one in ({"add": add}, *({"remove": one} for one in removes))]
    optimize = jvm_class(spark, f"{delta}.DeltaOperations$Optimize")(sequence([]), sequence([]), False, none, False)  # noqa: FBT003
    log = jvm_class(spark, f"{delta}.DeltaLog").forTable(spark._jsparkSession, table.table_uri)  # noqa: SLF001
    try:
        log.update(False, none, none)  # noqa: FBT003
        planned = log.getSnapshotAt(table.version(), none, none, False)  # noqa: FBT003
        log.startTransaction(none, option.apply(planned)).commit(sequence(actions), optimize)
    except Py4JJavaError as error:
        said = error.java_exception
        if "Concurrent" in said.getClass().getSimpleName():
            msg = f"another maintains {table.table_uri}: its files are not what they were. What was done stays done"
            raise OwnedError(msg) from error
        msg = f"{table.table_uri} cannot be compacted: {first_line(Exception(said.getMessage()))}"
        raise ZyncError(msg) from error


def _vacuum(table: DeltaTable, done: Maintained, retain: timedelta) -> None:
    table.update_incremental()
    hours = math.ceil(retain / timedelta(hours=1))
    try:
        gone = table.vacuum(hours, dry_run=done.dry_run, enforce_retention_duration=False, full=True)
    except (DeltaError, OSError) as error:
        msg = f"{table.table_uri} cannot be vacuumed: {first_line(error)}"
        raise ZyncError(msg) from error
    done.deleted = len(gone)


def _shorten_log(table: DeltaTable) -> None:
    """Leaves a checkpoint, and takes away what the log keeps of longer ago than the table says, 30 days by default."""
    try:
        table.update_incremental()
        table.create_checkpoint()
        table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        msg = f"the log of {table.table_uri} cannot be shortened: {first_line(error)}"
        raise ZyncError(msg) from error


def describe(done: Maintained) -> str:
    """What was done as a line for people."""
    would = "would be " if done.dry_run else ""
    return (
        f"{done.files:,} files, {done.compacted:,} {would}compacted into {done.into:,}, "
        f"{done.deleted:,} that nobody needs {would}deleted"
    )
