"""Access to classes of the session's JVM."""

from typing import Any

from pyspark.sql import SparkSession


def jvm_class(spark: SparkSession, qualified: str) -> Any:
    """Returns a JVM class by its qualified name, with a single call: `spark._jvm.org.…` makes a call for each part."""
    return getattr(spark._jvm, qualified)  # noqa: SLF001
