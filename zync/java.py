"""Finds Java, fetches jars once into a cache folder by pyspark's Ivy, and compiles zync's own classes into jars."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from zync.errors import UsageError, ZyncError
from zync.lake.lock import locked

DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
"""Delta's jars that Spark does not contain: 10 MB."""
AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)
"""Spark's Avro module, 90 KB: version 4.2.0 was not available, and this version works with Spark 4.2."""
S3 = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    "org.wildfly.openssl:wildfly-openssl:2.2.5.Final",
)
"""Hadoop's file system for S3, without the AWS SDK's bundle of 686 MB."""
S3_SDK = tuple(
    f"software.amazon.awssdk:{module}:2.35.4" for module in ("s3", "s3-transfer-manager", "sts", "apache-client")
)
"""The modules of the AWS SDK that it uses; with what they depend on, and without `_OF_SPARK`, 15 MB."""
_OF_SPARK = re.compile(r"(netty-(buffer|codec|common|handler|resolver|transport)|slf4j|commons-)")
"""Jars that Spark has in versions of its own. Two versions of Netty give a NoSuchMethodError at the session's start."""
GS = ("com.google.cloud.bigdataoss:gcs-connector:4.0.0:shaded",)
"""Google's file system for Cloud Storage with all that it depends on, under names of its own: 40 MB."""
AZURE = ("org.apache.hadoop:hadoop-azure:3.5.0", "org.wildfly.openssl:wildfly-openssl:2.2.5.Final")
"""Hadoop's file system for Azure, 1.2 MB; what else it depends on is in Spark, or belongs to the older wasb://."""
_STORES = {"s3": S3, "gs": GS, "azure": AZURE}
"""The jars by which Spark reads and writes each object store; for S3 the SDK comes to them."""
STORES = tuple(_STORES)
"""The object stores, by their names in `python -m zync.java fetch`."""
KAFKA = ("org.apache.kafka:kafka_2.13:4.1.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3")
"""A Kafka server for development, 46 jars with its dependencies, 43 MB; and the binding for its log."""

STRICT_JSON = "zync.StrictJson"
"""The class that parses JSON (StrictJson.java)."""
CONSTANT = "zync.Constant"
"""The class of numbers that Spark does not write into the code that it generates (Constant.java)."""
RULE_PARTS = "zync.RuleParts"
"""The class that runs a rule on parts of the records in a single job (RuleParts.java)."""
DIRECT_COMMITTER = "zync.DirectCommitter"
"""The class by which Spark writes files without renaming them (DirectCommitter.java)."""
LOG_STORES = {"s3": "zync.ConditionalLogStore", "gs": "zync.GcsLogStore", "azure": "zync.AzureLogStore"}
"""The classes by which Spark writes the logs of Delta tables in each store: files beside FencedLogStore.java."""
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
"""The main class of Janino, with the options of javac."""

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""JVM options of a short process: the JVM starts in half the time, and is slower in the long run."""

_MIN_JAVA_VERSION = 17
_IVY_SECONDS = 600.0


def cache_folder() -> Path:
    """Returns the folder of fetched jars: `$ZYNC_CACHE`, or zync's folder in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ZYNC_CACHE") or Path(base) / "zync")


