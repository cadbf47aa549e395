"""The transactions that a rule fails on: Spark says only that there are some, so parts of them are tried."""

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
from zync.spark.frames import Keeper, local
from zync.spark.jvm import jvm_class
from zync.spark.tuning import TINY, pace
from zync.text import amount
from zync.transactions.quarantine import Failure, check_limit

log = logging.getLogger(__name__)

_FAR_FEWER = 16
"""A part so many times smaller than the rows that it is read from is kept by itself."""
_SAID_EVERY = 10.0
"""Seconds."""


def find_failures(  # noqa: PLR0913 - each is a thing known by now
    spark: SparkSession,
    records: DataFrame,
    config: Config,
    known: tuple[Failure, ...],
    faulty: int,
    limit: int,
    keeper: Keeper,
) -> tuple[Failure, ...]:
    """`known`, and the other transactions that a rule fails on. Spark's settings are then those for few records.

    Whatever the rule fails with: what it does with a transaction, and not without it, is that one's. An error of the
    surroundings in between is raised as it is.

    Raises:
        DataError: they are more than `limit`, together with `faulty` records.
        UsageError: a rule fails on no records at all, so that no transaction is at fault.
    """
    sizes: dict[int, int] = dict(records.groupBy("seqno").count().collect())  # at the pace of all of them
    nothing = keeper.keep(records.limit(0))  # kept, so that the optimizer does not know that it is empty
    found = list(known)
    said = time.monotonic()
    for rule in config.outputs:
        seqnos = sorted(sizes.keys() - {one.seqno for one in found})
        rest = _Part(without(spark, records, found, keeper), seqnos, sizes, keeper, len(seqnos), 0, len(seqnos))
        trial, passes_on_nothing = _Trial(spark, config, rule), False
        for failure in _failing(trial, rest):
            if failure is not None:
                passes_on_nothing = passes_on_nothing or _check_on_nothing(trial, nothing)
                found.append(failure)
                check_limit(limit, found, faulty)
            if time.monotonic() - said > _SAID_EVERY:
                said = time.monotonic()
                log.info(
                    "a rule fails: %s of %s found so far, by rule %s now",
                    f"{len(found):,}",
                    amount(len(sizes), "transaction"),
                    rule.name,
                    extra=event("finding_failures", rule=rule.name, transactions=len(sizes), found=len(found)),
                )
    return tuple(found)


def _check_on_nothing(trial: "_Trial", nothing: DataFrame) -> bool:
    """UsageError where the rule fails on no records, too: then no transaction is at fault."""
    broken = trial.error(nothing)
    if broken is None:
        return True
    if isinstance(broken.cause, RaisedError):
        raise broken.cause
    msg = f"rule {trial.rule.name} (output {trial.rule.topic}) fails whatever records there are: {broken}"
    raise UsageError(msg) from broken.cause


@dataclass(frozen=True)
class _Part:
    """The transactions from `first` to before `last` of all, which are in the order of their seqnos.

    sizes: how many records there are of each. held: of how many transactions `rows` are the records.
    """

    rows: DataFrame
    seqnos: list[int]
    sizes: dict[int, int]
    keeper: Keeper
    held: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def part(self, first: int, last: int) -> "_Part":
        """Some of them; their rows are kept by themselves where they are far fewer than those that there are."""
        part = replace(self, first=first, last=min(last, self.last))
        if len(part) * _FAR_FEWER > self.held:
            return part
        return replace(part, rows=self.keeper.keep(part.records), held=len(part))

    @property
    def records(self) -> DataFrame:
        """The records of these transactions."""
        if len(self) == self.held:
            return self.rows
        return self.rows.where(f"seqno BETWEEN {self.seqnos[self.first]} AND {self.seqnos[self.last - 1]}")

    @property
    def count(self) -> int:
        """How many they are."""
        return sum(self.sizes[seqno] for seqno in self.seqnos[self.first : self.last])


