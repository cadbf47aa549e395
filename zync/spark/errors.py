"""What Spark's errors say, in a line. Whose fault they are zync/spark/causes.py says."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from zync.spark.causes import PYTHON_EXCEPTION, Thrown, causes, raised_in_python

_UNDESCRIBED = re.compile(r"Cannot find main error class '(\w+)'")
"""What Spark says instead of an error whose condition it has no message for: 4.2 knows some by name only."""
_CONDITIONS = {
    "COLUMN_IS_NOT_VARIANT_TYPE": "`column:path` takes a value out of a VARIANT, and the column is of another type; "
    "out of text that is JSON parse_json(column):path takes it",
}
_UNDER_WAY = ("TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF", "INTERNAL_ERROR", "STAGE_MATERIALIZATION_MULTIPLE_FAILURES")
"""Conditions that say what was under way when something else went wrong."""
_OF_STATEMENTS = ("42", "0A")
"""SQLSTATE classes of statements that cannot be run, whose message says why."""
_LONGEST = 2_000
"""Characters of a message: a parser's error has the whole of what it could not parse in it, which may be 20 MB."""


def spark_errors() -> tuple[type[Exception], ...]:
    """What PySpark raises when a query fails; the latter where it does not know better."""
    return PySparkException, Py4JJavaError


def line_of(error: BaseException) -> int | None:
    """The line of the statement, from 1, that an error of Spark's is about; None where it does not say."""
    origin = getattr(error, "_origin", None)
    line = origin.line() if isinstance(error, AnalysisException) and origin is not None else None
    return int(line.get()) if line is not None and line.isDefined() else None


def message_of(error: BaseException) -> str:
    """What a Spark error says in one line: no Java, no plan, no stack."""
    thrown = causes(error)
    text = _said(thrown) if thrown else _of_python(error)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _of_python(error: BaseException) -> str:
    """Of what is none of Java's exceptions, or only has the text of one."""
    text = str(error) or type(error).__name__
    raised = re.findall(r"^(\w[\w.]*: .*)$", text.split("JVM stacktrace")[0], re.MULTILINE)
    if "Python worker" in text and raised:
        return _in_a_line(raised[-1])
    return _first_part(text)


def _said(thrown: list[Thrown]) -> str:
    """What the first of these says that says what went wrong, and not what was under way; and the last, its cause."""
    for one in thrown:
        if PYTHON_EXCEPTION in one.classes and (raised := raised_in_python(one.message)):
            return _in_a_line(raised)
    telling = [one for one in thrown if one.condition and one.condition not in _UNDER_WAY]
    first = telling[0] if telling else thrown[-1]
    text = _told(first)
    if first.is_of_data or str(first.state).startswith(_OF_STATEMENTS):
        return text
    innermost = _first_part(thrown[-1].message) or _class(thrown[-1])
    return text if innermost in text else f"{text.rstrip('. ')}: {innermost}"


def _told(one: Thrown) -> str:
    """What it says; where Spark has no condition for it, and so no sentence, also the name of its class."""
    text = _first_part(one.message)
    if one.condition or not text:
        return text or _class(one)
    return text if one.classes[0] == "org.apache.spark.SparkException" else f"{_class(one)}: {text}"


def _class(one: Thrown) -> str:
    return one.classes[0].rpartition(".")[2]


def _first_part(text: str) -> str:
    """The text in one line, up to where a query, a plan or a stack begins."""
    if undescribed := _UNDESCRIBED.search(text):
        condition = undescribed[1]
        return f"[{condition}] {_CONDITIONS.get(condition, condition.replace('_', ' ').lower())}"
    text = re.sub(r"^An error occurred while calling \S+\.\s*:\s*", "", text)
    text = re.split(r"\n\s*(?:==|at |JVM stacktrace|File \")|;\n|\s*SQLSTATE: \w{5}\b", text)[0]
    return _in_a_line(text)


def _in_a_line(text: str) -> str:
    return " ".join(text.split())
