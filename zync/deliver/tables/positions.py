"""Gives a position in the source's order to rows that come without a position."""

from pyspark.sql import SparkSession

from zync.deliver.tables.target import TableTarget
from zync.lake.table import open_table
from zync.spark.frames import from_rows, result_of
from zync.sql import name, statement

_TOMBSTONE = "key STRING, place STRUCT<position: BIGINT, seqno: BIGINT>"


def bind_tombstones(spark: SparkSession, target: TableTarget, where: str = "true") -> None:
    """Creates the view `tombstones` of the table's deleted keys that meet `where`; empty if nothing was deleted."""
    location = str(target.deleted)
    table = open_table(location)
    tombstones = from_rows(spark, [], _TOMBSTONE)
    if table and table.file_uris():
        tombstones = spark.read.format("delta").load(location).where(where)
    tombstones.createOrReplaceTempView("tombstones")


def assign_positions(spark: SparkSession, target: TableTarget, types: dict[str, str], *, is_new: bool) -> None:
    """Gives each row of the view `staged` a position (sql/tables/positioned.sql); needs the view `truncations`.

    Args:
        spark: The session.
        target: The table.
        types: SQL literals of the key's type (`key_type`) and of the options of from_json (`options`).
        is_new: Whether the table has no rows yet.
    """
    bind_tombstones(spark, target)
    if is_new:
        rows = from_rows(spark, [], f"{target.columns.toDDL()}, _position BIGINT, _seqno BIGINT")
    else:
        rows = spark.read.format("delta").load(target.location)
    rows.createOrReplaceTempView("target")
    same_key = " AND ".join(f"t.{name(column)} <=> k.{name(column)}" for column in target.key)
    slots = {"key_type": types["key_type"], "options": types["options"], "same_key": same_key}
    result_of(spark, statement("tables/before", **slots)).createOrReplaceTempView("before")
    result_of(spark, statement("tables/positioned")).createOrReplaceTempView("staged")
