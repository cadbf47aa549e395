"""`zync sync-to tables staging`: delivers output topics into typed Delta tables, and takes snapshots of all tables.

A batch is the syncs that staging has and the tables do not, or the first of them if these are many. Each table with
rows in the batch gets a commit, which stores the batch's last sync as Delta's `txn`; then a snapshot names the versions
of all tables. After a kill between
these commits some tables are ahead; the next batch first brings the others to the same sync, so that each snapshot is
of a single sync.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.debezium.unavailable import placeholder
from zync.deliver.catalog.registration import registered
from zync.deliver.tables import snapshots
from zync.deliver.tables.apply import deliver
from zync.deliver.tables.others import REMAKE_ADVICE
from zync.deliver.tables.schema_changes import as_made
from zync.deliver.tables.snapshots import Snapshot
from zync.deliver.tables.target import TableState, TableTarget, check_table, table_targets
from zync.errors import ConflictError, UsageError
from zync.lake.files import data_files, end_within
from zync.lake.lock import Ownership, Wait, owned
from zync.lake.outage import StoreWatch, watching
from zync.lake.table import open_table, poll, poll_seconds, refresh
from zync.observe import datasets
from zync.observe.datasets import Dataset
from zync.observe.lineage import Run, run_of
from zync.observe.traces import span
from zync.rules.plan import rules_over_nothing
from zync.spark.errors import texts_with_java
from zync.spark.session import check_log_store
from zync.spark.sizing import MOST_FILE_BYTES, Sizing, tune
from zync.staging.outputs import columns_by_sync
from zync.staging.table import STAGING_SCHEMA, SYNC, existing_staging, open_staging
from zync.transactions.done import understand

if TYPE_CHECKING:
    from zync.deliver.metrics import DeliveryMetrics

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_CONFLICTS = 10
"""Conflicts in a row after which the delivery ends, as the other writer goes on."""
MOST_ROWS = 4_000_000
"""Rows of staging that are delivered to a table by one commit, unless a single sync has more."""
_LOOK_AFTER_SECONDS = 60.0
"""How often an idle delivery checks what others did to the tables."""


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


def sync_to_tables(  # noqa: PLR0913 - a public function: the caller chooses each
    spark: SparkSession,
    config: Config,
    staging: str,
    folder: str,
    stop: threading.Event,
    on_batch: Callable[[Batch], None] = lambda _: None,
    metrics: "DeliveryMetrics | None" = None,
    *,
    until_caught_up: bool = False,
    standby: bool = False,
) -> Snapshot | None:
    """Delivers staging to tables until `stop` is set, or until the tables have caught up with staging.

    Once it runs, and unless `until_caught_up`, it waits for an object store that is away, and goes on.

    Args:
        spark: The session.
        config: The config.
        staging: The location of staging.
        folder: The folder of the tables.
        stop: Ends the delivery when it is set.
        on_batch: Called after each batch.
        metrics: The metrics to update.
        until_caught_up: Whether to end once the tables have all that staging has.
        standby: Whether to wait while another process delivers to these tables.

    Returns:
        The newest snapshot; None if there is none yet.

    Raises:
        UsageError: the rules do not fit the tables, or the tables are not of this staging.
        OwnedError: another deliverer holds the lock, or has taken its lease over.
        CatalogError: all is delivered, and the catalog could not be told.
        ZyncError: somebody else wrote to a table.

    Example:
        >>> snapshot = zync.sync_to_tables(
        ...     spark, config, "lake/staging", "lake/tables", threading.Event(), until_caught_up=True
        ... )
        >>> snapshot.versions
        {'order': 1}
    """
    check_log_store(spark, folder)
    wait = Wait(standby, stop, metrics.wait_for if metrics else lambda _owner: None)
    with (
        owned(folder, what="sync-to tables", wait=wait) as ownership,
        watching(staging, stop, metrics, texts_with_java) as store,
        run_of("sync-to tables", staging, is_endless=not until_caught_up) as lineage,
    ):
        if not ownership.is_held:
            return None
        delivery = _Delivery(
            spark, config, staging, folder, stop, on_batch, metrics, until_caught_up, ownership, lineage
        )
        while True:
            try:
                delivery.run(store)
            except Exception as error:
                if until_caught_up or not delivery.has_begun or not store.outlast(error):
                    raise
                if stop.is_set():
                    break
            else:
                break
    return delivery.newest


@dataclass
class _Delivery:
    """The arguments of `sync_to_tables`, and how far it is.

    Attributes:
        newest: The newest snapshot that it knows.
        has_begun: Whether it has read where the tables are.
        conflicts: How many attempts in a row another process's commit has refused.
    """

    spark: SparkSession
    config: Config
    staging: str
    folder: str
    stop: threading.Event
    on_batch: Callable[[Batch], None]
    metrics: "DeliveryMetrics | None"
    until_caught_up: bool
    ownership: Ownership
    lineage: Run
    newest: Snapshot | None = None
    has_begun: bool = False
    conflicts: int = 0

    def run(self, store: StoreWatch) -> None:
        """Delivers until `stop` is set or the tables have caught up.

        Args:
            store: Is told when the store has answered.
        """
        targets = _targets(self.spark, self.config, self.folder)
        locations = {topic: target.location for topic, target in targets.items()}
        at_end = self.until_caught_up
        with registered(self.spark, self.config, self.folder, locations, at_end=at_end) as tell_catalog:
            self._deliver_all(targets, store, tell_catalog)

    def _deliver_all(
        self, targets: dict[str, TableTarget], store: StoreWatch, tell_catalog: Callable[[Mapping[str, int]], None]
    ) -> None:
        """Delivers batches until `stop` is set or the tables have caught up."""
        self._read_newest()
        checked_at = next_batch_at = float("-inf")
        self.conflicts = 0
        table = existing_staging(self.staging) if self.until_caught_up else None
        while not self.stop.is_set():
            self.ownership.check()
            table = table or open_staging(self.staging)
            newest_sync = (table.transaction_version(SYNC) or 0) if table else 0
            store.heard()
            self.has_begun = True
            if table and self.newest:
                _check_staging(table, newest_sync, self.newest)
            tell_catalog(self.newest.versions if self.newest else {})
            if self.metrics:
                self.metrics.turn()
                self.metrics.reached(self.newest.sync if self.newest else 0, newest_sync)
            started = time.monotonic()
            if table and newest_sync and started >= next_batch_at and self._is_behind(newest_sync, targets):
                if self._deliver(table, targets, newest_sync):
                    store.worked()
                    checked_at = time.monotonic()
                    if not self.until_caught_up:  # of a backlog in many batches, too, staging's new files are read
                        poll(table)
                        if not self._is_behind(newest_sync, targets):
                            next_batch_at = started + self.config.deliver.table_interval.total_seconds()
                continue
            if self.newest and time.monotonic() - checked_at > _LOOK_AFTER_SECONDS:
                with suppress(ConflictError):  # the other process took a snapshot of what it did
                    self.newest = look_after(targets, self.folder, self.newest)
                checked_at = time.monotonic()
            if self.until_caught_up:
                tell_catalog(self.newest.versions if self.newest else {})
                break
            self.stop.wait(poll_seconds(self.staging))
            if table:
                poll(table)

    def _read_newest(self) -> None:
        self.newest = snapshots.newest(f"{self.folder}/{snapshots.NAME}")

    def _is_behind(self, newest_sync: int, targets: dict[str, TableTarget]) -> bool:
        """Returns whether the newest snapshot lacks syncs of staging, or a table."""
        newest = self.newest
        return newest is None or newest.sync < newest_sync or bool(targets.keys() - newest.versions.keys())

    def _deliver(self, table: DeltaTable, targets: dict[str, TableTarget], newest_sync: int) -> bool:
        """Delivers a batch; returns False if it was stopped, or another process wrote: then it is to be tried again.

        Raises:
            ConflictError: That has happened too often.
        """
        self.lineage.begin(
            lambda: (
                [datasets.table(self.staging, datasets.columns_of(STAGING_SCHEMA))],
                map(_dataset, targets.values()),
            )
        )
        try:
            with span("sync_to.tables", staging=self.staging, version=table.version(), tables=self.folder) as current:
                delivered = _deliver_batch(
                    self.spark,
                    self.config,
                    table,
                    list(targets.values()),
                    self.folder,
                    self.newest,
                    newest_sync,
                    self._goes_on,
                )
                if not delivered:
                    return False
                self.newest, batch = delivered
                current.set(after=batch.after, sync=batch.sync, rows=sum(batch.rows.values()), topics=list(batch.rows))
        except ConflictError as error:  # others may compact tables, which takes less time than these attempts
            self.conflicts += 1
            if self.conflicts == _CONFLICTS:
                raise
            log.info("%s; trying again", error)
            self.stop.wait(_AGAIN_SECONDS)
            self._read_newest()
            refresh(table)
            return False
        self.conflicts = 0
        if self.metrics:
            self.metrics.committed(batch.rows, batch.seconds)
        self.lineage.wrote(lambda: {_dataset(targets[topic]): rows for topic, rows in batch.rows.items()})
        self.on_batch(batch)
        return True

    def _goes_on(self) -> bool:
        """Returns whether to go on between two commits of a batch, of which a new table may get many.

        Raises:
            OwnedError: Another process has the tables.
        """
        self.ownership.check()
        if self.metrics:
            self.metrics.turn()
        return not self.stop.is_set()


def _dataset(target: TableTarget) -> Dataset:
    columns = tuple((column.name, column.dataType.simpleString()) for column in target.columns)
    return datasets.table(target.location, columns)


def _targets(spark: SparkSession, config: Config, folder: str) -> dict[str, TableTarget]:
    """Returns the delivered tables by output topic. Raises UsageError if there are none, or as `targets`."""
    _, rows_by_rule = rules_over_nothing(spark, config, understand(spark, config))
    if targets := table_targets(rows_by_rule, config.deliver, folder):
        return targets
    msg = "the config has no outputs to make tables of"
    raise UsageError(msg)


def _check_staging(table: DeltaTable, newest_sync: int, newest: Snapshot) -> None:
    """Raises UsageError if the tables are of another staging, or of more syncs than staging has."""
    staging_id = str(table.metadata().id)
    if newest.staging != staging_id:
        error_text = f"the tables are of another staging (table id {newest.staging}) than {table.table_uri}"
    elif newest.sync > newest_sync:
        error_text = (
            f"the tables are through sync {newest.sync:,}, and {table.table_uri} (was it put back?) has {newest_sync:,}"
        )
    else:
        return
    msg = f"{error_text}: {REMAKE_ADVICE}, or give another lake"
    raise UsageError(msg)


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


def _deliver_batch(  # noqa: PLR0913
    spark: SparkSession,
    config: Config,
    staging: DeltaTable,
    tables: list[TableTarget],
    folder: str,
    previous: Snapshot | None,
    newest_sync: int,
    goes_on: Callable[[], bool],
) -> tuple[Snapshot, Batch] | None:
    """Brings all tables to the sync of the table that is ahead, or else as far as a batch goes, and takes a snapshot.

    A table that is new may lack much more than a batch: it gets several commits. If `goes_on` says no between two of
    them, the batch ends without a snapshot, and None is returned; the next one brings the table further.
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
                tune(spark, config.spark, Sizing(row_count))
                rows[target.topic] += deliver(spark, made, staging, table_after, end, unavailable)
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


def _batch_end(staging: DeltaTable, after: int, upto: int) -> int:
    """Returns the last sync of those after `after` whose rows are delivered by one commit."""
    files = data_files(staging, "sync", above=after, upto=upto)
    rows, sizes = [file.rows for file in files], [file.size for file in files]
    return min(
        end_within(files, weights, limit, above=after, upto=upto)
        for weights, limit in ((rows, MOST_ROWS), (sizes, MOST_FILE_BYTES))
    )
