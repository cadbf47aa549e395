"""One Kafka, one Spark and one schema registry for all workers of a run: who needs one first starts it.

They end with the run, and are processes of their own, for workers end before each other. A run is a folder, by `FOLDER`
in the environment of its workers, whose lock the run holds: it is let go however the run ends.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.registry import RunningRegistry
from zync.kafka.dev_broker import DevKafka

FOLDER = "ZYNC_TEST_RUN"

_SECONDS = 120
_SPARK = {
    "spark.driver.memory": "4g",
    # By what a run takes of processor time: less than with others, or `brief`; compiling later, and with a larger
    # nursery, a sixth less.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -Xms2g -Xmn1g -XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000 "
        "-XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000"
    ),
}


class Run:
    """What a run's workers share, from the process that starts the run."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zync-tests-"))
        self._lock = (self.folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.environ[FOLDER] = str(self.folder)

    def end(self) -> None:
        """Ends what was started, waits for it, and leaves nothing."""
        del os.environ[FOLDER]
        self._lock.close()
        with _alive(self.folder) as servers:
            fcntl.flock(servers, fcntl.LOCK_EX)
        shutil.rmtree(self.folder)


def _alive(folder: Path) -> TextIO:
    """A file whose lock all servers share, from before they start until they have ended, however they do."""
    return (folder / "alive").open("w")


def broker() -> str:
    """The `bootstrap.servers` of the run's Kafka."""
    return str(_found("kafka"))


def registry() -> RunningRegistry:
    """The run's schema registry, in which each module's subjects have names of their own."""
    folder, port, secure_port = _found("registry")
    return RunningRegistry(Path(folder), port, secure_port)


def spark() -> Any:
    """A session of the run's Spark, as a notebook has one of a Spark that others use, too."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from zync.spark.session import session

    names = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
    os.environ.update(zip(names, _found("spark"), strict=True))
    try:
        gateway = launch_gateway()
    finally:
        for name in names:  # else whatever this process starts would use this Spark, too
            del os.environ[name]
    java = gateway.jvm.org.apache.spark
    context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    with pytest.MonkeyPatch.context() as patched:  # read once, and not for what this process starts
        patched.setenv("PYSPARK_PYTHON", sys.executable)
        SparkSession(SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf())))
    return session()


def _found(what: str) -> Any:
    """How to reach it, once it answers."""
    folder = Path(os.environ[FOLDER])
    said = folder / f"{what}.json"
    with (folder / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            with (folder / f"{what}.log").open("w") as log, _alive(folder) as alive:
                fcntl.flock(alive, fcntl.LOCK_SH)
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.shared", what, str(folder)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                    pass_fds=[alive.fileno()],
                )  # fmt: skip
            until = time.monotonic() + _SECONDS
            while not said.exists():
                starting = process.poll() is None and time.monotonic() < until
                assert starting, (folder / f"{what}.log").read_text()
                time.sleep(0.05)
    return json.loads(said.read_text())


@contextmanager
def _kafka(folder: Path) -> Iterator[str]:
    one = DevKafka(folder / "broker")
    try:
        yield one.start()
    finally:
        one.stop()


@contextmanager
def _registry(folder: Path) -> Iterator[tuple[str, int, int]]:
    one = RunningRegistry(folder / "registry-files")
    one.folder.mkdir()
    one.start()
    try:
        yield str(one.folder), one.port, one.secure_port
    finally:
        one.stop()


@contextmanager
def _spark(folder: Path) -> Iterator[tuple[str, str]]:
    from pyspark import SparkContext

    from zync.spark.session import session

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    made = session("local[2]", _SPARK)
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - there is no other way to ask
    yield str(gateway.gateway_parameters.port), gateway.gateway_parameters.auth_token
    made.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _serve(what: str, folder: Path) -> None:
    said, new = folder / f"{what}.json", folder / f"{what}.new"
    servers = {"kafka": _kafka, "registry": _registry, "spark": _spark}
    with (folder / "lock").open() as lock, servers[what](folder) as reached:
        new.touch(mode=0o600)
        new.write_text(json.dumps(reached))
        new.rename(said)
        fcntl.flock(lock, fcntl.LOCK_SH)  # once the run lets go of it


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))
