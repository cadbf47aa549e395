"""Spark's settings by how much there is to do: with few records, compiling and planning anew take the most time."""

from contextlib import AbstractContextManager

from pyspark.sql import SparkSession

from zync.spark.frames import setting

SMALL = 60_000
"""Up to so many records planning and starting tasks, not rows, is what takes a sync's time.

In a JVM that has synced for a minute 60,000 of the demo's bank take 16 s so and 22 s as `_LARGE`; in a warm one, with
one simple rule, the two are equal at 50,000. A JVM that is cold takes 25 s with `java.QUICK`, and 31 s without.
"""

ONE_TASK = 25_000
"""Up to so many records one task does all after decoding as soon as two that wait for each other, and the processors
have a seventh less to do. (In a warm JVM both take 0.8 s for 22,000 records, and 1.42 and 1.33 s for 55,000; of an open
transaction's 22,000 one has 0.79 s, and two 0.95.)"""

TINY = 5_000
"""Up to so many even finding code that was compiled before takes longer than doing without (1.6 by 1.75 s)."""

_EXCLUDED = "spark.sql.optimizer.excludedRules"
_HASHED_LISTS = "spark.sql.execution.useObjectHashAggregateExec"
_WITHIN, _USUAL = "spark.sql.legacy.ctePrecedencePolicy", "CORRECTED"
# It counts the uses of a column for each qualifier by itself, and by chance has values parsed four times over.
_PARSES_AGAIN = "org.apache.spark.sql.catalyst.optimizer.CollapseProject"
# It makes Spark forget how kept rows are spread, whose columns it calls by other ids then.
_FORGETS = "org.apache.spark.sql.catalyst.optimizer.RemoveRedundantAliases"
_PLAIN = {
    "spark.sql.adaptive.enabled": "false",
    # What stands in a WITH is put where it is used at once, not again each time that Spark looks at a plan above it; of
    # two of one name in each other the outer holds then, so rules are not to be run so (`as_usual`).
    _WITHIN: "LEGACY",
    "spark.sql.codegen.wholeStage": "false",
    _HASHED_LISTS: "true",
}
_INTERPRETED = {**_PLAIN, _EXCLUDED: "", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_COMPILED = {**_PLAIN, _EXCLUDED: _PARSES_AGAIN, "spark.sql.codegen.factoryMode": "FALLBACK"}
_LARGE = {
    "spark.sql.adaptive.enabled": "true",
    _WITHIN: _USUAL,
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # With more groups than a few they are sorted all the same, and what was done till then was for nothing.
    _HASHED_LISTS: "false",
    _EXCLUDED: f"{_PARSES_AGAIN},{_FORGETS}",
}


def pace(spark: SparkSession, given: dict[str, str], records: int) -> None:
    """Sets what pays for so many records: with few, compiling and planning anew would take the most time.

    Properties that are `given` in the config stay as they are.
    """
    settings = _INTERPRETED if records <= TINY else _COMPILED if records <= SMALL else _LARGE
    for key, value in settings.items():
        if key not in given:
            spark.conf.set(key, value)


def as_usual(spark: SparkSession) -> AbstractContextManager[None]:
    """Within this, statements mean what Spark's documentation says: for those that are not zync's."""
    return setting(spark, _WITHIN, _USUAL)
