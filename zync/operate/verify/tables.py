"""Claims about delivered tables: what snapshots name is there, and has the rows that staging gives it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from zync.deliver.tables import snapshots
from zync.deliver.tables.others import harmful_commit
from zync.deliver.tables.snapshots import Snapshot
from zync.errors import ZyncError
from zync.lake.delivered import APPLY, DELETED, PLACE, delivered_sync
from zync.lake.delta_log import log_versions
from zync.lake.files import data_files
from zync.lake.storage import delta_options
from zync.lake.table import first_line, open_table
from zync.operate.verify.applied import TopicRows, read_topics
from zync.operate.verify.claim import Claim, read_file
from zync.staging.table import SYNC, existing_staging

_SEQNO = PLACE[1]
_ERRORS = (ZyncError, DeltaError, OSError, pa.ArrowException)
_FILES_AT_ONCE = 8


@dataclass(frozen=True)
class _Delivered:
    """A delivered table at the version that the newest snapshot names.

    Attributes:
        topic: Its output topic.
        table: The table.
        seqnos: The column `_seqno` of its rows; None if that could not be read.
        incomparable: Why its rows cannot be compared; None if they can.
    """

    topic: str
    table: DeltaTable
    seqnos: Any
    incomparable: str | None

    @property
    def apply(self) -> str:
        """How rows are applied to the table. Tables of older zyncs have no property that tells it."""
        columns = {field.name for field in self.table.schema().fields}
        by_columns = "append" if DELETED in columns else "history" if "valid_from" in columns else "upsert"
        return str(self.table.metadata().configuration.get(APPLY, by_columns))


def tables_claims(folder: str, staging: str) -> Iterator[Claim]:
    """Checks the delivered tables at the versions of the newest snapshot, and yields the claims; none before the first.

    Of older snapshots only the versions are checked. Their files may be gone by a vacuum, and the oldest versions by a
    clean-up of the log.

    Args:
        folder: The folder of the delivered tables.
        staging: The location of staging.
    """
    try:
        taken = snapshots.read(f"{folder}/{snapshots.NAME}")
    except _ERRORS as error:
        yield Claim("the snapshots of delivered tables can be read", 1, [first_line(error)])
        return
    if not taken:
        return
    versions = Claim("versions of delivered tables that snapshots name are there")
    files = Claim("files of delivered tables are there, with the rows that the log says")
    commits = Claim("nobody else changed the delivered tables since the newest snapshot")
    delivered, cleaned = [], 0
    for topic, version in sorted(taken[-1].versions.items()):
        location = f"{folder}/{topic}"
        try:
            newest = _open_newest(versions, topic, location, version, taken[-1].sync)
            if newest is None:
                continue
            table = DeltaTable(location, version, delta_options(location))
            cleaned += _check_earlier(versions, topic, newest, taken[:-1])
            commits.count += 1
            if commit := harmful_commit(newest, location, version):
                commits.add_violation(f"{topic}: version {commit['version']} is {commit['operation']}")
        except _ERRORS as error:
            versions.add_violation(f"{topic}: version {version} cannot be read: {first_line(error)}")
            continue
        delivered.append(_read(files, topic, table))
        if delivered[-1].apply != "append":
            _check_tombstones(versions, files, topic, f"{folder}/{DELETED}/{topic}", table)
    if cleaned:
        versions.text += f" (of older snapshots {cleaned:,} others were cleaned away)"
    yield from (versions, files, commits)
    yield from _compare(taken[-1], delivered, staging)


def _open_newest(claim: Claim, topic: str, location: str, version: int, sync: int) -> DeltaTable | None:
    """Opens a table at its newest version; adds a violation and returns None if that is not as new as the snapshot."""
    claim.count += 1
    table, names = open_table(location), f"the snapshot of sync {sync:,} names version {version}"
    if table is not None and table.version() >= version:
        return table
    state = f"the table is at version {table.version()}" if table else "there is no table"
    claim.add_violation(f"{topic}: {state}, and {names}")
    return None


def _check_earlier(claim: Claim, topic: str, table: DeltaTable, earlier: list[Snapshot]) -> int:
    """Checks that the log has the versions of earlier snapshots, from the oldest version that it has on.

    A clean-up of the log deletes the versions before that; returns how many of them snapshots name. Before a snapshot
    without the topic there may have been another table of that name.
    """
    in_log = log_versions(table)
    oldest = min(in_log, default=0)
    named = {s.versions[topic]: s.sync for s in takewhile(lambda s: topic in s.versions, reversed(earlier))}
    for version, sync in sorted(named.items()):
        claim.count += version >= oldest
        if version >= oldest and version not in in_log:
            claim.add_violation(f"{topic}: version {version} of the snapshot of sync {sync:,} is not in the log")
    return sum(version < oldest for version in named)


def _read(claim: Claim, topic: str, table: DeltaTable) -> _Delivered:
    """Reads the column `_seqno` of a table, and checks its files."""
    metadata = table.metadata()
    incomparable = None
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        incomparable = "its columns have other names in its files"
    elif _SEQNO in metadata.partition_columns:
        incomparable = f"it is partitioned by {_SEQNO}"
    elif "deletionVectors" in (table.protocol().reader_features or ()) and any(
        batch.num_rows for batch in table.deletion_vectors()
    ):
        incomparable = "it has deletion vectors"
    rows = _read_files(claim, topic, table, [] if incomparable else [_SEQNO])
    is_complete = not incomparable and rows is not None
    return _Delivered(topic, table, rows[_SEQNO].to_numpy() if is_complete else None, incomparable)


def _read_files(claim: Claim, topic: str, table: DeltaTable, columns: list[str]) -> Any:
    """Reads columns, each a BIGINT, of all files, and checks the number of their rows; None if a file is damaged."""
    schema = pa.schema([(column, pa.int64()) for column in columns])
    files, parts, is_complete = data_files(table, _SEQNO), [schema.empty_table()], True
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        for file, rows in zip(files, pool.map(lambda f: read_file(table, f, columns, schema), files), strict=True):
            claim.count += 1
            if isinstance(rows, str):
                claim.add_violation(f"{topic}: {file.path}: {rows}")
                is_complete = False
            elif file.rows and len(rows) != file.rows:
                claim.add_violation(f"{topic}: {file.path}: {file.rows:,} rows by the log, {len(rows):,} in the file")
                is_complete = False
            else:
                parts.append(rows)
    return pa.concat_tables(parts) if is_complete else None


def _check_tombstones(versions: Claim, files: Claim, topic: str, location: str, table: DeltaTable) -> None:
    """Checks that the table of tombstones is there. An older zync created it only with the first deletion."""
    try:
        tombstones = open_table(location)
    except _ERRORS as error:
        versions.add_violation(f"{DELETED}/{topic} cannot be read: {first_line(error)}")
        return
    if tombstones is not None:
        _read_files(files, f"{DELETED}/{topic}", tombstones, [])
    elif APPLY in table.metadata().configuration:
        versions.add_violation(f"{DELETED}/{topic}, which has what was deleted of {topic}, is gone")


def _compare(snapshot: Snapshot, delivered: list[_Delivered], staging: str) -> Iterator[Claim]:
    """Compares the tables with the output rows of staging through the snapshot's sync."""
    syncs = Claim("delivered tables are through the sync of their newest snapshot, by their txn")
    rows = Claim("delivered tables have the rows that staging has for them, by transaction")
    table = existing_staging(staging)  # after the snapshot was read, which may be of a sync that came meanwhile
    if snapshot.staging != str(table.metadata().id):
        rows.text += f" (not compared: they are of another staging, with table id {snapshot.staging})"
        yield rows
        return
    last_sync = table.transaction_version(SYNC) or 0
    if snapshot.sync > last_sync:
        syncs.add_violation(f"the newest snapshot is of sync {snapshot.sync:,}, and staging's last is {last_sync:,}")
        yield syncs
        return
    try:
        topics = read_topics(table, [one.topic for one in delivered], snapshot.sync)
    except _ERRORS:  # `staging_claims` reports the file
        return
    not_compared = []
    for one in delivered:
        topic_rows = topics[one.topic]
        try:
            _check_txn(syncs, one, topic_rows, snapshot)
        except _ERRORS as error:
            syncs.add_violation(f"{one.topic}: the log cannot be read: {first_line(error)}")
        if one.seqnos is None:
            not_compared += [f"{one.topic}, as {one.incomparable or 'a file of it is damaged'}"]
        elif reason := topic_rows.check(rows, one.topic, one.apply, one.seqnos):
            not_compared += [f"{one.topic}, as {reason}"]
    if not_compared:
        rows.text += f" (not compared: {'; '.join(not_compared)})"
    yield from (syncs, rows)


def _check_txn(claim: Claim, delivered: _Delivered, rows: TopicRows, snapshot: Snapshot) -> None:
    """Checks the table's `txn`: not after the snapshot, and not before a sync whose rows the table has to have.

    A batch whose rows change nothing in a keyed table need not commit. So there only the rows in the table count.
    """
    claim.count += 1
    sync = delivered_sync(delivered.table, snapshot.staging)
    seqnos = rows.rows["seqno"].to_numpy() if delivered.apply == "append" else delivered.seqnos
    least = 0 if seqnos is None else rows.last_sync(seqnos)
    if sync > snapshot.sync:
        claim.add_violation(f"{delivered.topic}: it is through sync {sync:,}, beyond the snapshot's {snapshot.sync:,}")
    elif sync < least:
        claim.add_violation(f"{delivered.topic}: it is through sync {sync:,}, and has to have rows of sync {least:,}")
