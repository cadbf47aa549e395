"""Stage commit: computes the cursor and commits all files of the sync at once."""

import uuid
from dataclasses import replace

import pyarrow as pa

from zync.staging.commit import add_rows, commit_files
from zync.staging.conclude import conclude
from zync.staging.table import STAGING_SCHEMA
from zync.sync.context import Sync, require


def commit(sync: Sync) -> Sync:
    """Computes the cursor from what is in flight after this sync, then commits all files in a single Delta commit."""
    written, bookkeeping = require(sync.written), sync.bookkeeping
    if not sync.rejudges_all:  # otherwise this sync writes the row of each transaction in flight anew
        in_flight = pa.concat_tables([require(sync.reread_in_flight), bookkeeping.in_flight])
        bookkeeping = replace(bookkeeping, in_flight=in_flight)
    nonce = uuid.uuid4().hex
    concluded = conclude(
        bookkeeping,
        written.rows,
        number=sync.number,
        head=sync.head,
        cutoff=sync.expiry_cutoff,
        full=sync.rejudges_all or bookkeeping.cursor.sync == 0,
        remember=sync.config.transactions.remember,
        cursor={
            "offsets": {**bookkeeping.cursor.offsets, **written.offsets},
            "raw": {"id": str(sync.raw.metadata().id), "version": sync.raw.version()},
            "nonce": nonce,
            "state": sync.output_columns,
            "digests": {**sync.config.digests, **sync.lookup_digests},
        },
    )
    rows = pa.concat_tables([concluded.rows, _trimmed_row(sync)])
    add_rows(sync.staging, written.folder, rows)
    commit_files(sync.staging, written.folder, sync.number, nonce, rows=written.count + rows.num_rows)
    return replace(sync, bookkeeping_after=concluded.known)


def _trimmed_row(sync: Sync) -> pa.Table:
    """Returns staging's row of the new seqnos whose records raw no longer has; an empty table if raw has them all."""
    ranges = sync.trimmed_ranges
    row = {"kind": "trimmed", "sync": sync.number, "records": ranges.to_structs(), "count": ranges.count}
    return pa.Table.from_pylist([{**row, "seqno": ranges.highest}] if ranges else [], STAGING_SCHEMA)
