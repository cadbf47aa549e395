"""The parts of the pipeline, each a process; who dies is started again, after a while that grows, and the rest goes on.

Nothing is kept here: how far each part is stands in the tables and in Kafka, so that any of them, or the run itself,
may be killed at any moment.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zync.config import Config
from zync.errors import OwnedError
from zync.lake import is_local
from zync.output import amount

_WAIT_SECONDS = (1.0, 60.0)
"""Before a part is started again: so long at first, twice as long each time, so long at most."""
_OWNED_SECONDS = 3.0
"""The same where another process has the table: it may be of a run that was killed, and about to end."""
_WELL_SECONDS = 60.0
"""A part that ran for so long was well: the next wait is the first one again."""
_STOP_SECONDS = 90.0
_LOOK_SECONDS = 0.1

Say = Callable[[str, str, str, Mapping[str, Any]], None]
"""What hears of all lines: the part, the level, the text, and the figures that came with it."""


@dataclass
class Part:
    """A command of zync, and the process that it is now, if any."""

    name: str
    command: tuple[str, ...]
    process: "subprocess.Popen[str] | None" = None
    reader: threading.Thread | None = None
    address: str | None = None
    """HOST:PORT of its metrics."""
    began: float = 0.0
    due: float = 0.0
    failures: int = 0
    restarts: int = 0
    last: str = field(default="", repr=False)
    """The last error that it said."""

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self.process is not None

    def state(self) -> str:
        """What it does, in a word or two."""
        if not self.runs:
            return f"again in {max(0.0, self.due - time.monotonic()):.0f} s"
        return "runs" if self.address else "starts"


def parts(config: Config, lake: str, options: Mapping[str, str]) -> tuple[Part, ...]:
    """What `config` has to run, over the tables `raw` and `staging` in `lake`.

    options: `--config`, `--bootstrap-servers`, `--commit-every` …, with their values, where they were given.
    """

    def part(name: str, *command: str, also: tuple[str, ...] = ()) -> Part:
        given = [text for key in ("--config", *also) if key in options for text in (key, options[key])]
        watched = ["--lake", lake, "--metrics", "localhost:0", "--log-format", "json"]
        return Part(name, (*command, *watched, *given))

    kafka, of_kafka = config.deliver.kafka, ("--bootstrap-servers",)
    instance = ["--instance", _instance(lake)] if "group.instance.id" not in config.kafka else []
    found = [
        part("sync-from", "sync-from", "kafka", "raw", *instance, also=(*of_kafka, "--commit-every")),
        part("sync", "sync", "raw", "staging", "--follow"),
    ]
    if kafka is not None:
        elsewhere = "bootstrap.servers" in kafka.properties
        found.append(part("to kafka", "sync-to", "kafka", "staging", also=() if elsewhere else of_kafka))
    if config.deliver.tables is not None:
        found.append(part("to tables", "sync-to", "tables", "staging"))
    return tuple(found)


def _instance(lake: str) -> str:
    """The same name each time, so that Kafka gives sync-from its partitions back at once, even after a kill -9."""
    where = f"{socket.gethostname()}:{Path(lake).absolute() if is_local(lake) else lake}"
    return "zync-run-" + "".join(one if one.isalnum() or one in "._-" else "-" for one in where)


class Pipeline:
    """Parts that run until `stop` is set."""

    def __init__(self, parts: tuple[Part, ...], stop: threading.Event, say: Say) -> None:
        self.parts, self.stop, self.say = parts, stop, say

    def run(self, watch: Callable[[], None] = lambda: None) -> bool:
        """Runs them; whether all ended well. `watch` is called in between, several times a second."""
        try:
            while not self.stop.is_set():
                for part in self.parts:
                    self._tend(part)
                watch()
                self.stop.wait(_LOOK_SECONDS)
            return self._end(watch)
        finally:
            for part in self.parts:
                if part.process is not None:
                    part.process.kill()

    def _tend(self, part: Part) -> None:
        if part.process is None:
            if time.monotonic() >= part.due:
                self._start(part)
        elif part.process.poll() is not None:
            self._again(part, self._ended(part))

    def _start(self, part: Part) -> None:
        part.began, part.last = time.monotonic(), ""
        part.process = subprocess.Popen(  # noqa: S603 - zync itself
            [sys.executable, "-m", "zync.run.part", *part.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # so that a terminal's Ctrl-C comes to the run, and the run ends its parts
        )
        part.reader = threading.Thread(target=self._read, args=(part, part.process), name=part.name, daemon=True)
        part.reader.start()

    def _read(self, part: Part, process: "subprocess.Popen[str]") -> None:
        """Hears what the part says; the lines of its log are JSON."""
        for line in process.stdout or ():
            said = _understood(line)
            text, level = str(said.pop("message")), str(said.pop("level"))
            said.pop("time", None)
            if said.get("event") == "metrics":
                part.address = said["address"]
                continue
            if level == "error":
                part.last = text
            self.say(part.name, level, text, said)

    def _ended(self, part: Part) -> int:
        """The exit code of a part that is over."""
        process, part.process, part.address = part.process, None, None
        assert process is not None  # noqa: S101 - for mypy
        code = process.wait()
        if part.reader:
            part.reader.join(2)  # a grandchild may still hold the pipe
        with contextlib.suppress(OSError):
            (process.stdin or contextlib.nullcontext()).close()  # type: ignore[union-attr]
        return code

    def _again(self, part: Part, code: int) -> None:
        if time.monotonic() - part.began > _WELL_SECONDS:
            part.failures = 0
        first, longest = _WAIT_SECONDS
        if code == OwnedError.exit_code:
            wait = _OWNED_SECONDS
        else:
            wait = min(longest, first * 2**part.failures)
            part.failures += 1
        part.restarts += 1
        part.due = time.monotonic() + wait
        text = f"{_how(code)}; started again in {wait:.0f} s"
        self.say(part.name, "warning", text, {"event": "restart", "code": code, "restarts": part.restarts})

    def _end(self, watch: Callable[[], None]) -> bool:
        """Has all parts end as they do on Ctrl-C; whether all did."""
        running = [part for part in self.parts if part.process is not None]
        for part in running:
            if part.process and part.process.poll() is None:
                part.process.send_signal(signal.SIGTERM)
        well, until = True, time.monotonic() + _STOP_SECONDS
        while running and time.monotonic() < until:
            for part in [one for one in running if one.process and one.process.poll() is not None]:
                running.remove(part)
                if code := self._ended(part):
                    self.say(part.name, "error", _how(code), {"code": code})
                    well = False
            watch()
            time.sleep(_LOOK_SECONDS)
        for part in running:
            self.say(part.name, "error", f"did not stop within {_STOP_SECONDS:.0f} s: killed", {})
        return well and not running


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _understood(line: str) -> dict[str, Any]:
    """A line of a part's log; one that is no log line is its message."""
    with contextlib.suppress(ValueError):
        said = json.loads(line)
        if isinstance(said, dict) and {"message", "level"} <= said.keys():
            return said
    return {"level": "info", "message": line.rstrip("\n")}


def summary(parts: tuple[Part, ...]) -> str:
    """What became of them, in a line."""
    return ", ".join(f"{one.name}: {amount(one.restarts, 'restart')}" for one in parts)
