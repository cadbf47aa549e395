"""Where rows are in the source's order that come without a position."""

from pyspark.sql import SparkSession

from zync.deliver.tables.target import Target
from zync.lake.table import open_table
from zync.spark.frames import local, result_of
from zync.sql import name, statement

_TOMBSTONE = "key STRING, place STRUCT<position: BIGINT, seqno: BIGINT>"


def bind_tombstones(spark: SparkSession, target: Target, where: str = "true") -> None:
    """Makes the view `tombstones` of what was deleted before, as far as it counts; where nothing was, an empty one."""
    location = str(target.deleted)
    table = open_table(location)
    found = local(spark, [], _TOMBSTONE)
    if table and table.file_uris():
        found = spark.read.format("delta").load(location).where(where)
    found.createOrReplaceTempView("tombstones")


def place(spark: SparkSession, target: Target, types: dict[str, str], *, is_new: bool) -> None:
    """Gives each row of the view `staged` a position (sql/tables/placed.sql); `truncations` is bound."""
    bind_tombstones(spark, target)
    if is_new:
        rows = local(spark, [], f"{target.columns.toDDL()}, _position BIGINT, _seqno BIGINT")
    else:
        rows = spark.read.format("delta").load(target.location)
    rows.createOrReplaceTempView("target")
    same = " AND ".join(f"t.{name(one)} <=> k.{name(one)}" for one in target.key)
    slots = {"key_type": types["key_type"], "options": types["options"], "same_key": same}
    result_of(spark, statement("tables/before", **slots)).createOrReplaceTempView("before")
    result_of(spark, statement("tables/placed")).createOrReplaceTempView("staged")
