"""Supervises the parts of the pipeline, each a process: restarts a part that ends, after a wait that grows each time.

The other parts go on meanwhile. A part that ends several times in a row with the user's mistake is not restarted, as a
restart does not correct a mistake.

The supervisor stores nothing: the tables and Kafka have the progress of each part, so that a part or the supervisor may
be killed at any moment.
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
from zync.errors import OwnedError, TableLostError, UsageError
from zync.lake.paths import is_local
from zync.text import amount

_WAIT_SECONDS = (1.0, 60.0)
"""The first wait before a restart, which doubles each time, and the longest."""
_OWNED_SECONDS = 3.0
"""The wait before a restart if another process has the table: it may belong to a killed run and be about to end."""
_STANDBY = "--standby"
_STABLE_SECONDS = 60.0
"""A part that ran for so long is stable: the next wait is the first wait again."""
_MAX_MISTAKES = 3
"""A part that ends so often in a row with the user's mistake (exit code 2) is given up. The first time is no proof:
brokers that just restarted may lack a topic for a few seconds, and the user may be about to create the topic."""
_STOP_SECONDS = 90.0
_STOP_CODES = (0, -signal.SIGTERM)
"""Exit codes of a part that was told to stop; the second if it had no signal handler yet."""
_LOOK_SECONDS = 0.1
_NICE_INCREMENT = 5
"""The increment of a background part's nice value: it gets a third of the CPU time of a part beside it."""
_COLD_SECONDS = 60.0
"""The priority is not lowered for so long after a part's start, nor before its first delivery: a JVM's first work takes
several times as long as later work, and with a lower priority on a busy machine it would hardly end."""

Say = Callable[[str, str, str, Mapping[str, Any]], None]
"""A function that receives each line: the part's name, the level, the text, and the event's fields."""


@dataclass
class Part:
    """A command of zync, with its process while it runs."""

    name: str
    command: tuple[str, ...]
    stands_by: bool = False
    """Whether the command knows `--standby`."""
    as_standby: bool = False
    """Whether it is started with `--standby`: after another process had its table, until it takes over."""
    behind: bool = False
    """Whether it runs in the background with a lower priority: no part waits for it, and it takes the most time."""
    process: "subprocess.Popen[str] | None" = None
    readers: tuple[threading.Thread, ...] = ()
    address: str | None = None
    """HOST:PORT of its metrics."""
    began: float = 0.0
    delivered: bool = False
    """Whether it has delivered since its start."""
    waits: bool = False
    """Whether it waits, or waited last, as a standby."""
    due: float = 0.0
    failures: int = 0
    mistakes: int = 0
    """How often in a row it ended with the user's mistake (exit code 2)."""
    restarts: int = 0
    has_been_well: bool = False
    ending: bool = False
    """Whether it is to stop and not to be restarted."""

    @property
    def runs(self) -> bool:
        """Whether it has a process."""
        return self.process is not None

    @property
    def well(self) -> bool:
        """Whether its last or present process ran for more than a minute."""
        return time.monotonic() - self.began > _STABLE_SECONDS

    @property
    def given_up(self) -> bool:
        """Whether it is not restarted, as it ends with a mistake that the user must correct."""
        return self.mistakes >= _MAX_MISTAKES

    @property
    def falters(self) -> bool:
        """Whether it was restarted repeatedly and is not stable yet, so that a running process does not mean health."""
        return self.failures > 1 and not self.well

    def state(self) -> str:
        """Returns its state in a word or two, for the live view."""
        if self.given_up:
            return f"given up (exit code {UsageError.exit_code})"
        if self.ending:
            return "stops" if self.runs else "ended"
        if not self.runs:
            return f"again in {max(0.0, self.due - time.monotonic()):.0f} s"
        if self.waits:
            return "standby"
        return "runs" if self.address else "starts"


