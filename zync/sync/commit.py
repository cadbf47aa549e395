"""Stage commit: computes the cursor and commits all files of the sync at once."""

import uuid
from dataclasses import dataclass, replace

import pyarrow as pa

from zync.staging.bookkeeping import Bookkeeping
from zync.staging.commit import add_rows, commit_files
from zync.staging.conclude import conclude
from zync.staging.table import STAGING_SCHEMA
from zync.sync.apply_rules import Applied
from zync.sync.context import Sync


@dataclass(frozen=True)
class Committed:
    """A sync after stage commit.

    Attributes:
        applied: The sync before its commit.
        bookkeeping: Staging's bookkeeping after the commit.
    """

    applied: Applied
    bookkeeping: Bookkeeping


def commit(applied: Applied) -> Committed:
    """Computes the cursor from what is in flight after this sync, then commits all files in a single Delta commit."""
    sync, written, before = applied.sync, applied.written, applied.sync.bookkeeping
    if sync.rejudges_all:  # this sync writes the row of each transaction in flight anew
        before = replace(before, in_flight=before.in_flight.slice(0, 0))
    nonce = uuid.uuid4().hex
    concluded = conclude(
        before,
        written.rows,
        number=sync.number,
        head=sync.head,
        cutoff=sync.expiry_cutoff(applied.summary),
        full=sync.rejudges_all or before.cursor.sync == 0,
        remember=sync.config.transactions.remember,
        cursor={
            "offsets": {**before.cursor.offsets, **written.offsets},
            "raw": {"id": str(sync.raw.metadata().id), "version": sync.raw.version()},
            "nonce": nonce,
            "state": applied.output_columns,
            "digests": {**sync.config.digests, **applied.lookup_digests},
        },
    )
    rows = pa.concat_tables([concluded.rows, _trimmed_row(sync)])
    add_rows(sync.staging, written.folder, rows)
    commit_files(sync.staging, written.folder, sync.number, nonce, rows=written.count + rows.num_rows)
    return Committed(applied, concluded.bookkeeping)


def _trimmed_row(sync: Sync) -> pa.Table:
    """Returns staging's row of the new seqnos whose records raw no longer has; an empty table if raw has them all."""
    ranges = sync.trimmed_ranges
    row = {"kind": "trimmed", "sync": sync.number, "records": ranges.to_structs(), "count": ranges.count}
    return pa.Table.from_pylist([{**row, "seqno": ranges.highest}] if ranges else [], STAGING_SCHEMA)
