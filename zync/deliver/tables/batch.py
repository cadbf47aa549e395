"""One batch of the delivered tables: brings all of them to the same sync of staging, and takes a snapshot.

Each table with rows in the batch gets a commit, which stores the batch's last sync as Delta's `txn`; then a snapshot
names the versions of all tables. After a kill between these commits some tables are ahead; the next batch first brings
the others to the same sync, so that each snapshot is of a single sync.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.debezium.unavailable import placeholder
from zync.deliver.tables import snapshots
from zync.deliver.tables.apply import deliver
from zync.deliver.tables.schema_changes import as_made
from zync.deliver.tables.snapshots import Snapshot
from zync.deliver.tables.target import TableState, TableTarget, check_table
from zync.errors import ConflictError
from zync.lake.files import data_files, end_within
from zync.lake.table import open_table
from zync.observe.traces import span
from zync.spark.sizing import MOST_FILE_BYTES, Sizing, tune
from zync.staging.outputs import columns_by_sync

MOST_ROWS = 4_000_000
"""Rows of staging that are delivered to a table by one commit, unless a single sync has more."""


@dataclass(frozen=True)
class Batch:
    """A delivered batch: the syncs after `after` up to and including `sync`.

    Attributes:
        after: The last sync before the batch.
        sync: The last sync of the batch.
        rows: The number of staging's rows by topic.
        seconds: The duration of the batch.
    """

    after: int
    sync: int
    rows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def deliver_batch(  # noqa: PLR0913
    session: Callable[[], SparkSession],
    config: Config,
    staging: DeltaTable,
    tables: list[TableTarget],
    folder: str,
    previous: Snapshot | None,
    newest_sync: int,
    goes_on: Callable[[], bool],
) -> tuple[Snapshot, Batch] | None:
    """Brings all tables to the sync of the table that is ahead, or else as far as a batch goes, and takes a snapshot.

    A table that is new may lack much more than a batch: it gets several commits.

    Args:
        session: Returns the session, where Spark is needed.
        config: The config.
        staging: The staging, read through `newest_sync`.
        tables: The tables.
        folder: The folder of the tables.
        previous: The newest snapshot; None if there is none yet.
        newest_sync: The newest sync of staging.
        goes_on: Returns whether to go on, between two commits to a new table.

    Returns:
        The snapshot, and the batch; None if `goes_on` says no: the next batch brings the table further.

    Raises:
        ConflictError: another process delivered meanwhile.
        UsageError: the rules do not fit the tables.
        ZyncError: somebody else wrote to a table, or Spark could not apply the rows.
    """
    started, staging_id = time.monotonic(), str(staging.metadata().id)
    snapshot_versions = previous.versions if previous else {}
    snapshots_table = snapshots.ensure_snapshots(f"{folder}/{snapshots.NAME}")
    states = {target.topic: check_table(target, staging_id, snapshot_versions.get(target.topic)) for target in tables}
    delivered_syncs = {topic: state.sync if state else 0 for topic, state in states.items()}
    after = previous.sync if previous else 0
    # A table's tombstones are stored before its rows: who was killed in between has to deliver the same syncs again.
    tombstones_syncs = {topic: state.tombstones_sync if state else 0 for topic, state in states.items()}
    ahead = max(*delivered_syncs.values(), *tombstones_syncs.values())
    upto = ahead if ahead > after else _batch_end(staging, after, newest_sync)
    if upto > newest_sync:
        msg = f"another process delivered sync {upto:,}, and {staging.table_uri} was read through sync {newest_sync:,}"
        raise ConflictError(msg)
    after_by_topic = {
        topic: max(sync, after) if topic in snapshot_versions else sync for topic, sync in delivered_syncs.items()
    }
    columns = columns_by_sync(staging, min(after_by_topic.values()) + 1, upto)
    unavailable = placeholder(config) if config.transactions.preset == "debezium" else None
    rows = Counter[str]()
    for target in tables:
        table_after = after_by_topic[target.topic]
        if table_after >= upto:
            continue
        made = as_made(target, {sync: outputs for sync, outputs in columns.items() if sync > table_after})
        with span("sync_to.table", topic=target.topic, table=target.location) as current:
            while table_after < upto:
                if table_after > after_by_topic[target.topic] and not goes_on():
                    return None
                end = max(_batch_end(staging, table_after, upto), tombstones_syncs[target.topic])
                row_count = sum(file.rows for file in data_files(staging, "sync", above=table_after, upto=end))
                tuned = partial(_tuned, session, config.spark, Sizing(row_count))
                rows[target.topic] += deliver(tuned, made, staging, table_after, end, unavailable)
                table_after = end
            current.set(rows=rows[target.topic])
    # Checks again, as others may have written meanwhile; by now each table has a version, 0 at least.
    states = {
        target.topic: check_table(target, staging_id, snapshot_versions.get(target.topic, 0)) for target in tables
    }
    _check_not_ahead(states, upto)
    versions = {topic: state.version if state else 0 for topic, state in states.items()}
    snapshot = Snapshot(upto, snapshots.now(), staging_id, versions)
    snapshots.take(snapshots_table, snapshot)
    seconds = round(time.monotonic() - started, 3)
    return snapshot, Batch(after, upto, {topic: count for topic, count in rows.items() if count}, seconds)


def _tuned(session: Callable[[], SparkSession], configured: dict[str, str], sizing: Sizing) -> SparkSession:
    spark = session()
    tune(spark, configured, sizing)
    return spark


def look_after(targets: dict[str, TableTarget], folder: str, newest: Snapshot) -> Snapshot:
    """Checks the tables of an idle delivery; takes a new snapshot if others compacted tables.

    The old versions may be vacuumed soon. Outputs without a table yet are left to the next batch.

    Returns:
        The newest snapshot.

    Raises:
        ConflictError: another process delivered meanwhile.
        ZyncError: others changed a table, or deleted it.
    """
    location = f"{folder}/{snapshots.NAME}"
    snapshots_table = open_table(location)
    states = {
        topic: check_table(targets[topic], newest.staging, version)
        for topic, version in newest.versions.items()
        if topic in targets
    }
    versions = {topic: state.version for topic, state in states.items() if state}
    if versions.items() <= newest.versions.items():
        return newest
    _check_not_ahead(states, newest.sync)
    snapshot = replace(newest, at=snapshots.now(), versions=newest.versions | versions)
    snapshots.take(snapshots_table or snapshots.ensure_snapshots(location), snapshot)
    return snapshot


def _check_not_ahead(states: dict[str, TableState | None], sync: int) -> None:
    """Raises ConflictError if a table, or its tombstones, have a sync after `sync`: another process delivered it."""
    for topic, state in states.items():
        if state and max(state.sync, state.tombstones_sync) > sync:
            msg = f"another process delivered to the table of {topic}, which is through a later sync than {sync:,}"
            raise ConflictError(msg)


def _batch_end(staging: DeltaTable, after: int, upto: int) -> int:
    """Returns the last sync of those after `after` whose rows are delivered by one commit."""
    files = data_files(staging, "sync", above=after, upto=upto)
    rows, sizes = [file.rows for file in files], [file.size for file in files]
    return min(
        end_within(files, weights, limit, above=after, upto=upto)
        for weights, limit in ((rows, MOST_ROWS), (sizes, MOST_FILE_BYTES))
    )
