"""`sync --follow --standby` takes over from a sync that is killed or suspended, on a local disk and in a store."""

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BRISK, ZYNC, start
from tests.kafka.conftest import wait_until
from tests.store.s3 import BUCKET
from zync.errors import INTERRUPTED, OwnedError
from zync.lake.table import open_table

FOLLOW = ("sync", "raw", "staging", "--follow")
WITHIN_SECONDS = 30

Start = Callable[..., "Command"]


class Command:
    """A command that runs, and what it has said so far."""

    def __init__(self, folder: Path, *words: str) -> None:
        before = set(folder.glob("*.log"))
        self.process = start(*words, cwd=folder)
        (self.log,) = set(folder.glob("*.log")) - before
        self.send_signal, self.wait, self.pid = self.process.send_signal, self.process.wait, self.process.pid

    def says(self, text: str) -> bool:
        return text in self.log.read_text()


@pytest.fixture(params=["local", "store"])
def lake(request: pytest.FixtureRequest, demo: Path) -> str:
    """The lake of the demo, on this disk or in S3, with a first transaction in raw."""
    name = str(demo / "lake")
    if request.param == "store":
        request.getfixturevalue("s3")
        name = f"s3://{BUCKET}/{demo.parent.name}"
    config = (demo / "zync.yaml").read_text().replace("lake: ./lake", f"lake: {name}")
    (demo / "zync.yaml").write_text(f"{config}\n{BRISK}")
    run(demo, "load", "raw", "consume-1.jsonl")
    return name


@pytest.fixture
def begin(demo: Path) -> Iterator[Start]:
    """Starts commands, and ends those that a test leaves."""
    commands: list[Command] = []

    def begin(*words: str) -> Command:
        commands.append(Command(demo, *words))
        return commands[-1]

    yield begin
    for command in commands:
        command.process.kill()
        command.wait()


def run(folder: Path, *words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([*ZYNC, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def customers(lake: str) -> list[int]:
    """Of staging's output rows."""
    staging = open_table(f"{lake}/staging")
    rows: list[dict[str, Any]] = staging.to_pyarrow_table().to_pylist() if staging else []
    return sorted(json.loads(row["value"])["customerID"] for row in rows if row["kind"] == "output")


def ready(command: Command) -> str:
    address = re.search(r"http://\S+:\d+", command.log.read_text())
    assert address
    with urllib.request.urlopen(f"{address[0]}/readyz", timeout=5) as answer:  # noqa: S310 - a process of the test
        return str(answer.read().decode())


def test_a_standby_takes_over_and_nothing_is_twice(demo: Path, lake: str, begin: Start) -> None:
    """From one that is killed; in the store from one that is suspended in a sync, and wakes up as a zombie."""
    first = begin(*FOLLOW)
    wait_until(lambda: customers(lake) == [1], 90)
    standby = begin(*FOLLOW, "--standby", "--metrics", "localhost:0")
    assert f"(pid {first.pid})" in run(demo, *FOLLOW, code=OwnedError.exit_code).stderr
    wait_until(lambda: standby.says("waiting as standby: zync sync on "), 60)
    assert re.match(rf"standby: zync sync on \S+ \(pid {first.pid}\) works", ready(standby))
    another = begin("sync", "raw", "staging", "--standby")
    wait_until(lambda: another.says("waiting as standby"), 60)
    another.send_signal(signal.SIGINT)
    assert another.wait(10) == INTERRUPTED

    run(demo, "load", "raw", "consume-2.jsonl")
    time.sleep(0.5)  # a sync of it takes some seconds
    is_local = "://" not in lake
    first.send_signal(signal.SIGKILL if is_local else signal.SIGSTOP)
    stopped_at = time.monotonic()
    wait_until(lambda: standby.says(f"took over {lake}/staging"), WITHIN_SECONDS)
    wait_until(lambda: customers(lake) == [1, 2], 120)
    print(f"{lake}: {time.monotonic() - stopped_at:.1f} s until all was there again")
    if not is_local:
        first.send_signal(signal.SIGCONT)
        assert first.wait(60) == OwnedError.exit_code
        assert re.search(rf"zync sync on \S+ \(pid {standby.pid}\) took over", first.log.read_text())
    assert ready(standby) == "ready\n"
    standby.send_signal(signal.SIGTERM)
    assert standby.wait(60) == 0
    run(demo, "verify")
