"""Ctrl-C at a terminal, which goes to every process of the command: it ends, quietly, and nothing is half done."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tests.conftest import BRISK, start
from tests.invariants import assert_staging_is_what_raw_says
from tests.kafka.conftest import wait_until
from tests.model import Record, State
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.sync.outcome import Outcome
from zync.sync.process import sync_once

_CONFIG = f"""\
topics: {{a: {{id: "value:txn"}}, b: {{id: "value:txn"}}}}
transactions: {{done: "count(*) = max(value:n::int)"}}
outputs: [{{topic: out, sql: out.sql}}]
{BRISK}"""
_RULE = "SELECT seqno, txn, sum(value:x::int) AS x FROM records GROUP BY seqno, txn"
_AT_A_TIME = 10


def rule(_seqno: int, records: list[Record]) -> list[tuple[str, None, str]]:
    made = {"txn": records[0].value["txn"], "x": sum(one.value["x"] for one in records)}
    return [("out", None, json.dumps(made, separators=(",", ":")))]


def whole(records: list[Record]) -> bool:
    return len(records) == int(records[0].value["n"])


class Lake:
    """A folder with a config, and a raw that grows: each step ends the transactions of the last and begins others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raw, self.staging = folder / "lake" / "raw", folder / "lake" / "staging"
        self.steps = count()
        self.scratch = folder / "tmp"
        self.scratch.mkdir()
        (folder / "zync.yaml").write_text(_CONFIG)
        (folder / "out.sql").write_text(_RULE)

    def grow(self) -> None:
        step = next(self.steps)
        lines = [
            json.dumps({"topic": topic, "value": {"txn": f"{begun}-{n}", "n": 2, "x": n}})
            for topic, begun in (("b", step - 1), ("a", step))
            for n in range(_AT_A_TIME)
            if begun >= 0
        ]
        path = self.folder / "in.jsonl"
        path.write_text("\n".join(lines))
        load(str(self.raw), [str(path)])

    def version(self) -> int:
        try:
            return DeltaTable(str(self.staging)).version()
        except TableNotFoundError:  # nor is it a table while its log is a folder without a commit
            return -1

    def sync(self) -> Outcome:
        """One sync, in this process; it needs what is left behind to be sound, and nobody else to be at it."""
        return sync_once(read_config(self.folder / "zync.yaml"), str(self.raw), str(self.staging))

    def check(self) -> State:
        return assert_staging_is_what_raw_says(self.folder / "lake", whole, rule, {"a": 1, "b": 1})

    def begin(self, *args: str) -> "subprocess.Popen[str]":
        """Starts zync as a terminal does: in a group of its own."""
        env = {**os.environ, "TMPDIR": str(self.scratch)}
        return start(*args, cwd=self.folder, start_new_session=True, env=env)

    def said(self) -> str:
        (log,) = self.folder.glob("*.log")
        return log.read_text()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.grow()
    return made


@pytest.fixture
def growing(lake: Lake) -> Iterator[None]:
    """Raw grows all the while, whatever becomes of the sync."""
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(1):
            lake.grow()

    thread = threading.Thread(target=go_on)
    thread.start()
    yield
    stop.set()
    thread.join()


def running(session: int) -> dict[int, str]:
    """The processes of a session and their command lines; none that only wait for somebody to note their end."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(of) == session and state not in "ZX":
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:  # ended meanwhile
            continue
    return found


def ctrl_c(process: "subprocess.Popen[str]", within: float) -> int:
    """Sends what Ctrl-C sends to all processes of the command, and returns the command's exit code."""
    os.killpg(process.pid, signal.SIGINT)
    return process.wait(within)


@pytest.fixture
def begin(lake: Lake) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """`lake.begin`; what still runs of it after the test is killed."""
    begun: list[subprocess.Popen[str]] = []

    def go(*args: str) -> "subprocess.Popen[str]":
        begun.append(lake.begin(*args))
        return begun[-1]

    yield go
    for one in begun:
        for pid in running(one.pid):
            os.kill(pid, signal.SIGKILL)
        one.wait()


@pytest.mark.usefixtures("spark")
def test_ctrl_c_ends_a_following_sync_between_two_commits(lake: Lake, begin: Any, growing: None) -> None:
    follow = begin("sync", "raw", "staging", "--follow", "--log-format", "json")
    wait_until(lambda: lake.version() >= 1, 120)
    time.sleep(0.5)  # in the midst of the next one, as raw has grown meanwhile
    assert ctrl_c(follow, within=60) == 0
    said = lake.said()
    assert {json.loads(line)["event"] for line in said.splitlines()} == {"sync"}, said
    assert len(said.splitlines()) == lake.version()  # version 0 made the table
    before = lake.check()
    wait_until(lambda: not running(follow.pid), 10)

    outcome = lake.sync()
    assert outcome.records > 0
    after = lake.check()
    assert after.head > before.head
    assert len(after.done) > len(before.done) > 0
    assert outcome.in_flight == _AT_A_TIME


def is_quiet(said: str) -> bool:
    """Whether that is nothing, or one line for people."""
    return len(said.splitlines()) <= 1 and "Error" not in said and "Exception" not in said


def test_ctrl_c_while_spark_starts_leaves_no_process_behind(lake: Lake, begin: Any) -> None:
    sync = begin("sync", "raw", "staging")
    wait_until(lambda: "SparkSubmit" in str(running(sync.pid)))  # launched, and not to be spoken to yet
    assert ctrl_c(sync, within=60) == 130
    assert is_quiet(lake.said()), lake.said()
    wait_until(lambda: not running(sync.pid), 10)
    assert lake.version() == -1


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("later", [0.1, 0.4, 0.8])
def test_what_ctrl_c_cut_off_is_done_by_the_next_sync(lake: Lake, begin: Any, later: float) -> None:
    sync = begin("sync", "raw", "staging")
    wait_until(lambda: lake.version() == 0)
    time.sleep(later)  # in one of the stages
    assert ctrl_c(sync, within=60) == 130
    assert not lake.said()
    wait_until(lambda: not running(sync.pid), 10)
    lake.grow()
    assert lake.sync().sync == 1
    assert len(lake.check().done) == _AT_A_TIME


def test_ctrl_c_while_checking_data_leaves_no_folder_behind(lake: Lake, begin: Any) -> None:
    check = begin("check", "--data", "raw")
    wait_until(lambda: any(lake.scratch.glob("zync-check-*/whole/_delta_log/*.json")), 60)
    assert ctrl_c(check, within=60) == 130
    assert not lake.said()
    wait_until(lambda: not running(check.pid), 10)
    assert not list(lake.scratch.glob("zync-*"))
