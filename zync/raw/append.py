"""The commit protocol of raw: numbers a batch's rows, and appends them if raw still has the positions they began at.

Kafka stores nothing. The commit that adds the rows also moves the positions. Delta refuses it if anything was committed
since the version at which the positions were compared.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties, write_deltalake

from zync.errors import UsageError, ZyncError
from zync.kafka.partition import Partition
from zync.lake import storage
from zync.lake.commit import Commit, Landed, Refused, change_files
from zync.lake.lock import locked
from zync.lake.panics import without_panics
from zync.lake.paths import is_local
from zync.lake.table import (
    NO_HOOKS,
    checkpoint,
    existing_table,
    first_line,
    lost_error,
    open_table,
    refresh,
    remember_entry,
)
from zync.lake.table_format import check_format
from zync.lake.types import TIMESTAMP
from zync.raw.batch import Batch
from zync.raw.table import (
    INGESTED,
    RAW_SCHEMA,
    SEQNO,
    last_record_transactions,
    made_by,
    next_seqno,
    position_name,
    stored_id,
    stored_position,
)

log = logging.getLogger(__name__)

_TURN_SECONDS = 2.0
_HANDLE_COMMITS = 100
_WITHOUT_LOCK_SECONDS = 60.0
_UNIQUE = ColumnProperties(dictionary_enabled=False)
_BYTES = ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
_WRITER = WriterProperties(
    compression="ZSTD",
    compression_level=1,
    column_properties={"seqno": _UNIQUE, "kafka.offset": _UNIQUE, "key": _BYTES, "value": _BYTES},
    max_row_group_size=4096,
)
"""A task of Spark reads whole row groups, so several row groups let all cores read a single file."""


@dataclass
class Appended:
    """The result of committing a batch.

    Attributes:
        first_seqno: The seqno of the first row, or raw's next seqno if only positions were committed; None if nothing
            was committed.
        version: Raw's version after the commit; None if nothing was committed.
        committed: By partition, the position that the commit stored.
        refused: By partition that was not committed, raw's position; None if raw has none, or if the topic was made
            anew.
        retries: How often another process committed first.
        seconds: How long it took.
    """

    rows: int = 0
    num_bytes: int = 0
    first_seqno: int | None = None
    version: int | None = None
    committed: dict[Partition, int] = field(default_factory=dict)
    refused: dict[Partition, int | None] = field(default_factory=dict)
    retries: int = 0
    seconds: float = 0.0


class _Handle(DeltaTable):
    """A table handle that caches the versions of application ids until another process commits.

    `DeltaTable` reads the log for each of them.
    """

    def __init__(self, location: str) -> None:
        super().__init__(location, storage_options=storage.delta_options(location))
        self._versions: dict[str, int | None] = {}
        self._versions_at = self.version()

    def transaction_version(self, app_id: str) -> int | None:
        if self.version() != self._versions_at:
            self._versions, self._versions_at = {}, self.version()
        if app_id not in self._versions:
            self._versions[app_id] = super().transaction_version(app_id)
        return self._versions[app_id]

    def committed(self, transactions: dict[str, int]) -> None:
        """Adds the versions that this handle's own commit stored to the cache."""
        if self.version() == self._versions_at + 1:
            self._versions, self._versions_at = {**self._versions, **transactions}, self.version()


