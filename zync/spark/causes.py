"""Whose fault an error of Spark's is: that of the surroundings is told by what it is, and any other may be the data's.

Which exceptions an expression may raise on a value nobody can list: Spark has errors with a condition and a SQLSTATE,
errors with neither, and whatever Java throws inside of a function. What goes wrong around a query is known: files,
memory, network, executors, jars. So that is listed, and all else is tried on one transaction at a time
(zync/rules/bisect.py).
"""

import contextlib
import importlib
import re
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

SURROUNDINGS = (OSError, ImportError, MemoryError)
"""What Python raises where no record is at fault."""
PYTHON_EXCEPTION = "org.apache.spark.api.python.PythonException"
"""What Java has for an exception in a Python worker; its message has the traceback."""

_DATA_STATES = ("21", "22", "23", "54", "P0")
"""SQLSTATE classes of errors that the data is at fault for: more rows than one for a subquery, data exceptions, a key
twice in a map, an array that is too long, and errors raised by a rule."""
_BY_CONDITION = frozenset(
    {
        "AGGREGATE_OUT_OF_MEMORY",
        "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND",
        "DATA_SOURCE_EXTERNAL_ERROR",
        "FAILED_JDBC",
        "FAILED_READ_FILE",
        "FAILED_RENAME_TEMP_FILE",
        "INTERNAL_ERROR_BROADCAST",
        "INTERNAL_ERROR_EXECUTOR",
        "INTERNAL_ERROR_MEMORY",
        "INTERNAL_ERROR_NETWORK",
        "INTERNAL_ERROR_SHUFFLE",
        "INTERNAL_ERROR_STORAGE",
        "OPERATION_CANCELED",
        "POINTER_ARRAY_OUT_OF_MEMORY",
        "SPARK_JOB_CANCELLED",
        "UNABLE_TO_ACQUIRE_MEMORY",
        "_LEGACY_ERROR_TEMP_2097",  # a broadcast took too long
        "_LEGACY_ERROR_TEMP_2105",  # no memory for a map
        "_LEGACY_ERROR_TEMP_2106",
        "_LEGACY_ERROR_TEMP_2107",
        "_LEGACY_ERROR_TEMP_2250",  # or for a broadcast
    }
)
"""Spark's conditions (error-conditions.json) for what is wrong around a query; without what follows a dot."""
_BY_CLASS = frozenset(
    {
        "java.io.IOException",
        "java.io.UncheckedIOException",
        "java.lang.ClassNotFoundException",
        "java.lang.InterruptedException",
        "java.lang.LinkageError",
        "java.lang.OutOfMemoryError",
        "java.lang.SecurityException",
        "java.sql.SQLException",
        "java.util.concurrent.CancellationException",
        "java.util.concurrent.RejectedExecutionException",
        "java.util.concurrent.TimeoutException",
        "org.apache.spark.TaskKilledException",
        "org.apache.spark.executor.CommitDeniedException",
    }
)
"""Java's classes for it, with all below them."""
_BY_PACKAGE = (
    "com.amazonaws.",
    "com.azure.",
    "com.google.api.",
    "com.google.cloud.",
    "com.microsoft.azure.",
    "io.delta.",
    "org.apache.hadoop.fs.",
    "org.apache.orc.",
    "org.apache.parquet.",
    "org.apache.spark.network.",
    "org.apache.spark.rpc.",
    "org.apache.spark.scheduler.",
    "org.apache.spark.shuffle.",
    "org.apache.spark.sql.delta.",
    "org.apache.spark.storage.",
    "software.amazon.awssdk.",
)
"""Packages whose every exception is about files, stores, the network or executors."""
_ABOUT_TEXT = frozenset(
    {
        "com.fasterxml.jackson.core.JacksonException",
        "java.io.CharConversionException",
        "java.io.UTFDataFormatException",
        "java.net.MalformedURLException",
        "java.nio.charset.CharacterCodingException",
        "java.util.zip.ZipException",
    }
)
"""Java's IOExceptions that say something of a value, and not of a file."""
_NO_ARRAY_SO_LONG = "Requested array size exceeds VM limit"
"""Of an OutOfMemoryError: no memory would do, since no array in Java has so many elements."""
_STOPPED = "Cannot call methods on a stopped SparkContext"
"""Of an IllegalStateException, after an application lost its cluster."""
_BARE = "org.apache.spark.SparkException"
_LOST_TASK = re.compile(r"most recent failure: Lost task \S+ in stage \S+ \(TID \d+\)(?: \([^)]*\))?: (\S+)")
_CLASS_NAME = re.compile(r"[\w$]+(?:\.[\w$]+)+")
_CAUSED_BY = re.compile(r"^Caused by: ([\w$]+(?:\.[\w$]+)+)", re.MULTILINE)
_IO = ("java.io.", "java.net.", "java.nio.file.")
"""Packages of which a name alone says that it is about files or the network: what is above it is not known then."""
_DEEPEST = 20
"""So many causes behind each other: a chain of them may be a circle."""
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class Thrown:
    """A Java exception that was thrown, or that caused another.

    classes: names of its class and of those above it. condition, state: Spark's name for the error, and its SQLSTATE;
    None where it has none.
    """

    classes: tuple[str, ...]
    message: str = ""
    condition: str | None = None
    state: str | None = None

    @property
    def is_of_data(self) -> bool:
        """Whether its SQLSTATE says that data is at fault."""
        return bool(self.state) and str(self.state).startswith(_DATA_STATES)

    @property
    def is_of_surroundings(self) -> bool:
        """Whether its condition or its class says that something around the query is at fault."""
        if (self.condition or "").partition(".")[0] in _BY_CONDITION or self.message.startswith(_STOPPED):
            return True
        if _ABOUT_TEXT.intersection(self.classes) or self.message == _NO_ARRAY_SO_LONG:
            return False
        return any(name in _BY_CLASS or name.startswith(_BY_PACKAGE) for name in self.classes)


