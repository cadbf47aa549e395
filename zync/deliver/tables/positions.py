"""Positions of rows in the source's order: which is newer, and those of rows that come without one."""

from pyspark.sql import SparkSession

from zync.deliver.tables import tombstones
from zync.deliver.tables.target import TableTarget
from zync.spark.frames import from_rows, result_of
from zync.sql import name, statement

NEWER = "(s._position > t._position OR s._position = t._position AND s._seqno > t._seqno)"
"""SQL, for Spark and for delta-rs: whether a row `s` is after the table's row `t` in the source's order."""


def assign_positions(spark: SparkSession, target: TableTarget, types: dict[str, str], *, is_new: bool) -> None:
    """Gives each row of the view `staged` a position (sql/tables/positioned.sql); needs the view `truncations`.

    Args:
        spark: The session.
        target: The table.
        types: SQL literals of the key's type (`key_type`) and of the options of from_json (`options`).
        is_new: Whether the table has no rows yet.
    """
    tombstones.bind(spark, target)
    if is_new:
        rows = from_rows(spark, [], f"{target.columns.toDDL()}, _position BIGINT, _seqno BIGINT")
    else:
        rows = spark.read.format("delta").load(target.location)
    rows.createOrReplaceTempView("target")
    same_key = " AND ".join(f"t.{name(column)} <=> k.{name(column)}" for column in target.key)
    slots = {"key_type": types["key_type"], "options": types["options"], "same_key": same_key}
    result_of(spark, statement("tables/before", **slots)).createOrReplaceTempView("before")
    result_of(spark, statement("tables/positioned")).createOrReplaceTempView("staged")
