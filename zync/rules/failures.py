"""Finds the transactions that a rule fails on: Spark reports only that a rule failed, not on which rows."""

import logging
import time
from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config
from zync.errors import UsageError
from zync.log import event
from zync.rules.bisect import bisect
from zync.rules.parts import UnfitError, run_parts
from zync.rules.probe import RuleProbe
from zync.rules.run import RaisedError
from zync.spark.frames import RowCache, from_rows
from zync.text import amount
from zync.transactions.quarantine import Failure, check_limit

log = logging.getLogger(__name__)

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
        DataError: There are more than `limit` failures and bad records; or a rule fails on transactions together, and
            on none of them alone.
        UsageError: A rule fails without any records, so that no transaction is at fault.
    """
    sizes: dict[int, int] = dict(records.groupBy("seqno").count().collect())  # still with the settings for all records
    no_records = row_cache.keep(records.limit(0))  # a checkpoint, so that the optimizer does not see that it is empty
    failures = list(known)
    logged_at = time.monotonic()
    for rule in config.outputs:
        failed_seqnos = {failure.seqno for failure in failures}
        rest = {seqno: count for seqno, count in sizes.items() if seqno not in failed_seqnos}
        passing = without(spark, records, failures, row_cache)
        probe, passes_on_nothing = RuleProbe(spark, config, rule), False
        for failure in _failing(probe, passing, rest, row_cache):
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


def _failing(probe: RuleProbe, rows: DataFrame, sizes: dict[int, int], row_cache: RowCache) -> Iterator[Failure | None]:
    """Yields the transactions that the rule fails on, and None in between, so that the caller can log.

    Args:
        probe: Runs the rule.
        rows: The records of the transactions in `sizes`, and only those.
        sizes: The number of records of each transaction, by seqno.
        row_cache: Checkpoints rows.
    """
    if not sizes or not probe.fails(rows, sum(sizes.values())):
        return
    try:
        yield from run_parts(probe, rows, sizes)
    except UnfitError:
        yield from bisect(probe, rows, sizes, row_cache)


def _check_on_nothing(probe: RuleProbe, no_records: DataFrame) -> bool:
    """Returns True; raises UsageError if the rule fails even without records, so that no transaction is at fault."""
    error = probe.error(no_records)
    if error is None:
        return True
    if isinstance(error.cause, RaisedError):
        raise error.cause
    msg = f"rule {probe.rule.name} (output {probe.rule.topic}) fails whatever records there are: {error}"
    raise UsageError(msg) from error.cause


def without(spark: SparkSession, records: DataFrame, failures: Sequence[Failure], row_cache: RowCache) -> DataFrame:
    """Returns the records of the transactions that are not in `failures`.

    The result is checkpointed: Spark would push parts of a rule below a mere join, and so run them on the others, too.
    """
    if not failures:
        return records
    failed = from_rows(spark, [(failure.seqno,) for failure in failures], "seqno bigint")
    return row_cache.keep(records.join(failed.hint("broadcast"), "seqno", "left_anti"))
