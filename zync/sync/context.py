"""What is known of a sync before its first stage. Each stage has a type of its own for what is known after it."""

from dataclasses import dataclass
from datetime import timedelta

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.lake.ranges import SeqnoRanges
from zync.raw.table import DECISIONS, stored_position
from zync.spark.frames import RowCache
from zync.staging.bookkeeping import Bookkeeping
from zync.transactions.decode import Decoder
from zync.transactions.done import Done
from zync.transactions.summary import Summary


@dataclass(frozen=True)
class Sync:
    """A running sync, before its first stage.

    Attributes:
        bookkeeping: Staging's bookkeeping before this sync.
        head: The largest seqno that this sync reads.
        trimmed_ranges: The new seqnos whose records raw no longer has.
    """

    spark: SparkSession
    row_cache: RowCache
    config: Config
    done: Done
    decoder: Decoder
    raw: DeltaTable
    staging: DeltaTable
    bookkeeping: Bookkeeping
    head: int
    trimmed_ranges: SeqnoRanges

    @property
    def number(self) -> int:
        """This sync's number: the newest in staging, plus 1."""
        return self.bookkeeping.cursor.sync + 1

    @property
    def new_count(self) -> int:
        """The number of new records."""
        return self.head - self.bookkeeping.cursor.head - self.trimmed_ranges.count

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
    def rejudges_all(self) -> bool:
        """Whether the config's ids or `done` changed, so that everything in flight has to be judged again."""
        return self.bookkeeping.cursor.judged_otherwise(self.config)

    def expiry_cutoff(self, summary: Summary) -> int:
        """Returns the time, in microseconds, at or before which a transaction must have begun to be expired.

        The clock is raw's: the newest `ingested`.
        """
        newest = summary.ingested or 0  # no record was read, for example from a trimmed raw
        return newest - self.config.transactions.expire_after // timedelta(microseconds=1)

    def quarantine_limit(self, summary: Summary) -> int:
        """Returns the most transactions and single records that this sync may quarantine."""
        return self.config.limits.quarantined(summary.completed + summary.bad_records)
