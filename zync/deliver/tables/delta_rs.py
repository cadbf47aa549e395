"""Writes a batch to a delivered table by delta-rs, in a fraction of the time that Spark's append or MERGE takes.

The effect is that of sql/tables/upsert.sql or of an append by Spark.
A commit lands only on the version that the batch was planned from, as on staging (zync.lake.commit).
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql.types import StructType

from zync.deliver.tables.positions import NEWER
from zync.errors import CommitRefusedError, ConflictError, ZyncError
from zync.lake import storage
from zync.lake.commit import Commit, Refused
from zync.lake.delivered import APP, PLACE
from zync.lake.delta_log import last_checkpoint
from zync.lake.files import DataFile, add_actions, data_files, dataset
from zync.lake.panics import without_panics
from zync.lake.paths import is_local, locate
from zync.lake.store_errors import outage, texts
from zync.lake.table import NO_HOOKS, checkpoint, create_table, first_line

log = logging.getLogger(__name__)

MAX_ROWS = 50_000
"""The most rows that are taken from Spark to be written by delta-rs, or that tombstones are read of."""
_MAX_BYTES = 16 << 20
"""The most bytes of the files that such rows come from."""
_MERGED, _MOST_MERGED, _BY_BATCH = 16 << 20, 64 << 20, 8
"""The bytes of a table's files that a merge may read: the first, or of a large batch eight times its own, but no more
than the second.

They may be written again with each batch, and what they replace stays until VACUUM: more is left to Spark, which takes
longer and so writes them less often. And they are held in memory."""
_WRITER = WriterProperties(compression="ZSTD", compression_level=3, statistics_truncate_length=32)
"""As Spark's files in Delta tables are: their compression, and how much of a text the log has as its bound."""
_COMPACTED_BYTES = 64 << 20
"""The size of the files that compaction writes; it leaves larger ones alone."""
_ACTIONS_A_COMMIT, _MOST_COMMITS = 100, 1000
"""A checkpoint has each file that was replaced within Delta's retention of a week. So that not much more is written for
it than for the commits, it waits for a commit for each so many of its actions; but at most for so many commits, as each
reader reads what comes after it."""


def is_small(rows: int, files: Sequence[DataFile]) -> bool:
    """Returns whether rows are few enough, and their files small enough, to be held in this process's memory."""
    return rows <= MAX_ROWS and sum(file.size for file in files) <= _MAX_BYTES


def most_merged(batch_bytes: int) -> int:
    """Returns how many bytes of a table's files may be read to merge a batch whose files in staging have so many."""
    return max(_MERGED, min(_BY_BATCH * batch_bytes, _MOST_MERGED))


def reads_little(table: DeltaTable, changes: pa.Table, key: Sequence[str], most_bytes: int) -> bool:
    """Returns whether the files of a table that may have a key of `changes` have at most so many bytes."""
    return _key_range(table, changes, key).bytes <= most_bytes