def java() -> str:
    """Returns the path of a Java of version 17 or newer.

    Raises:
        UsageError: No such Java is installed.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not command or not Path(command).exists():
        msg = "Java 17 or newer is needed and none was found: install it (Debian: openjdk-17-jre-headless)"
        raise UsageError(msg)
    arguments = [command, "-version"]  # in a session of its own, so that only this process gets the terminal's Ctrl-C
    output = subprocess.run(arguments, capture_output=True, text=True, check=False, start_new_session=True).stderr  # noqa: S603 - Java
    match = re.search(r'version "(\d+)', output)
    if not match or int(match[1]) < _MIN_JAVA_VERSION:
        version = output.splitlines()[0] if output else "an unknown version"
        msg = f"Java 17 or newer is needed, {command} is {version}: install it (Debian: openjdk-17-jre-headless)"
        raise UsageError(msg)
    return command


def fetch(
    artifacts: tuple[str, ...], *, transitive: bool = False, without: re.Pattern[str] | None = None
) -> list[Path]:
    """Returns the paths of jars from the cache folder, and fetches them from Maven Central the first time.

    Args:
        artifacts: Their coordinates, `group:artifact:version` or `group:artifact:version:classifier`.
        transitive: Whether to fetch their dependencies as well.
        without: The beginnings of the names of jars to leave out.

    Raises:
        ZyncError: The jars cannot be fetched.
    """
    folder = cache_folder() / "+".join("-".join(artifact.split(":")[1:]) for artifact in artifacts)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
            for artifact in artifacts:
                _ivy(artifact, Path(scratch) / "jars", transitive=transitive)
            for jar in Path(scratch, "jars").iterdir():
                if without and without.match(jar.name):
                    jar.unlink()
            try:
                (Path(scratch) / "jars").rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process fetched the same jars meanwhile
                    raise
    return sorted(folder.glob("*.jar"))


def fetch_store(store: str) -> list[Path]:
    """Returns the paths of the jars by which Spark reads and writes an object store, and fetches them the first time.

    Args:
        store: One of `STORES`.
    """
    sdk = fetch(S3_SDK, transitive=True, without=_OF_SPARK) if store == "s3" else []
    return [*fetch(_STORES[store]), *sdk]


def log_store(store: str) -> Path:
    """Returns the path of the jar with the store's class of `LOG_STORES`, and compiles it the first time, in a second.

    Args:
        store: One of `STORES`.

    Raises:
        ZyncError: The jars that it is compiled against cannot be fetched, or it cannot be compiled.
    """
    versions = DELTA + _STORES[store]
    classes = ("zync.FencedLogStore", LOG_STORES[store])
    return _compiled(classes, "log-store", versions, lambda: [*fetch(DELTA), *fetch_store(store)])


def spark_classes() -> Path:
    """Returns the path of the jar with the classes that Spark uses, compiled the first time, in a second.

    Raises:
        ZyncError: It cannot be compiled.
    """
    return _compiled((STRICT_JSON, CONSTANT, RULE_PARTS, DIRECT_COMMITTER), "spark-classes", (), list)


def _compiled(
    classes: tuple[str, ...], name: str, artifacts: tuple[str, ...], libraries: Callable[[], list[Path]]
) -> Path:
    """Returns the path of a jar in the cache with classes of zync's, which are compiled if it is not there.

    The compiler is Janino, which Spark contains: a Java runtime may have none.

    Args:
        classes: The classes, whose files lie beside this one.
        name: The beginning of the jar's name.
        artifacts: What they are compiled against beside Spark: with another of either they are compiled anew.
        libraries: Returns the paths of the jars of these.
    """
    sources = [Path(__file__).parent / f"{class_name.rpartition('.')[2]}.java" for class_name in classes]
    versions = "".join((version("pyspark"), *artifacts)).encode()
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources) + versions)
    jar = cache_folder() / f"{name}-{digest.hexdigest()[:16]}.jar"
    if jar.exists():
        return jar
    compiler = [str(_spark_jar(part)) for part in ("janino", "commons-compiler")]
    classpath = [*libraries(), *_spark_jar("ivy").parent.glob("*.jar")]
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".compile-") as scratch:
        options = ["-d", f"{scratch}/classes", "-classpath", os.pathsep.join(map(str, classpath))]
        command = [java(), *QUICK, "-cp", os.pathsep.join(compiler), _COMPILER, *options, *map(str, sources)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Java
        compiled = sorted(Path(scratch).glob("classes/**/*.class"))
        if result.returncode or not compiled:
            msg = f"{sources[-1]} could not be compiled: {(result.stderr or result.stdout).strip()}"
            raise ZyncError(msg)
        with zipfile.ZipFile(f"{scratch}/{jar.name}", "w") as archive:
            for path in compiled:
                archive.write(path, path.relative_to(f"{scratch}/classes"))
        Path(scratch, jar.name).rename(jar)
    return jar


_IVY_FILE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="zync" module="jars"/>
  <dependencies>
    <dependency org="{}" name="{}" rev="{}" transitive="false">
      <artifact name="{}" type="jar" ext="jar" m:classifier="{}"/>
    </dependency>
  </dependencies>
</ivy-module>"""


