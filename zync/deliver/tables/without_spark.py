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
from zync.deliver.tables.target import OWN, TableTarget
from zync.deliver.tables.tombstones import TOMBSTONES, files_since
from zync.deliver.tables.writer import Writer
from zync.formats.encode.json_rows import PARSE_ERRORS, parser
from zync.lake.delivered import DELETED, PLACE
from zync.lake.files import dataset
from zync.staging.outputs import KAFKA_OFFSET, Arrivals, OutputRows, Truncation

_MOST_BYTES = 64 << 20
"""The most bytes of keys and values that are held as Python's objects, which take several times as much."""
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
        The number of rows; None if Spark has to apply them. Tombstones may be stored then, by this batch's `txn`.

    Raises:
        ConflictError: Another process wrote to the table meanwhile.
        CommitUnknownError: Whether a commit landed is not known.
    """
    try:
        table = _plain_table(writer, arrivals, placeholder)
        rows = _read(staged)
        apply_rows = _append if writer.target.apply == "append" else _upsert
        return apply_rows(writer, table, rows, placeholder)
    except _LeftToSparkError:
        return None


class _LeftToSparkError(Exception):
    """A batch, or a table, that is not as plain as this module takes it."""


def _plain_table(writer: Writer, arrivals: Arrivals, placeholder: Placeholder | None) -> DeltaTable:
    target = writer.target
    columns = {*target.columns.names, *PLACE, *OWN.get(target.apply, ())}
    table = writer.plain_table(target.location, columns, target.key)
    is_plain = not (arrivals.truncations or arrivals.left_out or arrivals.with_old_key)
    needs_position = placeholder is not None and target.apply == "upsert" and arrivals.without_position
    # Version 0 was created, and not filled.
    if table is None or not table.version() or target.apply == "history" or not is_plain or needs_position:
        raise _LeftToSparkError
    return table


def _read(staged: OutputRows) -> list[_Row]:
    if staged.bytes_in_files > _MOST_BYTES:
        raise _LeftToSparkError
    rows = staged.read(_COLUMNS)
    if rows.nbytes > _MOST_BYTES:
        raise _LeftToSparkError
    return [_Row(*values) for values in zip(*(column.to_pylist() for column in rows), strict=True)]


def _append(writer: Writer, table: DeltaTable, rows: list[_Row], _: Placeholder | None) -> int:
    if rows and not writer.append_small(writer.target.location, table, _parsed(writer.target, rows)):
        raise _LeftToSparkError
    return len(rows)


def _upsert(writer: Writer, table: DeltaTable, rows: list[_Row], placeholder: Placeholder | None) -> int:
    """Merges the newest row of each key, as sql/tables/newest.sql and sql/tables/upsert.sql do."""
    target = writer.target
    tombstones = writer.plain_table(str(target.deleted), {*TOMBSTONES.names})
    if tombstones is None:
        raise _LeftToSparkError
    rows = _not_truncated(rows, truncations.read_stored(tombstones) if placeholder else [])
    newest = _newest(rows, tombstones)
    if not newest:
        return 0
    keys = pa.table(_parse(target.key_columns, [row.key for row in newest]))
    if not small.reads_little(table, keys, target.key):  # then all else need not be parsed
        raise _LeftToSparkError
    changes = _parsed(target, newest)
    if placeholder and _has_placeholder(changes, target, placeholder):
        raise _LeftToSparkError
    deleted = [row for row in newest if row.value is None]
    if deleted and not writer.append_small(str(target.deleted), tombstones, _as_tombstones(deleted)):
        raise _LeftToSparkError
    if not writer.upsert_small(table, changes):
        raise _LeftToSparkError
    texts = {row.key for row in newest}
    return sum(row.key in texts for row in rows)


def _newest(rows: list[_Row], tombstones: DeltaTable) -> list[_Row]:
    """Returns the newest row of each key, but of those that were deleted after it."""
    by_key = {row.key: row for row in sorted(rows, key=lambda row: (row.place, row.offset))}
    deleted_at = _deleted_at(tombstones, min(row.place for row in rows)) if rows else {}
    return [row for row in by_key.values() if row.key not in deleted_at or row.place >= deleted_at[row.key]]


def _not_truncated(rows: list[_Row], stored: list[Truncation]) -> list[_Row]:
    """Returns the rows that are not before a truncation of an earlier batch."""
    last = max(((truncation.position, truncation.seqno) for truncation in stored), default=None)
    return rows if last is None else [row for row in rows if row.place >= last]


def _deleted_at(table: DeltaTable, since: tuple[int, int]) -> dict[str | None, tuple[int, int]]:
    """Returns where each key was deleted last, at least of those that were deleted at a place from `since` on.

    Args:
        table: The tombstones.
        since: A place in the source's order.
    """
    files = files_since(table, since)
    if not small.is_small(sum(file.rows for file in files), files):
        raise _LeftToSparkError
    try:
        rows = dataset(table, files, TOMBSTONES).to_table(filter=ds.field("key").is_valid())
    except (OSError, pa.ArrowException) as error:  # Spark says what is the matter
        raise _LeftToSparkError from error
    deleted_at: dict[str | None, tuple[int, int]] = {}
    for key, deletion in zip(rows["key"].to_pylist(), rows["place"].to_pylist(), strict=True):
        place = deletion["position"], deletion["seqno"]
        deleted_at[key] = max(deleted_at.get(key, place), place)
    return deleted_at


def _as_tombstones(rows: list[_Row]) -> pa.Table:
    places = [{"position": row.position, "seqno": row.seqno} for row in rows]
    return pa.table({"key": [row.key for row in rows], "place": places}, TOMBSTONES)


def _parsed(target: TableTarget, rows: list[_Row]) -> pa.Table:
    """Returns the rows with the table's columns and `_deleted`; a deletion has the columns of its key only."""
    deleted = pa.array([row.value is None for row in rows])
    columns = _parse(target.columns, [row.value for row in rows])
    if target.key and pc.any(deleted).as_py():
        keys = _parse(target.key_columns, [row.key if row.value is None else None for row in rows])
        columns |= {name: pc.if_else(deleted, values, columns[name]) for name, values in keys.items()}
    places = (pa.array([row.position for row in rows], pa.int64()), pa.array([row.seqno for row in rows], pa.int64()))
    return pa.table({**columns, **dict(zip(PLACE, places, strict=True)), DELETED: deleted})


def _parse(columns: StructType, texts: list[str | None]) -> dict[str, pa.Array]:
    """Parses texts of JSON; where there is none, all columns are null.

    Raises:
        _LeftToSparkError: A text is not as zync writes it.
    """
    parse = _parser(columns.json())
    try:
        arrays = parse(["{}" if text is None else text for text in texts])
    except PARSE_ERRORS as error:
        raise _LeftToSparkError from error
    return dict(zip(columns.names, arrays, strict=True))


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
