"""The processes of a sync: `zync sync`, which syncs what is new, and `zync sync --follow`, which goes on."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError

from zync.config.model import Config
from zync.errors import ZyncError
from zync.lake.lock import Wait, owned
from zync.lake.outage import watching
from zync.lake.table import of_kind, open_table, poll_seconds
from zync.observe.lineage import run_of
from zync.raw.table import RAW_SCHEMA, existing_raw, next_seqno
from zync.spark.errors import texts_with_java
from zync.spark.session import session
from zync.spark.sizing import Sizing
from zync.staging.bookkeeping import read_bookkeeping, read_cursor
from zync.staging.set_aside import SetAside, read_set_aside
from zync.staging.table import open_staging
from zync.sync.outcome import Outcome
from zync.sync.progress import Progress, Report
from zync.sync.syncer import Syncer, in_flight_counts

if TYPE_CHECKING:
    from zync.sync.metrics import SyncMetrics


def sync_once(
    config: Config,
    raw: str,
    staging: str,
    master: str | None = None,
    *,
    report: Report | None = None,
    on_sync: Callable[[Outcome], None] | None = None,
    standby: bool = False,
) -> Outcome:
    """Syncs all new records in a Spark session of its own, as `zync sync` does.

    A large backlog takes several syncs (`limits.records_per_sync`), whose outcomes are added up.

    Args:
        config: The config.
        raw: The location of raw.
        staging: The location of staging, which is created if it does not exist.
        master: Spark's master URL; None: the config's, else this machine.
        report: Is told how far a large sync is; None: nothing is.
        on_sync: Called with the outcome of each sync, if it takes several.
        standby: Whether to wait while another sync works on this staging.

    Raises:
        OwnedError: Another sync holds the lock of this staging; nothing was changed.

    Example:
        >>> outcome = zync.sync_once(config, "lake/raw", "lake/staging")
        >>> outcome.transactions, outcome.in_flight
        (1, 1)
    """
    existing_raw(raw)
    with owned(staging, what="sync", wait=Wait(standby)) as ownership, run_of("sync", staging, is_endless=False) as run:
        backlog = _backlog(raw, staging, report)
        spark = session(master, config.spark, brief=backlog.is_small, lake=staging)
        syncer = Syncer(config, raw, staging, spark, report)
        syncer.lineage = run
        outcome = total = syncer.sync()
        last = outcome.head + outcome.behind  # what comes in the meantime is for the next `zync sync`
        while outcome.head < last:
            if on_sync:
                on_sync(outcome)
            ownership.check()
            outcome = syncer.sync()
            total = total.followed_by(outcome)
        if on_sync and total.syncs > 1:
            on_sync(outcome)
        syncer.release_overdue()
        return total


def _backlog(raw: str, staging: str, report: Report | None) -> Sizing:
    """Returns how many records are new, and reports a large backlog, as Spark's start takes some seconds."""
    raw_table, staging_table = open_table(raw), open_staging(staging)
    head = next_seqno(of_kind(raw_table, RAW_SCHEMA, "raw")) - 1 if raw_table else 0
    backlog = Sizing(head - (read_cursor(staging_table).head if staging_table else 0))
    if report and not backlog.is_small:
        report(Progress(backlog.records))
    return backlog


def follow(  # noqa: PLR0913 - a public function: the caller chooses each
    config: Config,
    raw: str,
    staging: str,
    stop: threading.Event,
    on_sync: Callable[[Outcome], None],
    master: str | None = None,
    metrics: "SyncMetrics | None" = None,
    *,
    report: Report | None = None,
    standby: bool = False,
) -> None:
    """Syncs whenever raw has a new version, in a warm session, until `stop` is set, as `zync sync --follow` does.

    Once it runs, it waits for an object store that is away, and goes on.

    Args:
        config: The config.
        raw: The location of raw, which need not exist yet.
        staging: The location of staging, which is created if it does not exist.
        stop: Ends the loop after the current sync.
        on_sync: Called with the outcome of each sync that wrote something.
        master: Spark's master URL; None: the config's, else this machine.
        metrics: Metrics to update.
        report: Is told how far a large sync is; None: nothing is.
        standby: Whether to wait, with a warm session, while another sync works on this staging.

    Raises:
        OwnedError: Another sync holds the lock of this staging, or has taken its lease over.

    Example:
        >>> stop = threading.Event()
        >>> def print_and_stop(outcome: zync.Outcome) -> None:
        ...     print(outcome.transactions)
        ...     stop.set()
        >>> zync.follow(config, "lake/raw", "lake/staging", stop, on_sync=print_and_stop)
        2
    """
    warm = Syncer(config, raw, staging, session(master, config.spark, lake=staging), report) if standby else None
    wait = Wait(standby, stop, metrics.wait_for if metrics else lambda _owner: None)
    with (
        owned(staging, what="sync", wait=wait) as ownership,
        watching(raw, stop, metrics, texts_with_java) as store,
        run_of("sync", staging, is_endless=True) as run,
    ):
        if not ownership.is_held:
            return
        if metrics:  # in parallel with Spark's start, which takes longer
            threading.Thread(target=_report_bookkeeping, args=(metrics, staging), name="metrics", daemon=True).start()
        if report and not warm:
            _backlog(raw, staging, report)
        syncer = warm or Syncer(config, raw, staging, session(master, config.spark, lake=staging), report)
        syncer.lineage = run
        synced_version, after_outage = None, False
        while not stop.is_set():
            ownership.check()
            try:
                version = syncer.newest_raw_version()
                store.heard()
                outcome = syncer.sync() if version != synced_version else None
                synced_version = None if outcome and outcome.behind else version
                if metrics:
                    metrics.turn()
                if outcome:
                    store.worked()
                    _report(outcome, on_sync, metrics)
                    if (outcome.seconds or after_outage) and not outcome.behind:  # raw may have what is waited for
                        syncer.release_overdue()
                    after_outage = False
            except Exception as error:
                if not store.outlast(error):
                    raise
                synced_version, after_outage = None, True
                continue
            if not outcome:
                stop.wait(poll_seconds(raw))


def _report(outcome: Outcome, on_sync: Callable[[Outcome], None], metrics: "SyncMetrics | None") -> None:
    """Reports a sync to the metrics, and to `on_sync` if it wrote something."""
    if metrics:
        metrics.synced(outcome)
    if outcome.seconds:
        on_sync(outcome)


def _report_bookkeeping(metrics: "SyncMetrics", location: str) -> None:
    """Sets `metrics` from staging's bookkeeping: the first sync may take half a minute, and reports only its own work.

    Args:
        metrics: The metrics to set.
        location: The location of staging.
    """
    with suppress(ZyncError, OSError, pa.ArrowException, DeltaError):  # the sync meets the same error and raises it
        table = open_staging(location)
        set_aside = read_set_aside(table) if table else SetAside()
        late = sum(row["records"].merged.count for row in set_aside.late.values())
        undecided = {"quarantined": sum(map(len, set_aside.quarantined.values())), "late": late}
        metrics.found(**in_flight_counts(read_bookkeeping(table, 0)), undecided=undecided)
