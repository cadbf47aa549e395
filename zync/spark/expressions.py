"""SQL expressions of the user's, checked by Spark's own parser; and Catalyst's TryEval."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.classic.column import Column as ClassicColumn

from zync.errors import UsageError
from zync.spark.errors import message_of
from zync.spark.jvm import jvm_class


def expression(spark: SparkSession, text: str, where: str) -> str:
    """`text` in parentheses, if it is one SQL expression and nothing more: how user text enters a statement."""
    parse(spark, text, where)
    return f"({text}\n)"


def parse(spark: SparkSession, text: str, where: str) -> Any:
    """Spark's parse tree of an expression (a JVM object); UsageError that says `where` it came from otherwise."""
    try:
        return spark._jsparkSession.sessionState().sqlParser().parseExpression(text)  # noqa: SLF001
    except ParseException as error:
        msg = f"{where}: {text!r} is not a SQL expression: {message_of(error)}"
        raise UsageError(msg) from error


@dataclass(frozen=True)
class Token:
    """A word of SQL: where it begins in the text, and where it ends (exclusive), in characters."""

    text: str
    start: int
    end: int


def tokens(spark: SparkSession, text: str) -> list[Token]:
    """The tokens of a text that `parse` takes, by Spark's own lexer, without comments and white space.

    An expression's `origin` does not do for its text: that of `x IN (1)`, `x BETWEEN 1 AND 2` and `x IS NULL` begins
    after the x.
    """
    stream = jvm_class(spark, "org.antlr.v4.runtime.CharStreams").fromString(text)
    upper = jvm_class(spark, "org.apache.spark.sql.catalyst.parser.UpperCaseCharStream")(stream)
    lexer = jvm_class(spark, "org.apache.spark.sql.catalyst.parser.SqlBaseLexer")(upper)
    found = lexer.getAllTokens()  # with white space and comments, so each ends where the next begins
    starts = [found.get(index).getStartIndex() for index in range(found.size())]
    words = [Token(text[start:end], start, end) for start, end in pairwise([*starts, len(text)])]
    return [word for word in words if not (word.text.isspace() or word.text.startswith(("--", "/*")))]


def never_failing(text: str) -> str:
    """The SQL of zync's own, in which a value of a VARIANT that is not of the type asked for is null."""
    return re.sub(r"\bvariant_get\(", "try_variant_get(", text)


def try_eval(spark: SparkSession, column: Column, when: str) -> Column:
    """`column` of rows of which `when` holds, null where evaluating it fails (Catalyst's TryEval, without a SQL name).

    What is several times in it Spark evaluates once, before all else, where nothing of that would be caught: but not
    what stands behind a condition. So `when` is to be none that Spark knows to hold.
    """
    column = sf.when(sf.expr(when), column)
    utils = jvm_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    guard = jvm_class(spark, "org.apache.spark.sql.catalyst.expressions.TryEval")
    guarded = guard(utils.expression(column._jc))  # noqa: SLF001
    return ClassicColumn(utils.column(guarded))
