"""What all tests share: a real broker, one Spark session, the command line as a process."""

import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from tests.registry import RunningRegistry
from zync import jars
from zync.devkafka import DevKafka
from zync.places import data_folder

ZYNC = [sys.executable, "-m", "zync"]
QUICK = " ".join(jars.QUICK)
BRISK = f'spark: {{spark.driver.extraJavaOptions: "{QUICK}"}}\n'
"""Of a config whose processes live for a few seconds."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The `bootstrap.servers` of a real Kafka, started for this run."""
    kafka = DevKafka(tmp_path_factory.mktemp("broker"))
    yield kafka.start()
    kafka.stop()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    """A real schema registry."""
    one = RunningRegistry(tmp_path_factory.mktemp("registry"))
    one.start()
    yield one
    one.stop()


@pytest.fixture
def topic(broker: str) -> Iterator["TopicMaker"]:
    """Makes topics that no other test has."""
    return TopicMaker(broker)


class TopicMaker:
    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.admin = AdminClient({"bootstrap.servers": broker, "log_level": 0})

    def __call__(self, name: str = "t", partitions: int = 1, **config: str) -> str:
        """A new topic, and its name."""
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        self.create(unique, partitions, **config)
        return unique

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        properties = {key.replace("_", "."): value for key, value in config.items()}
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=properties)]).values():
            future.result(20)
        until = time.monotonic() + 20
        while name not in self.admin.list_topics(timeout=10).topics:  # the broker learns of it after the controller
            assert time.monotonic() < until
            time.sleep(0.02)


def produce(broker: str, records: list[tuple[str, int, Any]], **properties: Any) -> None:
    """Sends (topic, partition, value) records; values that are no bytes go as JSON."""
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 5, **properties})
    for topic_, partition, value in records:
        payload = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        producer.produce(topic_, payload, partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def zync(*args: str | Path, cwd: Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command line to its end."""
    done = subprocess.run(
        [*ZYNC, *map(str, args)], cwd=cwd, capture_output=True, text=True, check=False, timeout=240, **options
    )
    if check and done.returncode:
        pytest.fail(f"zync {' '.join(map(str, args))} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


@pytest.fixture
def warm(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., "subprocess.CompletedProcess[str]"]]:
    """As `zync`, in this process, whose Spark is there already: for what a command says, not for how it ends."""
    from zync.cli import main

    ours = logging.getLogger("zync")
    level, handlers, interrupted = ours.level, ours.handlers, signal.getsignal(signal.SIGINT)

    def run(*args: str | Path, cwd: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
        words, code = [str(one) for one in args], 0
        monkeypatch.setattr(sys, "argv", ["zync", *words])
        monkeypatch.chdir(cwd)
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            try:
                main()
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        done = subprocess.CompletedProcess(["zync", *words], code, out.getvalue(), err.getvalue())
        if check and code:
            pytest.fail(f"zync {' '.join(words)} exited {code}\n{done.stdout}\n{done.stderr}")
        return done

    yield run
    ours.setLevel(level)
    ours.handlers = handlers
    signal.signal(signal.SIGINT, interrupted)


def start(*args: str | Path, cwd: Path, **options: Any) -> "subprocess.Popen[str]":
    """Starts the command line and lets it run; what it prints goes to `<cwd>/<first words>.log`."""
    log = cwd / f"{'-'.join(str(one) for one in args[:2])}-{uuid.uuid4().hex[:4]}.log"
    with log.open("w") as out:
        return subprocess.Popen(
            [*ZYNC, *map(str, args)], cwd=cwd, stdout=out, stderr=out, stdin=subprocess.DEVNULL, text=True, **options
        )


def rows(location: Path, version: int | None = None) -> list[dict[str, Any]]:
    """All rows of a Delta table, in order of seqno."""
    table: pa.Table = DeltaTable(str(location), version=version).to_pyarrow_table()
    return table.sort_by("seqno").to_pylist()


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A folder with the demo's files."""
    folder = tmp_path / "demo"
    shutil.copytree(data_folder("demo"), folder)
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The run's one Spark session."""
    from zync.spark import session

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # By what a run takes of processor time: less than with others, or `brief`; compiling later, a tenth less.
    options = (
        "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000 "
        "-XX:Tier4CompileThreshold=75000 -XX:Tier4BackEdgeThreshold=200000"
    )
    made = session("local[2]", {"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": options})
    yield made
    made.stop()
