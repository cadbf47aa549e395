"""`zync sync raw staging`: turns raw records into whole transactions and output rows, a commit per sync."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.errors import UsageError
from zync.lake.table import of_kind, open_table, poll, refresh, refresh_after_commit
from zync.observe import datasets
from zync.observe.datasets import Dataset
from zync.observe.lineage import Run
from zync.observe.traces import span
from zync.raw.table import DECISIONS, RAW_SCHEMA, existing_raw, next_seqno, positions, trimmed
from zync.spark.frames import RowCache
from zync.spark.jvm import heap_growth
from zync.staging.bookkeeping import Bookkeeping, read_bookkeeping
from zync.staging.commit import reclaim
from zync.staging.table import STAGING_SCHEMA, ensure_staging, open_staging
from zync.sync.apply_rules import apply_rules
from zync.sync.backlog import sync_end
from zync.sync.commit import Committed, commit
from zync.sync.context import Sync
from zync.sync.judge import judge
from zync.sync.memory import MemoryCheck
from zync.sync.outcome import Outcome
from zync.sync.overdue import overdue, release
from zync.sync.progress import Report, Watch
from zync.sync.read import read
from zync.sync.recall import recall
from zync.transactions.decode import Decoder
from zync.transactions.done import understand
from zync.transactions.needed import check_start

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
        self._check_memory = MemoryCheck(lambda: heap_growth(spark))
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
            return Outcome(cursor.sync, cursor.seqno, cursor.head, **in_flight_counts(bookkeeping))
        if staging is not None:
            check_start(raw, staging, cursor)
        ranges = trimmed(raw, cursor.head, head)
        self._check_memory(bookkeeping, head - cursor.head - ranges.count)
        staging = ensure_staging(self.staging, staging)
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
        refresh_after_commit(staging)
        self._staging_table = staging
        self.lineage.wrote(lambda: {self._staging_dataset: sum(outcome.outputs.values())})
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


def in_flight_counts(bookkeeping: Bookkeeping) -> dict[str, Any]:
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
        **in_flight_counts(committed.bookkeeping),
        set_aside={kind: count for kind, count in set_aside.items() if count},
        seconds=seconds,
        syncs=1,
        behind=behind,
    )