@dataclass(frozen=True)
class DeltaRs:
    """Writes a batch of staging's rows through the sync `upto`.

    Attributes:
        staging: The table id of staging.
        upto: The last sync of the batch.
        tag: The `userMetadata` of the commits.
        on_commit: Called after each commit with the table's location and the commit's version.
        most_bytes: The most bytes of a table's files that a merge may read.
    """

    staging: str
    upto: int
    tag: str
    on_commit: Callable[[str, int], None]
    most_bytes: int = _MERGED

    def create(self, location: str, columns: StructType, properties: Mapping[str, str]) -> bool:
        """Creates a table.

        Args:
            location: The location of the table, which does not exist.
            columns: Its columns.
            properties: Its properties.

        Returns:
            Whether it was created; if not, Spark says what is the matter.
        """
        try:
            with without_panics(location):
                create_table(location, Schema.from_json(columns.json()), properties, userMetadata=self.tag)
        except (DeltaError, OSError) as error:
            _raise_outage(error, location)
            log.info("%s was not created by delta-rs, and is by Spark: %s", location, first_line(error))
            return False
        self.on_commit(location, 0)
        return True

    def append(self, table: DeltaTable, rows: Iterable[pa.Table]) -> DeltaTable | None:
        """Appends rows.

        A batch's tombstones may be stored already, by a process that was killed before its rows were: they are there
        twice then, and say the same.

        Args:
            table: The table, at the version that the batch was planned from.
            rows: Tables of rows, with all columns of the table and perhaps others, in any order. They are taken one
                after the other as they are written.

        Returns:
            The table with the rows; None if delta-rs does not take them, or `rows` raised NotPlainError: then nothing
            was committed. (Files that nobody sees may be left, which VACUUM deletes.)

        Raises:
            ConflictError: Another process wrote to the table meanwhile.
            CommitUnknownError: Whether it was written is not known.
            Exception: `rows` raised it.
        """
        schema, errors = _schema(table), list[Exception]()

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for part in rows:
                    yield from _finite(_cast(part, schema)).to_batches()
            except Exception as error:  # delta-rs would keep its text only
                errors.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(schema, batches())

        def write(properties: CommitProperties) -> None:
            write_deltalake(
                table,
                reader,
                mode="append",
                writer_properties=_WRITER,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

        try:
            return self._commit(table, write)
        finally:
            if errors and not isinstance(errors[0], NotPlainError):
                raise errors[0]

    def upsert(self, table: DeltaTable, changes: pa.Table, key: Sequence[str]) -> DeltaTable | None:
        """Merges a row for each key, as sql/tables/upsert.sql does without truncations and left-out columns.

        Args:
            table: The table, at the version that the batch was planned from.
            changes: All columns of the table, and `_deleted`.
            key: The names of the key's columns.

        Returns:
            The table with the changes; None if much would have to be read, or delta-rs does not take the rows, as where
            two are of one key: then nothing was written.

        Raises:
            ConflictError: Another process wrote to the table meanwhile.
            CommitUnknownError: Whether it was written is not known.
        """
        key_range = _key_range(table, changes, key)
        if key_range.bytes > self.most_bytes:
            return None
        schema = _schema(table)
        deleted = pa.field("_deleted", pa.bool_())
        changes = changes.select([*schema.names, deleted.name]).cast(schema.append(deleted))
        operators = {column: "IS NOT DISTINCT FROM" if changes[column].null_count else "=" for column in key}
        same_key = " AND ".join(  # in parentheses, or what follows FROM is a part of it
            f"(t.{_quoted(column)} {operator} s.{_quoted(column)})" for column, operator in operators.items()
        )
        condition = " AND ".join([same_key, *key_range.conditions])
        values = {_quoted(column): f"s.{_quoted(column)}" for column in schema.names}

        def write(properties: CommitProperties) -> None:
            merge = table.merge(
                changes,
                condition,
                source_alias="s",
                target_alias="t",
                writer_properties=_WRITER,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )
            merge = merge.when_matched_delete(f"s._deleted AND {NEWER}")
            merge = merge.when_matched_update(values, NEWER)
            merge.when_not_matched_insert(values, "NOT s._deleted").execute()

        return self._commit(table, write)

    def compact(self, table: DeltaTable) -> DeltaTable | None:
        """Puts small files that are neighbours together.

        It may land after a commit of another process, which keeps that commit's rows.

        Returns:
            The table; None if Spark has to do it: then nothing was committed.

        Raises:
            ConflictError: Another process wrote to the table meanwhile.
            CommitUnknownError: Whether it was written is not known.
        """
        schema = _schema(table)
        doubles = [field.name for field in schema if field.type == pa.float64()]
        if doubles:
            small = [file for file in data_files(table, PLACE[1]) if file.size < _COMPACTED_BYTES]
            try:
                for batch in dataset(table, small, schema).scanner(doubles).to_batches():
                    _finite(pa.Table.from_batches([batch]))
            except NotPlainError:
                return None

        def write(properties: CommitProperties) -> None:
            table.optimize.compact(
                target_size=_COMPACTED_BYTES,
                writer_properties=_WRITER,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

        return self._commit(table, write, is_batch=False)

    def _commit(
        self, table: DeltaTable, write: Callable[[CommitProperties], None], *, is_batch: bool = True
    ) -> DeltaTable | None:
        location, version = locate(table.table_uri, ""), table.version()
        commit = Commit(
            table,
            {APP + self.staging: self.upto} if is_batch else {},
            uuid.uuid4().hex,
            failure=f"{location} could not be written by delta-rs",
            name=f"the commit to {location}",
            successor="the next delivery",
            metadata={"userMetadata": self.tag},
        )
        try:
            with without_panics(location):
                outcome = commit.attempt(write)
        except CommitRefusedError as error:
            _raise_outage(error, location)
            log.info("%s: Spark writes it", error)
            return None
        if isinstance(outcome, Refused):
            msg = f"another process wrote to {location} meanwhile"
            raise ConflictError(msg) from outcome.error
        if outcome.table.version() > version:  # a merge that changes no row is no commit
            self.on_commit(location, outcome.table.version())
            checkpoint(outcome.table, _has_grown)
        return outcome.table


class NotPlainError(Exception):
    """Rows that are not as plain as delta-rs, or what reads them, takes them: they are left to Spark."""


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    try:
        return rows.select(schema.names).cast(schema)
    except pa.ArrowException as error:
        raise NotPlainError from error


def _finite(rows: pa.Table) -> pa.Table:
    """Returns rows; NotPlainError if a double is not finite: the log has no right statistics then."""
    doubles = [column for column in rows.itercolumns() if column.type == pa.float64()]
    if any(pc.any(pc.invert(pc.is_finite(column))).as_py() for column in doubles):
        msg = "a double is not finite"
        raise NotPlainError(msg)
    return rows


def _raise_outage(error: Exception, location: str) -> None:
    """Raises ZyncError if the store of a table is away or overloaded: Spark would meet the same."""
    if not is_local(location) and (reason := outage(texts(error), storage.store(location))):
        raise ZyncError(reason) from error


def _has_grown(table: DeltaTable) -> bool:
    """Returns whether enough was committed since the last checkpoint to write another."""
    last = last_checkpoint(table)
    return last is None or table.version() - last.version >= min(last.actions // _ACTIONS_A_COMMIT, _MOST_COMMITS)


def _schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


@dataclass(frozen=True)
class _KeyRange:
    """The range of a batch's keys, by which delta-rs leaves out files of the table.

    Attributes:
        conditions: SQL of the ranges of the key's columns, as far as all files have statistics of them: delta-rs takes
            what has none for null.
        bytes: The bytes of the files that are left. A merge reads them all, into memory where they have no such key.
    """

    conditions: list[str]
    bytes: int


def _key_range(table: DeltaTable, changes: pa.Table, key: Sequence[str]) -> _KeyRange:
    actions = add_actions(table)
    may_match = pa.array([True] * actions.num_rows, pa.bool_())
    conditions = []
    for column in key:
        if f"min.{column}" not in actions.column_names or changes[column].null_count or not changes.num_rows:
            continue
        low, high = actions[f"min.{column}"].combine_chunks(), actions[f"max.{column}"].combine_chunks()
        as_sql = _AS_SQL.get(str(changes[column].type))
        if as_sql is None or low.null_count or high.null_count:
            continue
        ends = pc.min_max(changes[column].cast(low.type))
        first, last = (as_sql(ends[end].as_py()) for end in ("min", "max"))
        if len(first) + len(last) > _LONG:
            continue
        may_match = pc.and_(may_match, pc.and_(pc.greater_equal(high, ends["min"]), pc.less_equal(low, ends["max"])))
        conditions.append(f"t.{_quoted(column)} >= {first} AND t.{_quoted(column)} <= {last}")
    return _KeyRange(conditions, int(pc.sum(actions["size_bytes"].filter(may_match)).as_py() or 0))


_AS_SQL: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), str),
    "string": lambda value: "'" + value.replace("'", "''") + "'",
    "date32[day]": lambda value: f"CAST('{value.isoformat()}' AS DATE)",
}
"""How delta-rs's SQL has a value, by Arrow's type."""
_LONG = 1000
"""The length of a range that is no condition: each commit has its conditions in the log."""


def _quoted(column: str) -> str:
    """Returns a column's name in delta-rs's SQL, which takes names without quotes for lower case."""
    return '"' + column.replace('"', '""') + '"'
