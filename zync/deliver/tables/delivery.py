"""`zync sync-to tables staging`: delivers output topics into typed Delta tables, and takes snapshots of all tables.

A batch (zync.deliver.tables.batch) is the syncs that staging has and the tables do not, or the first of them if these
are many.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from zync.config.model import Config
from zync.deliver.catalog.registration import registered
from zync.deliver.tables import snapshots
from zync.deliver.tables.batch import Batch, deliver_batch, look_after
from zync.deliver.tables.others import REMAKE_ADVICE
from zync.deliver.tables.snapshots import Snapshot
from zync.deliver.tables.target import TableTarget, table_targets
from zync.errors import ConflictError, UsageError
from zync.lake.lock import Ownership, Wait, owned
from zync.lake.outage import StoreWatch, watching
from zync.lake.table import poll, poll_seconds, refresh
from zync.observe import datasets
from zync.observe.datasets import Dataset
from zync.observe.lineage import Run, run_of
from zync.observe.traces import span
from zync.rules.plan import rules_over_nothing
from zync.rules.schema import columns_by_topic
from zync.spark.errors import texts_with_java
from zync.spark.session import check_log_store
from zync.staging.bookkeeping import read_cursor
from zync.staging.outputs import recorded
from zync.staging.table import STAGING_SCHEMA, SYNC, existing_staging, open_staging
from zync.transactions.done import understand

if TYPE_CHECKING:
    from zync.deliver.metrics import DeliveryMetrics

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_CONFLICTS = 10
"""Conflicts in a row after which the delivery ends, as the other writer goes on."""
_LOOK_AFTER_SECONDS = 60.0
"""How often an idle delivery checks what others did to the tables."""


def sync_to_tables(  # noqa: PLR0913 - a public function: the caller chooses each
    spark: SparkSession | Callable[[], SparkSession],
    config: Config,
    staging: str,
    folder: str,
    stop: threading.Event | None = None,
    on_batch: Callable[[Batch], None] = lambda _: None,
    metrics: "DeliveryMetrics | None" = None,
    *,
    until_caught_up: bool = False,
    standby: bool = False,
) -> Snapshot | None:
    """Delivers staging to tables until `stop` is set, or until the tables have caught up with staging.

    Once it runs, and unless `until_caught_up`, it waits for an object store that is away, and goes on.

    Args:
        spark: The session, or a function that starts one, which is called when Spark is needed for the first time.
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
        ...     spark, config, "lake/staging", "lake/tables", until_caught_up=True
        ... )
        >>> snapshot.versions
        {'order': 1}
    """

    @cache
    def session() -> SparkSession:
        started = spark() if callable(spark) else spark
        check_log_store(started, folder)
        return started

    if not callable(spark):
        session()
    stop = stop or threading.Event()
    wait = Wait(standby, stop, metrics.wait_for if metrics else lambda _owner: None)
    with (
        owned(folder, what="sync-to tables", wait=wait) as ownership,
        watching(staging, stop, metrics, texts_with_java) as store,
        run_of("sync-to tables", staging, is_endless=not until_caught_up) as lineage,
    ):
        if not ownership.is_held:
            return None
        delivery = _Delivery(
            session, config, staging, folder, stop, on_batch, metrics, until_caught_up, ownership, lineage
        )
        store.outlasting(partial(delivery.run, store), waits=lambda: delivery.has_begun and not until_caught_up)
    return delivery.newest


@dataclass
class _Delivery:
    """The arguments of `sync_to_tables`, and how far it is.

    Attributes:
        newest: The newest snapshot that it knows.
        has_begun: Whether it has read where the tables are.
        conflicts: How many attempts in a row another process's commit has refused.
    """

    session: Callable[[], SparkSession]
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
        if not self.config.outputs:
            msg = "the config has no outputs to make tables of"
            raise UsageError(msg)
        self._read_newest()
        table = self._synced(store)
        if table is None:
            return
        targets = _targets(self.session, self.config, table, self.folder)
        locations = {topic: target.location for topic, target in targets.items()}
        at_end = self.until_caught_up
        with registered(self.session, self.config, self.folder, locations, at_end=at_end) as tell_catalog:
            self._deliver_all(table, targets, store, tell_catalog)

    def _synced(self, store: StoreWatch) -> DeltaTable | None:
        """Returns staging once it has a sync; None if there is none when it is stopped, or is to end when caught up."""
        table = existing_staging(self.staging) if self.until_caught_up else None
        while not self.stop.is_set():
            self.ownership.check()
            table = table or open_staging(self.staging)
            store.heard()
            self.has_begun = True
            if table and (table.transaction_version(SYNC) or self.newest):
                return table
            if self.metrics:
                self.metrics.turn()
                self.metrics.reached(0, 0)
            if self.until_caught_up:
                break
            self.stop.wait(poll_seconds(self.staging))
            if table:
                poll(table)
        return None

    def _deliver_all(
        self,
        table: DeltaTable,
        targets: dict[str, TableTarget],
        store: StoreWatch,
        tell_catalog: Callable[[Mapping[str, int]], None],
    ) -> None:
        """Delivers batches until `stop` is set or the tables have caught up."""
        checked_at = next_batch_at = float("-inf")
        self.conflicts = 0
        while not self.stop.is_set():
            self.ownership.check()
            newest_sync = table.transaction_version(SYNC) or 0
            store.heard()
            if self.newest:
                _check_staging(table, newest_sync, self.newest)
            tell_catalog(self.newest.versions if self.newest else {})
            if self.metrics:
                self.metrics.turn()
                self.metrics.reached(self.newest.sync if self.newest else 0, newest_sync)
            started = time.monotonic()
            if newest_sync and started >= next_batch_at and self._is_behind(newest_sync, targets):
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
                delivered = deliver_batch(
                    self.session,
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


def _targets(
    session: Callable[[], SparkSession], config: Config, staging: DeltaTable, folder: str
) -> dict[str, TableTarget]:
    """Returns the delivered tables by output topic.

    Their columns are those that the newest sync recorded, if it had the config's rules; else Spark plans the rules.

    Raises:
        UsageError: The rules, or their columns, do not fit tables.
    """
    cursor, topics = read_cursor(staging), {rule.topic for rule in config.outputs}
    made = recorded(cursor.columns) if cursor.with_rules_of(config) else {}
    if topics <= made.keys():
        columns = {topic: StructType.fromJson(made[topic]["value"]) for topic in topics}
    else:
        spark = session()
        _, rows_by_rule = rules_over_nothing(spark, config, understand(spark, config))
        columns = {topic: columns.value for topic, columns in columns_by_topic(rows_by_rule).items()}
    return table_targets(config.outputs, columns, config.deliver, folder)


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
