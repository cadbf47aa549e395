"""The commit protocol of raw: a batch is numbered and appended if its positions still hold.

Nothing is stored in Kafka. The commit that adds the rows also moves the positions, and it is refused
if anything at all was committed since the handle that checked them was opened.
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
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError

from zync.errors import CommitRefusedError, ZyncError
from zync.kafka.partition import Source
from zync.lake.lock import locked
from zync.lake.paths import is_local
from zync.lake.table import CHECKPOINT_EVERY, NO_HOOKS, commit_properties, existing_table, first_line, refresh
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
_TURN_TRUST_SECONDS = 60.0
_UNIQUE = ColumnProperties(dictionary_enabled=False)
_BYTES = ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
_WRITER = WriterProperties(
    compression="ZSTD",
    compression_level=1,
    column_properties={"seqno": _UNIQUE, "kafka.offset": _UNIQUE, "key": _BYTES, "value": _BYTES},
    max_row_group_size=4096,
)
"""Spark has one task read a row group: of files with several each core has some, where there is but one file."""


@dataclass
class Appended:
    """What became of a batch: where it landed, and which partitions were refused and where they now stand."""

    rows: int = 0
    num_bytes: int = 0
    first_seqno: int | None = None
    committed: dict[Source, int] = field(default_factory=dict)
    refused: dict[Source, int | None] = field(default_factory=dict)
    retries: int = 0
    seconds: float = 0.0


class _Handle(DeltaTable):
    """A handle that looks each stored value up once until somebody else commits: it would read the log each time."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._known: dict[str, int | None] = {}
        self._known_at = self.version()

    def transaction_version(self, app_id: str) -> int | None:
        if self.version() != self._known_at:
            self._known, self._known_at = {}, self.version()
        if app_id not in self._known:
            self._known[app_id] = super().transaction_version(app_id)
        return self._known[app_id]

    def committed(self, transactions: dict[str, int]) -> None:
        """Takes note of what this handle's own commit stored."""
        if self.version() == self._known_at + 1:
            self._known, self._known_at = {**self._known, **transactions}, self.version()


class Appender:
    """Appends batches to one raw. Keeps the table's handle between commits, opened anew when that pays or is due."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._table: _Handle | None = None
        self._no_turns_until = 0.0

    def append(self, batch: Batch) -> Appended:
        """Commits what of the batch still begins where raw stands, and says what became of the rest.

        Refused partitions are taken out of `batch`. Raises ZyncError when the surroundings fail; what was
        not refused is then still in the batch, and not in raw.
        """
        refused: dict[Source, int | None] = {}

        def still_fitting(table: DeltaTable) -> Batch:
            stale = {
                source: stored_position(table, source)
                for source, one in batch.slices.items()
                if (stored_position(table, source), stored_id(table, source)) != (one.begin, one.begin_id)
            }
            refused.update(stale)
            batch.drop(stale)
            return batch

        done = self.append_planned(still_fitting)
        done.refused = refused
        return done

    def append_planned(self, plan: Callable[[DeltaTable], Batch]) -> Appended:
        """Commits the batch that `plan` makes of the table's state, planned anew after every refusal."""
        done, nonce = Appended(), uuid.uuid4().hex
        while True:
            with self._turn():
                table = self._current()
                batch = plan(table)
                if not batch.slices:
                    return done
                first, version = next_seqno(table), table.version()
                try:
                    self._commit(table, batch, first, nonce)
                except (DeltaError, OSError, pa.ArrowException) as error:
                    # It may have landed all the same: a fresh handle decides.
                    table = self._table = self._open()
                    since = table.version() - version
                    if not since:
                        msg = f"raw at {self.location} cannot be written: {first_line(error)}"
                        raise CommitRefusedError(msg) from error
                    if not any(commit.get("nonce") == nonce for commit in table.history(since)):
                        done.retries += 1
                        continue
            done.rows, done.num_bytes, done.first_seqno = batch.num_rows, batch.num_bytes, first
            done.committed = {source: one.next for source, one in batch.slices.items()}
            self._checkpoint(table)
            return done

    def _current(self) -> _Handle:
        """The handle, at the newest version. What is compared on it is committed on it."""
        if self._table is None:
            self._table = self._open()
        else:
            refresh(self._table)
        return self._table

    def _open(self) -> _Handle:
        existing_table(self.location, made_by(self.location))
        return _Handle(self.location)

    def _commit(self, table: _Handle, batch: Batch, first: int, nonce: str) -> None:
        """One try on this handle, whose positions were compared."""
        now = max(time.time_ns() // 1000, table.transaction_version(INGESTED) or 0)
        transactions = {SEQNO: first + batch.num_rows, INGESTED: now}
        for source, one in batch.slices.items():
            transactions[position_name(source)] = one.next
            if one.topic_id is not None and stored_id(table, source) != one.topic_id:
                transactions[f"{position_name(source)}/id"] = one.topic_id
            transactions |= last_record_transactions(source, one)
            if one.gap:
                transactions[f"{position_name(source)}/gap/{one.gap[0]}/{first}"] = one.gap[1]
        properties = commit_properties(transactions, nonce=nonce)
        if batch.num_rows:
            write_deltalake(
                table,
                _numbered(batch, first, now),
                mode="append",
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
                writer_properties=_WRITER,
            )
        else:
            table.create_write_transaction(
                [],
                mode="append",
                schema=table.schema(),
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )
        table.committed(transactions)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Holds raw's advisory lock, so that writers take turns and large batches do not starve behind small ones.

        Only a courtesy: whoever holds it too long (a stopped process) is passed by, and the commit is
        refused by its own means if it comes too late.
        """
        if not is_local(self.location) or time.monotonic() < self._no_turns_until:
            yield
            return
        path = Path(self.location)
        try:
            with locked(path.parent / f".{path.name}.lock", _TURN_SECONDS) as ours:
                if not ours:
                    self._no_turns_until = time.monotonic() + _TURN_TRUST_SECONDS
                yield
        except OSError as error:
            msg = f"raw at {self.location} cannot be written: {first_line(error)}"
            raise ZyncError(msg) from error

    def _checkpoint(self, table: DeltaTable) -> None:
        """Every so many versions, leaves a checkpoint and lets go of the handle, which grows slower with age."""
        if table.version() % CHECKPOINT_EVERY:
            return
        self._table = None
        try:
            table.create_checkpoint()
        except (DeltaError, OSError) as error:
            log.warning("no checkpoint of %s: %s", self.location, first_line(error))


def _numbered(batch: Batch, first: int, ingested: int) -> pa.Table:
    """The batch's rows as raw's, in one chunk: delta-rs writes several chunks in any order."""
    rows = pa.Table.from_batches(batch.rows).combine_chunks()
    count = rows.num_rows
    columns = {name: rows[name] for name in rows.column_names}
    columns["seqno"] = pa.array(np.arange(first, first + count))
    columns["ingested"] = pa.array(np.full(count, ingested)).cast(TIMESTAMP)
    return pa.table([columns[name] for name in RAW_SCHEMA.names], schema=RAW_SCHEMA)
