"""Files of a table replaced by one that is written here, in one commit by delta-rs, whoever writes or reads meanwhile.

Those that are replaced stay until they are vacuumed. Killed at any moment, this leaves a file at most that nobody sees,
to be vacuumed as well.
"""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from zync.errors import CommitRefusedError, OwnedError, UsageError, ZyncError
from zync.lake.files import DataFile, dataset, file_statistics, table_files
from zync.lake.table import NO_HOOKS, commit_properties, first_line, refresh
from zync.raw.table import RAW_SCHEMA
from zync.staging.table import STAGING_SCHEMA

_AT_ONCE = 64 * 1024 * 1024


def is_raw(table: DeltaTable) -> bool:
    """Whether it is a raw, or else a staging; UsageError where it is neither, or has more than zync gave it."""
    fields = {one.name: one.type for one in table.schema().fields}
    plain = table.protocol().min_reader_version == 1 and not table.metadata().partition_columns
    for schema, raw in ((STAGING_SCHEMA, False), (RAW_SCHEMA, True)):
        if plain and fields == {one.name: one.type for one in Schema.from_arrow(schema).fields}:
            return raw
    msg = f"{table.table_uri} is neither a raw nor a staging as zync makes them"
    raise UsageError(msg)


def rewrite(
    table: DeltaTable,
    files: list[DataFile],
    *,
    keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    gone: list[DataFile] | None = None,
    transactions: Callable[[DeltaTable], dict[str, int]] = lambda _table: {},
) -> int:
    """Has one file stand for those, with their rows in that order, and returns how many rows that is.

    keep: what of each batch of rows stays; without it all do, and readers are told that no data changed.
    gone: files of which nothing stays.
    transactions: the `txn` actions of the commit, by the version of the table that it is made on.

    Raises OwnedError where the files are the table's no more, as where another rewrites it.
    """
    raw = is_raw(table)
    add = _written(table, files, keep, RAW_SCHEMA if raw else STAGING_SCHEMA, ("seqno",) if raw else ("seqno", "sync"))
    rows = int(json.loads(add.stats)["numRecords"])
    needless = not rows
    try:
        _replace(table, files + (gone or []), [add] if rows else [], transactions, data_change=keep is not None)
    except OwnedError:
        needless = True
        raise
    finally:  # what may have landed stays
        if needless:
            with contextlib.suppress(OSError):
                table_files(table).delete_file(add.path)
    return rows


def _written(
    table: DeltaTable,
    group: list[DataFile],
    keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None,
    schema: pa.Schema,
    statistics: tuple[str, ...],
) -> AddAction:
    """Writes the rows; returns what the log is to say of the file."""
    path, files = f"rewritten-{uuid.uuid4().hex}.zstd.parquet", table_files(table)
    read = 0
    with files.open_output_stream(path) as target, pq.ParquetWriter(target, schema, compression="zstd") as writer:
        waiting, size = list[pa.RecordBatch](), 0
        for batch in _batches(table, group, schema):
            read += batch.num_rows
            waiting.append(keep(batch) if keep else batch)
            size += waiting[-1].nbytes
            if size >= _AT_ONCE:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting, size = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    if read != sum(one.rows for one in group):
        files.delete_file(path)
        msg = f"{table.table_uri}: {len(group)} files have other rows than the log says: `zync verify` names them"
        raise ZyncError(msg)
    with files.open_input_file(path) as source:
        found = file_statistics(pq.ParquetFile(source).metadata, statistics)
    now = int(time.time() * 1000)
    return AddAction(path, files.get_file_info(path).size, {}, now, keep is not None, json.dumps(found))


def _batches(table: DeltaTable, group: list[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for one in group:
        yield from dataset(table, [one.path], schema).to_batches()


def _replace(
    table: DeltaTable,
    group: list[DataFile],
    adds: list[AddAction],
    transactions: Callable[[DeltaTable], dict[str, int]],
    *,
    data_change: bool,
) -> None:
    """Commits. Where another commit came first, it is looked whether the files are still there, and tried again."""
    now = int(time.time() * 1000)
    removes = [RemoveAction(one.logged, data_change, now, one.size, {}) for one in group]
    nonce = uuid.uuid4().hex
    while True:
        live = set(pa.table(table.get_add_actions())["path"].to_pylist())
        if not live.issuperset(one.logged for one in group):
            msg = f"another maintains {table.table_uri}: its files are not what they were. What was done stays done"
            raise OwnedError(msg)
        is_raw(table)
        version = table.version()
        try:
            table.create_write_transaction(
                [*adds, *removes],
                mode="append",
                schema=table.schema(),
                commit_properties=commit_properties(transactions(table), others=len(adds) + len(removes), nonce=nonce),
                post_commithook_properties=NO_HOOKS,
            )
        except (DeltaError, OSError) as error:
            refresh(table)
            since = table.version() - version
            if not since:
                msg = f"{table.table_uri} cannot be maintained: {first_line(error)}"
                raise CommitRefusedError(msg) from error
            if not any(one.get("nonce") == nonce for one in table.history(since)):
                continue
        refresh(table)
        return
