"""The parts of the pipeline, each a process; who dies is started again, after a while that grows, and the rest goes on.

A part that ends again and again with the user's mistake is not: to start it once more mends nothing.

Nothing is kept here: how far each part is stands in the tables and in Kafka, so that any of them, or the run itself,
may be killed at any moment.
"""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zync.config.model import Config
from zync.errors import OwnedError, UsageError
from zync.lake.paths import is_local
from zync.text import amount

_WAIT_SECONDS = (1.0, 60.0)
"""Before a part is started again: so long at first, twice as long each time, so long at most."""
_OWNED_SECONDS = 3.0
"""The same where another process has the table: it may be of a run that was killed, and about to end."""
_WELL_SECONDS = 60.0
"""A part that ran for so long was well: the next wait is the first one again."""
_MISTAKES = 3
"""So often in a row a part may end with the user's mistake (exit code 2) before it is given up. Not once: brokers that
have just come back may not know of a topic for a few seconds, and who made the pipeline may be making the topic."""
_STOP_SECONDS = 90.0
_AS_ASKED = (0, -signal.SIGTERM)
"""How a part ends that was told to: the latter before it has begun to listen."""
_LOOK_SECONDS = 0.1
_NICER = 5
"""That much nicer is a part that is behind: it gets a third of the time that one beside it gets."""
_COLD_SECONDS = 60.0
"""So long after its start it is not yet, nor before it has delivered: what a JVM does first takes several times as long
as later on, and on a busy machine a nicer one would not come to an end of it."""

Say = Callable[[str, str, str, Mapping[str, Any]], None]
"""What hears of all lines: the part, the level, the text, and the figures that came with it."""


@dataclass
class Part:
    """A command of zync, and the process that it is now, if any."""

    name: str
    command: tuple[str, ...]
    behind: bool = False
    """Whether it lets the others go first: nothing waits for it, and it takes more time than they do."""
    process: "subprocess.Popen[str] | None" = None
    readers: tuple[threading.Thread, ...] = ()
    address: str | None = None
    """HOST:PORT of its metrics."""
    began: float = 0.0
    delivered: bool = False
    """Whether it has since."""
    due: float = 0.0
    failures: int = 0
    mistakes: int = 0
    """How often in a row it ended with the user's mistake."""
    restarts: int = 0
    has_been_well: bool = False
    ending: bool = False
    """Whether it is not to run any more."""

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self.process is not None

    @property
    def well(self) -> bool:
        """Whether it ran, or runs, for long."""
        return time.monotonic() - self.began > _WELL_SECONDS

    @property
    def given_up(self) -> bool:
        """Whether it is not started again, as what it ends with is the user's to mend."""
        return self.mistakes >= _MISTAKES

    @property
    def falters(self) -> bool:
        """Whether it was started again more than once of late: that it runs does not say that it works."""
        return self.failures > 1 and not self.well

    def state(self) -> str:
        """What it does, in a word or two."""
        if self.given_up:
            return f"given up (exit code {UsageError.exit_code})"
        if self.ending:
            return "stops" if self.runs else "ended"
        if not self.runs:
            return f"again in {max(0.0, self.due - time.monotonic()):.0f} s"
        return "runs" if self.address else "starts"


def parts(config: Config, lake: str, options: Mapping[str, str]) -> tuple[Part, ...]:
    """What `config` has to run, over the tables `raw` and `staging` in `lake`.

    options: `--config`, `--bootstrap-servers`, `--commit-every` …, with their values, where they were given.
    """

    def part(name: str, *command: str, also: tuple[str, ...] = (), behind: bool = False) -> Part:
        given = [text for key in ("--config", *also) if key in options for text in (key, options[key])]
        watched = ["--lake", lake, "--metrics", "localhost:0", "--log-format", "json"]
        return Part(name, (*command, *watched, *given), behind)

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
        found.append(part("to tables", "sync-to", "tables", "staging", behind=True))
    return tuple(found)


def _instance(lake: str) -> str:
    """The same name each time, so that Kafka gives sync-from its partitions back at once, even after a kill -9."""
    where = f"{socket.gethostname()}:{Path(lake).absolute() if is_local(lake) else lake}"
    return f"zync-run-{hashlib.sha256(where.encode()).hexdigest()[:16]}"


