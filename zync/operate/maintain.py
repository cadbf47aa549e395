"""`zync maintain`: a table's small files made into large ones, what nobody needs deleted, its log kept short.

Writers and readers go on meanwhile, and it may be killed at any moment (`zync.rewrite`). delta-rs's own compaction puts
files together by size, and what readers look for would lie everywhere: here neighbours become one file.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector

from zync.errors import OwnedError, UsageError, ZyncError
from zync.lake.files import DataFile, data_files, table_files
from zync.lake.lock import locked
from zync.lake.paths import is_local
from zync.lake.table import REMEMBERED, first_line, open_table, refresh
from zync.operate.rewrite import is_raw, rewrite
from zync.operate.trim import first_since, plan, stagings, trim
from zync.raw.table import first_seqno
from zync.text import amount
from zync.transactions.needed import needed_from

LEAST_RETAIN = timedelta(days=1)
"""Younger files may be of a sync under way, which are no part of the table yet."""

TARGET = 128 * 1024 * 1024
"""Bytes of a file that is as large as it should be."""

RETAIN = timedelta(days=7)
"""How long files that are no part of a table any more are kept, where nobody says."""


@dataclass
class Maintained:
    """What was done, or would be. Files before and after; of those that were compacted how many, and into how many.

    trimmed: records that were taken away of raw, which has all from seqno `start` on; `untrimmed` says why none were.
    """

    files: int
    files_after: int
    trimmed: int = 0
    start: int = 1
    untrimmed: str | None = None
    compacted: int = 0
    into: int = 0
    deleted: int = 0
    dry_run: bool = False
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trimming:
    """Which records raw is to keep: those ingested within `retain`, and what may be needed still.

    stagings: that were made of it, beside those in its folder. remember: for how many records an id that is settled is
    remembered, as the config says.
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
    """Maintains the raw or staging at `location`.

    `retain`: how long files that are no longer part of it are kept, for those who still read them. `trimming`: which
    of raw's records are taken away, if any.

    Raises:
        UsageError: it is no table of zync's, or what is said to be a staging of it is none.
        OwnedError: another maintains it. What was done until then stays done.
    """
    table = open_table(location)
    if table is None:
        msg = f"there is no table at {location} to maintain"
        raise UsageError(msg)
    raw = is_raw(table)
    if trimming and trimming.stagings and not raw:
        msg = f"{location} is a staging: --staging says which ones were made of a raw"
        raise UsageError(msg)
    count = len(table.file_uris())
    done = Maintained(files=count, files_after=count, start=first_seqno(table) if raw else 1, dry_run=dry_run)
    with _alone(location):
        if trimming and raw:
            _timed(done, "trim", lambda: _trim(table, done, trimming))
        if compact:
            _timed(done, "compact", lambda: _compact(table, done, on_compacted, "seqno" if raw else "sync"))
        if vacuum:
            _timed(done, "vacuum", lambda: _vacuum(table, done, max(retain, LEAST_RETAIN)))
        if not dry_run:
            _timed(done, "log", lambda: _shorten_log(table))
    if not dry_run:
        done.files_after = len(table.file_uris())
    return done


def _timed(done: Maintained, what: str, work: Callable[[], None]) -> None:
    started = time.monotonic()
    work()
    done.seconds[what] = round(time.monotonic() - started, 3)


@contextlib.contextmanager
def _alone(location: str) -> Iterator[None]:
    """Holds a lock that only `maintain` takes. An object store has none: there the commit's own check decides."""
    if not is_local(location):
        yield
        return
    path = Path(location)
    with locked(path.parent / f".{path.name}.maintain.lock", wait=0) as ours:
        if not ours:
            msg = f"another zync maintains {location}. Nothing was changed"
            raise OwnedError(msg)
        yield


