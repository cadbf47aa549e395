"""A sync under way: what is known of it by now, handed from stage to stage."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config
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
"""Some 200 MB as Spark has them, which a task can sort in memory."""


@dataclass(frozen=True)
class Sync:
    """One sync under way: what is known of it by now. Each stage fills in its part.

    trimmed: of the new seqnos those whose records raw has no more, as ranges.
    reread: what was in flight and is judged anew with the new records; `known.in_flight` is the rest. identified: the
    records of both. met: of `known.in_flight`, those that the new records may belong to. settling: the new records with
    their fate, and what is known of earlier ones; going: the records of what is settled now, earlier ones among them.
    truncating: there may be records among `going` that say that a table was truncated. documents: some of `going` may
    be MongoDB's. earlier: how many records of earlier syncs are read again. columns: what outputs have, on record
    (zync/rules/schema.py).
    """

    spark: SparkSession
    keeper: Keeper
    config: Config
    done: Done
    decoder: Decoder
    raw: DeltaTable
    staging: DeltaTable
    known: Known
    head: int
    trimmed: list[tuple[int, int]] = field(default_factory=list)
    lookups: dict[str, str] = field(default_factory=dict)
    reread: pa.Table | None = None
    identified: DataFrame | None = None
    met: pa.Table | None = None
    settled: DataFrame | None = None
    assembled: Assembled | None = None
    settling: DataFrame | None = None
    going: DataFrame | None = None
    failures: tuple[Failure, ...] = ()
    written: Written | None = None
    columns: str = ""
    truncating: bool = False
    after: Known | None = None
    earlier: int = 0
    documents: bool = True
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """This sync's number: one more than the newest in staging."""
        return self.known.cursor.sync + 1

    @property
    def new(self) -> int:
        """How many new records there are."""
        return self.head - self.known.cursor.head - sum(last - first + 1 for first, last in self.trimmed)

    @property
    def records(self) -> int:
        """How many there are to do: new ones, and those read again."""
        return self.new + self.earlier

    @property
    def small(self) -> bool:
        """Whether they are few: then one task writes all, and only what is known of the ids at hand goes to Spark."""
        return self.records <= SMALL

    @property
    def one_task(self) -> bool:
        """Whether they are so few that one task does each thing but to decode."""
        return self.small and self.records <= ONE_TASK

    def tasks(self, more: int = 0) -> int:
        """How many tasks put the records, and so many `more`, together; so many files of bookkeeping there are, too."""
        if self.one_task and more <= ONE_TASK:
            return 1
        return max(2, (self.records + more) // _RECORDS_A_TASK)

    @property
    def stateful(self) -> bool:
        """Whether in-flight transactions come as the state of their aggregates, not as their records."""
        return self.done.mergeable and not any(topic.record_id for topic in self.config.topics.values())

    @property
    def in_order(self) -> bool:
        """Whether transactions go out in the order of commit, and wait for that."""
        return self.config.transactions.order == "commit"

    @property
    def decided(self) -> bool:
        """Whether there are decisions of operators in raw."""
        return stored_position(self.raw, DECISIONS) is not None

    @property
    def cutoff(self) -> int:
        """What began at or before this (in microseconds) has expired, by raw's clock: the newest `ingested`."""
        newest = there(self.assembled).summary.ingested or 0  # nothing came, as of a raw that was trimmed
        return newest - self.config.transactions.expire_after // timedelta(microseconds=1)

    @property
    def limit(self) -> int:
        """The most transactions and records by themselves that may go to quarantine."""
        summary = there(self.assembled).summary
        return self.config.limits.quarantined(summary.completed + summary.faulty)

    @property
    def changed(self) -> bool:
        """Whether ids or `done` are not what they were, so that all that is in flight is to be judged anew."""
        return self.known.cursor.judged_otherwise(self.config)


T = TypeVar("T")


def there(value: T | None) -> T:
    """What an earlier stage left."""
    if value is None:
        msg = "a stage ran before the one that it needs"
        raise AssertionError(msg)
    return value
