"""Runs a rule over some records to see whether it fails, and with what."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config, OutputRule
from zync.errors import DataError
from zync.rules.run import RaisedError, RuleError, guarded_rules, output_rows
from zync.spark.causes import is_environment_error
from zync.spark.errors import spark_errors
from zync.spark.jvm import jvm_class
from zync.spark.sizing import Sizing, tune


@dataclass(frozen=True)
class RuleProbe:
    """Runs a rule over some records to see whether it fails."""

    spark: SparkSession
    config: Config
    rule: OutputRule

    def error(self, records: DataFrame, record_count: int = 0) -> RuleError | None:
        """Returns the rule's error on those records, or None. Errors of the environment are raised."""
        try:
            self.output_rows(records, record_count).write.format("noop").mode("overwrite").save()
        except spark_errors() + (RaisedError,) as error:
            return self.rule_error(error)
        return None

    def fails(self, records: DataFrame, record_count: int) -> bool:
        """Whether the rule fails on those records. Errors of the environment are raised.

        Only counts the rows, because building Spark's error message takes as long as the failing job itself.
        """
        try:
            rows = self.output_rows(records, record_count)
            rdd = rows._jdf.queryExecution().toRdd()  # noqa: SLF001
        except spark_errors() + (RaisedError,) as error:  # of a Python rule, or of rows evaluated during planning
            self.rule_error(error)
            return True
        job = self._jvm["RDD"].rddToAsyncRDDActions(rdd, self._jvm["any"]).countAsync()
        self._jvm["Await"].ready(job, self._jvm["forever"])
        result = job.value().get()
        if not result.isFailure():
            return False
        self.rule_error(result.failed().get())
        return True

    def rule_error(self, error: Any) -> RuleError:
        """Returns the rule's error for what Spark or Python raised, or for an exception of the JVM.

        Errors of the environment are raised.
        """
        if not isinstance(error, Exception):
            error = Py4JJavaError(f"rule {self.rule.name} failed", error)
        if is_environment_error(error):
            raise error
        return RuleError(self.rule, error)

    def output_rows(self, records: DataFrame, record_count: int) -> DataFrame:
        """Returns the rule's output rows, with Spark's settings as they are best for so many records."""
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


def fails_together(rule: OutputRule, first: int, last: int, error: object) -> DataError:
    """Returns the error of a rule that fails on several transactions, and on none of them by itself.

    Args:
        rule: The rule.
        first: The seqno of the first of the transactions.
        last: The seqno of the last.
        error: What it fails with.
    """
    msg = (
        f"rule {rule.name} fails on transactions of seqno {first:,} to {last:,} together, and not on one by itself "
        f"({error}). What it makes of a transaction must not depend on which others come in the same sync, as that is "
        "chance (`zync check --data raw`)"
    )
    return DataError(msg)
