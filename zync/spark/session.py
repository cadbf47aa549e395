"""The Spark session, made here or the caller's own."""

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from py4j.java_gateway import java_import
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from zync import java
from zync.errors import INTERRUPTED, ZyncError
from zync.spark import class_archive
from zync.spark.errors import message_of
from zync.spark.jvm import jvm_class

_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.legacy.createHiveTableByDefault": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    # A file of less than twice that is read by one task, by default of less than 8 MB: seconds of decoding.
    "spark.sql.files.openCostInBytes": "16k",
    # What is unpacked in Python may be a thousand times as large.
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    # What Spark infers of kept rows may name columns that they do not have, on which it fails ("key not found").
    "spark.sql.constraintPropagation.enabled": "false",
    # Else ${env:NAME} in any statement is read from the environment, in what records say, too.
    "spark.sql.variable.substitute": "false",
}
_START = {
    "spark.app.name": "zync",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.codegen.useIdInClassName": "false",
    # Each small table that is broadcast takes a page at least, of 64 MB by default.
    "spark.buffer.pageSize": "2m",
    # What a user interface would show of jobs long gone.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.ui.explainMode": "simple",
    # Else PySpark calls the JVM several times for each column, to name in errors the line of Python that made it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.memory": "3g",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}

_LASTING = ("-XX:+UseParallelGC", "-XX:-DontCompileHugeMethods")
"""JVM options for what goes on: with the collector of its own choice Java takes a fifth longer for a first million; and
methods of more than 8,000 bytes, as Spark makes of many columns, it would not compile: they take half as long again.
"""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
"""The JVM's options that choose a collector: it refuses to start with two of them."""
_SECRET = re.compile(
    r"secret|password|token|credential|(access|account|private|encryption)\.?key|\.sas\b", re.IGNORECASE
)
"""The names of properties that are nobody's business: as spark.redaction.regex has them, and those of clouds."""
_CALLED_OFTEN = (
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.functions",
)
"""What PySpark asks for by its short name, dozens of times a sync: the JVM would look into every jar each time."""

_STACK = "-Xss4m"
"""A thread's stack, four times Java's own: JSON as deep as parse_json reads, a thousand, fills one of a megabyte or not
by how far its code is compiled, so a row would be written at one time and fail at another."""
_AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{what}={most}"
    for what, most in (
        ("bytes.maxLength", 64 * 1024 * 1024),
        ("string.maxLength", 64 * 1024 * 1024),
        ("collectionItems.maxLength", 10_000_000),
    )
)
"""What an Avro value may announce: its reader makes room for that much before it looks whether so much is there."""


def session(
    master: str | None = None, properties: dict[str, str] | None = None, *, brief: bool = False
) -> SparkSession:
    """A session for zync: of the Spark application that already runs in this process, or of a new one.

    A running application is used as it is: only settings of our own session are made, no jars are added.
    `brief`: there is little to do, so a quick start counts more than speed later on.
    """
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(name).disabled = True
    running = SparkSession.getActiveSession()
    if running is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        spark = (running or SparkSession.builder.getOrCreate()).newSession()
        for key, value in (properties or {}).items():
            if spark.conf.isModifiable(key):
                spark.conf.set(key, value)
    else:
        spark = _start(master, properties or {}, brief=brief)
    for key, value in _SESSION.items():
        spark.conf.set(key, value)
    return spark


def _start(master: str | None, properties: dict[str, str], *, brief: bool) -> SparkSession:
    java.java()
    unused = str(java.cache_folder() / "spark-warehouse")  # Spark makes it all the same: by default where the user is
    settings = {
        "spark.master": "local[2]",
        "spark.sql.warehouse.dir": unused,
        "spark.hadoop.fs.permissions.umask-mode": f"{_umask():03o}",  # Hadoop has one of its own otherwise
        **_START,
        **properties,
    }
    if master:
        settings["spark.master"] = master
    if "spark.jars" not in settings and "spark.jars.packages" not in settings:
        found = [str(jar) for jar in (*java.fetch(java.DELTA), *_avro())]
        settings["spark.jars"] = ",".join(found)
        settings.setdefault("spark.driver.extraClassPath", os.pathsep.join(found))
    given = properties.get("spark.driver.extraJavaOptions", "")
    options = f"-Dlog4j2.configurationFile=file:{Path(__file__).parent}/log4j2.properties"
    settings["spark.executor.extraJavaOptions"] = (
        f"{_STACK} {_AVRO_LIMITS} {settings.get('spark.executor.extraJavaOptions', '')}"
    )
    options += f" {_STACK} {_AVRO_LIMITS}"
    if settings["spark.master"].startswith("local"):
        # A task's StackOverflowError, as of a pattern over a long text, would end the JVM, and this process with it.
        settings.setdefault("spark.executor.killOnFatalError.depth", "0")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else whichever python3 is first in PATH runs rules
        chosen = _COLLECTOR.search(given)
        ours = [one for one in (java.QUICK if brief else _LASTING) if not (chosen and _COLLECTOR.match(one))]
        options += f" {class_archive.jvm_options()} {' '.join(ours)}"
    settings["spark.driver.extraJavaOptions"] = f"{options} {given}".strip()
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _quiet(), _interrupted_after():
            shown = [pair for pair in settings.items() if not _SECRET.search(pair[0])]
            if len(shown) < len(settings):  # the JVM starts without those: what it starts with, others on the host see
                SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(shown))  # noqa: SLF001
            spark = builder.getOrCreate()
    except Exception as error:
        msg = f"Spark does not start on {settings['spark.master']}: {message_of(error)}"
        raise ZyncError(msg) from error
    for one in _CALLED_OFTEN:
        java_import(spark._jvm, one)  # noqa: SLF001
    return spark


def _umask() -> int:
    """The process's umask, which can be asked for only by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _avro() -> list[Path]:
    """Spark's module for Avro; none where it cannot be fetched, which is said when a topic needs it."""
    try:
        return java.fetch(java.AVRO)
    except ZyncError:
        return []


@contextlib.contextmanager
def _interrupted_after() -> Iterator[None]:
    """Lets Ctrl-C wait, and leaves it to the caller's handler, which PySpark would put its own in the place of.

    A JVM whose Python goes away before they know each other never ends. A second Ctrl-C ends all at once: a
    cluster that does not answer may keep Spark from starting for minutes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, came = signal.getsignal(signal.SIGINT), False

    def interrupt(*_: object) -> None:
        nonlocal came
        if came:
            os._exit(INTERRUPTED)
        came = True

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        signal.raise_signal(signal.SIGINT)


def delete_at_end(spark: SparkSession, folder: str) -> None:
    """Has the JVM delete a folder when it ends: Ctrl-C leaves Python no time for that."""
    file = jvm_class(spark, "java.io.File")(folder)
    jvm_class(spark, "org.apache.spark.util.ShutdownHookManager").registerShutdownDeleteDir(file)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the launcher's chatter off standard error: the JVM inherits a copy that leads nowhere."""
    if os.environ.get("ZYNC_DEBUG"):
        yield
        return
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
