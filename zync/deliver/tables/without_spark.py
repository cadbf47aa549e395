"""Applies a batch without Spark's jobs, to the effect of `_Apply` in zync.deliver.tables.apply.

Arrow reads the rows, msgspec parses them, delta-rs writes them: Spark takes several times as long for each of its jobs.
What is not plain is left to Spark: a history, truncations and left-out columns, layouts and types that delta-rs does
not write as Spark does (zync.deliver.tables.delta_rs), a merge that would read much, and JSON that is not written as
zync writes it.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from zync.debezium.unavailable import Placeholder
from zync.deliver.tables import delta_rs, truncations
from zync.deliver.tables.delta_rs import NotPlainError
from zync.deliver.tables.target import TableTarget
from zync.deliver.tables.tombstones import TOMBSTONES, files_since
from zync.deliver.tables.writer import Writer
from zync.formats.encode.json_rows import PARSE_ERRORS, parser
from zync.lake.delivered import DELETED, PLACE
from zync.lake.files import dataset
from zync.staging.outputs import KAFKA_OFFSET, Arrivals, OutputRows, Truncation

_MOST_BYTES = 192 << 20
"""The most bytes of keys and values of an upsert, which are held in memory together; it takes up to five times that."""
_PARSED_ROWS, _PARSED_BYTES = 50_000, 32 << 20
"""The most rows, and about the most bytes, that are held as Python's objects, which take several times as much."""
_COLUMNS = {
    "key": ds.field("key"),
    "value": ds.field("value"),
    "position": pc.coalesce(ds.field("position"), pc.scalar(0)),
    "seqno": ds.field("seqno"),
    "offset": KAFKA_OFFSET,
}
"""Columns of the rows; a deletion has no value. `position` and `seqno` are its place in the source's order."""
_SCHEMA = pa.schema([(name, pa.string() if name in ("key", "value") else pa.int64()) for name in _COLUMNS])


def apply(
    writer: Writer, staged: OutputRows, arrivals: Arrivals, placeholder: Placeholder | None, *, is_new: bool
) -> int | None:
    """Applies the rows of a batch.

    Args:
        writer: Commits to the table, which has the columns of the rules.
        staged: The rows.
        arrivals: Their summary.
        placeholder: As in `zync.deliver.tables.apply.deliver`.
        is_new: Whether the table has no rows yet, or does not exist.

    Returns:
        The number of rows; None if Spark has to apply them. Tombstones may be stored then, by this batch's `txn`.

    Raises:
        ConflictError: Another process wrote to the table meanwhile.
        CommitUnknownError: Whether a commit landed is not known.
    """
    try:
        table = _plain_table(writer, arrivals, placeholder, is_new=is_new)
        if writer.target.apply == "append":
            return _append(writer, table, staged, arrivals)
        return _upsert(writer, table, staged, arrivals, placeholder, is_new=is_new)
    except NotPlainError:
        return None


def _plain_table(writer: Writer, arrivals: Arrivals, placeholder: Placeholder | None, *, is_new: bool) -> DeltaTable:
    target = writer.target
    is_plain = not (arrivals.truncations or arrivals.left_out or arrivals.with_old_key)
    needs_position = placeholder is not None and target.apply == "upsert" and arrivals.without_position
    if target.apply == "history" or not is_plain or needs_position:
        raise NotPlainError
    if is_new:
        writer.plan_new()
    table = writer.plain_table(target.location, {*target.plain_columns.names}, target.key)
    if table is None:
        raise NotPlainError
    return table


def _append(writer: Writer, table: DeltaTable, staged: OutputRows, arrivals: Arrivals) -> int:
    tables = (pa.Table.from_batches([batch]) for batch in staged.batches(_COLUMNS, _PARSED_ROWS))
    rows = (_parsed(writer.target, part) for each in tables for part in _parts(each))
    _append_by(writer, writer.target.location, table, rows)
    return arrivals.rows


def _append_by(writer: Writer, location: str, table: DeltaTable, rows: Iterable[pa.Table]) -> None:
    if not writer.append_by_delta_rs(location, table, rows):
        raise NotPlainError


def _upsert(
    writer: Writer,
    table: DeltaTable,
    staged: OutputRows,
    arrivals: Arrivals,
    placeholder: Placeholder | None,
    *,
    is_new: bool,
) -> int:
    """Merges the newest row of each key, as sql/tables/newest.sql and sql/tables/upsert.sql do."""
    target = writer.target
    tombstones = writer.plain_table(str(target.deleted), {*TOMBSTONES.names})
    if tombstones is None:
        raise NotPlainError
    rows = _not_truncated(_read(staged), truncations.read_stored(tombstones) if placeholder else [])
    newest = _newest(rows, _deletions(tombstones, arrivals.first_place))
    count = int(pc.sum(pc.is_in(rows["key"], newest["key"].combine_chunks())).as_py() or 0)
    del rows  # whose texts take the most memory
    if not newest.num_rows and not is_new:
        return 0
    if not is_new:
        keys = pa.concat_tables(_columns(target.key_columns, part["key"]) for part in _parts(newest.select(["key"])))
        if not delta_rs.reads_little(table, keys, target.key, writer.most_merged):  # before all else is parsed
            raise NotPlainError
    changes = pa.concat_tables(_parsed(target, part) for part in _parts(newest))
    if placeholder and _has_placeholder(changes, target, placeholder):
        raise NotPlainError
    deleted = newest.filter(pc.is_null(newest["value"]))
    if deleted.num_rows:
        _append_by(writer, str(target.deleted), tombstones, [_as_tombstones(deleted)])
    if is_new:
        _append_by(writer, target.location, table, [changes.filter(pc.invert(changes[DELETED]))])
    elif not writer.upsert_by_delta_rs(table, changes):
        raise NotPlainError
    return count


