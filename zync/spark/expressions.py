"""SQL expressions of the user, checked by Spark's own parser; and Catalyst's TryEval."""

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
    """Returns a SQL expression in parentheses, as all user text enters a statement.

    Args:
        spark: The session, whose parser checks the text.
        text: The text, which must be a single expression.
        where: Where the text came from, for messages.

    Raises:
        UsageError: The text is not a single SQL expression.
    """
    parse(spark, text, where)
    return f"({text}\n)"


def parse(spark: SparkSession, text: str, where: str) -> Any:
    """Returns Spark's parse tree of an expression, a JVM object.

    Raises:
        UsageError: The text is not a single SQL expression; the message begins with `where`.
    """
    try:
        return spark._jsparkSession.sessionState().sqlParser().parseExpression(text)  # noqa: SLF001
    except ParseException as error:
        msg = f"{where}: {text!r} is not a SQL expression: {message_of(error)}"
        raise UsageError(msg) from error


@dataclass(frozen=True)
class Token:
    """A token of SQL, with its start and its end (exclusive) in characters of the text."""

    text: str
    start: int
    end: int


def tokens(spark: SparkSession, text: str) -> list[Token]:
    """Splits a text that `parse` accepts into tokens by Spark's own lexer, without comments and white space.

    An expression's `origin` cannot be used to find its text: that of `x IN (1)`, `x BETWEEN 1 AND 2` and `x IS NULL`
    begins after the x.
    """
    stream = jvm_class(spark, "org.antlr.v4.runtime.CharStreams").fromString(text)
    upper = jvm_class(spark, "org.apache.spark.sql.catalyst.parser.UpperCaseCharStream")(stream)
    lexer = jvm_class(spark, "org.apache.spark.sql.catalyst.parser.SqlBaseLexer")(upper)
    lexed = lexer.getAllTokens()  # with white space and comments, so each token ends where the next begins
    starts = [lexed.get(index).getStartIndex() for index in range(lexed.size())]
    words = [Token(text[start:end], start, end) for start, end in pairwise([*starts, len(text)])]
    return [word for word in words if not (word.text.isspace() or word.text.startswith(("--", "/*")))]


def never_failing(text: str) -> str:
    """Returns zync's own SQL with `try_variant_get` for `variant_get`: a VARIANT of another type gives null."""
    return re.sub(r"\bvariant_get\(", "try_variant_get(", text)


def try_eval(spark: SparkSession, column: Column, when: str) -> Column:
    """Returns `column` where the SQL condition `when` holds, and null where evaluating it fails.

    It uses Catalyst's TryEval, which has no name in SQL. Common-subexpression elimination evaluates a repeated
    subexpression first, outside of TryEval, so its error would not be caught; but it leaves out what is behind a
    condition. So `when` must not be a condition that Spark can fold to true.
    """
    column = sf.when(sf.expr(when), column)
    utils = jvm_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    guard = jvm_class(spark, "org.apache.spark.sql.catalyst.expressions.TryEval")
    guarded = guard(utils.expression(column._jc))  # noqa: SLF001
    return ClassicColumn(utils.column(guarded))
