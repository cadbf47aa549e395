"""SQL statements from files, and what may enter them: checked expressions, literals, names."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from zync.errors import UsageError
from zync.places import data_folder
from zync.spark import jvm_class
from zync.spark_errors import message_of

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


@lru_cache
def _text(name: str) -> str:
    return (data_folder("sql") / f"{name}.sql").read_text()


def statement(name: str, **slots: str) -> str:
    """The SQL of `sql/<name>.sql`, its `{{slots}}` filled with checked expressions or zync's own."""
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: slots[slot[1]], _text(name))  # at once: a slot in a slot is text


def expression(spark: "SparkSession", text: str, where: str) -> str:
    """`text` in parentheses, if it is one SQL expression and nothing more: how user text enters a statement."""
    parse(spark, text, where)
    return f"({text}\n)"


def parse(spark: "SparkSession", text: str, where: str) -> Any:
    """Spark's parse tree of an expression (a JVM object); UsageError that says `where` it came from otherwise."""
    from pyspark.errors import ParseException  # noqa: PLC0415

    try:
        return spark._jsparkSession.sessionState().sqlParser().parseExpression(text)  # noqa: SLF001
    except ParseException as error:
        msg = f"{where}: {text!r} is not a SQL expression: {message_of(error)}"
        raise UsageError(msg) from error


def literal(text: str) -> str:
    """`text` as a SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def options(pairs: dict[str, str]) -> str:
    """A SQL map of those string pairs, as functions take their options."""
    return f"map({', '.join(literal(text) for pair in pairs.items() for text in pair)})"


def name(text: str) -> str:
    """`text` as a quoted SQL identifier."""
    return "`" + text.replace("`", "``") + "`"


def aliased(columns: dict[str, str]) -> list[str]:
    """What to select so that columns of those names have those values."""
    return [f"{value} AS {name(column)}" for column, value in columns.items()]


def try_eval(spark: "SparkSession", column: "Column", when: str) -> "Column":
    """`column` of rows of which `when` holds, null where evaluating it fails (Catalyst's TryEval, without a SQL name).

    What is several times in it Spark evaluates once, before all else, where nothing of that would be caught: but not
    what stands behind a condition. So `when` is to be none that Spark knows to hold.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415
    from pyspark.sql.classic.column import Column  # noqa: PLC0415

    column = sf.when(sf.expr(when), column)
    utils = jvm_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    guard = jvm_class(spark, "org.apache.spark.sql.catalyst.expressions.TryEval")
    guarded = guard(utils.expression(column._jc))  # noqa: SLF001
    return Column(utils.column(guarded))
