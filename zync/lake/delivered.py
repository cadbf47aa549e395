"""Where delivered tables are in the lake, and by which name their commits count a staging's syncs."""

from zync.lake.paths import locate

FOLDER = "tables"
"""Where the tables are, below the lake."""
APP = "zync/delivered/"
"""Begins the application id of Delta's `txn` action in a table's commits; the table id of staging follows."""


def table_of(topic: str, lake: str) -> str:
    """The location of the table that an output topic is delivered to."""
    folder = locate(FOLDER, lake)
    return locate(f"{folder}/{topic}", folder)
