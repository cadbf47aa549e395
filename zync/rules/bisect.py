"""Finds the transactions that a rule fails on, by bisection.

Spark reports only that a rule failed, not on which rows, so the rule is run over ever smaller groups of transactions.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config, OutputRule
from zync.errors import DataError, UsageError
from zync.log import event
from zync.rules.run import RaisedError, RuleError, guarded_rules, output_rows
from zync.spark.causes import is_of_surroundings
from zync.spark.errors import spark_errors
from zync.spark.frames import RowCache, from_rows
from zync.spark.jvm import jvm_class
from zync.spark.sizing import Sizing, tune
from zync.text import amount
from zync.transactions.quarantine import Failure, check_limit

log = logging.getLogger(__name__)

_FAR_FEWER = 16
"""A slice of transactions that is smaller by this factor than the rows it is read from gets a checkpoint of its own."""
_LOG_SECONDS = 10.0
"""How often the progress of a search is logged."""


def find_failures(  # noqa: PLR0913 - each is a thing known by now
    spark: SparkSession,
    records: DataFrame,
    config: Config,
    known: tuple[Failure, ...],
    bad_records: int,
    limit: int,
    row_cache: RowCache,
) -> tuple[Failure, ...]:
    """Finds all transactions that a rule fails on, and leaves Spark's settings as they are for few records.

    Any error that a rule raises with a transaction, and does not raise without it, is that transaction's fault. Errors
    of the environment are not: they are raised unchanged.

    Args:
        spark: The session.
        records: The records of whole transactions.
        config: The config with the rules.
        known: The transactions that go to quarantine already.
        bad_records: The number of single records that go to quarantine.
        limit: The most transactions and single records that may go to quarantine.
        row_cache: Checkpoints rows.

    Returns:
        `known`, followed by the other transactions that a rule fails on.

    Raises:
        DataError: There are more than `limit` failures and bad records.
        UsageError: A rule fails without any records, so that no transaction is at fault.
    """
    sizes: dict[int, int] = dict(records.groupBy("seqno").count().collect())  # still with the settings for all records
    no_records = row_cache.keep(records.limit(0))  # a checkpoint, so that the optimizer does not see that it is empty
    failures = list(known)
    logged_at = time.monotonic()
    for rule in config.outputs:
        seqnos = sorted(sizes.keys() - {failure.seqno for failure in failures})
        passing = without(spark, records, failures, row_cache)
        rest = _Slice(passing, seqnos, sizes, row_cache, len(seqnos), 0, len(seqnos))
        probe, passes_on_nothing = _RuleProbe(spark, config, rule), False
        for failure in _failing(probe, rest):
            if failure is not None:
                passes_on_nothing = passes_on_nothing or _check_on_nothing(probe, no_records)
                failures.append(failure)
                check_limit(limit, failures, bad_records)
            if time.monotonic() - logged_at > _LOG_SECONDS:
                logged_at = time.monotonic()
                log.info(
                    "a rule fails: %s of %s found so far, by rule %s now",
                    f"{len(failures):,}",
                    amount(len(sizes), "transaction"),
                    rule.name,
                    extra=event("finding_failures", rule=rule.name, transactions=len(sizes), found=len(failures)),
                )
    return tuple(failures)


def _check_on_nothing(probe: "_RuleProbe", no_records: DataFrame) -> bool:
    """Returns True; raises UsageError if the rule fails even without records, so that no transaction is at fault."""
    error = probe.error(no_records)
    if error is None:
        return True
    if isinstance(error.cause, RaisedError):
        raise error.cause
    msg = f"rule {probe.rule.name} (output {probe.rule.topic}) fails whatever records there are: {error}"
    raise UsageError(msg) from error.cause


@dataclass(frozen=True)
class _Slice:
    """A range of transactions, in order of seqno.

    Attributes:
        rows: Records, which include those of the slice.
        seqnos: The seqnos of all transactions of the search, in order.
        sizes: The number of records of each transaction, by seqno.
        row_cache: Checkpoints rows.
        row_transactions: The number of transactions whose records are in `rows`.
        first: The index in `seqnos` of the slice's first transaction.
        last: The index in `seqnos` at which the slice ends (exclusive).
    """

    rows: DataFrame
    seqnos: list[int]
    sizes: dict[int, int]
    row_cache: RowCache
    row_transactions: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def subslice(self, first: int, last: int) -> "_Slice":
        """Returns the transactions from `first` to before `last`, checkpointed if far fewer than those in `rows`."""
        part = replace(self, first=first, last=min(last, self.last))
        if len(part) * _FAR_FEWER > self.row_transactions:
            return part
        return replace(part, rows=self.row_cache.keep(part.records), row_transactions=len(part))

    @property
    def records(self) -> DataFrame:
        """The records of the slice."""
        if len(self) == self.row_transactions:
            return self.rows
        return self.rows.where(f"seqno BETWEEN {self.seqnos[self.first]} AND {self.seqnos[self.last - 1]}")

    @property
    def record_count(self) -> int:
        """The number of records of the slice."""
        return sum(self.sizes[seqno] for seqno in self.seqnos[self.first : self.last])


def _failing(probe: "_RuleProbe", rest: _Slice) -> Iterator[Failure | None]:
    """Yields the transactions that the rule fails on, in order, and None in between, so that the caller can log.

    A group that fails is bisected: if its first half passes, its second half must fail, and is not run. The next group
    is as large as the average number of transactions per failure so far.

    Raises:
        DataError: The rule fails on transactions together, and on none of them alone.
    """
    start, size, failure_count = 0, len(rest), 0
    nearby = rest
    while start < rest.last:
        if min(start + size, rest.last) > nearby.last or len(nearby) > size * _FAR_FEWER**2:
            nearby = rest.subslice(start, start + size * _FAR_FEWER)
        group = whole_group = nearby.subslice(start, start + size)
        if len(group) > 1 and not probe.fails(group):
            start, size = group.last, 2 * size
            yield None
            continue
        while len(group) > 1:
            middle = (group.first + group.last) // 2
            half = group.subslice(group.first, middle)
            group = half if probe.fails(half) else group.subslice(middle, group.last)
        error = probe.error(group.records, group.record_count)
        if (
            error is None
            and len(whole_group) > 1
            and (group_error := probe.error(whole_group.records, whole_group.record_count))
        ):
            first, last = whole_group.seqnos[whole_group.first], whole_group.seqnos[whole_group.last - 1]
            msg = (
                f"rule {probe.rule.name} fails on transactions of seqno {first:,} to {last:,} together, and not on one "
                f"by itself ({group_error}). It is to make the rows of each of that one's records: which others come "
                "in a sync is chance (`zync check --data raw`)"
            )
            raise DataError(msg)
        start, failure_count = group.last, failure_count + (error is not None)
        size = start // failure_count if failure_count else 2 * size
        yield Failure(group.seqnos[group.first], str(error), probe.rule.name) if error else None


@dataclass(frozen=True)
class _RuleProbe:
    """Runs a rule over some records to see whether it fails."""

    spark: SparkSession
    config: Config
    rule: OutputRule

    def error(self, records: DataFrame, record_count: int = 0) -> RuleError | None:
        """Returns the rule's error on those records, or None. Errors of the environment are raised."""
        try:
            self._output_rows(records, record_count).write.format("noop").mode("overwrite").save()
        except spark_errors() + (RaisedError,) as error:
            if is_of_surroundings(error):
                raise
            return RuleError(self.rule, error)
        return None

    def fails(self, transactions: _Slice) -> bool:
        """Whether the rule fails on those transactions. Errors of the environment are raised.

        Only counts the rows, because building Spark's error message takes as long as the failing job itself.
        """
        try:
            rows = self._output_rows(transactions.records, transactions.record_count)
            rdd = rows._jdf.queryExecution().toRdd()  # noqa: SLF001
        except spark_errors() + (RaisedError,) as error:  # of a Python rule, or of rows evaluated during planning
            if is_of_surroundings(error):
                raise
            return True
        job = self._jvm["RDD"].rddToAsyncRDDActions(rdd, self._jvm["any"]).countAsync()
        self._jvm["Await"].ready(job, self._jvm["forever"])
        result = job.value().get()
        if not result.isFailure():
            return False
        job_error = Py4JJavaError(f"rule {self.rule.name} failed", result.failed().get())
        if is_of_surroundings(job_error):
            raise job_error
        return True

    def _output_rows(self, records: DataFrame, record_count: int) -> DataFrame:
        sizing = Sizing(record_count)
        tune(self.spark, self.config.spark, sizing)
        records = records.coalesce(1) if sizing.is_tiny else records
        ((rule, rows),) = guarded_rules(self.spark, records, replace(self.config, outputs=(self.rule,)))
        return output_rows(rows, rule, 0)

    @cached_property
    def _jvm(self) -> dict[str, Any]:
        return {
            "RDD": jvm_class(self.spark, "org.apache.spark.rdd.RDD"),
            "Await": jvm_class(self.spark, "scala.concurrent.Await"),
            "any": jvm_class(self.spark, "scala.reflect.ClassTag").Any(),
            "forever": jvm_class(self.spark, "scala.concurrent.duration.Duration").Inf(),
        }


def without(spark: SparkSession, records: DataFrame, failures: Sequence[Failure], row_cache: RowCache) -> DataFrame:
    """Returns the records of the transactions that are not in `failures`.

    The result is checkpointed: Spark would push parts of a rule below a mere join, and so run them on the others, too.
    """
    if not failures:
        return records
    failed = from_rows(spark, [(failure.seqno,) for failure in failures], "seqno bigint")
    return row_cache.keep(records.join(failed.hint("broadcast"), "seqno", "left_anti"))