def causes(error: BaseException) -> list[Thrown]:
    """The Java exceptions of an error of Spark's, each before the one that caused it; none of Python's own errors."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    found: list[Thrown] = []
    while java is not None and len(found) < _DEEPEST:
        found.append(_thrown(java))
        java = java.getCause()
    return found


def _thrown(java: Any) -> Thrown:
    classes = []
    kind = java.getClass()
    while kind is not None:
        classes.append(str(kind.getName()))
        kind = kind.getSuperclass()
    condition = state = None
    with contextlib.suppress(Py4JError, PySparkException):  # it has no such methods, or Spark knows no such condition
        condition, state = java.getCondition(), java.getSqlState()
    return Thrown(tuple(classes), str(java.getMessage() or ""), condition, state)


def raised_in_python(text: str) -> str:
    """The line that says what was raised, of a text with a traceback; of several the last, which the others caused."""
    *before, last = text.split(_TRACEBACK)
    lines = [line for line in last.splitlines() if line and not line[0].isspace()] if before else []
    return lines[0] if lines else ""


def is_of_surroundings(error: BaseException) -> bool:
    """Whether something around the query is at fault, and no record: a file, memory, the network, an executor.

    Of several causes the outermost that says so, or that data is at fault, decides.
    """
    return isinstance(error, SURROUNDINGS) or are_of_surroundings(causes(error))


def are_of_surroundings(thrown: list[Thrown]) -> bool:
    """`is_of_surroundings`, of a chain of Java's exceptions."""
    for one in thrown:
        if one.is_of_data:
            return False
        if PYTHON_EXCEPTION in one.classes:
            return _is_pythons(raised_in_python(one.message))
        if one.is_of_surroundings:
            return True
    return bool(thrown) and _is_about_a_job(thrown[-1])


def _is_about_a_job(last: Thrown) -> bool:
    """Whether it is Spark's exception without condition and cause, about jobs, executors and workers.

    The exception of a task that the driver could not read, as its class is not there, is named in the text alone.
    """
    if last.classes[:1] != (_BARE,) or last.condition is not None:
        return False
    failed = _LOST_TASK.search(last.message)
    name = failed[1].rstrip(":") if failed else ""
    if not _CLASS_NAME.fullmatch(name):
        return True
    named = [Thrown((one,)) for one in (name, *_CAUSED_BY.findall(last.message))]
    return any(one.is_of_surroundings or one.classes[0].startswith(_IO) for one in named)


def _is_pythons(raised: str) -> bool:
    """Whether what Python says was raised is of the surroundings; its class has its module, unless it is built in."""
    if "[PYTHON_VERSION_MISMATCH]" in raised:
        return True
    name = raised.partition(":")[0].strip()
    if not all(map(str.isidentifier, name.split("."))):
        return False
    module, _, name = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module or "builtins"), name, None)
    except ImportError:  # as of a class within another, or of what only executors have
        return False
    return isinstance(found, type) and issubclass(found, SURROUNDINGS)