def _ivy(artifact: str, folder: Path, *, transitive: bool) -> None:
    group, name, version, *classifier = artifact.split(":")
    options = ["-dependency", group, name, version, "-confs", "default", *([] if transitive else ["-notransitive"])]
    if classifier:  # Ivy has no option for it
        (folder.parent / "ivy.xml").write_text(_IVY_FILE.format(group, name, version, name, *classifier))
        options = ["-ivy", f"{folder.parent}/ivy.xml"]
    retrieve(options, f"{folder}/[artifact]-[revision](-[classifier]).[ext]", cwd=folder.parent)
    if not folder.is_dir():
        msg = f"{artifact} could not be fetched from Maven Central: it has no jars"
        raise ZyncError(msg)


def retrieve(options: list[str], pattern: str, cwd: Path) -> None:
    """Runs Ivy to fetch artifacts.

    Args:
        options: Ivy's options, which name the artifacts.
        pattern: Ivy's pattern of the files to write.
        cwd: The working directory.

    Raises:
        ZyncError: Ivy fails.
    """
    command = [java(), "-jar", str(_spark_jar("ivy")), *options, "-retrieve", pattern]
    with locked(cache_folder() / ".ivy.lock", wait=_IVY_SECONDS):  # concurrent Ivys damage their cache
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)  # noqa: S603 - Java
    if result.returncode:
        lines = [*filter(None, map(str.strip, (result.stdout + result.stderr).splitlines())), "no reason given"]
        error_text = next((line for line in lines if "ERROR" in line or "FAILED" in line), lines[0])
        msg = f"{' '.join(options)} could not be fetched from Maven Central: {error_text}"
        raise ZyncError(msg)


def _spark_jar(name: str) -> Path:
    """Returns the path of a jar that pyspark contains, by its name without its version."""
    spec = importlib.util.find_spec("pyspark")
    jar = next(Path(str(spec.origin)).parent.glob(f"jars/{name}-[0-9]*.jar"), None) if spec else None
    if jar is None:
        msg = "pyspark is not installed as a package with its jars: pip install pyspark"
        raise UsageError(msg)
    return jar


def main(arguments: list[str]) -> None:
    """Fetches the jars that every session needs; with `fetch s3`, `gs` or `azure` those for a lake there, too.

    `fetch kafka` fetches the Kafka of `zync broker` and `zync demo` as well. With `log-store` it prints the path of the
    jar that a Spark application of one's own needs for a lake in S3, or in the store that is named. With `jars` it
    prints the paths of all jars that such an application needs, as `spark-submit --jars` takes them: for a lake on a
    disk, or in the store that is named.
    """
    fetched = (*STORES, "kafka")
    words = [[], ["log-store"], ["jars"], *(["fetch", name] for name in fetched)]
    words += [[word, store] for word in ("log-store", "jars") for store in STORES]
    if arguments not in words:
        text = (
            f"usage: python -m zync.java [fetch NAME | log-store [STORE] | jars [STORE]], with a NAME of "
            f"{', '.join(fetched)}, and a STORE of {', '.join(STORES)}"
        )
        print(text, file=sys.stderr)  # noqa: T201 - a script
        sys.exit(UsageError.exit_code)
    name = arguments[1] if arguments[1:] else "s3"
    try:
        if arguments[:1] == ["log-store"]:
            print(log_store(name))  # noqa: T201 - a script
            return
        if arguments[:1] == ["jars"]:
            of_store = [*fetch_store(name), log_store(name)] if arguments[1:] else []
            print(*fetch(DELTA), *fetch(AVRO), spark_classes(), *of_store, sep=",")  # noqa: T201 - a script
            return
        fetch(DELTA)
        fetch(AVRO)
        spark_classes()
        if name == "kafka":
            fetch(KAFKA, transitive=True)
        elif arguments:
            fetch_store(name)
            log_store(name)
    except ZyncError as error:
        print(f"zync: {error}", file=sys.stderr)  # noqa: T201 - a script
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(sys.argv[1:])
