"""Decides whether an error of Spark comes from the environment or may come from the data.

The exceptions that an expression may raise on a value cannot be listed: Spark has errors with a condition and a
SQLSTATE, errors with neither, and functions pass on any exception of Java. The errors of the environment can be listed:
files, memory, network, executors, jars. This module lists those; for all other errors zync/rules/failures.py looks for
the transaction that fails.
"""

import contextlib
import importlib
import re
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

ENVIRONMENT_ERRORS = (OSError, ImportError, MemoryError)
"""Python's exceptions that come from the environment, not from a record."""
PYTHON_EXCEPTION = "org.apache.spark.api.python.PythonException"
"""Spark's exception for an error in a Python worker; its message has the traceback."""

_DATA_STATES = ("21", "22", "23", "54", "P0")
"""SQLSTATE classes of errors caused by data: a scalar subquery with several rows, data exceptions, a repeated key in a
map, an array that is too long, and errors raised by a rule."""
_ENVIRONMENT_CONDITIONS = frozenset(
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
        "_LEGACY_ERROR_TEMP_2097",  # a broadcast timed out
        "_LEGACY_ERROR_TEMP_2105",  # out of memory for a hash map
        "_LEGACY_ERROR_TEMP_2106",
        "_LEGACY_ERROR_TEMP_2107",
        "_LEGACY_ERROR_TEMP_2250",  # out of memory for a broadcast
    }
)
"""Spark's conditions (error-conditions.json) of environment errors, without the subcondition after a dot."""
_ENVIRONMENT_CLASSES = frozenset(
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
"""Java's classes of environment errors; their subclasses count as well."""
_ENVIRONMENT_PACKAGES = (
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
"""Packages all of whose exceptions are about files, stores, the network or executors."""
_VALUE_CLASSES = frozenset(
    {
        "com.fasterxml.jackson.core.JacksonException",
        "java.io.CharConversionException",
        "java.io.UTFDataFormatException",
        "java.net.MalformedURLException",
        "java.nio.charset.CharacterCodingException",
        "java.util.zip.ZipException",
    }
)
"""Subclasses of Java's IOException that are about a value, not about a file."""
_ARRAY_TOO_LONG = "Requested array size exceeds VM limit"
"""The message of an OutOfMemoryError that data causes: Java has no array of so many elements, whatever the memory."""
_STOPPED = "Cannot call methods on a stopped SparkContext"
"""The message of the IllegalStateException that follows when an application has lost its cluster."""
_SPARK_EXCEPTION = "org.apache.spark.SparkException"
_LOST_TASK = re.compile(r"most recent failure: Lost task \S+ in stage \S+ \(TID \d+\)(?: \([^)]*\))?: (\S+)")
_CLASS_NAME = re.compile(r"[\w$]+(?:\.[\w$]+)+")
_CAUSED_BY = re.compile(r"^Caused by: ([\w$]+(?:\.[\w$]+)+)", re.MULTILINE)
_IO_PACKAGES = ("java.io.", "java.net.", "java.nio.file.")
"""Packages whose exceptions count as environment errors if only the name is known, and no superclass."""
_MAX_CAUSES = 20
"""The most causes to follow: a chain of them may be circular."""
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class Thrown:
    """A Java exception that was thrown, or that caused another.

    Attributes:
        classes: The names of its class and its superclasses, in this order.
        condition: Spark's error condition; None if it has none.
        state: Its SQLSTATE; None if it has none.
    """

    classes: tuple[str, ...]
    message: str = ""
    condition: str | None = None
    state: str | None = None

    @property
    def is_of_data(self) -> bool:
        """Whether its SQLSTATE marks an error caused by data."""
        return bool(self.state) and str(self.state).startswith(_DATA_STATES)

    @property
    def is_of_environment(self) -> bool:
        """Whether its condition or its class marks an error of the environment."""
        if (self.condition or "").partition(".")[0] in _ENVIRONMENT_CONDITIONS or self.message.startswith(_STOPPED):
            return True
        if _VALUE_CLASSES.intersection(self.classes) or self.message == _ARRAY_TOO_LONG:
            return False
        return any(name in _ENVIRONMENT_CLASSES or name.startswith(_ENVIRONMENT_PACKAGES) for name in self.classes)


def causes(error: BaseException) -> list[Thrown]:
    """Returns the Java exceptions of a Spark error, each before its cause; empty for Python's own errors."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    chain: list[Thrown] = []
    while java is not None and len(chain) < _MAX_CAUSES:
        chain.append(_thrown(java))
        java = java.getCause()
    return chain


def _thrown(java: Any) -> Thrown:
    classes = []
    kind = java.getClass()
    while kind is not None:
        classes.append(str(kind.getName()))
        kind = kind.getSuperclass()
    condition = state = None
    with contextlib.suppress(Py4JError, PySparkException):  # a class without these methods, or an unknown condition
        condition, state = java.getCondition(), java.getSqlState()
    return Thrown(tuple(classes), str(java.getMessage() or ""), condition, state)


def raised_in_python(text: str) -> str:
    """Returns the line of a traceback that names the exception, in its last traceback; "" if it has none."""
    *before, last = text.split(_TRACEBACK)
    lines = [line for line in last.splitlines() if line and not line[0].isspace()] if before else []
    return lines[0] if lines else ""


def is_environment_error(error: BaseException) -> bool:
    """Returns whether an error comes from the environment (a file, memory, the network, an executor), not from data.

    The outermost cause that is marked as either decides.
    """
    return isinstance(error, ENVIRONMENT_ERRORS) or has_environment_cause(causes(error))


def has_environment_cause(thrown: list[Thrown]) -> bool:
    """Does the same as `is_environment_error` for a chain of Java's exceptions."""
    for exception in thrown:
        if exception.is_of_data:
            return False
        if PYTHON_EXCEPTION in exception.classes:
            return _is_python_environment_error(raised_in_python(exception.message))
        if exception.is_of_environment:
            return True
    return bool(thrown) and _is_job_failure(thrown[-1])


def _is_job_failure(last: Thrown) -> bool:
    """Returns whether it is Spark's exception without condition and cause, about jobs, executors and workers.

    If the driver lacks the class of a task's exception, it cannot deserialize it, and only the message has its name.
    """
    if last.classes[:1] != (_SPARK_EXCEPTION,) or last.condition is not None:
        return False
    lost_task = _LOST_TASK.search(last.message)
    name = lost_task[1].rstrip(":") if lost_task else ""
    if not _CLASS_NAME.fullmatch(name):
        return True
    chain = [Thrown((class_name,)) for class_name in (name, *_CAUSED_BY.findall(last.message))]
    return any(thrown.is_of_environment or thrown.classes[0].startswith(_IO_PACKAGES) for thrown in chain)


def _is_python_environment_error(raised: str) -> bool:
    """Returns whether a traceback's last line names an exception of the environment, with its module or built in."""
    if "[PYTHON_VERSION_MISMATCH]" in raised:
        return True
    name = raised.partition(":")[0].strip()
    if not all(map(str.isidentifier, name.split("."))):
        return False
    module, _, name = name.rpartition(".")
    try:
        exception_class = getattr(importlib.import_module(module or "builtins"), name, None)
    except ImportError:  # for example a nested class, or a module that only executors have
        return False
    return isinstance(exception_class, type) and issubclass(exception_class, ENVIRONMENT_ERRORS)
