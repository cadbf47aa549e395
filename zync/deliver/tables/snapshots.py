"""Snapshots: a table with a row for each delivered batch, which names the versions of all delivered tables.

Delta has no commit over several tables. So each table gets a commit of its own, and then the snapshot names their
versions. A reader at those versions sees whole transactions only, over all tables. Every `TIDY_EVERY` versions the
rows are rewritten as a single file, without those that are older than the tables' history.
"""

import contextlib
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from typing import Literal

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from zync.errors import ConflictError, UsageError
from zync.lake import delivered
from zync.lake.commit import Commit, Refused
from zync.lake.files import data_files, dataset
from zync.lake.panics import without_panics
from zync.lake.paths import locate
from zync.lake.table import (
    CHECKPOINT_EVERY,
    NO_HOOKS,
    REMEMBERED,
    ensure_table,
    existing_table,
    open_table,
    refresh,
    refresh_after_commit,
)
from zync.lake.types import TIMESTAMP
from zync.sql import name

FOLDER = delivered.FOLDER
"""The folder of the delivered tables, below the lake."""
NAME = "_snapshots"
TIDY_EVERY = CHECKPOINT_EVERY
"""The number of versions between rewrites of the table as a single file."""
_RETENTION_HOURS = 24
"""For so long vacuum keeps files that are no longer part of the table: somebody may be reading them."""
_APP = "zync/snapshot"
_NOT_IN_VIEWS = re.compile(r"[^a-zA-Z0-9_]")
_SCHEMA = pa.schema(
    [
        pa.field("sync", pa.int64()),
        pa.field("at", TIMESTAMP),
        pa.field("staging", pa.string()),
        pa.field("versions", pa.map_(pa.string(), pa.int64())),
    ]
)


@dataclass(frozen=True)
class Snapshot:
    """The versions of the delivered tables that hold staging through a sync.

    Attributes:
        sync: The last delivered sync.
        at: The time of the snapshot.
        staging: The table id of staging.
        versions: The version of each table by topic.
    """

    sync: int
    at: datetime
    staging: str
    versions: dict[str, int]


def ensure_snapshots(location: str) -> DeltaTable:
    """Opens the table of snapshots at its newest version, and creates it if it does not exist."""
    return ensure_table(location, _SCHEMA, "zync: versions of delivered tables that belong together")


def take(table: DeltaTable, snapshot: Snapshot) -> None:
    """Appends the snapshot to the table of snapshots, which was opened before the snapshot's versions were read.

    Raises:
        ConflictError: Another process took a snapshot after the table was opened.
    """
    rows = pa.Table.from_pylist([{**vars(snapshot), "versions": list(snapshot.versions.items())}], _SCHEMA)
    tidy = (table.version() + 1) % TIDY_EVERY == 0
    if tidy:
        recent_rows = _rows(table).filter(ds.field("at") > pa.scalar(snapshot.at - REMEMBERED, TIMESTAMP))
        rows = pa.concat_tables([recent_rows, rows])

    def write(properties: CommitProperties) -> None:
        mode: Literal["overwrite", "append"] = "overwrite" if tidy else "append"
        with without_panics(location):
            write_deltalake(table, rows, mode=mode, commit_properties=properties, post_commithook_properties=NO_HOOKS)

    location, name = locate(table.table_uri, ""), f"the snapshot of sync {snapshot.sync:,}"
    failure = f"{name} could not be written to {location}"
    commit = Commit(table, {_APP: snapshot.sync}, uuid.uuid4().hex, failure, name, "the next batch")
    outcome = commit.attempt(write)
    if isinstance(outcome, Refused):
        msg = f"another process took a snapshot in {location} meanwhile"
        raise ConflictError(msg)
    if not tidy:
        refresh_after_commit(table)
    else:
        with contextlib.suppress(DeltaError, OSError):  # the next rewrite tries again
            refresh(table)
            table.create_checkpoint()
            table.cleanup_metadata()
            table.vacuum(retention_hours=_RETENTION_HOURS, dry_run=False, enforce_retention_duration=False)


def newest(location: str) -> Snapshot | None:
    """Returns the newest snapshot of the table at `location`; None before the first."""
    table = open_table(location)
    files = data_files(table, "sync") if table else []
    last_sync = max((file.highest for file in files), default=0)
    snapshots = _all(_rows(table, above=last_sync - 1)) if table else []
    return snapshots[-1] if snapshots else None


def read(location: str) -> list[Snapshot]:
    """Reads all snapshots of the table at `location`, the oldest first; none if there is no table."""
    table = open_table(location)
    return _all(_rows(table)) if table else []


def at(location: str, moment: int | datetime | None) -> Snapshot:
    """Returns the newest snapshot; or the newest that is not after `moment`, the number of a sync or a time.

    Raises:
        UsageError: there is no such snapshot.
    """
    snapshots = [
        snapshot
        for snapshot in _all(_rows(existing_table(location, "zync sync-to tables staging")))
        if moment is None or (snapshot.at <= moment if isinstance(moment, datetime) else snapshot.sync <= moment)
    ]
    if not snapshots:
        msg = f"there is no snapshot as old as {moment}" if moment is not None else "there is no snapshot yet"
        raise UsageError(msg)
    return snapshots[-1]


def views(snapshot: Snapshot, folder: str) -> list[str]:
    """Returns SQL statements that create a view of each table in `folder`, at the snapshot's versions.

    Spark's catalog takes only letters, digits and _ in the name of a view. Other characters of a topic become _, and
    a number is added to names that would be the same.
    """
    statements, names = [], set()
    for topic, version in sorted(snapshot.versions.items()):
        plain_name = _NOT_IN_VIEWS.sub("_", topic)
        candidates = chain([plain_name], (f"{plain_name}_{number}" for number in count(2)))
        view = next(candidate for candidate in candidates if candidate.lower() not in names)
        names.add(view.lower())
        rows = f"SELECT * FROM {_delta(folder, topic)} VERSION AS OF {version}"  # noqa: S608 - names are quoted
        statements.append(f"CREATE OR REPLACE VIEW {name(view)} AS {rows};")
    return statements


def _delta(folder: str, topic: str) -> str:
    return f"delta.{name(f'{folder}/{topic}')}"


def now() -> datetime:
    """Returns the current time in UTC."""
    return datetime.now(UTC)


def _rows(table: DeltaTable, above: int = 0) -> pa.Table:
    """Reads the rows of the files that hold syncs above `above`."""
    files = data_files(table, "sync", above=above)
    return dataset(table, files, _SCHEMA).to_table()


def _all(rows: pa.Table) -> list[Snapshot]:
    """Parses rows into snapshots, in order of sync and time."""
    snapshots = [
        Snapshot(row["sync"], row["at"], row["staging"], dict(row["versions"] or [])) for row in rows.to_pylist()
    ]
    return sorted(snapshots, key=lambda snapshot: (snapshot.sync, snapshot.at))
