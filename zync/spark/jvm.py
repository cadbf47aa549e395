"""Access to classes of the session's JVM, zync's own included."""

from typing import Any

from pyspark.sql import SparkSession

from zync import java
from zync.sql import literal


def jvm_class(spark: SparkSession, qualified: str) -> Any:
    """Returns a JVM class by its qualified name, with a single call: `spark._jvm.org.…` makes a call for each part."""
    return getattr(spark._jvm, qualified)  # noqa: SLF001


def heap_growth(spark: SparkSession) -> int:
    """Returns by how many bytes the heap of the driver's JVM may still grow."""
    runtime = jvm_class(spark, "java.lang.Runtime").getRuntime()
    return int(runtime.maxMemory() - runtime.totalMemory())


def own_object(spark: SparkSession, qualified: str) -> Any:
    """Returns a new object of a class of zync's own, and adds the jar to an application without it.

    Args:
        spark: The session.
        qualified: The name of a class of `java.spark_classes`, which has a constructor without arguments.

    Raises:
        ZyncError: The jar cannot be made.
    """
    utils = jvm_class(spark, "org.apache.spark.util.Utils")
    if not utils.classIsLoadable(qualified):
        spark.sql(f"ADD JAR {literal(str(java.spark_classes()))}")
    return utils.getContextOrSparkClassLoader().loadClass(qualified).newInstance()
