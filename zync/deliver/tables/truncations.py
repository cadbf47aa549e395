"""Truncations of a delivered table: each deletes all rows before it in the source's order, also if they arrive later.

Staging stores a truncation as an output row (zync.staging.outputs.TRUNCATED). A delivered table stores it beside its
deleted keys, as a tombstone without a key.
"""

from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from zync.deliver.tables.tombstones import TOMBSTONES
from zync.lake.files import add_actions, dataset
from zync.spark.frames import from_rows
from zync.staging.outputs import Truncation

_COLUMNS = "position bigint, seqno bigint, offset bigint, turn bigint"


def read_stored(table: DeltaTable, arrived: Sequence[Truncation] = ()) -> list[Truncation]:
    """Reads the truncations that a table of tombstones stores, without those that `arrived` in this batch.

    A process that was killed before its MERGE may have stored those of this batch. Only files with a null key are read.
    """
    actions = add_actions(table)
    if not actions.num_rows:
        return []
    nulls = actions["null_count.key"].to_pylist() if "null_count.key" in actions.column_names else [None] * len(actions)
    files = [unquote(path) for path, count in zip(actions["path"].to_pylist(), nulls, strict=True) if count != 0]
    if not files:
        return []
    rows = dataset(table, files, TOMBSTONES).to_table(columns=["place"], filter=ds.field("key").is_null())
    arrived_places = {(truncation.position, truncation.seqno) for truncation in arrived}
    stored = (Truncation(**place, offset=-1, turn=-1) for place in rows["place"].to_pylist())
    return [truncation for truncation in stored if (truncation.position, truncation.seqno) not in arrived_places]


def bind(spark: SparkSession, truncations: Sequence[Truncation]) -> None:
    """Creates the view `truncations`: position, seqno, offset and turn; offset and turn are -1 for stored ones."""
    rows = [(truncation.position, truncation.seqno, truncation.offset, truncation.turn) for truncation in truncations]
    from_rows(spark, rows, _COLUMNS).createOrReplaceTempView("truncations")


def as_tombstones(spark: SparkSession, truncations: Sequence[Truncation]) -> DataFrame:
    """Returns the tombstones that store the truncations."""
    rows = [(None, (truncation.position, truncation.seqno)) for truncation in truncations]
    return from_rows(spark, rows, "key string, place struct<position: bigint, seqno: bigint>")


def not_before(arrived: Sequence[Truncation], stored: Sequence[Truncation]) -> str:
    """Returns a SQL condition on `place`: no truncation deletes the row.

    The offset of a truncation that arrived in this batch also tells which rows of its own transaction it deletes.
    """
    conditions = ["true"]
    if arrived:
        last = max(arrived)
        conditions.append(
            f"place > named_struct('position', {last.position}L, 'seqno', {last.seqno}L, 'offset', {last.offset}L)"
        )
    if stored:
        conditions.append(f"NOT {before(max(stored), 'place.position', 'place.seqno')}")
    return " AND ".join(conditions)


def before(truncation: Truncation, position: str, seqno: str) -> str:
    """Returns a SQL condition: the place (position, seqno) is of a transaction before that of the truncation."""
    bound, seqno_bound = truncation.position, truncation.seqno
    return f"({position} < {bound}L OR {position} = {bound}L AND {seqno} < {seqno_bound}L)"