def parts(
    config: Config, lake: str, options: Mapping[str, str], *, standby: bool = False, is_alone: bool = True
) -> tuple[Part, ...]:
    """Returns the parts that a config needs, over the tables `raw` and `staging` in `lake`.

    Args:
        config: The config.
        lake: The lake's path or URI.
        options: The options that were passed (`--config`, `--bootstrap-servers`, `--commit-every` …), with their
            values.
        standby: Whether the parts wait while others work on their tables; `sync-from` shares the partitions.
        is_alone: Whether no other `zync run` works on the lake: only one process of a host may have the constant
            `group.instance.id`.
    """

    def part(
        name: str, *command: str, also: tuple[str, ...] = (), stands_by: bool = True, behind: bool = False
    ) -> Part:
        passed = [text for key in ("--config", *also) if key in options for text in (key, options[key])]
        fixed = ["--lake", lake, "--metrics", "localhost:0", "--log-format", "json"]
        waiting = [_STANDBY] if standby and stands_by else []
        return Part(name, (*command, *waiting, *fixed, *passed), stands_by=stands_by, behind=behind)

    kafka, kafka_options = config.deliver.kafka, ("--bootstrap-servers",)
    instance = ["--instance", _instance(lake)] if is_alone and "group.instance.id" not in config.kafka else []
    needed = [
        part(
            *("sync-from", "sync-from", "kafka", "raw", *instance),
            also=(*kafka_options, "--commit-every"),
            stands_by=False,
        ),
        part("sync", "sync", "raw", "staging", "--follow"),
    ]
    if kafka is not None:
        own_servers = "bootstrap.servers" in kafka.properties
        needed.append(part("to kafka", "sync-to", "kafka", "staging", also=() if own_servers else kafka_options))
    if config.deliver.tables is not None:
        needed.append(part("to tables", "sync-to", "tables", "staging", behind=True))
    return tuple(needed)


def _instance(lake: str) -> str:
    """Returns a constant `group.instance.id`, by which Kafka reassigns the partitions at once, even after a kill -9."""
    place = f"{socket.gethostname()}:{Path(lake).absolute() if is_local(lake) else lake}"
    return f"zync-run-{hashlib.sha256(place.encode()).hexdigest()[:16]}"


