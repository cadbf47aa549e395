"""Jars, fetched once into a cache folder by the Ivy that ships inside pyspark; never resolved at a session's start."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from zync.errors import UsageError, ZyncError
from zync.lake.lock import locked

DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
"""All that Delta needs beside what Spark has: 10 MB."""
AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)
"""Spark's own module for Avro, 90 KB: its 4.2.0 was not to be had, this one works with Spark 4.2."""
KAFKA = ("org.apache.kafka:kafka_2.13:4.1.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3")
"""A Kafka server, for development: 46 jars with what it depends on, 43 MB; and what makes it write its log."""

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""JVM options for what lives briefly or does little: it starts in half the time, and is slower in the long run."""

_JAVA_LEAST = 17
_IVY_SECONDS = 600.0


def cache_folder() -> Path:
    """Where fetched jars are kept: `$ZYNC_CACHE`, or zync's folder in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ZYNC_CACHE") or Path(base) / "zync")


def java() -> str:
    """The Java to run, at least 17; UsageError that says what to install otherwise."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not command or not Path(command).exists():
        msg = "Java 17 or newer is needed and none was found: install it (Debian: openjdk-17-jre-headless)"
        raise UsageError(msg)
    asked = [command, "-version"]  # apart from the terminal, whose Ctrl-C is ours to answer
    said = subprocess.run(asked, capture_output=True, text=True, check=False, start_new_session=True).stderr  # noqa: S603 - Java
    match = re.search(r'version "(\d+)', said)
    if not match or int(match[1]) < _JAVA_LEAST:
        found = said.splitlines()[0] if said else "an unknown version"
        msg = f"Java 17 or newer is needed, {command} is {found}: install it (Debian: openjdk-17-jre-headless)"
        raise UsageError(msg)
    return command


def fetch(artifacts: tuple[str, ...], *, transitive: bool = False) -> list[Path]:
    """The jars of those `group:artifact:version`s, from the cache folder, or from Maven Central the first time."""
    folder = cache_folder() / "+".join("-".join(artifact.split(":")[1:]) for artifact in artifacts)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
            for artifact in artifacts:
                _ivy(artifact, Path(scratch) / "jars", transitive=transitive)
            try:
                (Path(scratch) / "jars").rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process fetched the same jars meanwhile
                    raise
    return sorted(folder.glob("*.jar"))


def _ivy(artifact: str, into: Path, *, transitive: bool) -> None:
    wanted = ["-dependency", *artifact.split(":"), "-confs", "default", *([] if transitive else ["-notransitive"])]
    retrieve(wanted, f"{into}/[artifact]-[revision](-[classifier]).[ext]", cwd=into.parent)
    if not into.is_dir():
        msg = f"{artifact} could not be fetched from Maven Central: it has no jars"
        raise ZyncError(msg)


def retrieve(wanted: list[str], pattern: str, cwd: Path) -> None:
    """Has Ivy fetch what its options `wanted` say into files called by its `pattern`; ZyncError where it cannot."""
    spec = importlib.util.find_spec("pyspark")
    ivy = next(Path(str(spec.origin)).parent.glob("jars/ivy-*.jar"), None) if spec else None
    if ivy is None:
        msg = "pyspark is not installed as a package with its jars: pip install pyspark"
        raise UsageError(msg)
    command = [java(), "-jar", str(ivy), *wanted, "-retrieve", pattern]
    with locked(cache_folder() / ".ivy.lock", wait=_IVY_SECONDS):  # two Ivys at once spoil each other's cache
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)  # noqa: S603 - Java, our arguments
    if done.returncode:
        lines = [*filter(None, map(str.strip, (done.stdout + done.stderr).splitlines())), "no reason given"]
        said = next((line for line in lines if "ERROR" in line or "FAILED" in line), lines[0])
        msg = f"{' '.join(wanted)} could not be fetched from Maven Central: {said}"
        raise ZyncError(msg)


if __name__ == "__main__":
    fetch(DELTA)
    fetch(AVRO)
