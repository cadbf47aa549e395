"""Classes of the JVM behind a session."""

from typing import Any

from pyspark.sql import SparkSession


def jvm_class(spark: SparkSession, qualified: str) -> Any:
    """The JVM's class of that name, asked for at once: `spark._jvm.org.…` asks for each part of it."""
    return getattr(spark._jvm, qualified)  # noqa: SLF001
