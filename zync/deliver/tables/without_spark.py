"""Applies a small batch without Spark, to the effect of `_Apply` in zync.deliver.tables.apply.

Arrow reads the rows, msgspec parses them, delta-rs writes them: Spark takes several times as long for each of its jobs.
What is not plain is left to Spark: a new table, a history, truncations and left-out columns, layouts and types that
delta-rs does not write as Spark does (zync.deliver.tables.small), and JSON that is not written as zync writes it.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from zync.debezium.unavailable import Placeholder
from zync.deliver.tables import small, truncations
from zync.deliver.tables.positions import tombstone_files
from zync.deliver.tables.target import TableTarget
from zync.deliver.tables.truncations import TOMBSTONES
from zync.deliver.tables.writer import Writer
from zync.formats.encode.json_rows import PARSE_ERRORS, parser
from zync.lake.delivered import DELETED, PLACE
from zync.lake.files import dataset
from zync.staging.outputs import KAFKA_OFFSET, Arrivals, OutputRows, Truncation

_COLUMNS = {
    "key": ds.field("key"),
    "value": ds.field("value"),
    "position": pc.coalesce(ds.field("position"), pc.scalar(0)),
    "seqno": ds.field("seqno"),
    "offset": KAFKA_OFFSET,
}


class _Row(NamedTuple):
    """An output row; a deletion has no value."""

    key: str | None
    value: str | None
    position: int
    seqno: int
    offset: int

    @property
    def place(self) -> tuple[int, int]:
        """Where its transaction is in the source's order."""
        return self.position, self.seqno


def apply(writer: Writer, staged: OutputRows, arrivals: Arrivals, placeholder: Placeholder | None) -> int | None:
    """Applies the rows of a small batch.

    Args:
        writer: Commits to the table, which has the columns of the rules.
        staged: The rows.
        arrivals: Their summary.
        placeholder: As in `zync.deliver.tables.apply.deliver`.

    Returns:
        The number of rows; None if Spark has to apply them. Tombstones may be written by then, which may be repeated.

    Raises:
        ConflictError: Another process wrote to the table meanwhile.
        CommitUnknownError: Whether a commit landed is not known.
    """
    target = writer.target
    is_plain = not (arrivals.truncations or arrivals.left_out or arrivals.with_old_key)
    needs_position = placeholder is not None and target.apply == "upsert" and arrivals.without_position
    own_columns = {*PLACE, DELETED} if target.apply == "append" else {*PLACE}
    table = writer.plain_table(target.location, {*target.columns.names, *own_columns}, target.key)
    if target.apply == "history" or not is_plain or needs_position or table is None or not table.version():
        return None
    rows = [_Row(*values) for values in zip(*(column.to_pylist() for column in staged.read(_COLUMNS)), strict=True)]
    if not rows:
        return 0
    return _append(writer, table, rows) if target.apply == "append" else _upsert(writer, table, rows, placeholder)


def _append(writer: Writer, table: DeltaTable, rows: list[_Row]) -> int | None:
    parsed = _parsed(writer.target, rows)
    return len(rows) if parsed is not None and writer.append_small(table, parsed) else None


def _upsert(writer: Writer, table: DeltaTable, rows: list[_Row], placeholder: Placeholder | None) -> int | None:
    """Merges the newest row of each key, as sql/tables/newest.sql and sql/tables/upsert.sql do."""
    target = writer.target
    tombstones = writer.plain_table(str(target.deleted), {*TOMBSTONES.names})
    if tombstones is None:
        return None
    rows = _not_truncated(rows, truncations.read_stored(tombstones) if placeholder else [])
    deleted_at = _deleted_at(tombstones, min((row.place for row in rows), default=(0, 0)))
    if deleted_at is None:
        return None
    by_key = {row.key: row for row in sorted(rows, key=lambda row: (row.place, row.offset))}
    newest = [row for row in by_key.values() if row.place >= deleted_at.get(row.key, row.place)]
    if not newest:
        return 0
    changes = _parsed(target, newest)
    if changes is None or not _can_be_merged(changes, table, target, placeholder):
        return None
    deleted = [row for row in newest if row.value is None]
    if deleted and not writer.append_small(tombstones, _as_tombstones(deleted)):
        return None
    keys = {row.key for row in newest}
    return sum(row.key in keys for row in rows) if writer.upsert_small(table, changes) else None


