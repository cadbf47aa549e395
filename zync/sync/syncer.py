"""`zync sync raw staging`: turns raw records into whole transactions and output rows, a commit per sync."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.errors import UsageError, ZyncError
from zync.lake.lock import Wait, owned
from zync.lake.outage import watching
from zync.lake.table import checkpoint, of_kind, open_table, poll, poll_seconds, refresh
from zync.observe import datasets
from zync.observe.datasets import Dataset
from zync.observe.lineage import Run, run_of
from zync.observe.traces import span
from zync.raw.table import DECISIONS, RAW_SCHEMA, existing_raw, next_seqno, positions, trimmed
from zync.spark.errors import texts_with_java
from zync.spark.frames import RowCache
from zync.spark.session import session
from zync.spark.sizing import Sizing
from zync.staging.bookkeeping import Bookkeeping, read_bookkeeping, read_cursor
from zync.staging.commit import reclaim
from zync.staging.set_aside import SetAside, read_set_aside
from zync.staging.table import STAGING_SCHEMA, ensure_staging, open_staging
from zync.sync.apply_rules import apply_rules
from zync.sync.backlog import sync_end
from zync.sync.commit import Committed, commit
from zync.sync.context import Sync
from zync.sync.judge import judge
from zync.sync.memory import MemoryCheck
from zync.sync.outcome import Outcome
from zync.sync.overdue import overdue, release
from zync.sync.progress import Progress, Report, Watch
from zync.sync.read import read
from zync.sync.recall import recall
from zync.transactions.decode import Decoder
from zync.transactions.done import understand
from zync.transactions.needed import check_start

if TYPE_CHECKING:
    from zync.sync.metrics import SyncMetrics

STAGES: tuple[Callable[[Any], Any], ...] = (read, recall, judge, apply_rules, commit)
"""The stages of a sync, in order. The first takes a `Sync`, and each other one what the stage before it returns."""


class Syncer:
    """Syncs a raw table into a staging table, once per call of `sync`.

    Attributes:
        bookkeeping: Staging's bookkeeping after the last sync; None: it has to be read.
        clock: When the newest record of the last sync was ingested into raw, in microseconds.
        lineage: Is told of each sync that does work; that of a new Syncer tells nobody.

    Example:
        >>> syncer = zync.Syncer(config, "lake/raw", "lake/staging", spark)
        >>> syncer.sync().transactions
        1
    """

    def __init__(
        self, config: Config, raw: str, staging: str, spark: SparkSession, report: Report | None = None
    ) -> None:
        """Prepares the syncs.

        Args:
            config: The config.
            raw: The location of raw.
            staging: The location of staging, which the first sync creates.
            spark: A session made by `zync.spark.session`, which nothing else uses: each sync creates temporary views
                in it, and in the end drops all temporary views of the session.
            report: Is told how far a large sync is; None: nothing is.

        Raises:
            UsageError: `done` or an id cannot be evaluated.
        """
        self.config, self.raw, self.staging, self.spark, self._report = config, raw, staging, spark, report
        self.done = understand(spark, config)
        self.decoder = Decoder(spark, config, self.done)
        self.bookkeeping: Bookkeeping | None = None
        self.clock = 0
        self.lineage = Run()
        self._check_memory = MemoryCheck()
        self._staging_version = -1
        self._raw_table: DeltaTable | None = None
        self._staging_table: DeltaTable | None = None

    def newest_raw_version(self) -> int | None:
        """Returns the newest version of raw, for a loop that waits; None if there is no raw yet."""
        if self._raw_table is None:
            table = open_table(self.raw)
            self._raw_table = table and of_kind(table, RAW_SCHEMA, "raw")
        else:
            poll(self._raw_table)
        return self._raw_table.version() if self._raw_table else None

    def sync(self, upto: int | None = None) -> Outcome:
        """Runs a sync: new records of raw go to staging in a single commit. Without new records nothing is written.

        Args:
            upto: The largest seqno to read; None: the newest in raw, or as far as `limits.records_per_sync` allows. How
                many records are left then is in the outcome, as `behind`.

        Raises:
            UsageError: Staging was made from another raw, or the config does not fit the data.
        """
        raw, staging = self._newest_tables()
        bookkeeping = self._read_bookkeeping(staging)
        cursor = bookkeeping.cursor
        if self.config.transactions.order == "commit":
            self.config.transactions.check_partitions(Counter(partition.topic for partition in positions(raw).next))
        if upto is None:
            upto = sync_end(raw, cursor.head, self.config.limits.records_per_sync)
        head = max(upto, cursor.head)
        if cursor.raw_id not in (None, str(raw.metadata().id)) or cursor.head > next_seqno(raw) - 1:
            msg = f"staging at {self.staging} was made from another raw than {self.raw}: give another staging"
            raise UsageError(msg)
        if head == cursor.head and not (bookkeeping.in_flight.num_rows and cursor.judged_otherwise(self.config)):
            return Outcome(cursor.sync, cursor.seqno, cursor.head, **_in_flight_counts(bookkeeping))
        if staging is not None:
            check_start(raw, staging, cursor)
        self._check_memory(bookkeeping, head - cursor.head)
        staging = ensure_staging(self.staging, staging)
        ranges = trimmed(raw, cursor.head, head)
        self.lineage.begin(lambda: self._reads_and_writes(raw))
        with span("sync", raw=self.raw, staging=self.staging) as current, RowCache(self.spark) as row_cache:
            sync = Sync(
                self.spark, row_cache, self.config, self.done, self.decoder, raw, staging, bookkeeping, head, ranges
            )
            self.bookkeeping = self._staging_table = None  # until it has succeeded: after a failure both are read anew
            behind = next_seqno(raw) - 1 - head
            with Watch(self.spark, head - cursor.head, behind, len(STAGES), self._report) as watch:
                committed, seconds = _run_stages(sync, watch)
            outcome = _outcome(committed, seconds, behind)
            current.set(
                sync=outcome.sync,
                version=staging.version() + 1,
                cursor=outcome.cursor,
                head=outcome.head,
                behind=outcome.behind,
                records=outcome.records,
                transactions=outcome.transactions,
                rows=sum(outcome.outputs.values()),
                topics=list(outcome.outputs),
                in_flight=outcome.in_flight,
                set_aside=sum(outcome.set_aside.values()),
            )
        # If another commit came in between, the version differs and the next sync reads staging anew.
        self.bookkeeping, self._staging_version = committed.bookkeeping, staging.version() + 1
        self.clock = committed.applied.summary.ingested or self.clock
        checkpoint(staging)
        self._staging_table = staging
        self.lineage.wrote({self._staging_dataset: sum(outcome.outputs.values())})
        return outcome

    @property
    def _staging_dataset(self) -> Dataset:
        return datasets.table(self.staging, datasets.columns_of(STAGING_SCHEMA))

    def _reads_and_writes(self, raw: DeltaTable) -> tuple[list[Dataset], list[Dataset]]:
        """Returns what a sync reads and what it writes: raw, the topics that raw is of, and staging."""
        names = {partition.topic for partition in positions(raw).next} - {DECISIONS.topic}
        sources = datasets.topics(self.config.kafka.get("bootstrap.servers"), sorted(names))
        return [datasets.table(self.raw, datasets.columns_of(RAW_SCHEMA)), *sources], [self._staging_dataset]

    def _newest_tables(self) -> tuple[DeltaTable, DeltaTable | None]:
        """Returns raw and staging at their newest versions; the handles of the last sync, if there are any."""
        if self._raw_table is None:
            self._raw_table = existing_raw(self.raw)
        else:
            refresh(self._raw_table)
        if self._staging_table is None:
            self._staging_table = open_staging(self.staging)
        else:
            refresh(self._staging_table)
        return self._raw_table, self._staging_table

    def release_overdue(self) -> bool:
        """Releases a transaction that others have waited for too long (`transactions.incomplete`).

        The release is a decision in raw: the next sync acts on it, as each replay does.

        Returns:
            Whether a transaction was released.
        """
        txn = overdue(self.config, self.bookkeeping, self.clock) if self.bookkeeping else None
        if txn is not None:
            release(self.raw, txn, self.config)
        return txn is not None

    def _read_bookkeeping(self, staging: DeltaTable | None) -> Bookkeeping:
        """Returns staging's bookkeeping, which is read only if staging is at another version than the last sync left.

        Reading also deletes files of syncs that were killed before their commit.
        """
        if self.bookkeeping is None or staging is None or staging.version() != self._staging_version:
            self.bookkeeping = read_bookkeeping(staging, self.config.transactions.remember)
            self._staging_version = staging.version() if staging else -1
            if staging is not None:
                reclaim(staging, self.bookkeeping.cursor.sync)
        return self.bookkeeping


def _run_stages(sync: Sync, watch: Watch) -> tuple[Committed, dict[str, float]]:
    """Runs all stages of a sync, and returns its commit and the duration of each stage."""
    state: Any = sync
    seconds = {}
    for stage in STAGES:
        started = time.monotonic()
        watch.begin(stage.__name__)
        with span(f"sync.{stage.__name__}"):
            state = stage(state)
        seconds[stage.__name__] = round(time.monotonic() - started, 3)
    return state, seconds


def _in_flight_counts(bookkeeping: Bookkeeping) -> dict[str, Any]:
    """Returns the number of pending and of expired transactions, and when the oldest pending transaction began."""
    is_pending = pc.equal(bookkeeping.in_flight["kind"], "pending")
    pending = bookkeeping.in_flight.filter(is_pending)
    return {
        "in_flight": pending.num_rows,
        "expired": bookkeeping.in_flight.num_rows - pending.num_rows,
        "oldest": pc.min(pending["since"]).as_py(),
    }


def _outcome(committed: Committed, seconds: dict[str, float], behind: int) -> Outcome:
    applied, cursor = committed.applied, committed.bookkeeping.cursor
    summary = applied.summary
    discarded = len(summary.discarded)
    set_aside = {
        "late": summary.late,
        "duplicate": summary.duplicate,
        "quarantined": summary.bad_records + len(applied.failures),
        "discarded": discarded,
        "ignored": summary.ignored,
    }
    return Outcome(
        sync=cursor.sync,
        cursor=cursor.seqno,
        head=cursor.head,
        records=applied.sync.new_count,
        transactions=summary.completed - len(applied.failures) - discarded,
        outputs=applied.written.outputs,
        **_in_flight_counts(committed.bookkeeping),
        set_aside={kind: count for kind, count in set_aside.items() if count},
        seconds=seconds,
        syncs=1,
        behind=behind,
    )


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
    with owned(staging, what="sync", wait=Wait(standby)), run_of("sync", staging, is_endless=False) as run:
        backlog = _backlog(raw, staging, report)
        spark = session(master, config.spark, brief=backlog.is_small, lake=staging)
        syncer = Syncer(config, raw, staging, spark, report)
        syncer.lineage = run
        outcome = total = syncer.sync()
        last = outcome.head + outcome.behind  # what comes in the meantime is for the next `zync sync`
        while outcome.head < last:
            if on_sync:
                on_sync(outcome)
            outcome = syncer.sync()
            total = total.followed_by(outcome)
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
                    if outcome.seconds or after_outage:
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
        metrics.found(**_in_flight_counts(read_bookkeeping(table, 0)), undecided=undecided)