class Appender:
    """Appends batches to a raw. Keeps the table's handle between commits."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._table: _Handle | None = None
        self._table_id: str | None = None
        self._without_lock_until = 0.0

    def append(self, batch: Batch) -> Appended:
        """Commits the slices of a batch that begin at raw's positions. Removes the others from `batch` as refused.

        Raises:
            CommitRefusedError: The table cannot be written. The slices that are still in `batch` are not in raw.
            CommitUnknownError: The table can be neither written nor read. Whether they are in raw is not known.
        """
        refused: dict[Partition, int | None] = {}

        def without_stale(table: DeltaTable) -> Batch:
            stale = {
                partition: stored_position(table, partition)
                for partition, part in batch.slices.items()
                if (stored_position(table, partition), stored_id(table, partition)) != (part.begin, part.begin_id)
            }
            refused.update(stale)
            batch.drop(stale)
            return batch

        appended = self.append_planned(without_stale)
        appended.refused = refused
        return appended

    def append_planned(self, plan: Callable[[DeltaTable], Batch]) -> Appended:
        """Commits the batch that `plan` returns for the table's newest version.

        Args:
            plan: Returns the batch to commit; called again after every refused commit. An exception that it raises
                ends the call.

        Raises:
            CommitRefusedError: The table cannot be written. Nothing was committed.
            CommitUnknownError: The table can be neither written nor read. Whether the batch was committed is not known.
        """
        appended, nonce = Appended(), uuid.uuid4().hex
        while True:
            with self._writer_lock():
                table = self._current()
                batch = plan(table)
                if not batch.slices:
                    return appended
                first = next_seqno(table)
                outcome = self._attempt(table, batch, first, nonce)
            if isinstance(outcome, Refused):
                appended.retries += 1
                continue
            appended.rows, appended.num_bytes, appended.first_seqno = batch.num_rows, batch.num_bytes, first
            appended.version = outcome.table.version()
            appended.committed = {partition: part.next for partition, part in batch.slices.items()}
            self._checkpoint(outcome.table)
            return appended

    def _current(self) -> _Handle:
        """Returns the handle at the newest version. The commit must use the handle whose positions were compared."""
        if self._table is None:
            self._table = self._open()
        else:
            refresh(self._table)
        return self._table

    def _open(self) -> _Handle:
        try:
            existing_table(self.location, made_by(self.location))
        except UsageError as error:
            if self._table_id:
                raise lost_error(self.location, is_deleted=True) from error
            raise
        table = _Handle(self.location)
        check_format(table)
        table_id = str(table.metadata().id)
        if self._table_id not in (None, table_id):
            raise lost_error(self.location, is_deleted=False)
        self._table_id = table_id
        return table

    def _attempt(self, table: _Handle, batch: Batch, first: int, nonce: str) -> Landed | Refused:
        """Attempts the commit once, on the handle whose positions were compared. Keeps only a handle that worked."""
        now = max(time.time_ns() // 1000, table.transaction_version(INGESTED) or 0)
        transactions = {SEQNO: first + batch.num_rows, INGESTED: now}
        for partition, part in batch.slices.items():
            transactions[position_name(partition)] = part.next
            if part.topic_id is not None and stored_id(table, partition) != part.topic_id:
                transactions[f"{position_name(partition)}/id"] = part.topic_id
            transactions |= last_record_transactions(partition, part)
            if part.gap:
                transactions[f"{position_name(partition)}/gap/{part.gap[0]}/{first}"] = part.gap[1]

        def write(properties: CommitProperties) -> None:
            if not batch.num_rows:
                change_files(table, [], properties)
                return
            with without_panics(self.location):
                write_deltalake(
                    table,
                    _numbered(batch, first, now),
                    mode="append",
                    commit_properties=properties,
                    post_commithook_properties=NO_HOOKS,
                    writer_properties=_WRITER,
                )

        self._table = None
        failure, name = f"raw at {self.location} cannot be written", f"the append to raw at {self.location}"
        outcome = Commit(table, transactions, nonce, failure, name, "the next append").attempt(write)
        if outcome.table is table:
            table.committed(transactions)
            remember_entry(table)
            self._table = table
        return outcome

    @contextmanager
    def _writer_lock(self) -> Iterator[None]:
        """Holds raw's advisory lock, so that writers take turns and large batches do not starve behind small batches.

        The lock is no condition of a commit: if another process (a stopped process) holds it for too long, this process
        goes on without it, and Delta refuses a commit that comes too late.
        """
        if not is_local(self.location) or time.monotonic() < self._without_lock_until:
            yield
            return
        path = Path(self.location)
        try:
            with locked(path.parent / f".{path.name}.lock", _TURN_SECONDS) as acquired:
                if not acquired:
                    self._without_lock_until = time.monotonic() + _WITHOUT_LOCK_SECONDS
                yield
        except OSError as error:
            if self._table_id and open_table(self.location) is None:  # it is gone with the folder of its lock
                raise lost_error(self.location, is_deleted=True) from error
            msg = f"raw at {self.location} cannot be written: {first_line(error)}"
            raise ZyncError(msg) from error

    def _checkpoint(self, table: DeltaTable) -> None:
        """Writes a checkpoint every so many versions. Drops the handle after `_HANDLE_COMMITS`: it grows slower."""
        if table.version() % _HANDLE_COMMITS == 0:
            self._table = None
        checkpoint(table)


def _numbered(batch: Batch, first: int, ingested: int) -> pa.Table:
    """Returns the batch's rows as rows of raw, in a single chunk: delta-rs writes several chunks in any order."""
    rows = pa.Table.from_batches(batch.rows).combine_chunks()
    count = rows.num_rows
    columns = {name: rows[name] for name in rows.column_names}
    columns["seqno"] = pa.array(np.arange(first, first + count))
    columns["ingested"] = pa.array(np.full(count, ingested)).cast(TIMESTAMP)
    return pa.table([columns[name] for name in RAW_SCHEMA.names], schema=RAW_SCHEMA)