def _failing(trial: "_Trial", rest: _Part) -> Iterator[Failure | None]:
    """The transactions that the rule fails on, in order; None in between, so that the caller can say how it goes.

    The next that fails is looked for by halves: where a group fails and its first half does not, the second must, and
    is not tried. The next group is as large as there were transactions for each found by now.
    """
    at, size, found = 0, len(rest), 0
    near = rest
    while at < rest.last:
        if min(at + size, rest.last) > near.last or len(near) > size * _FAR_FEWER**2:
            near = rest.part(at, at + size * _FAR_FEWER)
        group = whole = near.part(at, at + size)
        if len(group) > 1 and not trial.fails(group):
            at, size = group.last, 2 * size
            yield None
            continue
        while len(group) > 1:
            middle = (group.first + group.last) // 2
            half = group.part(group.first, middle)
            group = half if trial.fails(half) else group.part(middle, group.last)
        error = trial.error(group.records, group.count)
        if error is None and len(whole) > 1 and (together := trial.error(whole.records, whole.count)):
            first, last = whole.seqnos[whole.first], whole.seqnos[whole.last - 1]
            msg = (
                f"rule {trial.rule.name} fails on transactions of seqno {first:,} to {last:,} together, and not on one "
                f"by itself ({together}). It is to make the rows of each of that one's records: which others come in a "
                "sync is chance (`zync check --data raw`)"
            )
            raise DataError(msg)
        at, found = group.last, found + (error is not None)
        size = at // found if found else 2 * size
        yield Failure(group.seqnos[group.first], str(error), trial.rule.name) if error else None


@dataclass(frozen=True)
class _Trial:
    """Runs a rule over some records, to see whether it fails."""

    spark: SparkSession
    config: Config
    rule: OutputRule

    def error(self, records: DataFrame, count: int = 0) -> RuleError | None:
        """The rule's error on those; one of the surroundings is raised."""
        try:
            self._made(records, count).write.format("noop").mode("overwrite").save()
        except spark_errors() + (RaisedError,) as error:
            if is_of_surroundings(error):
                raise
            return RuleError(self.rule, error)
        return None

    def fails(self, some: _Part) -> bool:
        """Whether the rule fails on those. An error of the surroundings is raised.

        Only counts, because half of the time that an error takes is spent on its words.
        """
        try:
            rows = self._made(some.records, some.count)._jdf.queryExecution().toRdd()  # noqa: SLF001
        except spark_errors() + (RaisedError,) as error:  # a function's, or of rows that are made while Spark plans
            if is_of_surroundings(error):
                raise
            return True
        job = self._jvm["RDD"].rddToAsyncRDDActions(rows, self._jvm["any"]).countAsync()
        self._jvm["Await"].ready(job, self._jvm["forever"])
        result = job.value().get()
        if not result.isFailure():
            return False
        failed = Py4JJavaError(f"rule {self.rule.name} failed", result.failed().get())
        if is_of_surroundings(failed):
            raise failed
        return True

    def _made(self, records: DataFrame, count: int) -> DataFrame:
        pace(self.spark, self.config.spark, count)
        records = records.coalesce(1) if count <= TINY else records
        ((rule, made),) = guarded_rules(self.spark, records, replace(self.config, outputs=(self.rule,)))
        return output_rows(made, rule, 0)

    @cached_property
    def _jvm(self) -> dict[str, Any]:
        return {
            "RDD": jvm_class(self.spark, "org.apache.spark.rdd.RDD"),
            "Await": jvm_class(self.spark, "scala.concurrent.Await"),
            "any": jvm_class(self.spark, "scala.reflect.ClassTag").Any(),
            "forever": jvm_class(self.spark, "scala.concurrent.duration.Duration").Inf(),
        }


def without(spark: SparkSession, records: DataFrame, failures: Sequence[Failure], keeper: Keeper) -> DataFrame:
    """The records of other transactions. They are kept: Spark would move parts of a rule below a mere join."""
    if not failures:
        return records
    left_out = local(spark, [(one.seqno,) for one in failures], "seqno bigint")
    return keeper.keep(records.join(left_out.hint("broadcast"), "seqno", "left_anti"))
