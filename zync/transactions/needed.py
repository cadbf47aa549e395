"""The oldest record of raw that a staging still needs."""

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.errors import UsageError
from zync.lake.files import data_files, dataset
from zync.lake.ranges import SeqnoRanges
from zync.raw.table import TRIMMED, first_seqno
from zync.staging.bookkeeping import Cursor, read_bookkeeping
from zync.staging.set_aside import read_set_aside
from zync.staging.table import STAGING_SCHEMA
from zync.text import amount

_COLUMNS = ["kind", "seqno", "txn", "records", "state"]


def needed_from(staging: DeltaTable, remember: int) -> tuple[int, str]:
    """Returns the first seqno that a later sync to this staging, or an operator, may read, and the reason.

    Args:
        staging: the staging table.
        remember: `transactions.remember`: all records of what was settled within the last so many records count as
            needed, too; 0 for none.
    """
    bookkeeping, set_aside = read_bookkeeping(staging, 0), read_set_aside(staging)
    undecided = chain(*set_aside.quarantined.values(), set_aside.late.values())
    reasons = {
        "in flight or expired: zync txn list": SeqnoRanges.of_column(bookkeeping.in_flight["records"]),
        "set aside, undecided: zync dlq list": SeqnoRanges.concat(row["records"] for row in undecided),
    }
    if remember:
        oldest = bookkeeping.cursor.head - remember
        reasons[f"within the last {amount(remember, 'record')}: transactions.remember"] = SeqnoRanges.concat(
            SeqnoRanges.of_column(rows["records"]) for rows in rows_of(staging, ds.field("seqno") > oldest, oldest)
        )
    needed = [(ranges.lowest, reason) for reason, ranges in reasons.items() if ranges.lowest]
    return min([(bookkeeping.cursor.seqno + 1, "not settled yet"), *needed])


def check_start(raw: DeltaTable, staging: DeltaTable, cursor: Cursor) -> None:
    """Checks that raw still has all records that the staging needs, if raw was trimmed since the cursor's sync.

    Raises:
        UsageError: records that the staging needs were trimmed.
    """
    if cursor.raw_version >= (raw.transaction_version(TRIMMED) or 0) or not cursor.sync:
        return
    if (needed := needed_from(staging, 0)[0]) < first_seqno(raw):
        msg = (
            f"{raw.table_uri} has all records from seqno {first_seqno(raw):,} on, and {staging.table_uri} needs those "
            f"from {needed:,} on: `zync maintain` did not know of it. Make it anew, under another name"
        )
        raise UsageError(msg)


def rows_of(staging: DeltaTable, wanted: ds.Expression, above: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows about transactions that match the filter `wanted`, from files with seqnos over `above`."""
    files = data_files(staging, "seqno", above=above)
    kind, txn = ds.field("kind"), ds.field("txn")
    of_no_transaction = kind.isin(["output", "cursor", "trimmed"]) | (kind == "ignored") & txn.is_null()
    if files:
        yield from dataset(staging, files, STAGING_SCHEMA).to_batches(
            columns=_COLUMNS, filter=wanted & ~of_no_transaction
        )
