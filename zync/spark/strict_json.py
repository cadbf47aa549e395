"""The SQL function `zync_json`, which parses JSON in one pass and changes nothing in silence (zync/StrictJson.java)."""

from typing import Any

from pyspark.sql import SparkSession

from zync import java
from zync.spark.jvm import jvm_class
from zync.sql import literal

_NAME = "zync_json"
_TYPE = "value VARIANT, error STRING, decimals INT, odd_time BOOLEAN"


def register(spark: SparkSession) -> None:
    """Registers `zync_json` as a temporary function of the session, and adds its jar to an application without it.

    Raises:
        ZyncError: The jar cannot be made.
    """
    functions = spark._jsparkSession.udf()  # noqa: SLF001
    functions.register(_NAME, _parser(spark), jvm_class(spark, "org.apache.spark.sql.types.DataType").fromDDL(_TYPE))


def _parser(spark: SparkSession) -> Any:
    """Returns an object of the class, from a jar of the application's or, where it has none, of zync's cache."""
    utils = jvm_class(spark, "org.apache.spark.util.Utils")
    if not utils.classIsLoadable(java.STRICT_JSON):
        spark.sql(f"ADD JAR {literal(str(java.spark_classes()))}")
    return utils.getContextOrSparkClassLoader().loadClass(java.STRICT_JSON).newInstance()
