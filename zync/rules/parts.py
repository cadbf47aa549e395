"""Finds the transactions that a rule fails on, by running it on parts of the records in a single job of Spark's.

A job costs more time than a rule does on few records, so zync/RuleParts.java runs the rule's plan on one part after the
other, and goes on after a failure. The transactions of the parts that failed are the next job's, in smaller parts.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from zync import java
from zync.rules.probe import RuleProbe, fails_together
from zync.rules.run import RaisedError
from zync.spark.errors import spark_errors
from zync.spark.frames import co_partition, from_rows
from zync.spark.jvm import own_object
from zync.transactions.quarantine import Failure

_MAX_PARTS = 500
"""The most parts of a job: a part takes two milliseconds, beside the time that the rule takes for its records."""
_MAX_TASKS = 16
_TRANSACTIONS_PER_TASK = 16
"""A task takes some milliseconds, and leaves parts out after a few failures (RuleParts.java)."""


class UnfitError(Exception):
    """The rule's plan needs more than the records of one part at a time. Nothing was found so far."""


def run_parts(probe: RuleProbe, rows: DataFrame, sizes: dict[int, int]) -> Iterator[Failure | None]:
    """Yields the transactions that the rule fails on, and None after each job, so that the caller can log.

    Args:
        probe: Runs the rule, which fails on `rows`.
        rows: The records of the transactions in `sizes`, and only those.
        sizes: The number of records of each transaction, by seqno.

    Raises:
        UnfitError: The rule's plan broadcasts or shuffles the records, or a subquery reads them.
        DataError: The rule fails on transactions together, and on none of them alone.
    """
    all_rows, candidates, has_failures = rows, list(sizes), False
    while candidates:
        part_size = -(-len(candidates) // _MAX_PARTS)
        parts = _failing_parts(probe, rows, {seqno: sizes[seqno] for seqno in candidates}, part_size)
        if parts is None:
            if has_failures:  # those are set aside, and the rule is run on all others again
                return
            raise UnfitError
        candidates = []
        for seqnos, error in parts:
            if error is None or len(seqnos) > 1:
                candidates += seqnos
            else:
                has_failures = True
                yield Failure(seqnos[0], str(probe.rule_error(error)), probe.rule.name)
        yield None
        if candidates:
            rows = _of(rows, candidates)
    if not has_failures and (error := probe.error(all_rows, sum(sizes.values()))):
        raise fails_together(probe.rule, min(sizes), max(sizes), error)


def _failing_parts(
    probe: RuleProbe, rows: DataFrame, sizes: dict[int, int], part_size: int
) -> list[tuple[list[int], Any]] | None:
    """Runs the rule on parts of the records in a single job.

    Args:
        probe: Runs the rule.
        rows: The records of the transactions in `sizes`, and only those.
        sizes: The number of records of each transaction, by seqno.
        part_size: The number of transactions of a part.

    Returns:
        The seqnos of each part that failed, with the JVM's exception, and of each that a task left out, with None. None
        if the plan cannot run on parts.
    """
    spark = probe.spark
    parts = own_object(spark, java.RULE_PARTS)
    tasks = min(_MAX_TASKS, -(-len(sizes) // _TRANSACTIONS_PER_TASK))
    ordered = co_partition(rows, "seqno", tasks).sortWithinPartitions("seqno")
    part = ClassicDataFrame(parts.rows(spark._jsparkSession, ordered._jdf.schema()), spark).coalesce(1)  # noqa: SLF001
    try:
        plan = _rdd(probe.output_rows(part, 0))  # interpreted: code made anew for each part takes ten times as long
        failed = parts.run(_rdd(ordered), plan, ordered.columns.index("seqno"), part_size)
    except spark_errors() + (RaisedError,) as error:
        probe.rule_error(error)
        return None
    return None if failed is None else [(list(one.seqnos()), one.error()) for one in failed]


def _rdd(rows: DataFrame) -> Any:
    """Returns the rows as the JVM's RDD."""
    return rows._jdf.queryExecution().toRdd()  # noqa: SLF001


def _of(rows: DataFrame, seqnos: list[int]) -> DataFrame:
    """Returns the records of those transactions."""
    wanted = from_rows(rows.sparkSession, [(seqno,) for seqno in seqnos], "seqno bigint")
    return rows.join(wanted.hint("broadcast"), "seqno", "left_semi")
