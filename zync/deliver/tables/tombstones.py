"""Tombstones of a delivered table: its deleted keys, and where in the source's order each was deleted.

They are in a table beside it, so that rows that come late do not bring a key back.
"""

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from zync.deliver.tables.target import TableTarget
from zync.lake.files import DataFile, data_files
from zync.lake.table import open_table
from zync.spark.frames import read_parquet

TOMBSTONES = pa.schema([("key", pa.string()), ("place", pa.struct([("position", pa.int64()), ("seqno", pa.int64())]))])
"""Columns of the table of tombstones: a deleted key and the place of its deletion; a null key stands for all keys."""
_TOMBSTONE = "key STRING, place STRUCT<position: BIGINT, seqno: BIGINT>"


def bind(spark: SparkSession, target: TableTarget, since: tuple[int, int] | None = None) -> None:
    """Creates the view `tombstones` of the table's deleted keys; empty if nothing was deleted.

    Args:
        spark: The session.
        target: The table.
        since: The position and seqno of the first deletion to read; None to read all.
    """
    table = open_table(str(target.deleted))
    files, where = files_since(table, since) if table else [], "true"
    if since:
        position, seqno = since
        where = f"place.position > {position} OR place.position = {position} AND place.seqno >= {seqno}"
    rows = read_parquet(spark, [file.uri for file in files], _TOMBSTONE)
    rows.where(where).createOrReplaceTempView("tombstones")


def files_since(table: DeltaTable, since: tuple[int, int] | None = None) -> list[DataFile]:
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
