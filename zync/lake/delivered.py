"""Delivered tables in the lake: their locations, the names that zync gives in them, and who committed to them."""

from typing import Any

from deltalake import DeltaTable

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
_MAINTENANCE = ("OPTIMIZE", "VACUUM START", "VACUUM END", "REORG")
"""Operations by which others may change a table: they keep its rows."""


def table_of(topic: str, lake: str) -> str:
    """Returns the location of the table to which an output topic is delivered."""
    folder = locate(FOLDER, lake)
    return locate(f"{folder}/{topic}", folder)


def commit_of_others(table: DeltaTable, after: int | None) -> dict[str, Any] | None:
    """Returns the newest commit by which others changed the table's rows or columns; None if there is none.

    Args:
        table: The table at its newest version.
        after: The version after which to look; None: all that the log has.
    """
    for commit in table.history(None if after is None else table.version() - after):
        if not is_zync_commit(commit.get("userMetadata")) and commit["operation"] not in _MAINTENANCE:
            return commit
    return None


def is_zync_commit(user_metadata: str | None) -> bool:
    """Returns whether a commit with this `userMetadata` is zync's."""
    return bool(user_metadata) and str(user_metadata).startswith(TAG)
