"""Creates the Spark session, in the caller's Spark application if it has one."""

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from py4j.java_gateway import java_import
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from zync import java
from zync.errors import INTERRUPTED, UsageError, ZyncError
from zync.lake import storage
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
    # Spark reads a file smaller than twice this value by a single task. With the default, 4 MB, a task may have 8 MB of
    # records, which take seconds to decode.
    "spark.sql.files.openCostInBytes": "16k",
    # A value that is unpacked in Python may become a thousand times as large.
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    # Constraints that Spark infers of checkpointed rows may name columns that these do not have ("key not found").
    "spark.sql.constraintPropagation.enabled": "false",
    # Spark would substitute ${env:NAME} in every statement from the environment, also in texts that records contain.
    "spark.sql.variable.substitute": "false",
}
_START = {
    "spark.app.name": "zync",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.codegen.useIdInClassName": "false",
    # Each broadcast table takes at least a page, which has 64 MB by default.
    "spark.buffer.pageSize": "2m",
    # Spark keeps details of finished jobs for the user interface, which is off.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.ui.explainMode": "simple",
    # PySpark would call the JVM several times for each column, so that errors can name the line of Python code.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.memory": "3g",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
_UNFENCED = {"s3": "S3SingleDriverLogStore", "gs": "GCSLogStore", "azure": "AzureLogStore"}
"""Delta's own log stores. That for S3 does not exclude a second writer, that for Azure only in some accounts; none of
them keeps a batch from landing after another that it was not planned from."""

_LONG_RUNNING_OPTIONS = (
    "-XX:+UseParallelGC",
    "-XX:-DontCompileHugeMethods",
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
)
"""JVM options of a long-running process. With the collector that Java chooses by itself, a first million records takes
a fifth longer. Without the second option Java does not compile methods of more than 8,000 bytes, as Spark generates for
many columns: they take half as long again. The others have C2 wait until a method was called four times as often as by
default: it takes a fifth less CPU time in a first million records, 40 % less in the first 60 small syncs, and neither
takes longer.
"""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
"""The JVM options that choose a garbage collector: the JVM does not start with two of them."""
_SECRET = re.compile(
    r"secret|password|token|credential|(access|account|private|encryption)\.?key|\.sas\b", re.IGNORECASE
)
"""Names of properties with secret values: those of spark.redaction.regex, and those of cloud stores."""
_IMPORTED_CLASSES = (
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.functions",
)
"""Classes that PySpark looks up by their short name dozens of times a sync; Py4J would search every jar each time."""

_STACK_OPTION = "-Xss4m"
"""A thread's stack of four times Java's default. parse_json reads JSON of up to 1,000 levels, which may or may not fit
into 1 MB, by how far the JIT has compiled its code; so the same row would sometimes fail."""
_AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{name}={limit}"
    for name, limit in (
        ("bytes.maxLength", 64 * 1024 * 1024),
        ("string.maxLength", 64 * 1024 * 1024),
        ("collectionItems.maxLength", 10_000_000),
    )
)
"""Limits of the lengths in an Avro value: Avro's reader allocates that much before it checks the length of the data."""


def session(
    master: str | None = None, properties: dict[str, str] | None = None, *, brief: bool = False, lake: str = ""
) -> SparkSession:
    """Creates a session in the Spark application that runs in this process, or in a new application.

    In a running application it only sets properties of the new session; it adds no jars.

    Args:
        master: Spark's master; None for that in `properties`, or else `local[2]`.
        properties: The config's Spark properties.
        brief: Whether the command has little work, so that a quick start counts more than speed later on.
        lake: The location of the lake, or of a table in it: an object store needs jars and properties.

    Raises:
        ZyncError: Spark does not start, or Java or a jar is missing.

    Example:
        >>> spark = zync.spark_session("local[2]")
    """
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(name).disabled = True
    running = SparkSession.getActiveSession()
    if running is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        spark = (running or SparkSession.builder.getOrCreate()).newSession()
        for key, value in {**storage.session_properties(lake), **(properties or {})}.items():
            if spark.conf.isModifiable(key):
                spark.conf.set(key, value)
    else:
        spark = _start(master, properties or {}, brief=brief, lake=lake)
    for key, value in _SESSION.items():
        spark.conf.set(key, value)
    return spark


