"""Decides by the number of records how Spark works: with few records, planning and compiling take most of the time."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from zync.spark.frames import setting

SMALL = 60_000
"""Up to so many records, a sync's time goes into planning and starting tasks, not into rows.

In a JVM that has synced for a minute, 60,000 records of the demo's bank take 16 s with `_COMPILED` and 22 s with
`_LARGE`; in a warm JVM, with a single simple rule, the two are equal at 50,000. A cold JVM takes 25 s with
`java.QUICK`, and 31 s without.
"""

SINGLE_TASK = 25_000
"""Up to so many records, a single task does all work after decoding as fast as two tasks that wait for each other, and
uses a seventh less CPU time. (In a warm JVM both take 0.8 s for 22,000 records; for 55,000 a single task takes 1.42 s
and two take 1.33 s; for 22,000 records of an open transaction they take 0.79 and 0.95 s.)"""

TINY = 5_000
"""Up to so many records, interpreting is faster than even looking up code compiled before (1.6 s instead of 1.75 s).
So few are also read by the driver in less time than Spark takes to plan it."""

RECORDS_PER_TASK = 250_000
"""About 200 MB in Spark's memory format, which a task can sort in memory."""

MOST_FILE_BYTES = 512 * 1024 * 1024
"""Up to so many bytes of compressed files Spark works on at once. In its memory JSON takes five to twenty times as
much, and what does not fit goes to the disk."""

BROADCAST_TRANSACTIONS = 500_000
"""Positions and turns (two numbers each) of up to this many transactions fit into every task's memory."""

BROADCAST_SEQNOS = 1_000_000
"""Up to this many seqnos fit into every task's memory. Reading so many rows takes longer than compiling a filter that
skips them."""


@dataclass(frozen=True)
class Sizing:
    """How Spark works on a number of records.

    Attributes:
        records: The number of records.
    """

    records: int

    def __add__(self, records: int) -> "Sizing":
        """Returns the sizing for so many records more."""
        return Sizing(self.records + records)

    @property
    def is_tiny(self) -> bool:
        """Whether Spark interprets expressions, and the driver may read the records itself."""
        return self.records <= TINY

    @property
    def is_small(self) -> bool:
        """Whether a single task writes all files, and Spark gets only the bookkeeping of the ids at hand."""
        return self.records <= SMALL

    @property
    def is_single_task(self) -> bool:
        """Whether a single task does everything but the decoding."""
        return self.is_small and self.records <= SINGLE_TASK

    @property
    def task_count(self) -> int:
        """The number of tasks that assemble the records, and so the number of bookkeeping files."""
        return 1 if self.is_single_task else max(2, self.records // RECORDS_PER_TASK)


_EXCLUDED = "spark.sql.optimizer.excludedRules"
_HASH_COLLECT = "spark.sql.execution.useObjectHashAggregateExec"
_CTE_PRECEDENCE, _CTE_STANDARD = "spark.sql.legacy.ctePrecedencePolicy", "CORRECTED"
# CollapseProject counts references per qualifier, so it may inline an aliased column several times: its JSON was parsed
# up to four times.
_COLLAPSE_PROJECT = "org.apache.spark.sql.catalyst.optimizer.CollapseProject"
# RemoveRedundantAliases gives the columns of checkpointed rows other ids, so Spark loses their partitioning.
_REMOVE_ALIASES = "org.apache.spark.sql.catalyst.optimizer.RemoveRedundantAliases"
_PLAIN = {
    "spark.sql.adaptive.enabled": "false",
    # LEGACY inlines a CTE at once, not again each time that Spark analyzes a plan above it. If a nested CTE has the
    # name of an outer CTE, the outer then takes precedence, so rules must not run with it (`as_usual`).
    _CTE_PRECEDENCE: "LEGACY",
    "spark.sql.codegen.wholeStage": "false",
    _HASH_COLLECT: "true",
}
_INTERPRETED = {**_PLAIN, _EXCLUDED: "", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_COMPILED = {**_PLAIN, _EXCLUDED: _COLLAPSE_PROJECT, "spark.sql.codegen.factoryMode": "FALLBACK"}
_LARGE = {
    "spark.sql.adaptive.enabled": "true",
    _CTE_PRECEDENCE: _CTE_STANDARD,
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # With more than a few groups the hash aggregation of lists falls back to sorting, and its work until then is lost.
    _HASH_COLLECT: "false",
    _EXCLUDED: f"{_COLLAPSE_PROJECT},{_REMOVE_ALIASES}",
}


def tune(spark: SparkSession, configured: dict[str, str], sizing: Sizing) -> None:
    """Sets the session's properties that are fastest for so many records.

    Args:
        spark: The session.
        configured: The config's Spark properties, which stay unchanged.
        sizing: The number of records to process.
    """
    settings = _INTERPRETED if sizing.is_tiny else _COMPILED if sizing.is_small else _LARGE
    for key, value in settings.items():
        if key not in configured:
            spark.conf.set(key, value)


def as_usual(spark: SparkSession) -> AbstractContextManager[None]:
    """Returns a context with Spark's default precedence of CTEs, for statements that are not zync's own."""
    return setting(spark, _CTE_PRECEDENCE, _CTE_STANDARD)
