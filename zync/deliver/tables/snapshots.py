"""Which versions of the delivered tables belong together: a row for each batch of syncs that is in all of them.

Delta has no commit over several tables. So each table gets its own, and then this table gets a row that names the
versions; who reads at those versions sees, over all tables, whole transactions only. Now and then its rows become one
file, without those of longer ago than tables can be read as they were.
"""

import contextlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from zync.errors import UsageError
from zync.lake import delivered
from zync.lake.files import data_files, dataset
from zync.lake.table import (
    CHECKPOINT_EVERY,
    NO_HOOKS,
    REMEMBERED,
    commit_properties,
    ensure_table,
    existing_table,
    open_table,
    refresh,
)
from zync.lake.types import TIMESTAMP
from zync.sql import name

FOLDER = delivered.FOLDER
"""Where the tables are, below the lake."""
NAME = "_snapshots"
TIDY_EVERY = CHECKPOINT_EVERY
"""Versions."""
_UNREAD_HOURS = 24
"""For so long files stay that are no part of the table any more: somebody may be reading them."""
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
    """The versions of all tables, by topic, that hold what staging (by its table id) has through that sync."""

    sync: int
    at: datetime
    staging: str
    versions: dict[str, int]


def take(location: str, snapshot: Snapshot) -> None:
    """Puts it on record. The caller is the only one who delivers."""
    table = ensure_table(location, _SCHEMA, "zync: versions of delivered tables that belong together")
    rows = pa.Table.from_pylist([{**vars(snapshot), "versions": list(snapshot.versions.items())}], _SCHEMA)
    tidy = (table.version() + 1) % TIDY_EVERY == 0
    if tidy:
        kept = _rows(table).filter(ds.field("at") > pa.scalar(snapshot.at - REMEMBERED, TIMESTAMP))
        rows = pa.concat_tables([kept, rows])
    write_deltalake(
        table,
        rows,
        mode="overwrite" if tidy else "append",
        commit_properties=commit_properties({_APP: snapshot.sync}),
        post_commithook_properties=NO_HOOKS,
    )
    if tidy:
        with contextlib.suppress(DeltaError, OSError):  # which the next time may mend
            refresh(table)
            table.create_checkpoint()
            table.cleanup_metadata()
            table.vacuum(retention_hours=_UNREAD_HOURS, dry_run=False, enforce_retention_duration=False)


def newest(location: str) -> Snapshot | None:
    """The newest one, None before the first."""
    table = open_table(location)
    files = data_files(table, "sync") if table else []
    last = max((one.highest for one in files), default=0)
    found = _all(_rows(table, above=last - 1)) if table else []
    return found[-1] if found else None


def at(location: str, moment: int | datetime | None) -> Snapshot:
    """The newest one; or, of a sync or a time, the newest that is not after it. UsageError where there is none."""
    found = [
        one
        for one in _all(_rows(existing_table(location, "zync sync-to tables staging")))
        if moment is None or (one.at <= moment if isinstance(moment, datetime) else one.sync <= moment)
    ]
    if not found:
        msg = f"there is no snapshot as old as {moment}" if moment is not None else "there is no snapshot yet"
        raise UsageError(msg)
    return found[-1]


def views(snapshot: Snapshot, folder: str) -> list[str]:
    """Statements that make a view of each table in `folder`, at the snapshot's versions.

    A view's name has letters, digits and _ only, or Spark's catalog does not take it: what else a topic has becomes _,
    with a number where two would be alike.
    """
    made, taken = [], set()
    for topic, version in sorted(snapshot.versions.items()):
        plain = _NOT_IN_VIEWS.sub("_", topic)
        view = next(one for one in chain([plain], (f"{plain}_{n}" for n in count(2))) if one.lower() not in taken)
        taken.add(view.lower())
        rows = f"SELECT * FROM {_delta(folder, topic)} VERSION AS OF {version}"  # noqa: S608 - names are quoted
        made.append(f"CREATE OR REPLACE VIEW {name(view)} AS {rows};")
    return made


def _delta(folder: str, topic: str) -> str:
    return f"delta.{name(f'{folder}/{topic}')}"


def now() -> datetime:
    """The time, as snapshots have it."""
    return datetime.now(UTC)


def _rows(table: DeltaTable, above: int = 0) -> pa.Table:
    """Those in files that have syncs above that."""
    paths = [one.path for one in data_files(table, "sync", above=above)]
    return dataset(table, paths, _SCHEMA).to_table()


def _all(rows: pa.Table) -> list[Snapshot]:
    found = [Snapshot(one["sync"], one["at"], one["staging"], dict(one["versions"] or [])) for one in rows.to_pylist()]
    return sorted(found, key=lambda one: (one.sync, one.at))
