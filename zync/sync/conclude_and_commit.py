"""Stage conclude_and_commit: computes the cursor and commits all files of the sync at once."""

import uuid
from dataclasses import replace

import pyarrow as pa

from zync.staging.commit import add_rows, commit
from zync.staging.conclude import conclude
from zync.staging.table import STAGING_SCHEMA
from zync.sync.context import Sync, there


def conclude_and_commit(sync: Sync) -> Sync:
    """The cursor, from what is in flight after this sync; and then everything at once."""
    written, before = there(sync.written), sync.known
    if not sync.changed:  # else all that is in flight is written anew
        before = replace(before, in_flight=pa.concat_tables([there(sync.reread), before.in_flight]))
    nonce = uuid.uuid4().hex
    concluded = conclude(
        before,
        written.rows,
        number=sync.number,
        head=sync.head,
        cutoff=sync.cutoff,
        full=sync.changed or before.cursor.sync == 0,
        remember=sync.config.transactions.remember,
        cursor={
            "offsets": {**before.cursor.offsets, **written.offsets},
            "raw": {"id": str(sync.raw.metadata().id), "version": sync.raw.version()},
            "nonce": nonce,
            "state": sync.columns,
            "digests": {**sync.config.digests, **sync.lookups},
        },
    )
    rows = pa.concat_tables([concluded.rows, _trimmed(sync)])
    add_rows(sync.staging, written.folder, rows)
    commit(sync.staging, written.folder, sync.number, nonce, rows=written.count + rows.num_rows)
    return replace(sync, after=concluded.known)


def _trimmed(sync: Sync) -> pa.Table:
    """A row that says which records there were no more when this staging was made; none where all were there."""
    ranges = [{"first": first, "last": last} for first, last in sync.trimmed]
    count = sum(last - first + 1 for first, last in sync.trimmed)
    row = {"kind": "trimmed", "sync": sync.number, "records": ranges, "count": count}
    return pa.Table.from_pylist([{**row, "seqno": sync.trimmed[-1][1]}] if ranges else [], STAGING_SCHEMA)
