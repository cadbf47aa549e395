"""The locations of delivered tables in the lake, and the application id by which their commits count syncs."""

from zync.lake.paths import locate

FOLDER = "tables"
"""The folder of the tables, below the lake."""
APP = "zync/delivered/"
"""The prefix of the application id of Delta's `txn` action in a table's commits; staging's table id follows."""


def table_of(topic: str, lake: str) -> str:
    """Returns the location of the table to which an output topic is delivered."""
    folder = locate(FOLDER, lake)
    return locate(f"{folder}/{topic}", folder)
