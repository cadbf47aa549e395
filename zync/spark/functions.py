"""zync's own SQL functions: `zync_json` (zync/StrictJson.java) and `zync_constant` (zync/Constant.java)."""

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from zync import java
from zync.spark.jvm import own_object
from zync.sql import literal

_JSON, _CONSTANT = "zync_json", "zync_constant"


def register(spark: SparkSession) -> None:
    """Registers the functions as temporary ones of the session, and adds their jar to an application without it.

    Raises:
        ZyncError: The jar cannot be made.
    """
    functions = spark._jsparkSession.sessionState().functionRegistry()  # noqa: SLF001
    for name, class_name in ((_JSON, java.STRICT_JSON), (_CONSTANT, java.CONSTANT)):
        functions.createOrReplaceTempFunction(name, own_object(spark, f"{class_name}$Function"), "scala_udf")


def parsed_json(text: str, schema: StructType | None = None) -> str:
    """Returns SQL that parses text in one pass, and changes nothing in silence.

    Args:
        text: SQL of the text.
        schema: The type of `typed`; None for a result without it.
    """
    return f"{_JSON}(CAST({text} AS BINARY){f', {literal(schema.json())}' if schema else ''})"


def constant(value: int) -> str:
    """Returns SQL of a BIGINT that differs from sync to sync, for which Spark compiles no code of its own.

    A data source is not told of a condition with it, and reads all rows of its files.
    """
    return f"{_CONSTANT}({value}L)"
