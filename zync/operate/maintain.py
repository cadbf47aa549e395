"""`zync maintain`: compacts a table's small files, deletes unneeded ones and shortens its log.

Writers and readers go on meanwhile, and the process may be killed at any moment (`zync.operate.rewrite`). delta-rs's
own compaction bins files by size, which scatters the rows that a reader looks for; here neighbours become one file.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from deltalake import DeltaTable

from zync.deliver.tables import snapshots
from zync.deliver.tables.snapshots import Snapshot
from zync.errors import UsageError
from zync.lake.delivered import DELETED, has_plain_protocol
from zync.lake.files import DataFile, data_files
from zync.lake.lock import owned
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.operate.rewrite import is_raw, rewrite
from zync.operate.trim import first_since, plan, stagings, trim
from zync.operate.vacuum import shorten_log, vacuum_table
from zync.raw.table import first_seqno
from zync.text import amount
from zync.transactions.needed import needed_from

LEAST_RETAIN = timedelta(days=1)
"""Younger files may belong to a running sync that has not committed them yet."""

TARGET = 128 * 1024 * 1024
"""Bytes of a full-size file."""

RETAIN = timedelta(days=7)
"""How long files that are no longer part of a table are kept by default."""


@dataclass
class Maintained:
    """What `maintain` did, or, with `dry_run`, would do.

    Attributes:
        files: number of the table's files before.
        files_after: number of its files after.
        tables: number of delivered tables, with those of their tombstones; None for raw and staging.
        trimmed: number of records that were trimmed from raw.
        start: raw has all records from this seqno on.
        untrimmed: why no records were trimmed, if they should have been.
        compacted: number of files that were compacted.
        into: number of files that these became.
        deleted: number of files that were deleted by vacuum.
        left_to_spark: the delivered tables with features of Delta that delta-rs does not know.
        dry_run: whether nothing was changed.
        seconds: duration of each step by its name.
    """

    files: int
    files_after: int
    tables: int | None = None
    trimmed: int = 0
    start: int = 1
    untrimmed: str | None = None
    compacted: int = 0
    into: int = 0
    deleted: int = 0
    left_to_spark: list[str] = field(default_factory=list)
    dry_run: bool = False
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trimming:
    """Which records raw keeps: those ingested within `retain`, and those that a staging may still need.

    Attributes:
        retain: how long records are kept at least.
        stagings: locations of stagings that were made of raw and are not in its folder.
        remember: for how many records the id of a settled transaction is remembered (`transactions.remember`).
    """

    retain: timedelta
    stagings: tuple[str, ...] = ()
    remember: int = 0


def maintain(
    location: str,
    *,
    compact: bool,
    vacuum: bool,
    retain: timedelta = RETAIN,
    trimming: Trimming | None = None,
    dry_run: bool = False,
    on_compacted: Callable[[int, int], None] = lambda _done, _all: None,
) -> Maintained:
    """Maintains the raw or staging at `location`, or the delivered tables in the folder there.

    Args:
        location: the table, or the folder of the delivered tables, which deliveries compact.
        compact: merge small files into large ones.
        vacuum: delete files that are no longer part of the table.
        retain: how long vacuum keeps such files for those who still read them; a day at least. A delivered table keeps
            them for its `delta.deletedFileRetentionDuration`.
        trimming: which records raw keeps; None: all of them.
        dry_run: change nothing, and return what would be done.
        on_compacted: called after each compacted group of files with its number and the number of groups.

    Raises:
        UsageError: the location has no table of zync's, a staging in `trimming` was not made of this raw, or delivered
            tables are to be trimmed, or only compacted.
        OwnedError: another process maintains the table. The steps that were committed before stay.

    Example:
        >>> maintained = zync.maintain("lake/staging", compact=True, vacuum=False)
        >>> maintained.files, maintained.files_after
        (4, 1)
    """
    if snapshot := snapshots.newest(f"{location}/{snapshots.NAME}"):
        if trimming or not vacuum:
            what = (
                "keep files for their delta.deletedFileRetentionDuration" if trimming else "are compacted by deliveries"
            )
            msg = f"{location} has delivered tables, which {what}: leave --{'retain' if trimming else 'compact'} out"
            raise UsageError(msg)
        return _maintain_delivered(location, snapshot, dry_run=dry_run)
    table = open_table(location)
    if table is None:
        msg = f"there is no table at {location} to maintain, and no folder of delivered tables"
        raise UsageError(msg)
    raw = is_raw(table)
    if trimming and trimming.stagings and not raw:
        msg = f"{location} is a staging: --staging says which ones were made of a raw"
        raise UsageError(msg)
    count = len(table.file_uris())
    result = Maintained(files=count, files_after=count, start=first_seqno(table) if raw else 1, dry_run=dry_run)
    with owned(location, f"another zync maintains {location}", what="maintain", name="maintain"):
        if trimming and raw:
            _timed(result, "trim", lambda: _trim(table, result, trimming))
        if compact:
            _timed(result, "compact", lambda: _compact(table, result, on_compacted, "seqno" if raw else "sync"))
        if vacuum:
            _timed(result, "vacuum", lambda: _vacuum(table, result, max(retain, LEAST_RETAIN)))
        if not dry_run:
            _timed(result, "log", lambda: shorten_log(table))
    if not dry_run:
        result.files_after = len(table.file_uris())
    return result


def _maintain_delivered(folder: str, snapshot: Snapshot, *, dry_run: bool) -> Maintained:
    """Vacuums the tables that a snapshot names, and their tombstones; shortens their logs.

    The files of the snapshot's versions stay, whatever was committed since. So do the log's entries if it is no longer
    of today: who does not deliver writes none.
    """
    is_recent = snapshots.now() - snapshot.at < LEAST_RETAIN
    names = [*snapshot.versions, *(f"{DELETED}/{topic}" for topic in snapshot.versions)]
    result, count = Maintained(files=0, files_after=0, dry_run=dry_run), 0
    with owned(folder, f"another zync maintains {folder}", what="maintain", name="maintain"):
        for name in names:
            table = open_table(locate(f"{folder}/{name}", folder))
            if table is None:
                continue
            count += 1
            result.files += len(table.file_uris())
            if not has_plain_protocol(table):
                result.left_to_spark.append(name)
                continue
            _timed(result, "vacuum", partial(_vacuum, table, result, None, snapshot.versions.get(name)))
            if is_recent and not dry_run:
                _timed(result, "log", partial(shorten_log, table))
    result.files_after, result.tables = result.files, count
    return result


def _vacuum(table: DeltaTable, result: Maintained, retain: timedelta | None, keep: int | None = None) -> None:
    result.deleted += vacuum_table(table, retain, keep=keep, dry_run=result.dry_run)


def _timed(result: Maintained, step: str, work: Callable[[], None]) -> None:
    """Runs a step and adds its duration to the result."""
    started = time.monotonic()
    work()
    result.seconds[step] = round(result.seconds.get(step, 0) + time.monotonic() - started, 3)


def groups(files: list[DataFile], target: int = TARGET) -> list[list[DataFile]]:
    """Groups neighbours among `files` that are to become a file of at most `target` bytes; two files each at least."""
    file_groups: list[list[DataFile]] = [[]]
    size = 0
    for file in files:
        is_large = file.size > target // 2
        if is_large or size + file.size > target:
            file_groups.append([])
            size = 0
        if not is_large:
            file_groups[-1].append(file)
            size += file.size
    return [group for group in file_groups if len(group) > 1]


def _trim(table: DeltaTable, result: Maintained, trimming: Trimming) -> None:
    """Trims raw's records that are older than `trimming.retain` and that no staging needs."""
    made_of_raw = stagings(table, list(trimming.stagings))
    if not made_of_raw:
        result.untrimmed = "no staging in its folder was made of it, so nobody has read it: name others with --staging"
        return
    retained_from = first_since(table, datetime.now(UTC) - trimming.retain)
    needed, reason, location = min(
        (*needed_from(staging, trimming.remember), staging.table_uri.rstrip("/")) for staging in made_of_raw
    )
    if min(retained_from, needed) <= result.start:
        result.untrimmed = (
            f"{location} may need those from seqno {needed:,} on again ({reason}), and those from {retained_from:,} on "
            "are younger than --retain"
        )
        return
    planned = plan(table, made_of_raw, min(retained_from, needed))
    result.start, result.trimmed = planned.start, planned.trimmed
    result.files_after -= len(planned.files) - planned.files_after
    if not result.dry_run:
        result.trimmed = trim(table, planned)


