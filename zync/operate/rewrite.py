"""Replaces files of a table by a new file, in a single commit of delta-rs, while others write and read.

The replaced files stay until they are vacuumed. A process killed at any moment leaves at most a file that is not part
of the table; vacuum deletes that, too.
"""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from zync.errors import CommitRefusedError, OwnedError, UsageError, ZyncError
from zync.lake.commit import Commit, Landed, change_files
from zync.lake.files import DataFile, add_actions, dataset, file_statistics, table_files
from zync.lake.table import first_line, refresh
from zync.raw.table import RAW_SCHEMA
from zync.staging.table import STAGING_SCHEMA

_BUFFER_SIZE = 64 * 1024 * 1024
"""Bytes of Arrow data that are collected before they are written as a row group."""


def is_raw(table: DeltaTable) -> bool:
    """Returns whether the table is a raw (True) or a staging (False).

    Raises:
        UsageError: the table is neither, or has columns, partitions or Delta features that zync does not give it.
    """
    types = {field.name: field.type for field in table.schema().fields}
    is_plain = table.protocol().min_reader_version == 1 and not table.metadata().partition_columns
    for schema, raw in ((STAGING_SCHEMA, False), (RAW_SCHEMA, True)):
        if is_plain and types == {field.name: field.type for field in Schema.from_arrow(schema).fields}:
            return raw
    msg = f"{table.table_uri} is neither a raw nor a staging as zync makes them, nor the folder of delivered tables"
    raise UsageError(msg)


def rewrite(
    table: DeltaTable,
    files: list[DataFile],
    *,
    keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    dropped: list[DataFile] | None = None,
    transactions: Callable[[DeltaTable], dict[str, int]] = lambda _table: {},
) -> int:
    """Replaces files of a table by a single file with their rows, in the same order.

    Args:
        table: the raw or staging.
        files: the files to replace.
        keep: filters each batch of rows. Without it all rows stay, and the commit says that no data changed.
        dropped: further files to remove, of which no row stays.
        transactions: returns the commit's `txn` actions for the version of the table that it builds on.

    Returns:
        The number of rows in the new file.

    Raises:
        OwnedError: a file is no longer part of the table, because another process rewrote it.
        CommitRefusedError: the commit did not land.
        CommitUnknownError: it is not known whether the commit landed.
    """
    raw = is_raw(table)
    columns = ("seqno",) if raw else ("seqno", "sync")
    add = _write_file(table, files, keep, RAW_SCHEMA if raw else STAGING_SCHEMA, columns)
    rows = int(json.loads(add.stats)["numRecords"])
    is_unused = not rows
    try:
        _replace(table, files + (dropped or []), [add] if rows else [], transactions, data_change=keep is not None)
    except (OwnedError, CommitRefusedError):
        is_unused = True
        raise
    finally:  # after any other error the commit may have landed, so the file stays
        if is_unused:
            with contextlib.suppress(OSError):
                table_files(table).delete_file(add.path)
    return rows


def _write_file(
    table: DeltaTable,
    group: list[DataFile],
    keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None,
    schema: pa.Schema,
    columns: tuple[str, ...],
) -> AddAction:
    """Writes the rows of the group to a new file and returns its add action, with statistics of `columns`."""
    path, files = f"rewritten-{uuid.uuid4().hex}.zstd.parquet", table_files(table)
    rows_read = 0
    with files.open_output_stream(path) as target, pq.ParquetWriter(target, schema, compression="zstd") as writer:
        buffer, size = list[pa.RecordBatch](), 0
        for batch in _batches(table, group, schema):
            rows_read += batch.num_rows
            buffer.append(keep(batch) if keep else batch)
            size += buffer[-1].nbytes
            if size >= _BUFFER_SIZE:
                writer.write_table(pa.Table.from_batches(buffer))
                buffer, size = [], 0
        if buffer:
            writer.write_table(pa.Table.from_batches(buffer))
    if rows_read != sum(file.rows for file in group):
        files.delete_file(path)
        msg = f"{table.table_uri}: {len(group)} files have other rows than the log says: `zync verify` names them"
        raise ZyncError(msg)
    with files.open_input_file(path) as source:
        statistics = file_statistics(pq.ParquetFile(source).metadata, columns)
    now = int(time.time() * 1000)
    return AddAction(path, files.get_file_info(path).size, {}, now, keep is not None, json.dumps(statistics))


def _batches(table: DeltaTable, group: list[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in group:
        yield from dataset(table, [file], schema).to_batches()


def _replace(
    table: DeltaTable,
    group: list[DataFile],
    adds: list[AddAction],
    transactions: Callable[[DeltaTable], dict[str, int]],
    *,
    data_change: bool,
) -> None:
    """Commits the removal of the group and the added files.

    If another commit came first, this checks that the group is still part of the table, and commits again.
    """
    now = int(time.time() * 1000)
    removes = [RemoveAction(file.logged, data_change, now, file.size, {}) for file in group]
    actions: list[AddAction | RemoveAction] = [*adds, *removes]
    failure, name = f"{table.table_uri} cannot be maintained", f"the maintenance of {table.table_uri}"
    nonce, handle = uuid.uuid4().hex, table
    while True:
        live = set(add_actions(handle)["path"].to_pylist())
        if not live.issuperset(file.logged for file in group):
            msg = f"another maintains {table.table_uri}: its files are not what they were. What was done stays done"
            raise OwnedError(msg)
        is_raw(handle)  # raises if the table's schema or features changed meanwhile
        commit = Commit(handle, transactions(handle), nonce, failure, name, "the next maintenance", others=len(actions))
        outcome = commit.attempt(partial(change_files, handle, actions))
        if isinstance(outcome, Landed):
            refresh(table)
            return
        if outcome.table is None:
            msg = f"{failure}: {first_line(outcome.error)}"
            raise CommitRefusedError(msg) from outcome.error
        handle = outcome.table