def _start(master: str | None, properties: dict[str, str], *, brief: bool, lake: str) -> SparkSession:
    java.java()
    store = storage.store(lake)
    schemes = storage.SCHEMES.get(store, ())
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(java.QUICK))  # a JVM that only prints Spark's command line
    unused = str(java.cache_folder() / "spark-warehouse")  # Spark creates it, by default in the working directory
    settings = {
        "spark.master": "local[2]",
        "spark.sql.warehouse.dir": unused,
        "spark.hadoop.fs.permissions.umask-mode": f"{_umask():03o}",  # Hadoop has a default of its own
        **_START,
        **storage.spark_properties(lake),
        **{f"spark.delta.logStore.{scheme}.impl": java.LOG_STORES[store] for scheme in schemes},
        **properties,
    }
    if master:
        settings["spark.master"] = master
    own_jars = [str(java.spark_classes()), *([str(java.log_store(store))] if store else [])]
    if "spark.jars" not in settings and "spark.jars.packages" not in settings:
        store_jars = java.fetch_store(store) if store else []
        own_jars += [str(jar) for jar in (*java.fetch(java.DELTA), *_avro_jars(), *store_jars)]
        settings.setdefault("spark.driver.extraClassPath", os.pathsep.join(own_jars))
    settings["spark.jars"] = ",".join([*filter(None, [settings.get("spark.jars")]), *own_jars])
    user_options = properties.get("spark.driver.extraJavaOptions", "")
    options = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    settings["spark.executor.extraJavaOptions"] = (
        f"{_STACK_OPTION} {_AVRO_LIMITS} {settings.get('spark.executor.extraJavaOptions', '')}"
    )
    options += f" {_STACK_OPTION} {_AVRO_LIMITS}"
    # The property wins, as in spark-submit, outside which PySpark does not read it.
    python = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if settings["spark.master"].startswith("local"):
        # A StackOverflowError in a task, for example of a regex over a long text, would end the JVM and this process.
        settings.setdefault("spark.executor.killOnFatalError.depth", "0")
        python = python or sys.executable  # Spark's default is the first python3 in PATH
        if not _is_resolved(socket.gethostname()):  # in a container without a network: Spark would not start
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        has_collector = _COLLECTOR.search(user_options)
        defaults = java.QUICK if brief else _LONG_RUNNING_OPTIONS
        chosen = [option for option in defaults if not (has_collector and _COLLECTOR.match(option))]
        options += f" {class_archive.jvm_options()} {' '.join(chosen)}"
    settings["spark.driver.extraJavaOptions"] = f"{options} {user_options}".strip()
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _muted_launcher(), _deferred_interrupt(), _executors_python(python):
            public = [pair for pair in settings.items() if not _SECRET.search(pair[0])]
            if len(public) < len(settings):  # every user of the host can read the JVM's command line
                SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(public))  # noqa: SLF001
            spark = builder.getOrCreate()
    except Exception as error:
        msg = f"Spark does not start on {settings['spark.master']}: {message_of(error)}"
        raise ZyncError(msg) from error
    for class_name in _IMPORTED_CLASSES:
        java_import(spark._jvm, class_name)  # noqa: SLF001
    return spark


def hive_session(spark: SparkSession, options: dict[str, str]) -> SparkSession:
    """Creates a session of the same application whose tables are those of a Hive metastore.

    A session made by its constructor has a catalog of its own, as if it were the first of the application. So `spark`
    keeps its catalog.

    Args:
        spark: A session of the application.
        options: Properties of Hive, which go before those of the application.
    """
    context = spark.sparkContext
    session_class = SparkSession._get_j_spark_session_class(context._jvm)  # noqa: SLF001
    java_session = session_class(context._jsc.sc(), {"spark.sql.catalogImplementation": "hive", **options})  # noqa: SLF001
    hive = SparkSession(context, java_session)
    for key, value in _SESSION.items():
        hive.conf.set(key, value)
    return hive


