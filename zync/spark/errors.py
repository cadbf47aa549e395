"""What Spark's errors say, in a line, and whose fault they are: the data's, or that of the surroundings."""

import contextlib
import importlib
import re

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.errors.exceptions.captured import UnknownException, convert_exception

SURROUNDINGS = (OSError, ImportError, MemoryError)
"""What Python raises where no record is at fault."""
DATA_EXCEPTIONS = ("21", "22", "23", "54", "P0")
"""SQLSTATE classes of errors that the data is at fault for: more rows than one for a subquery, data exceptions, a key
twice in a map, an array that is too long, and errors raised by a rule."""

_UNDESCRIBED = re.compile(r"Cannot find main error class '(\w+)'")
"""What Spark says instead of an error whose condition it has no message for: 4.2 knows some by name only."""
_CONDITIONS = {
    "COLUMN_IS_NOT_VARIANT_TYPE": "`column:path` takes a value out of a VARIANT, and the column is of another type; "
    "out of text that is JSON parse_json(column):path takes it",
}


def spark_errors() -> tuple[type[Exception], ...]:
    """What PySpark raises when a query fails; the latter where it does not know better (`_within`)."""
    return PySparkException, Py4JJavaError


def _within(error: BaseException) -> BaseException:
    """Spark's error, where it is the cause of one of Java's, which PySpark does not look into.

    So it is for what fails in rows that are to be broadcast: a thread of their own makes them.
    """
    if not isinstance(error, Py4JJavaError):
        return error
    cause = error.java_exception
    found = None
    while cause is not None:
        converted = convert_exception(cause)
        if not isinstance(converted, UnknownException):
            return converted
        if found is None and cause.getClass().getName().startswith("org.apache.spark."):
            found = converted
        cause = cause.getCause()
    return found or error


def message_of(error: BaseException) -> str:
    """What a Spark error says in one line: no Java, no plan, no stack."""
    if undescribed := _UNDESCRIBED.search(str(error)):
        condition = undescribed[1]
        return f"[{condition}] {_CONDITIONS.get(condition, condition.replace('_', ' ').lower())}"
    innermost, error = _innermost(error), _within(error)
    raised = re.findall(r"^(\w[\w.]*: .*)$", str(error).split("JVM stacktrace")[0], re.MULTILINE)
    if "Python worker" in str(error) and raised:
        return " ".join(raised[-1].split())
    text = str(error)
    with contextlib.suppress(Py4JError):  # which Delta's errors do not have in Spark
        text = (error.getMessage() if isinstance(error, PySparkException) else None) or text
    text = re.split(r"\n\s*(?:==|at |JVM stacktrace|File \")|;\n", text or type(error).__name__)[0]
    text = re.sub(r"\s*SQLSTATE: \w+|^An error occurred while calling \S+\.\s*:\s*", "", text)
    return " ".join((text if innermost in text else f"{text.rstrip('. ')}: {innermost}").split())


def _innermost(error: BaseException) -> str:
    """What the first cause of one of Java's says, as that the disk is full: those around it name what was under way.

    Nothing where one among them is Spark's own and says what was wrong (`_within`).
    """
    if not isinstance(error, Py4JJavaError) or not isinstance(_within(error), Py4JJavaError | UnknownException):
        return ""
    cause = error.java_exception
    while (further := cause.getCause()) is not None:
        cause = further
    return str(cause.getMessage() or cause.getClass().getSimpleName()).partition("\n")[0]


def _is_of_surroundings(raised: str) -> bool:
    """Whether the exception that Python names so, with its module unless it is its own, is one of those."""
    if not all(map(str.isidentifier, raised.split("."))):
        return False
    module, _, name = raised.rpartition(".")
    try:
        found = getattr(importlib.import_module(module or "builtins"), name, None)
    except ImportError:  # as of a class within another, or of what only executors have
        return False
    return isinstance(found, type) and issubclass(found, SURROUNDINGS)


def is_data_error(error: BaseException) -> bool:
    """Whether the data is at fault: a cast, a division by zero, a Python rule's exception; not the surroundings.

    A Python rule's are of the surroundings where a file, the network, a module or memory is what is not there.
    """
    error = _within(error)
    if isinstance(error, PythonException):
        return not _is_of_surroundings(message_of(error).partition(":")[0])
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    return bool(state) and str(state).startswith(DATA_EXCEPTIONS)
