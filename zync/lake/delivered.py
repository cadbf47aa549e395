"""Delivered tables in the lake: their locations, the names that zync gives in them, and the last sync they have."""

from deltalake import DeltaTable

from zync.lake.delta_log import app_transactions
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
_PLAIN_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
"""The features of Delta that delta-rs keeps as Spark does; deletion vectors, change data and others are Spark's."""
_LEGACY_VERSION, _FEATURES_VERSION = 2, 7
"""Versions of Delta's protocol for writers: up to the first there are few features, at the second they are named."""


def table_of(topic: str, lake: str) -> str:
    """Returns the location of the table to which an output topic is delivered."""
    folder = locate(FOLDER, lake)
    return locate(f"{folder}/{topic}", folder)


def delivered_sync(table: DeltaTable | None, staging_id: str) -> int:
    """Returns the last sync of a staging (by its table id) that was delivered to a table; 0 before the first.

    It is read from the log's entries: delta-rs's `transaction_version` takes it from Spark's version checksum (`.crc`),
    which outlives an entry that another engine replaced.
    """
    return app_transactions(table).get(APP + staging_id, 0) if table else 0


def has_plain_protocol(table: DeltaTable) -> bool:
    """Returns whether a table has no features of Delta but those that delta-rs keeps as Spark does."""
    protocol = table.protocol()
    if protocol.min_writer_version == _FEATURES_VERSION:
        return {*(protocol.writer_features or ()), *(protocol.reader_features or ())} <= _PLAIN_FEATURES
    return protocol.min_writer_version <= _LEGACY_VERSION
