"""Truncations of a delivered table: what is before one in the source's order is gone, now and when it comes later.

Staging has each as an output row of its own (zync.staging.outputs.TRUNCATED). A table remembers them beside the keys
that were deleted, as tombstones without a key.
"""

from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from zync.deliver.tables.target import Target
from zync.lake.files import dataset
from zync.lake.table import open_table
from zync.spark.frames import local
from zync.staging.outputs import Truncation

TOMBSTONES = pa.schema([("key", pa.string()), ("place", pa.struct([("position", pa.int64()), ("seqno", pa.int64())]))])
"""Columns of the table that remembers what was deleted; a null key: all that was there."""
_COLUMNS = "position bigint, seqno bigint, offset bigint, turn bigint"


def recorded(target: Target, came: Sequence[Truncation]) -> list[Truncation]:
    """Those that the table remembers, but for those that `came` now: who was killed had put them on record.

    Of the files that remember what was deleted only those are read that have a null key.
    """
    table = open_table(str(target.deleted))
    actions = pa.table(table.get_add_actions(flatten=True)) if table else None
    if table is None or actions is None or not actions.num_rows:
        return []
    nulls = actions["null_count.key"].to_pylist() if "null_count.key" in actions.column_names else [None] * len(actions)
    files = [unquote(path) for path, count in zip(actions["path"].to_pylist(), nulls, strict=True) if count != 0]
    if not files:
        return []
    rows = dataset(table, files, TOMBSTONES).to_table(columns=["place"], filter=ds.field("key").is_null())
    now = {(one.position, one.seqno) for one in came}
    found = (Truncation(**place, offset=-1, turn=-1) for place in rows["place"].to_pylist())
    return [one for one in found if (one.position, one.seqno) not in now]


def bind(spark: SparkSession, truncations: Sequence[Truncation]) -> None:
    """Makes the view `truncations` of them: position, seqno, offset, turn (-1 where that is not known any more)."""
    rows = [(one.position, one.seqno, one.offset, one.turn) for one in truncations]
    local(spark, rows, _COLUMNS).createOrReplaceTempView("truncations")


def as_tombstones(spark: SparkSession, truncations: Sequence[Truncation]) -> DataFrame:
    """The rows by which a table remembers them."""
    rows = [(None, (one.position, one.seqno)) for one in truncations]
    return local(spark, rows, "key string, place struct<position: bigint, seqno: bigint>")


def not_before(arrived: Sequence[Truncation], remembered: Sequence[Truncation]) -> str:
    """A condition: the row with that `place` is before none of them.

    What came now says by its offset, too, which rows of its own transaction are before it.
    """
    conditions = ["true"]
    if arrived:
        last = max(arrived)
        conditions.append(
            f"place > named_struct('position', {last.position}L, 'seqno', {last.seqno}L, 'offset', {last.offset}L)"
        )
    if remembered:
        conditions.append(f"NOT {before(max(remembered), 'place.position', 'place.seqno')}")
    return " AND ".join(conditions)


def before(truncation: Truncation, position: str, seqno: str) -> str:
    """A condition: what is at that place is before it, in another transaction."""
    at, number = truncation.position, truncation.seqno
    return f"({position} < {at}L OR {position} = {at}L AND {seqno} < {number}L)"
