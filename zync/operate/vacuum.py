"""Deletes what a table no longer needs: files that are no part of it any more, and expired entries of its log."""

import math
from datetime import timedelta
from functools import partial
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector

from zync.errors import ZyncError
from zync.lake.files import table_files
from zync.lake.table import REMEMBERED, first_line, refresh


def vacuum_table(table: DeltaTable, retain: timedelta | None, *, keep: int | None = None, dry_run: bool = False) -> int:
    """Deletes files that are no part of the table any more.

    Args:
        table: The table.
        retain: How long such files are kept. None: for the table's `delta.deletedFileRetentionDuration`, by default 7
            days.
        keep: A version whose files stay.
        dry_run: Whether to delete nothing.

    Returns:
        The number of these files.

    Raises:
        ZyncError: The table cannot be read, or a file not be deleted.
    """
    hours = None if retain is None else math.ceil(retain / timedelta(hours=1))
    kept = None if keep is None else [keep]
    expired = partial(table.vacuum, hours, enforce_retention_duration=hours is None, full=True, keep_versions=kept)
    try:
        refresh(table)
        if retain is not None and retain > REMEMBERED and not dry_run:  # or checkpoints drop the removals before then
            table.alter.set_table_properties({"delta.deletedFileRetentionDuration": f"interval {hours} hours"})
        existing = {file.path for file in table_files(table).get_file_info(FileSelector("", recursive=True))}
        # delta-rs also lists files that an earlier vacuum deleted.
        count = len(existing.intersection(map(unquote, expired(dry_run=True))))
        if count and not dry_run:
            expired(dry_run=False)
    except (DeltaError, OSError) as error:
        msg = f"{table.table_uri} cannot be vacuumed: {first_line(error)}"
        raise ZyncError(msg) from error
    return count


def shorten_log(table: DeltaTable) -> None:
    """Writes a checkpoint, and deletes log entries older than the table's log retention, by default 30 days.

    Raises:
        ZyncError: The log cannot be read, or not be written.
    """
    try:
        refresh(table)
        table.create_checkpoint()
        table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        msg = f"the log of {table.table_uri} cannot be shortened: {first_line(error)}"
        raise ZyncError(msg) from error