def _read(staged: OutputRows) -> pa.Table:
    batches, size = [], 0
    for batch in staged.batches(_COLUMNS, _PARSED_ROWS):
        size += batch.nbytes
        if size > _MOST_BYTES:
            raise NotPlainError
        batches.append(batch)
    return pa.Table.from_batches(batches, _SCHEMA)


def _newest(rows: pa.Table, deletions: pa.Table) -> pa.Table:
    """Returns the newest row of each key, but of those that were deleted after it."""
    newest, last_deletions = _last_of_each_key(rows), _last_of_each_key(deletions)
    deletion = pc.index_in(newest["key"], last_deletions["key"].combine_chunks())
    deleted_at = last_deletions.take(deletion)  # null where the key was not deleted
    is_older = pc.or_(
        pc.less(newest["position"], deleted_at["position"]),
        pc.and_(pc.equal(newest["position"], deleted_at["position"]), pc.less(newest["seqno"], deleted_at["seqno"])),
    )
    return newest.filter(pc.invert(pc.fill_null(is_older, fill_value=False)))


def _last_of_each_key(rows: pa.Table) -> pa.Table:
    """Returns the last row of each key by position, seqno and offset."""
    keys = rows["key"].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
    order = np.lexsort([*(rows[column].to_numpy() for column in ("offset", "seqno", "position")), keys])
    keys = keys[order]
    return rows.take(order[np.append(keys[1:] != keys[:-1], np.ones(min(len(keys), 1), bool))])


def _not_truncated(rows: pa.Table, stored: list[Truncation]) -> pa.Table:
    """Returns the rows that are not before a truncation of an earlier batch."""
    if not stored:
        return rows
    position, seqno = max((truncation.position, truncation.seqno) for truncation in stored)
    is_later = pc.and_(pc.equal(rows["position"], position), pc.greater_equal(rows["seqno"], seqno))
    return rows.filter(pc.or_(pc.greater(rows["position"], position), is_later))


def _deletions(table: DeltaTable, since: tuple[int, int]) -> pa.Table:
    """Returns what was deleted, at least at a place from `since` on, with the columns by which rows are compared.

    Args:
        table: The tombstones.
        since: A place in the source's order.
    """
    files = files_since(table, since)
    if not delta_rs.is_small(sum(file.rows for file in files), files):
        raise NotPlainError
    place = {column: ds.field("place", column) for column in ("position", "seqno")}
    columns = {"key": ds.field("key"), **place, "offset": pc.scalar(0)}
    try:
        return dataset(table, files, TOMBSTONES).to_table(columns, filter=ds.field("key").is_valid())
    except (OSError, pa.ArrowException) as error:  # Spark says what is the matter
        raise NotPlainError from error


def _as_tombstones(rows: pa.Table) -> pa.Table:
    place = pa.StructArray.from_arrays(
        [rows[column].combine_chunks() for column in ("position", "seqno")], ["position", "seqno"]
    )
    return pa.table({"key": rows["key"], "place": place}).cast(TOMBSTONES)


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    """Yields the rows in parts that are small enough to be held as Python's objects."""
    by_bytes = _PARSED_BYTES * rows.num_rows // max(1, rows.nbytes)
    size = max(1, min(_PARSED_ROWS, by_bytes))
    for start in range(0, max(1, rows.num_rows), size):
        yield rows.slice(start, size)


def _parsed(target: TableTarget, rows: pa.Table) -> pa.Table:
    """Returns the rows with the table's columns and `_deleted`; a deletion has the columns of its key only."""
    columns = _columns(target.columns, rows["value"])
    deleted = pc.is_null(rows["value"])
    if target.key and pc.any(deleted).as_py():
        keys = _columns(target.key_columns, pc.if_else(deleted, rows["key"], None))
        for name in target.key:
            values = pc.if_else(deleted, keys[name], columns[name])
            columns = columns.set_column(columns.column_names.index(name), name, values)
    for name, values in zip((*PLACE, DELETED), (rows["position"], rows["seqno"], deleted), strict=True):
        columns = columns.append_column(name, values)
    return columns


def _columns(columns: StructType, texts: pa.ChunkedArray) -> pa.Table:
    """Parses texts of JSON; where there is none, all columns are null.

    Raises:
        NotPlainError: A text is not as zync writes it.
    """
    parse = _parser(columns.json())
    try:
        arrays = parse(["{}" if text is None else text for text in texts.to_pylist()])
    except PARSE_ERRORS as error:
        raise NotPlainError from error
    return pa.table(dict(zip(columns.names, arrays, strict=True)))


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