def _can_be_merged(changes: pa.Table, table: DeltaTable, target: TableTarget, placeholder: Placeholder | None) -> bool:
    """Returns whether no value was left out, no two rows are of one key, and little has to be written again."""
    if placeholder and _has_placeholder(changes, target, placeholder):
        return False
    key_count = changes.group_by([*target.key]).aggregate([]).num_rows
    return key_count == changes.num_rows and small.reads_little(table, changes, target.key)


def _not_truncated(rows: list[_Row], stored: list[Truncation]) -> list[_Row]:
    """Returns the rows that are not before a truncation of an earlier batch."""
    last = max(((truncation.position, truncation.seqno) for truncation in stored), default=None)
    return rows if last is None else [row for row in rows if row.place >= last]


def _deleted_at(table: DeltaTable, since: tuple[int, int]) -> dict[str | None, tuple[int, int]] | None:
    """Returns where each key was deleted last, if from `since` on; None if that cannot be read, or is much.

    Args:
        table: The tombstones.
        since: A place in the source's order.
    """
    files = tombstone_files(table, since)
    if not small.is_small(files):
        return None
    try:
        rows = dataset(table, files, TOMBSTONES).to_table(filter=ds.field("key").is_valid())
    except FileNotFoundError:  # Spark says what to do about it
        return None
    deleted_at: dict[str | None, tuple[int, int]] = {}
    for key, place in zip(rows["key"].to_pylist(), rows["place"].to_pylist(), strict=True):
        deleted_at[key] = max(deleted_at.get(key, since), (place["position"], place["seqno"]))
    return deleted_at


def _as_tombstones(rows: list[_Row]) -> pa.Table:
    places = [{"position": row.position, "seqno": row.seqno} for row in rows]
    return pa.table({"key": [row.key for row in rows], "place": places}, TOMBSTONES)


def _parsed(target: TableTarget, rows: list[_Row]) -> pa.Table | None:
    """Returns the rows with the table's columns and `_deleted`; None if a text is not as zync writes it.

    A deletion has the columns of its key only.
    """
    deleted = [row.value is None for row in rows]
    try:
        columns = _parse(target.columns, [row.value for row in rows])
        if any(deleted) and target.key:
            key_columns = StructType([target.columns[column] for column in target.key])
            of_keys = _parse(key_columns, [row.key if row.value is None else None for row in rows])
            for column, values in of_keys.items():
                columns[column] = pc.if_else(pa.array(deleted), values, columns[column])
    except PARSE_ERRORS:
        return None
    places = (pa.array([row.position for row in rows], pa.int64()), pa.array([row.seqno for row in rows], pa.int64()))
    return pa.table({**columns, **dict(zip(PLACE, places, strict=True)), DELETED: pa.array(deleted)})


def _parse(columns: StructType, texts: list[str | None]) -> dict[str, pa.Array]:
    """Parses texts of JSON; where there is none, all columns are null."""
    parse = _parser(columns.json())
    return dict(zip(columns.names, parse(["{}" if text is None else text for text in texts]), strict=True))


@lru_cache(256)
def _parser(columns: str) -> Callable[[list[str]], list[pa.Array]]:
    return parser(json.loads(columns))


def _has_placeholder(rows: pa.Table, target: TableTarget, placeholder: Placeholder) -> bool:
    """Returns whether any value is the placeholder of one that the connector left out."""
    by_type: dict[Any, pa.Array] = {
        pa.string(): pa.array(placeholder.texts),
        pa.binary(): pa.array([placeholder.data]),
    }
    columns = [name for name in target.columns.names if name not in target.key and rows[name].type in by_type]
    return any(pc.any(pc.is_in(rows[name], by_type[rows[name].type])).as_py() for name in columns)
