"""The table `staging`: a single schema for all rows; `kind` tells what a row is."""

import pyarrow as pa
from deltalake import DeltaTable

from zync.lake.paths import table_name
from zync.lake.ranges import RANGE
from zync.lake.table import ensure_table, existing_table, of_kind, open_table, refresh
from zync.lake.types import TIMESTAMP

STAGING_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("seqno", pa.int64()),
        pa.field("sync", pa.int64()),
        pa.field(
            "kafka",
            pa.struct(
                [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("offset", pa.int64())]
            ),
        ),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("txn", pa.string()),
        pa.field("records", pa.list_(RANGE)),
        pa.field("count", pa.int64()),
        pa.field("since", TIMESTAMP),
        pa.field("state", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("head", pa.int64()),
        pa.field("offsets", pa.map_(pa.string(), pa.int64())),
        pa.field("raw", pa.struct([pa.field("id", pa.string()), pa.field("version", pa.int64())])),
        pa.field("full", pa.int64()),
        pa.field("nonce", pa.string()),
        pa.field("digests", pa.map_(pa.string(), pa.string())),
    ]
)
"""Columns of staging.

kind: output, done, pending, expired, late, duplicate, quarantined, released, discarded, ignored, trimmed (records that
raw no longer had when this staging was made) or cursor.
seqno: of the transaction; pending and expired: of its first record; late and quarantined records: of the record;
trimmed: of the last record; cursor: the cursor.
sync: the number of the sync that wrote the row.
kafka: the coordinates in the output topic; of records set aside, those in the source topic.
key, value: of an output row, as JSON.
position: of an output row, the position of its transaction's commit in the source's order (with a preset).
txn: the transaction id.
records: ranges of seqnos. count: the number of records.
since: the time at which the first record was ingested.
state: of a transaction in flight, the aggregates of `done` as JSON; of an output row, the columns that the connector
left out and the key that the row had before; of a redrive or a drop, the records that it was about; of the cursor, the
columns of the outputs (zync/rules/schema.py).
reason: why something is set aside, or the operator's reason; `truncate` marks an output row without key and value as a
truncation, which deletes all earlier rows of its topic.
rule: the rule that failed.
head: of the cursor, the largest seqno of raw that the sync read; of an output row, with order: commit, the record at
which its transaction's turn came, if that is after its seqno. Output rows are ordered by head, or by seqno where it is
null, and then by seqno.
offsets: the next offset of each output topic. raw: the table id and version of raw.
full: the newest sync that wrote a row for each transaction in flight.
nonce: the random id of the sync's commit, as in the log. digests: of the config, the rules and the lookup tables.
"""

SYNC = "zync/sync"
"""The application id of Delta's `txn` whose version is the number of the newest sync."""


STATISTICS = ("seqno", "sync")
"""The columns of which Delta's log has minimum and maximum for each file; readers prune files by them."""
_STATISTICS_PROPERTY = "delta.dataSkippingStatsColumns"


def ensure_staging(location: str, table: DeltaTable | None = None) -> DeltaTable:
    """Opens staging at its newest version, or creates it; returns `table` if it is open already.

    A table property names the columns that have statistics: delta-rs takes missing statistics of other columns for
    null, and would prune the files that a reader needs.
    """
    columns = ",".join(STATISTICS)
    description = "zync staging: whole transactions"
    table = table or ensure_table(location, STAGING_SCHEMA, description, dataSkippingStatsColumns=columns)
    if table.metadata().configuration.get(_STATISTICS_PROPERTY) != columns:  # an older zync created it
        table.alter.set_table_properties({_STATISTICS_PROPERTY: columns})
        refresh(table)
    return table


def open_staging(location: str) -> DeltaTable | None:
    """Opens staging at its newest version; returns None if there is no table.

    Raises:
        UsageError: the table is not a staging.
    """
    table = open_table(location)
    return table and of_kind(table, STAGING_SCHEMA, "staging")


def existing_staging(location: str) -> DeltaTable:
    """Opens staging at its newest version.

    Raises:
        UsageError: there is no table, or it is not a staging.
    """
    return of_kind(existing_table(location, f"zync sync raw {table_name(location)}"), STAGING_SCHEMA, "staging")