def groups(files: list[DataFile], target: int = TARGET) -> list[list[DataFile]]:
    """Neighbours among `files` that are to become one file of at most `target` bytes; at least two each."""
    found: list[list[DataFile]] = [[]]
    size = 0
    for file in files:
        large = file.size > target // 2
        if large or size + file.size > target:
            found.append([])
            size = 0
        if not large:
            found[-1].append(file)
            size += file.size
    return [one for one in found if len(one) > 1]


def _trim(table: DeltaTable, done: Maintained, said: Trimming) -> None:
    """Takes away raw's records that nobody needs and that are older than said."""
    made_of_it = stagings(table, list(said.stagings))
    if not made_of_it:
        done.untrimmed = "no staging in its folder was made of it, so nobody has read it: name others with --staging"
        return
    young = first_since(table, datetime.now(UTC) - said.retain)
    needed, why, whose = min((*needed_from(one, said.remember), one.table_uri.rstrip("/")) for one in made_of_it)
    if min(young, needed) <= done.start:
        done.untrimmed = (
            f"{whose} may need those from seqno {needed:,} on again ({why}), and those from {young:,} on are younger "
            "than --retain"
        )
        return
    planned = plan(table, made_of_it, min(young, needed))
    done.start, done.trimmed = planned.start, planned.trimmed
    done.files_after -= len(planned.files) - planned.files_after
    if not done.dry_run:
        done.trimmed = trim(table, planned)


def _compact(table: DeltaTable, done: Maintained, on_compacted: Callable[[int, int], None], column: str) -> None:
    """Makes one file of each group of neighbours, each in a commit of its own.

    Neighbours by seqno in raw, by sync in staging: what readers look for stays together, and in order. What is kept of
    before raw's start stays apart, to go with the next trimming.
    """
    files, start = data_files(table, column), done.start if column == "seqno" else 0
    before, after = ([one for one in files if (one.lowest < start) is early] for early in (True, False))
    planned = groups(after) if done.dry_run and done.trimmed else groups(before) + groups(after)
    for number, group in enumerate(planned, 1):
        done.compacted, done.into = done.compacted + len(group), number
        done.files_after -= len(group) - 1
        if not done.dry_run:
            rewrite(table, group)
            on_compacted(number, len(planned))


def _vacuum(table: DeltaTable, done: Maintained, retain: timedelta) -> None:
    hours = math.ceil(retain / timedelta(hours=1))
    try:
        refresh(table)
        if retain > REMEMBERED and not done.dry_run:  # or checkpoints forget earlier what was removed when
            table.alter.set_table_properties({"delta.deletedFileRetentionDuration": f"interval {hours} hours"})
        gone = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        there = {one.path for one in table_files(table).get_file_info(FileSelector("", recursive=True))}
        done.deleted = len(there.intersection(map(unquote, gone)))  # delta-rs names those, too, that were so before
        if done.deleted and not done.dry_run:
            table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
    except (DeltaError, OSError) as error:
        msg = f"{table.table_uri} cannot be vacuumed: {first_line(error)}"
        raise ZyncError(msg) from error


def _shorten_log(table: DeltaTable) -> None:
    """Leaves a checkpoint, and takes away what the log keeps of longer ago than the table says, 30 days by default."""
    try:
        refresh(table)
        table.create_checkpoint()
        table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        msg = f"the log of {table.table_uri} cannot be shortened: {first_line(error)}"
        raise ZyncError(msg) from error


def describe(done: Maintained) -> str:
    """What was done as a line for people."""
    would = "would be " if done.dry_run else ""
    trimmed = (
        f"; {amount(done.trimmed, 'record')} before seqno {done.start:,} {would}taken away" if done.trimmed else ""
    )
    if done.untrimmed:
        trimmed = f"; no records taken away: {done.untrimmed}"
    compacted = f"{done.compacted:,} {would}compacted into {done.into:,}" if done.compacted else "none to compact"
    deleted = f"{done.deleted:,} that nobody needs {would}deleted"
    return f"{amount(done.files, 'file')} in the table, {compacted}; {deleted}{trimmed}"
