"""Spark's errors as a single line of text. zync/spark/causes.py decides whether data causes them."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from zync.lake.store_errors import meaning
from zync.spark.causes import PYTHON_EXCEPTION, Thrown, causes, raised_in_python

_NO_MESSAGE = re.compile(r"Cannot find main error class '(\w+)'")
"""Spark's text for an error whose condition has no message: Spark 4.2 has some conditions by name only."""
_CONDITIONS = {
    "COLUMN_IS_NOT_VARIANT_TYPE": "`column:path` takes a value out of a VARIANT, and the column is of another type; "
    "out of text that is JSON parse_json(column):path takes it",
}
_CONTEXT_CONDITIONS = (
    "TASK_WRITE_FAILED",
    "FAILED_EXECUTE_UDF",
    "INTERNAL_ERROR",
    "STAGE_MATERIALIZATION_MULTIPLE_FAILURES",
)
"""Conditions that name the operation during which another error happened."""
_STATEMENT_STATES = ("42", "0A")
"""SQLSTATE classes of invalid statements, whose message has the reason."""
_STORE_PACKAGES = (
    "software.amazon.awssdk.",
    "org.apache.hadoop.fs.s3a.",
    "org.apache.hadoop.fs.azurebfs.",
    "com.google.cloud.hadoop.",
)
"""Packages of exceptions of an object store."""
_MAX_TEXTS = 100
_MAX_CHARACTERS = 2_000
"""The most characters of a text: a parser's error contains its whole input, which may be 20 MB."""


def spark_errors() -> tuple[type[Exception], ...]:
    """Returns the exceptions that PySpark raises when a query fails: Py4J's if PySpark does not convert it."""
    return PySparkException, Py4JJavaError


def texts_with_java(error: BaseException) -> str:
    """Returns the texts of an error and of its causes, Java's included."""
    lines: list[str] = []
    while len(lines) < _MAX_TEXTS:
        lines += [*map(_named, causes(error))] or [str(error)]
        cause = error.__cause__ or error.__context__
        if cause is None:
            break
        error = cause
    return "\n".join(lines)


def _named(exception: Thrown) -> str:
    """Returns an exception's message after its class, which tells an error of a store that has no other mark."""
    return f"{exception.classes[0]}: {exception.message}"


def line_of(error: BaseException) -> int | None:
    """Returns the line of the statement, from 1, that a Spark error is about; None if it has none."""
    origin = getattr(error, "_origin", None)
    line = origin.line() if isinstance(error, AnalysisException) and origin is not None else None
    return int(line.get()) if line is not None and line.isDefined() else None


def message_of(error: BaseException) -> str:
    """Returns the text of a Spark error as a single line without Java's packages, plans and stack traces."""
    thrown = causes(error)
    if any(name.startswith(_STORE_PACKAGES) for exception in thrown for name in exception.classes[:1]):
        store_error = meaning("\n".join(map(_named, thrown)))
        if store_error:
            return store_error
    text = _text_of_chain(thrown) if thrown else _text_of_python_error(error)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _text_of_python_error(error: BaseException) -> str:
    """Returns the text of an error without a Java exception, which may quote a Java exception's text."""
    text = str(error) or type(error).__name__
    raised = re.findall(r"^(\w[\w.]*: .*)$", text.split("JVM stacktrace")[0], re.MULTILINE)
    if "Python worker" in text and raised:
        return _single_line(raised[-1])
    return _first_part(text)


def _text_of_chain(thrown: list[Thrown]) -> str:
    """Returns the text of the first exception that is not only context, and that of the innermost cause."""
    for exception in thrown:
        if PYTHON_EXCEPTION in exception.classes and (raised := raised_in_python(exception.message)):
            return _single_line(raised)
    specific = [
        exception for exception in thrown if exception.condition and exception.condition not in _CONTEXT_CONDITIONS
    ]
    first = specific[0] if specific else thrown[-1]
    text = _text_of_exception(first)
    if first.is_of_data or str(first.state).startswith(_STATEMENT_STATES):
        return text
    innermost = _first_part(thrown[-1].message) or _class_name(thrown[-1])
    return text if innermost in text else f"{text.rstrip('. ')}: {innermost}"


def _text_of_exception(exception: Thrown) -> str:
    """Returns an exception's message, after its class name where it has no condition and so no full sentence."""
    text = _first_part(exception.message)
    if exception.condition or not text:
        return text or _class_name(exception)
    return text if exception.classes[0] == "org.apache.spark.SparkException" else f"{_class_name(exception)}: {text}"


def _class_name(exception: Thrown) -> str:
    return exception.classes[0].rpartition(".")[2]


def _first_part(text: str) -> str:
    """Returns the text as a single line, up to the start of a query, a plan or a stack trace."""
    if no_message := _NO_MESSAGE.search(text):
        condition = no_message[1]
        return f"[{condition}] {_CONDITIONS.get(condition, condition.replace('_', ' ').lower())}"
    text = re.sub(r"^An error occurred while calling \S+\.\s*:\s*", "", text)
    text = re.split(r"\n\s*(?:==|at |JVM stacktrace|File \")|;\n|\s*SQLSTATE: \w{5}\b", text)[0]
    return _single_line(text)


def _single_line(text: str) -> str:
    return " ".join(text.split())