class Pipeline:
    """Runs parts until `stop` is set."""

    def __init__(self, parts: tuple[Part, ...], stop: threading.Event, say: Say) -> None:
        self.parts, self.stop, self.say = parts, stop, say
        self.table_is_lost = False

    def run(self, watch: Callable[[], None] = lambda: None) -> int:
        """Runs the parts until `stop` is set or all are given up.

        If a part is given up that has never run for a minute, all parts stop: the config cannot work. Otherwise the
        other parts go on. If a table of the lake was deleted or replaced under a part, all parts stop: started again,
        a part would begin anew in another table.

        Args:
            watch: Called several times a second.

        Returns:
            The exit code: 4 if a table was lost, 2 if a part was given up, 0 if all parts ended well, else 1.
        """
        try:
            while not self.stop.is_set():
                for part in self.parts:
                    self._tend(part)
                watch()
                self.stop.wait(_LOOK_SECONDS)
            well = self._end(watch)
            if self.table_is_lost:
                return TableLostError.exit_code
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
            _lower_priority(part.process.pid)

    def _start(self, part: Part) -> None:
        part.began, part.delivered, part.waits = time.monotonic(), False, False
        waiting = [_STANDBY] if part.as_standby and _STANDBY not in part.command else []
        part.process = subprocess.Popen(  # noqa: S603 - zync itself
            [sys.executable, "-m", "zync.cli.part", *part.command, *waiting],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # a terminal's Ctrl-C goes only to `zync run`, which then stops its parts
        )
        part.readers = tuple(
            threading.Thread(target=read, args=(part, stream), name=part.name, daemon=True)
            for read, stream in ((self._results, part.process.stdout), (self._log, part.process.stderr))
        )
        for reader in part.readers:
            reader.start()
        self.say(part.name, "info", "starts", {"event": "start"})

    def _results(self, part: Part, lines: Iterable[str]) -> None:
        """Passes on the lines that a part prints to standard output: its results."""
        for line in lines:
            self.say(part.name, "info", line.rstrip("\n"), {"event": "result"})

    def _log(self, part: Part, lines: Iterable[str]) -> None:
        """Passes on the lines that a part prints to standard error: its log in JSON, and other text."""
        for line in lines:
            fields = _log_fields(line)
            text, level = str(fields.pop("message")), str(fields.pop("level"))
            fields.pop("time", None)
            if fields.get("event") == "metrics":
                part.address = fields["address"]
            else:
                part.delivered = part.delivered or fields.get("event") == "delivered"
                part.waits = fields.get("event") == "standby" or (part.waits and fields.get("event") != "took_over")
                self.say(part.name, level, text, fields)

    def _ended(self, part: Part) -> int:
        """Cleans up after a process that has ended, and returns its exit code."""
        process, part.process, part.address = part.process, None, None
        assert process is not None  # noqa: S101 - for mypy
        code = process.wait()
        for reader in part.readers:
            reader.join(2)  # a grandchild may still hold the pipe
        if process.stdin:
            process.stdin.close()
        return code

    def _again(self, part: Part, code: int) -> None:
        if code == TableLostError.exit_code:
            self.say(part.name, "error", f"{_exit_text(code)}; all parts stop", {"event": "table_lost", "code": code})
            self.table_is_lost = True
            self.stop.set()
            return
        if part.well:
            part.failures, part.mistakes, part.has_been_well = 0, 0, True
        part.mistakes = part.mistakes + 1 if code == UsageError.exit_code else 0
        if part.given_up:
            self._give_up(part, code)
            return
        first, longest = _WAIT_SECONDS
        is_owned = code == OwnedError.exit_code
        # One that ends otherwise, and has not waited, may be one that cannot stand by: where no lease can be had.
        part.as_standby = part.stands_by and (is_owned or (part.as_standby and part.waits))
        if is_owned:
            wait = _OWNED_SECONDS
        else:
            wait = min(longest, first * 2**part.failures)
            part.failures += 1
        part.restarts += 1
        part.due = time.monotonic() + wait
        text = f"{_exit_text(code)}; started again in {wait:.0f} s"
        if is_owned and part.stands_by:
            text += " as a standby"
        self.say(part.name, "warning", text, {"event": "restart", "code": code, "restarts": part.restarts})

    def _give_up(self, part: Part, code: int) -> None:
        """Logs that a part is given up. Stops all parts if it was never stable, or if all are given up."""
        all_end = not part.has_been_well or all(other.given_up for other in self.parts)
        text = f"{_exit_text(code)}, {part.mistakes} times in a row: not started again, as that is not what mends it"
        text += "; all parts stop" if all_end else "; the other parts go on"
        self.say(part.name, "error", text, {"event": "given_up", "code": code, "restarts": part.restarts})
        if all_end:
            self.stop.set()

    def _end(self, watch: Callable[[], None]) -> bool:
        """Stops all parts as Ctrl-C does, and returns whether all ended well."""
        for part in self.parts:
            part.ending = True
        running = [part for part in self.parts if part.process is not None]
        for part in running:
            if part.process and part.process.poll() is None:
                part.process.send_signal(signal.SIGTERM)
                self.say(part.name, "info", "stops as soon as it can", {"event": "stop"})
        well, deadline = True, time.monotonic() + _STOP_SECONDS
        while running and time.monotonic() < deadline:
            for part in [other for other in running if other.process and other.process.poll() is not None]:
                running.remove(part)
                if (code := self._ended(part)) not in _STOP_CODES:
                    self.say(part.name, "error", _exit_text(code), {"code": code})
                    well = False
            watch()
            time.sleep(_LOOK_SECONDS)
        for part in running:
            self.say(part.name, "error", f"did not stop within {_STOP_SECONDS:.0f} s: killed", {})
        return well and not running


def _lower_priority(pid: int) -> None:
    """Raises the nice value of all processes in a part's session and process group, unless it is raised already.

    Linux may weigh sessions first, and processes only within a session (see sched(7), "The autogroup feature").
    """
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + _NICE_INCREMENT, 19)  # 19 is the highest nice value
    if os.getpriority(os.PRIO_PROCESS, pid) >= nice:
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, nice)
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICE_INCREMENT))


def _exit_text(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _log_fields(line: str) -> dict[str, Any]:
    """Returns the fields of a part's log line. A line that is no JSON of the log becomes the message."""
    with contextlib.suppress(ValueError):
        fields = json.loads(line)
        if isinstance(fields, dict) and {"message", "level"} <= fields.keys():
            return fields
    return {"level": "info", "message": line.rstrip("\n")}


def summary(parts: tuple[Part, ...]) -> str:
    """Returns the number of restarts of each part, as a single line."""
    return ", ".join(f"{part.name}: {amount(part.restarts, 'restart')}" for part in parts)