def _compact(table: DeltaTable, result: Maintained, on_compacted: Callable[[int, int], None], column: str) -> None:
    """Merges each group of neighbouring files into a single file, in a commit for each group.

    Raw's files are neighbours by seqno, staging's by sync: so rows that are read together stay together, and in order.
    Records that trimming keeps before raw's start stay in files of their own, to be dropped by the next trimming.
    """
    files, start = data_files(table, column), result.start if column == "seqno" else 0
    before = [file for file in files if file.lowest < start]
    after = [file for file in files if file.lowest >= start]
    planned = groups(after) if result.dry_run and result.trimmed else groups(before) + groups(after)
    for number, group in enumerate(planned, 1):
        result.compacted, result.into = result.compacted + len(group), number
        result.files_after -= len(group) - 1
        if not result.dry_run:
            rewrite(table, group)
            on_compacted(number, len(planned))


def describe(result: Maintained) -> str:
    """Returns what was done as a line for people."""
    would = "would be " if result.dry_run else ""
    trimmed = (
        f"; {amount(result.trimmed, 'record')} before seqno {result.start:,} {would}taken away"
        if result.trimmed
        else ""
    )
    if result.untrimmed:
        trimmed = f"; no records taken away: {result.untrimmed}"
    if result.tables is not None:
        left = f"; left to Spark's VACUUM: {', '.join(result.left_to_spark)}" if result.left_to_spark else ""
        tables, count = amount(result.tables, "table"), amount(result.deleted, "file")
        return f"{amount(result.files, 'file')} in {tables}; {count} that nobody needs {would}deleted{left}"
    compacted = f"{result.compacted:,} {would}compacted into {result.into:,}" if result.compacted else "none to compact"
    deleted = f"{result.deleted:,} that nobody needs {would}deleted"
    return f"{amount(result.files, 'file')} in the table, {compacted}; {deleted}{trimmed}"
