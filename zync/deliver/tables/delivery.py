"""`zync sync-to tables staging`: each output topic into a typed Delta table, and which versions belong together.

A batch is all syncs that staging has and the tables do not. Each table that has rows in it gets one commit, which says
(Delta's `txn`) through which sync it is; then a snapshot names the versions of all. Who was killed in between finds
some tables ahead: first the others are brought as far, so that each snapshot is of one sync.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.debezium.unavailable import placeholder
from zync.deliver.tables import snapshots
from zync.deliver.tables.apply import ConflictError, deliver
from zync.deliver.tables.schema_changes import as_made
from zync.deliver.tables.snapshots import Snapshot
from zync.deliver.tables.target import ANEW, Target, check, targets, through
from zync.errors import UsageError
from zync.lake.files import data_files
from zync.lake.lock import owned
from zync.lake.table import refresh
from zync.rules.plan import rules_over_nothing
from zync.spark.tuning import pace
from zync.staging.outputs import columns_by_sync
from zync.staging.table import SYNC, existing_staging, open_staging
from zync.transactions.done import understand

if TYPE_CHECKING:
    from zync.deliver.metrics import DeliveryMetrics

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_AGAIN_SECONDS = 1.0
_CONFLICTS = 10
"""In a row, before whoever else writes is taken to go on for good."""
_LOOK_AFTER_SECONDS = 60.0
"""What others do to the tables is noticed so soon where nothing is to deliver."""


@dataclass(frozen=True)
class Batch:
    """What a batch brought: staging's rows of the syncs after `after` up to `sync`, by topic."""

    after: int
    sync: int
    rows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def sync_to_tables(  # noqa: PLR0913 - each is a thing that it needs
    spark: SparkSession,
    config: Config,
    staging: str,
    folder: str,
    stop: threading.Event,
    on_batch: Callable[[Batch], None] = lambda _: None,
    metrics: "DeliveryMetrics | None" = None,
    *,
    until_caught_up: bool = False,
) -> Snapshot | None:
    """Delivers until `stop` is set, or until the tables have all that staging has now. The newest snapshot.

    Raises:
        UsageError: rules that do not make a table, or not that one; tables that are not of this staging.
        OwnedError: another deliverer is at it.
        ZyncError: somebody else wrote to a table.
    """
    with owned(folder):
        _, made = rules_over_nothing(spark, config, understand(spark, config))
        found = targets(made, config.deliver.tables or {}, folder)
        if not found:
            msg = "the config has no outputs to make tables of"
            raise UsageError(msg)
        newest = snapshots.newest(f"{folder}/{snapshots.NAME}")
        looked, conflicts = float("-inf"), 0
        table = existing_staging(staging) if until_caught_up else None
        while not stop.is_set():
            table = table or open_staging(staging)
            upto = (table.transaction_version(SYNC) or 0) if table else 0
            if table and newest:
                _check_staging(table, upto, newest)
            if metrics:
                metrics.turn()
                metrics.reached(newest.sync if newest else 0, upto)
            if table and upto and (newest is None or newest.sync < upto or found.keys() - newest.versions.keys()):
                try:
                    newest, batch = _batch(spark, config, table, list(found.values()), folder, newest, upto)
                except ConflictError as error:  # others may compact tables, which takes them no longer than this
                    conflicts += 1
                    if conflicts == _CONFLICTS:
                        raise
                    log.info("%s; trying again", error)
                    stop.wait(_AGAIN_SECONDS)
                    continue
                conflicts = 0
                if metrics:
                    metrics.committed(batch.rows, batch.seconds)
                on_batch(batch)
                looked = time.monotonic()
                continue
            if newest and time.monotonic() - looked > _LOOK_AFTER_SECONDS:
                newest = look_after(found, folder, newest)
                looked = time.monotonic()
            if until_caught_up:
                break
            stop.wait(_LOOK_SECONDS)
            if table:
                refresh(table)
    return newest


def _check_staging(table: DeltaTable, upto: int, newest: Snapshot) -> None:
    """Raises UsageError where the tables are of another staging, or of more syncs than it has."""
    own = str(table.metadata().id)
    if newest.staging != own:
        what = f"the tables are of another staging (table id {newest.staging}) than {table.table_uri}"
    elif newest.sync > upto:
        what = f"the tables are through sync {newest.sync:,}, and {table.table_uri} (was it put back?) has {upto:,}"
    else:
        return
    msg = f"{what}: {ANEW}, or give another lake"
    raise UsageError(msg)


def look_after(tables: dict[str, Target], folder: str, newest: Snapshot) -> Snapshot:
    """The newest snapshot; a new one where others compacted tables since, as old versions may be gone soon.

    Outputs that the config names now and the snapshot does not have no table yet: that is for the next batch.

    Raises:
        ZyncError: others changed a table, or took it away.
    """
    versions = {
        topic: check(tables[topic], newest.staging, version) or version
        for topic, version in newest.versions.items()
        if topic in tables
    }
    if versions.items() <= newest.versions.items():
        return newest
    snapshot = replace(newest, at=snapshots.now(), versions=newest.versions | versions)
    snapshots.take(f"{folder}/{snapshots.NAME}", snapshot)
    return snapshot


def _batch(  # noqa: PLR0913
    spark: SparkSession,
    config: Config,
    staging: DeltaTable,
    found: list[Target],
    folder: str,
    before: Snapshot | None,
    newest: int,
) -> tuple[Snapshot, Batch]:
    """Brings all tables as far as one of them is already, or as staging is; and puts the snapshot on record."""
    started, own = time.monotonic(), str(staging.metadata().id)
    recorded = before.versions if before else {}
    for target in found:
        check(target, own, recorded.get(target.topic))
    done = {target.topic: through(target, own) for target in found}
    since = before.sync if before else 0
    ahead = max(done.values())
    upto = ahead if ahead > since else newest
    pace(spark, config.spark, sum(one.rows for one in data_files(staging, "sync", above=since, upto=upto)))
    afters = {topic: max(its, since) if topic in recorded else its for topic, its in done.items()}
    columns = columns_by_sync(staging, min(afters.values()) + 1, upto)
    stands = placeholder(config) if config.transactions.preset == "debezium" else None
    rows = {}
    for target in found:
        after = afters[target.topic]
        if after < upto:
            made = as_made(target, {sync: its for sync, its in columns.items() if sync > after})
            rows[target.topic] = deliver(spark, made, staging, after, upto, stands)
    # Once more, as others may have written meanwhile; by now each table has a version, 0 at least.
    versions = {target.topic: check(target, own, recorded.get(target.topic, 0)) or 0 for target in found}
    snapshot = Snapshot(upto, snapshots.now(), own, versions)
    snapshots.take(f"{folder}/{snapshots.NAME}", snapshot)
    seconds = round(time.monotonic() - started, 3)
    return snapshot, Batch(since, upto, {topic: count for topic, count in rows.items() if count}, seconds)