@contextlib.contextmanager
def as_process_session(spark: SparkSession) -> Iterator[None]:
    """Makes the session that of this process while a rule's Python code runs.

    PySpark asks the session that was made first whether a `udf` gets Arrow batches, from which Python's values are
    converted otherwise. That is another's session in an application of others.
    """
    first = SparkSession._instantiatedSession  # noqa: SLF001
    SparkSession._instantiatedSession = spark  # noqa: SLF001
    try:
        yield
    finally:
        SparkSession._instantiatedSession = first  # noqa: SLF001


def commits_directly(spark: SparkSession) -> bool:
    """Returns whether Spark may write files by `java.DIRECT_COMMITTER`: all tasks run in the driver, which has it."""
    settings = spark.sparkContext.getConf()
    has_class = str(java.spark_classes()) in settings.get("spark.driver.extraClassPath", "").split(os.pathsep)
    return settings.get("spark.master", "").startswith("local") and has_class


def check_log_store(spark: SparkSession, location: str) -> None:
    """Checks that of two processes that write a version of the table at `location` one is refused.

    Raises:
        UsageError: The caller's Spark application writes logs in an object store by Delta's own log store.
    """
    if not (store := storage.store(location)):
        return
    key, own = f"spark.delta.logStore.{location.partition(':')[0]}.impl", _UNFENCED[store]
    if not spark.sparkContext.getConf().get(key, f".storage.{own}").endswith(f".storage.{own}"):
        return
    logs = "logs of tables in S3" if store == "s3" else f"logs of tables in {location.partition(':')[0]}://"
    msg = (
        f"this Spark application writes the {logs} by Delta's {own}, with which two writers overwrite each other's "
        f"commits: start it with --conf {key}={java.LOG_STORES[store]}, and with the jar that "
        f"`python -m zync.java log-store{'' if store == 's3' else f' {store}'}` names"
    )
    raise UsageError(msg)


def _is_resolved(host: str) -> bool:
    """Returns whether a host's name has an address."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _umask() -> int:
    """Returns the process's umask, which can be read only by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _avro_jars() -> list[Path]:
    """Returns the jars of Spark's Avro module; none if they cannot be fetched. A topic that needs them fails later."""
    try:
        return java.fetch(java.AVRO)
    except ZyncError:
        return []


@contextlib.contextmanager
def _deferred_interrupt() -> Iterator[None]:
    """Defers Ctrl-C until Spark has started, and restores the caller's handler, which PySpark replaces by its own.

    A JVM never ends if its Python process ends before the two are connected. A second Ctrl-C ends the process at once,
    as a cluster that does not answer may delay Spark's start by minutes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, interrupted = signal.getsignal(signal.SIGINT), False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            os._exit(INTERRUPTED)
        interrupted = True

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupted:
        signal.raise_signal(signal.SIGINT)


def delete_at_end(spark: SparkSession, folder: str) -> None:
    """Makes the JVM delete a folder at its end, for which Python has no time after Ctrl-C."""
    file = jvm_class(spark, "java.io.File")(folder)
    jvm_class(spark, "org.apache.spark.util.ShutdownHookManager").registerShutdownDeleteDir(file)


@contextlib.contextmanager
def _executors_python(path: str | None) -> Iterator[None]:
    """Sets PYSPARK_PYTHON to that path, if there is one, until this context ends: PySpark reads it as it starts."""
    before = os.environ.get("PYSPARK_PYTHON")
    if path:
        os.environ["PYSPARK_PYTHON"] = path
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYSPARK_PYTHON", None)
        else:
            os.environ["PYSPARK_PYTHON"] = before


@contextlib.contextmanager
def _muted_launcher() -> Iterator[None]:
    """Keeps the launcher's output off standard error: the JVM inherits the null device in its place."""
    if os.environ.get("ZYNC_DEBUG"):
        yield
        return
    stderr = os.dup(2)
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null_device)
