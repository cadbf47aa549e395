"""Which versions of the delivered tables belong together: a row for each batch of syncs that is in all of them.

Delta has no commit over several tables. So each table gets its own, and then this table gets a row that names the
versions; who reads at those versions sees, over all tables, whole transactions only.
"""

from dataclasses import dataclass
from datetime import datetime, timezone

import pyarrow as pa
from deltalake import write_deltalake

from zync.errors import UsageError
from zync.ingest.batch import TIMESTAMP
from zync.lake import NO_HOOKS, commit_properties, data_files, dataset, ensure_table, existing_table, open_table
from zync.sql import name

NAME = "_snapshots"
_APP = "zync/snapshot"
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
    row = {**vars(snapshot), "versions": list(snapshot.versions.items())}
    write_deltalake(
        table,
        pa.Table.from_pylist([row], _SCHEMA),
        mode="append",
        commit_properties=commit_properties({_APP: snapshot.sync}),
        post_commithook_properties=NO_HOOKS,
    )


def newest(location: str) -> Snapshot | None:
    """The newest one, None before the first."""
    found = _all(location) if open_table(location) else []
    return found[-1] if found else None


def at(location: str, moment: int | datetime | None) -> Snapshot:
    """The newest one; or, of a sync or a time, the newest that is not after it. UsageError where there is none."""
    existing_table(location, "zync sync-to tables staging")
    found = [
        one
        for one in _all(location)
        if moment is None or (one.at <= moment if isinstance(moment, datetime) else one.sync <= moment)
    ]
    if not found:
        msg = f"there is no snapshot as old as {moment}" if moment is not None else "there is no snapshot yet"
        raise UsageError(msg)
    return found[-1]


def views(snapshot: Snapshot, folder: str) -> list[str]:
    """Statements that make a view of each table in `folder`, at the snapshot's versions."""
    return [
        f"CREATE OR REPLACE VIEW {name(topic)} AS SELECT * FROM {_delta(folder, topic)} VERSION AS OF {version};"  # noqa: S608 - names are quoted
        for topic, version in snapshot.versions.items()
    ]


def _delta(folder: str, topic: str) -> str:
    return f"delta.{name(f'{folder}/{topic}')}"


def now() -> datetime:
    """The time, as snapshots have it."""
    return datetime.now(timezone.utc)


def _all(location: str) -> list[Snapshot]:
    table = existing_table(location, "zync sync-to tables staging")
    rows = dataset(table, [one.path for one in data_files(table, "sync")], _SCHEMA).to_table().to_pylist()
    found = [Snapshot(one["sync"], one["at"], one["staging"], dict(one["versions"] or [])) for one in rows]
    return sorted(found, key=lambda one: (one.sync, one.at))
