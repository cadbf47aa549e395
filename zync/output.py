"""What commands print: text for people, one JSON object (or one a line) for programs. Nothing else prints."""

import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO


class Verbatim(str):
    """Text that is JSON already: it goes out as it is, so that 1.50 stays 1.50."""

    __slots__ = ()


class Output:
    """Where a command's words go: results to standard output, progress and warnings to standard error."""

    def __init__(self, *, as_json: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self.out = out or sys.stdout
        self.err = err or sys.stderr

    def result(self, values: Mapping[str, Any], text: str) -> None:
        """The command's one result: `values` as JSON, or `text`."""
        self._line(self.out, to_json(values) if self.as_json else text)

    def line(self, text: str) -> None:
        """A line of a result that is for people."""
        self._line(self.out, printable(text))

    def rows(self, rows: Iterable[Mapping[str, Any] | Verbatim]) -> None:
        """Rows as JSON Lines, in both faces."""
        for row in rows:
            self._line(self.out, to_json(row))

    def clear(self) -> None:
        """Makes room for a result that takes the place of the one before: on a terminal a clean page, else a line."""
        if not self.as_json:
            self._line(self.out, "\x1b[H\x1b[2J" if self.out.isatty() else "")

    def progress(self, text: str, level: str = "info", **values: Any) -> None:
        """A line about work under way, with its figures; programs do not get to see it on standard output."""
        self._line(self.err, log_line(level, text, values) if logs_as_json() else text)

    def error(self, message: str, traceback: str = "") -> None:
        """One line that says what went wrong; or, for developers, the traceback."""
        if logs_as_json():
            self._line(self.err, log_line("error", message, {"traceback": traceback} if traceback else None))
            return
        if traceback:
            self._line(self.err, traceback.rstrip("\n"))
            return
        red, plain = ("\x1b[31m", "\x1b[0m") if self.err.isatty() else ("", "")
        self._line(self.err, f"{red}zync: {message}{plain}")

    def _line(self, stream: TextIO, text: str) -> None:
        stream.write(text + "\n")
        stream.flush()


def logs_as_json() -> bool:
    """Whether --log-format json was given."""
    return os.environ.get("ZYNC_LOG_FORMAT") == "json"


def log_line(level: str, message: str, values: Mapping[str, Any] | None = None) -> str:
    """A line of the log as JSON: `time` (UTC), `level`, `message`, and what else there is to say."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return to_json({"time": now, "level": level, "message": message, **(values or {})})


def event(name: str, **values: Any) -> dict[str, Any]:
    """What a log line says to programs: `extra` of the logger's methods."""
    return {"values": {"event": name, **values}}


class LogFormatter(logging.Formatter):
    """zync's own log lines, in the format that was asked for."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        if logs_as_json():
            return log_line(record.levelname.lower(), record.getMessage(), getattr(record, "values", None))
        return f"zync: {record.getMessage()}"


def to_json(value: Any) -> str:
    """Compact JSON; times in ISO 8601."""
    if isinstance(value, Verbatim):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_scalar(str(key))}:{to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(to_json, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def printable(text: str) -> str:
    """The text in one line, without what a terminal would take for commands: ids and values are anybody's."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda found: repr(found[0])[1:-1], text)


def amount(count: int, one: str, many: str | None = None) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def byte_size(count: float) -> str:
    """`512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":  # noqa: PLR2004 - 1024 of one unit make the next
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError


def describe(done: Any) -> str:
    """A sync's outcome (`zync.sync.Outcome`) in a line."""
    if not done.seconds:
        return f"nothing new: cursor {done.cursor:,}, head {done.head:,}, in flight {done.in_flight:,}"
    outputs = ", ".join(f"{topic} {count:,}" for topic, count in done.outputs.items()) or "none"
    aside = ", ".join(f"{kind} {count:,}" for kind, count in done.set_aside.items()) or "none"
    expired = f" (and {done.expired:,} expired)" if done.expired else ""
    return (
        f"sync {done.sync}: {amount(done.transactions, 'transaction')} of {amount(done.records, 'record')}; "
        f"output rows: {outputs}; in flight {done.in_flight:,}{expired}; set aside: {aside}; "
        f"cursor {done.cursor:,}, head {done.head:,}"
    )
