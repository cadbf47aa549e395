"""The table `staging`: one schema, `kind` says what a row is."""

import pyarrow as pa
from deltalake import DeltaTable

from zync.lake.paths import table_name
from zync.lake.table import ensure_table, existing_table, of_kind, open_table, refresh
from zync.lake.types import TIMESTAMP

_RANGE = pa.struct([pa.field("first", pa.int64()), pa.field("last", pa.int64())])

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
        pa.field("records", pa.list_(_RANGE)),
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
raw had no more when this staging was made) or cursor. seqno: the transaction's (pending, expired: of its first record;
late, quarantined records: the record's; trimmed: the last one's; cursor: the cursor).
head: the largest raw seqno looked at; of an output row, with order: commit, the record at which its transaction's turn
came, where that is after its seqno: the order of output rows is that of head, or else seqno, and then seqno.
sync: the number of the sync that wrote the row. kafka: the place in the output topic (records set aside: where
they came from). position: of an output row, where its transaction's commit is in the source's order (with a
preset). records: seqnos as ranges. since: when the first record was ingested. reason: why
something is set aside, or what an operator said; of an output row without key and value, that it is a truncation, which
takes all rows of its topic that are before it (truncate). state: of `done`'s aggregates, as JSON; of an output row, the
columns that the connector left out, and the key that the row had;
where an operator redrove or dropped what was set aside, which records that was about; of
cursor: the columns of outputs (zync/rules/schema.py). full: the
sync that last wrote all that is in flight.
"""

SYNC = "zync/sync"
"""The application id whose version is the number of the newest sync."""


STATISTICS = ("seqno", "sync")
"""Of which columns the log has least and most: what is read is found by them."""
_SAYS_SO = "delta.dataSkippingStatsColumns"


def ensure_staging(location: str, table: DeltaTable | None = None) -> DeltaTable:
    """The staging at its newest version (`table`, if it is open already), made now if there was none.

    It says of which columns there are statistics: delta-rs takes those of others for null, and finds no row by them.
    """
    columns = ",".join(STATISTICS)
    description = "zync staging: whole transactions"
    table = table or ensure_table(location, STAGING_SCHEMA, description, dataSkippingStatsColumns=columns)
    if table.metadata().configuration.get(_SAYS_SO) != columns:  # made by an older zync
        table.alter.set_table_properties({_SAYS_SO: columns})
        refresh(table)
    return table


def open_staging(location: str) -> DeltaTable | None:
    """The staging at its newest version, or None where there is nothing; UsageError where there is another table."""
    table = open_table(location)
    return table and of_kind(table, STAGING_SCHEMA, "staging")


def existing_staging(location: str) -> DeltaTable:
    """The staging at its newest version; UsageError where there is none, or another table."""
    return of_kind(existing_table(location, f"zync sync raw {table_name(location)}"), STAGING_SCHEMA, "staging")
