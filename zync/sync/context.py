"""The state of a running sync, which each stage extends and hands to the next."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config
from zync.lake.ranges import SeqnoRanges
from zync.raw.table import DECISIONS, stored_position
from zync.spark.frames import Keeper
from zync.spark.tuning import ONE_TASK, SMALL
from zync.staging.bookkeeping import Known
from zync.staging.commit import Written
from zync.transactions.assemble import Assembled
from zync.transactions.decode import Decoder
from zync.transactions.done import Done
from zync.transactions.quarantine import Failure

_RECORDS_A_TASK = 250_000
"""About 200 MB in Spark's memory format, which a task can sort in memory."""


@dataclass(frozen=True)
class Sync:
    """A running sync. Each stage returns a copy with its own results filled in; None: not computed yet.

    Attributes:
        bookkeeping: Staging's bookkeeping before this sync; from read on, without `reread_in_flight`.
        head: The largest seqno that this sync reads.
        trimmed_ranges: The new seqnos whose records raw no longer has.
        lookup_digests: The digest of each lookup table that this sync reads.
        reread_in_flight: Transactions in flight whose records are read and judged again with the new records.
        identified_records: The new records and those of `reread_in_flight`, decoded, with their transaction ids.
        matched_in_flight: Rows of `bookkeeping.in_flight` whose transactions the new records may belong to.
        settled_transactions: (txn, settled_at) of transactions that earlier syncs settled.
        assembled: Each record's fate, and the summary.
        judged_records: The rows of `assembled`, with what is known of earlier records of the same transactions.
        outgoing_records: All records of the transactions that this sync settles, records of earlier syncs included.
        failures: The transactions that go to quarantine.
        written: The files written so far, which are not committed yet.
        output_columns: The columns of all outputs, as JSON (zync/rules/schema.py).
        has_truncations: Whether `outgoing_records` may contain TRUNCATE records.
        has_documents: Whether `outgoing_records` may contain MongoDB documents.
        bookkeeping_after: Staging's bookkeeping once this sync is committed.
        earlier_count: The number of records of earlier syncs that are read again.
        stage_seconds: The duration of each stage.
    """

    spark: SparkSession
    keeper: Keeper
    config: Config
    done: Done
    decoder: Decoder
    raw: DeltaTable
    staging: DeltaTable
    bookkeeping: Known
    head: int
    trimmed_ranges: SeqnoRanges = field(default_factory=SeqnoRanges)
    lookup_digests: dict[str, str] = field(default_factory=dict)
    reread_in_flight: pa.Table | None = None
    identified_records: DataFrame | None = None
    matched_in_flight: pa.Table | None = None
    settled_transactions: DataFrame | None = None
    assembled: Assembled | None = None
    judged_records: DataFrame | None = None
    outgoing_records: DataFrame | None = None
    failures: tuple[Failure, ...] = ()
    written: Written | None = None
    output_columns: str = ""
    has_truncations: bool = False
    bookkeeping_after: Known | None = None
    earlier_count: int = 0
    has_documents: bool = True
    stage_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """This sync's number: the newest in staging, plus 1."""
        return self.bookkeeping.cursor.sync + 1

    @property
    def new_count(self) -> int:
        """The number of new records."""
        return self.head - self.bookkeeping.cursor.head - self.trimmed_ranges.count

    @property
    def record_count(self) -> int:
        """The number of records to process: new records, and those of earlier syncs that are read again."""
        return self.new_count + self.earlier_count

    @property
    def is_small(self) -> bool:
        """Whether a single task writes all files, and Spark gets only the bookkeeping of the ids at hand."""
        return self.record_count <= SMALL

    @property
    def uses_single_task(self) -> bool:
        """Whether a single task does everything but the decoding."""
        return self.is_small and self.record_count <= ONE_TASK

    def task_count(self, more: int = 0) -> int:
        """Returns the number of tasks that assemble `record_count` + `more` records: the number of bookkeeping files.

        Args:
            more: Records that are read in addition.
        """
        if self.uses_single_task and more <= ONE_TASK:
            return 1
        return max(2, (self.record_count + more) // _RECORDS_A_TASK)

    @property
    def keeps_state(self) -> bool:
        """Whether a transaction in flight is represented by the state of its aggregates, not by its records."""
        return self.done.mergeable and not any(topic.record_id for topic in self.config.topics.values())

    @property
    def in_commit_order(self) -> bool:
        """Whether transactions go out in the order of commit, so that a whole transaction may have to wait."""
        return self.config.transactions.order == "commit"

    @property
    def has_decisions(self) -> bool:
        """Whether raw contains decisions of operators."""
        return stored_position(self.raw, DECISIONS) is not None

    @property
    def expiry_cutoff(self) -> int:
        """The time, in microseconds, at or before which a transaction must have begun to be expired.

        The clock is raw's: the newest `ingested`.
        """
        newest = require(self.assembled).summary.ingested or 0  # no record was read, for example from a trimmed raw
        return newest - self.config.transactions.expire_after // timedelta(microseconds=1)

    @property
    def quarantine_limit(self) -> int:
        """The most transactions and single records that this sync may quarantine."""
        summary = require(self.assembled).summary
        return self.config.limits.quarantined(summary.completed + summary.faulty)

    @property
    def rejudges_all(self) -> bool:
        """Whether the config's ids or `done` changed, so that everything in flight has to be judged again."""
        return self.bookkeeping.cursor.judged_otherwise(self.config)


T = TypeVar("T")


def require(value: T | None) -> T:
    """Returns a field that an earlier stage has filled in.

    Raises:
        AssertionError: The stage that fills it in has not run.
    """
    if value is None:
        msg = "a stage ran before the one that it needs"
        raise AssertionError(msg)
    return value
