"""`zync maintain`: a table's small files made into large ones, what no version needs deleted, its log kept short.

Writers and readers go on meanwhile. delta-rs's own compaction puts files together by size, and what readers look for
would lie everywhere; so the files are written here, and committed by delta-rs like all else. Those that are replaced
stay until they are vacuumed. Killed at any moment, this leaves a file at most that nobody sees, to be vacuumed as well.
"""

import contextlib
import json
import math
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from zync.errors import OwnedError, UsageError, ZyncError
from zync.ingest.raw import RAW_SCHEMA
from zync.lake import (
    NO_HOOKS,
    DataFile,
    commit_properties,
    data_files,
    dataset,
    file_statistics,
    first_line,
    is_local,
    locked,
    open_table,
    table_files,
)
from zync.output import amount
from zync.staging.table import STAGING_SCHEMA

REMEMBERED = timedelta(days=30)
"""For so long a table's log says what was removed from it, as `ensure_table` makes tables."""

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


def maintain(
    location: str,
    *,
    compact: bool,
    vacuum: bool,
    retain: timedelta,
    dry_run: bool = False,
    on_compacted: Callable[[int, int], None] = lambda _done, _all: None,
) -> Maintained:
    """Maintains the raw or staging at `location`.

    `retain`: how long files that are no longer part of it are kept, for those who still read them.

    Raises:
        UsageError: it is no table of zync's.
        OwnedError: another maintains it. What was done until then stays done.
    """
    table = open_table(location)
    if table is None:
        msg = f"there is no table at {location} to maintain"
        raise UsageError(msg)
    is_raw = _is_raw(table)
    done = Maintained(files=len(table.file_uris()), dry_run=dry_run)
    with _alone(location):
        if compact:
            _timed(done, "compact", lambda: _compact(table, done, on_compacted, is_raw=is_raw))
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
    """Whether it is a raw, or else a staging; UsageError where it is neither, or has more than zync gave it."""
    fields = {one.name: one.type for one in table.schema().fields}
    plain = table.protocol().min_reader_version == 1 and not table.metadata().partition_columns
    for schema, is_raw in ((STAGING_SCHEMA, False), (RAW_SCHEMA, True)):
        if plain and fields == {one.name: one.type for one in Schema.from_arrow(schema).fields}:
            return is_raw
    msg = f"{table.table_uri} is neither a raw nor a staging as zync makes them"
    raise UsageError(msg)


@contextlib.contextmanager
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
    size = 0
    for file in files:
        large = file.size > target // 2
        if large or size + file.size > target:
            found.append([])
            size = 0
        if not large:
            found[-1].append(file)
            size += file.size
    return [one for one in found if len(one) > 1]


def _compact(table: DeltaTable, done: Maintained, on_compacted: Callable[[int, int], None], *, is_raw: bool) -> None:
    """Makes one file of each group of neighbours, each in a commit of its own.

    Neighbours by seqno in raw, by sync in staging: what readers look for stays together, and in order.
    """
    schema, column = (RAW_SCHEMA, "seqno") if is_raw else (STAGING_SCHEMA, "sync")
    statistics = ("seqno",) if is_raw else ("seqno", "sync")
    planned = groups(data_files(table, column))
    for number, group in enumerate(planned, 1):
        done.compacted, done.into = done.compacted + len(group), number
        if done.dry_run:
            continue
        add = _written(table, group, schema, statistics)
        try:
            _replace(table, group, add)
        except OwnedError:
            with contextlib.suppress(OSError):
                table_files(table).delete_file(add.path)
            raise
        on_compacted(number, len(planned))


def _written(table: DeltaTable, group: list[DataFile], schema: pa.Schema, statistics: tuple[str, ...]) -> AddAction:
    """Writes the rows of those files, in that order, as one; returns what the log is to say of it."""
    path, files = f"compacted-{uuid.uuid4().hex}.zstd.parquet", table_files(table)
    with files.open_output_stream(path) as target, pq.ParquetWriter(target, schema, compression="zstd") as writer:
        waiting, size = list[pa.RecordBatch](), 0
        for one in group:
            for batch in dataset(table, [one.path], schema).to_batches():
                waiting.append(batch)
                size += batch.nbytes
                if size >= _AT_ONCE:
                    writer.write_table(pa.Table.from_batches(waiting))
                    waiting, size = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    with files.open_input_file(path) as source:
        found = file_statistics(pq.ParquetFile(source).metadata, statistics)
    if found["numRecords"] != sum(one.rows for one in group):
        files.delete_file(path)
        msg = f"{table.table_uri}: {len(group)} files have other rows than the log says: `zync verify` names them"
        raise ZyncError(msg)
    now = int(time.time() * 1000)
    return AddAction(path, files.get_file_info(path).size, {}, now, data_change=False, stats=json.dumps(found))


def _replace(table: DeltaTable, group: list[DataFile], add: AddAction) -> None:
    """Commits that one file stands for those: the same rows, no change of data.

    Where another commit came first, it is looked whether the files are still there, and tried again.
    """
    now = add.modification_time
    removes = [RemoveAction(one.logged, False, now, one.size, {}) for one in group]  # noqa: FBT003 - data_change
    while True:
        live = set(pa.table(table.get_add_actions())["path"].to_pylist())
        if add.path in live:
            return
        if not live.issuperset(one.logged for one in group):
            msg = f"another maintains {table.table_uri}: its files are not what they were. What was done stays done"
            raise OwnedError(msg)
        _is_raw(table)
        version = table.version()
        try:
            table.create_write_transaction(
                [add, *removes],
                mode="append",
                schema=table.schema(),
                commit_properties=commit_properties({}),
                post_commithook_properties=NO_HOOKS,
            )
        except (DeltaError, OSError) as error:
            table.update_incremental()
            if table.version() == version:
                msg = f"{table.table_uri} cannot be compacted: {first_line(error)}"
                raise ZyncError(msg) from error
        else:
            table.update_incremental()


def _vacuum(table: DeltaTable, done: Maintained, retain: timedelta) -> None:
    hours = math.ceil(retain / timedelta(hours=1))
    try:
        table.update_incremental()
        if retain > REMEMBERED and not done.dry_run:  # or checkpoints forget earlier what was removed when
            table.alter.set_table_properties({"delta.deletedFileRetentionDuration": f"interval {hours} hours"})
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
    compacted = f"{done.compacted:,} {would}compacted into {done.into:,}" if done.compacted else "none to compact"
    return f"{amount(done.files, 'file')} in the table, {compacted}; {done.deleted:,} that nobody needs {would}deleted"
