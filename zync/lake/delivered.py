"""Delivered tables in the lake: their locations, and the names that zync gives in them."""

from zync.lake.paths import locate

FOLDER = "tables"
"""The folder of the tables, below the lake."""
APP = "zync/delivered/"
"""The prefix of the application id of Delta's `txn` action in a table's commits; staging's table id follows."""
APPLY = "zync.apply"
"""The table property that tells how rows are applied: upsert, append or history."""
PLACE = ("_position", "_seqno")
"""Columns of every delivered table: the place of a row's transaction in the source's order."""
DELETED = "_deleted"
"""The column of an append table that tells whether a row is a deletion; also the folder of the tombstone tables."""
TAG = '{"zync":'
"""The prefix of the `userMetadata` of zync's commits."""


def table_of(topic: str, lake: str) -> str:
    """Returns the location of the table to which an output topic is delivered."""
    folder = locate(FOLDER, lake)
    return locate(f"{folder}/{topic}", folder)