class Pipeline:
    """Parts that run until `stop` is set."""

    def __init__(self, parts: tuple[Part, ...], stop: threading.Event, say: Say) -> None:
        self.parts, self.stop, self.say = parts, stop, say

    def run(self, watch: Callable[[], None] = lambda: None) -> int:
        """Runs them, until `stop` is set or none is left; `watch` is called in between, several times a second.

        A part that is given up ends all of them if it has never run for a minute: then what is to run cannot, as the
        config is. One that has leaves the others to go on.

        Returns:
            What to exit with: 0 where all parts ended well, 2 where one was given up, else 1.
        """
        try:
            while not self.stop.is_set():
                for part in self.parts:
                    self._tend(part)
                watch()
                self.stop.wait(_LOOK_SECONDS)
            well = self._end(watch)
            return UsageError.exit_code if any(part.given_up for part in self.parts) else int(not well)
        finally:
            for part in self.parts:
                if part.process is not None:
                    part.process.kill()

    def _tend(self, part: Part) -> None:
        if part.process is None:
            if not part.given_up and time.monotonic() >= part.due:
                self._start(part)
        elif part.process.poll() is not None:
            self._again(part, self._ended(part))
        elif part.behind and part.delivered and time.monotonic() - part.began > _COLD_SECONDS:
            _give_way(part.process.pid)

    def _start(self, part: Part) -> None:
        part.began, part.delivered = time.monotonic(), False
        part.process = subprocess.Popen(  # noqa: S603 - zync itself
            [sys.executable, "-m", "zync.cli.part", *part.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # so that a terminal's Ctrl-C comes to the run, and the run ends its parts
        )
        part.readers = tuple(
            threading.Thread(target=read, args=(part, stream), name=part.name, daemon=True)
            for read, stream in ((self._results, part.process.stdout), (self._log, part.process.stderr))
        )
        for reader in part.readers:
            reader.start()
        self.say(part.name, "info", "starts", {"event": "start"})

    def _results(self, part: Part, lines: Iterable[str]) -> None:
        """Hears what the part prints as its results."""
        for line in lines:
            self.say(part.name, "info", line.rstrip("\n"), {"event": "result"})

    def _log(self, part: Part, lines: Iterable[str]) -> None:
        """Hears what the part says beside them: its log, whose lines are JSON, and whatever else comes."""
        for line in lines:
            said = _understood(line)
            text, level = str(said.pop("message")), str(said.pop("level"))
            said.pop("time", None)
            if said.get("event") == "metrics":
                part.address = said["address"]
            else:
                part.delivered = part.delivered or said.get("event") == "delivered"
                self.say(part.name, level, text, said)

    def _ended(self, part: Part) -> int:
        """The exit code of a part that is over."""
        process, part.process, part.address = part.process, None, None
        assert process is not None  # noqa: S101 - for mypy
        code = process.wait()
        for reader in part.readers:
            reader.join(2)  # a grandchild may still hold the pipe
        if process.stdin:
            process.stdin.close()
        return code

    def _again(self, part: Part, code: int) -> None:
        if part.well:
            part.failures, part.mistakes, part.has_been_well = 0, 0, True
        part.mistakes = part.mistakes + 1 if code == UsageError.exit_code else 0
        if part.given_up:
            self._give_up(part, code)
            return
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

    def _give_up(self, part: Part, code: int) -> None:
        """Says that the part is not started again; ends the rest where it has never been well, or none is left."""
        all_end = not part.has_been_well or all(one.given_up for one in self.parts)
        text = f"{_how(code)}, {part.mistakes} times in a row: not started again, as that is not what mends it"
        text += "; all parts stop" if all_end else "; the other parts go on"
        self.say(part.name, "error", text, {"event": "given_up", "code": code, "restarts": part.restarts})
        if all_end:
            self.stop.set()

    def _end(self, watch: Callable[[], None]) -> bool:
        """Has all parts end as they do on Ctrl-C; whether all did."""
        for part in self.parts:
            part.ending = True
        running = [part for part in self.parts if part.process is not None]
        for part in running:
            if part.process and part.process.poll() is None:
                part.process.send_signal(signal.SIGTERM)
                self.say(part.name, "info", "stops as soon as it can", {"event": "stop"})
        well, until = True, time.monotonic() + _STOP_SECONDS
        while running and time.monotonic() < until:
            for part in [one for one in running if one.process and one.process.poll() is not None]:
                running.remove(part)
                if (code := self._ended(part)) not in _AS_ASKED:
                    self.say(part.name, "error", _how(code), {"code": code})
                    well = False
            watch()
            time.sleep(_LOOK_SECONDS)
        for part in running:
            self.say(part.name, "error", f"did not stop within {_STOP_SECONDS:.0f} s: killed", {})
        return well and not running


def _give_way(pid: int) -> None:
    """Makes a part nicer, unless it is: all that runs in the session and process group that it leads.

    Linux may weigh sessions first, and processes within each only then (see sched(7), "The autogroup feature").
    """
    nicer = min(os.getpriority(os.PRIO_PROCESS, 0) + _NICER, 19)  # than which nothing is nicer
    if os.getpriority(os.PRIO_PROCESS, pid) >= nicer:
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, nicer)
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICER))


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
