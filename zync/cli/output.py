"""What commands print: text for people, one JSON object (or one a line) for programs. Nothing else prints."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from zync.errors import ZyncError
from zync.log import log_line, logs_as_json
from zync.text import Verbatim, printable, to_json


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

    def error(self, message: str, traceback: str = "", code: str = ZyncError.code) -> None:
        """One line that says what went wrong; or, for developers, the traceback.

        With --log-format json the line has the error's `code`; people see it below a traceback only.
        """
        if logs_as_json():
            values = {"code": code, "traceback": traceback} if traceback else {"code": code}
            self._line(self.err, log_line("error", message, values))
            return
        if traceback:
            self._line(self.err, f"{traceback.rstrip()} [{code}]")
            return
        red, plain = ("\x1b[31m", "\x1b[0m") if self.err.isatty() else ("", "")
        self._line(self.err, f"{red}zync: {message}{plain}")

    def _line(self, stream: TextIO, text: str) -> None:
        stream.write(text + "\n")
        stream.flush()
