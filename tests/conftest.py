"""What all tests share: a real broker, one Spark session, a schema registry, the command line as a process."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from tests import shared
from tests.registry import RunningRegistry
from zync import java
from zync.raw.append import Appended, Appender
from zync.raw.jsonl import as_batch, read
from zync.raw.table import ensure_raw
from zync.resources import data_folder

ZYNC = [sys.executable, "-m", "zync"]
QUICK = " ".join(java.QUICK)
BRISK = f'spark: {{spark.driver.extraJavaOptions: "{QUICK}"}}\n'
"""Of a config whose processes live for a few seconds."""


_RUN = pytest.StashKey[shared.Run]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # where the run starts, not in one of its workers
        config.stash[_RUN] = shared.Run()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _RUN in config.stash:
        config.stash[_RUN].end()


_LONGEST = ("cdc/test_bank_run.py", "crash/test_kill_sync.py", "docs/test_tutorial.py", "kafka/test_exactly_once.py")
"""Files that take minutes: they come first, so that no worker is left with one when the others have ended."""
_WAITING = ("kafka", "deliver/kafka", "cli")
"""Folders whose tests wait most of the time, for timeouts and processes, while others keep the processors busy."""


@pytest.hookimpl(trylast=True)  # when what was deselected is gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders files: the longest, and then all others, among which those that wait are spread evenly."""
    by_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.path.relative_to(Path(__file__).parent), []).append(item)
    longest = sorted((file for file in by_file if str(file) in _LONGEST), key=lambda file: _LONGEST.index(str(file)))
    rest = [file for file in by_file if file not in longest]
    waiting = [file for file in rest if any(file.is_relative_to(folder) for folder in _WAITING)]
    busy = [file for file in rest if file not in waiting]
    places = {file: (number + 0.5) / len(files) for files in (waiting, busy) for number, file in enumerate(files)}
    items[:] = [item for file in [*longest, *sorted(places, key=places.__getitem__)] for item in by_file[file]]


@pytest.fixture(scope="session")
def broker() -> str:
    """The `bootstrap.servers` of a real Kafka, started for this run."""
    return shared.broker()


@pytest.fixture(scope="session")
def registry() -> RunningRegistry:
    """A real schema registry, started for this run."""
    return shared.registry()


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

    def delete(self, name: str) -> None:
        for future in self.admin.delete_topics([name]).values():
            future.result(20)
        until = time.monotonic() + 20
        while name in self.admin.list_topics(timeout=10).topics:
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


_AT_HAND = {"cat", "dlq", "doctor", "load", "maintain", "snapshot", "status", "txn", "verify"}
"""Commands without Spark that end by themselves."""


def zync(*args: str | Path, cwd: Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command line to its end; in this process, where nothing tells the difference but the time it takes."""
    words = [str(one) for one in args]
    ends = words[0] in _AT_HAND or ("--until-caught-up" in words and words[1] == "kafka" and "--metrics" not in words)
    if ends and not options:
        return _checked(run_here(words, cwd), check=check)
    done = subprocess.run([*ZYNC, *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=240, **options)
    return _checked(done, check=check)


@pytest.fixture
def warm(spark: Any) -> Callable[..., "subprocess.CompletedProcess[str]"]:  # noqa: ARG001 - it is there, then
    """As `zync`, in this process, whose Spark is there already: for what a command says, not for how it ends."""

    def run(*args: str | Path, cwd: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
        return _checked(run_here([str(one) for one in args], cwd), check=check)

    return run


def run_here(words: list[str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Runs the command line to its end in this process."""
    from zync.cli import main

    code, ours = 0, logging.getLogger("zync")
    level = ours.level
    signals = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch, _caught(1) as out, _caught(2) as err:
        patch.setattr(sys, "argv", ["zync", *words])
        patch.setattr(ours, "handlers", [])
        patch.setenv("ZYNC_LOG_FORMAT", "")
        patch.setenv("ZYNC_DEBUG", "")
        patch.chdir(cwd)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        finally:
            ours.setLevel(level)
            for one, handler in signals.items():
                signal.signal(one, handler)
        return subprocess.CompletedProcess(["zync", *words], code, _all_of(out), _all_of(err))


@contextmanager
def _caught(descriptor: int) -> Iterator[TextIO]:
    """A file that gets what is written there meanwhile, by libraries that are not Python's, too."""
    kept = os.dup(descriptor)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as found:
        os.dup2(found.fileno(), descriptor)
        try:
            yield found
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)


def _all_of(file: TextIO) -> str:
    file.seek(0)
    return file.read()


def _checked(done: "subprocess.CompletedProcess[str]", *, check: bool) -> "subprocess.CompletedProcess[str]":
    if check and done.returncode:
        pytest.fail(f"{' '.join(done.args)} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def start(*args: str | Path, cwd: Path, **options: Any) -> "subprocess.Popen[str]":
    """Starts the command line and lets it run; what it prints goes to `<cwd>/<first words>.log`."""
    log = cwd / f"{'-'.join(str(one) for one in args[:2])}-{uuid.uuid4().hex[:4]}.log"
    with log.open("w") as out:
        return subprocess.Popen(
            [*ZYNC, *map(str, args)], cwd=cwd, stdout=out, stderr=out, stdin=subprocess.DEVNULL, text=True, **options
        )


class Loader:
    """Loads JSON records into a raw again and again, each time by a commit of its own.

    It keeps the table's handle, as sync-from does. `load` opens the table each time, which takes four times as long as
    the commit once there are some dozen.
    """

    def __init__(self, raw: str) -> None:
        ensure_raw(raw)
        self.appender = Appender(raw)

    def load(self, records: list[dict[str, Any]]) -> Appended:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(record) + "\n" for record in records))
            file.flush()
            lines = read([file.name])
        return self.appender.append_planned(lambda table: as_batch(lines, table))


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
def spark() -> Any:
    """A session of the Spark that was started for this run."""
    return shared.spark()
