"""Gives a position in the source's order to rows that come without a position."""

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from zync.deliver.tables.target import TableTarget
from zync.lake.files import DataFile, data_files
from zync.lake.table import open_table
from zync.spark.frames import from_rows, read_parquet, result_of
from zync.sql import name, statement

NEWER = "(s._position > t._position OR s._position = t._position AND s._seqno > t._seqno)"
"""SQL, for Spark and for delta-rs: whether a row `s` is after the table's row `t` in the source's order."""
_TOMBSTONE = "key STRING, place STRUCT<position: BIGINT, seqno: BIGINT>"


def bind_tombstones(spark: SparkSession, target: TableTarget, since: tuple[int, int] | None = None) -> None:
    """Creates the view `tombstones` of the table's deleted keys; empty if nothing was deleted.

    Args:
        spark: The session.
        target: The table.
        since: The position and seqno of the first deletion to read; None to read all.
    """
    table = open_table(str(target.deleted))
    files, where = tombstone_files(table, since) if table else [], "true"
    if since:
        position, seqno = since
        where = f"place.position > {position} OR place.position = {position} AND place.seqno >= {seqno}"
    rows = read_parquet(spark, [file.uri for file in files], _TOMBSTONE)
    rows.where(where).createOrReplaceTempView("tombstones")


def tombstone_files(table: DeltaTable, since: tuple[int, int] | None = None) -> list[DataFile]:
    """Lists the files that may have tombstones from a place (position, seqno) on.

    Args:
        table: The table of tombstones.
        since: The place; None to list all files.
    """
    files = data_files(table, "place.position")
    if since is None:
        return files
    position, seqno = since
    newer = {file.uri for file in data_files(table, "place.seqno", above=seqno - 1)}
    return [file for file in files if file.highest > position or (file.highest == position and file.uri in newer)]


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
