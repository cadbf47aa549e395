"""The SQL function `zync_json`, which parses JSON in one pass and changes nothing in silence (zync/StrictJson.java)."""

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from zync import java
from zync.spark.jvm import own_object
from zync.sql import literal

_NAME = "zync_json"


def register(spark: SparkSession) -> None:
    """Registers `zync_json` as a temporary function of the session, and adds its jar to an application without it.

    Raises:
        ZyncError: The jar cannot be made.
    """
    functions = spark._jsparkSession.sessionState().functionRegistry()  # noqa: SLF001
    functions.createOrReplaceTempFunction(_NAME, own_object(spark, f"{java.STRICT_JSON}$Function"), "scala_udf")


def parsed_json(text: str, schema: StructType | None = None) -> str:
    """Returns SQL that parses text by `zync_json`.

    Args:
        text: SQL of the text.
        schema: The type of `typed`; None for a result without it.
    """
    return f"{_NAME}(CAST({text} AS BINARY){f', {literal(schema.json())}' if schema else ''})"
