"""Prints the results of commands: text for people, a JSON object (or an object a line) for programs."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from zync.errors import ZyncError
from zync.log import log_line, logs_as_json
from zync.text import Verbatim, printable, to_json


class Output:
    """Prints results to standard output, progress and errors to standard error. No other code prints."""

    def __init__(self, *, as_json: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self.out = out or sys.stdout
        self.err = err or sys.stderr

    def result(self, values: Mapping[str, Any], text: str) -> None:
        """Prints the command's result: `values` as JSON, or `text`."""
        self._line(self.out, to_json(values) if self.as_json else text)

    def line(self, text: str) -> None:
        """Prints a line of a result for people."""
        self._line(self.out, printable(text))

    def rows(self, rows: Iterable[Mapping[str, Any] | Verbatim]) -> None:
        """Prints rows as JSON Lines, with and without `--json`."""
        for row in rows:
            self._line(self.out, to_json(row))

    def clear(self) -> None:
        """Separates a result from the previous result that it replaces: clears a terminal, or prints an empty line."""
        if not self.as_json:
            self._line(self.out, "\x1b[H\x1b[2J" if self.out.isatty() else "")

    def progress(self, text: str, level: str = "info", **values: Any) -> None:
        """Prints a line about the progress of work to standard error; `values` are its fields in a JSON log."""
        self._line(self.err, log_line(level, text, values) if logs_as_json() else text)

    def error(self, message: str, traceback: str = "", code: str = ZyncError.code) -> None:
        """Prints an error as a line, or its traceback.

        With --log-format json the line has the error's `code`; as text only a traceback shows it.
        """
        if logs_as_json():
            values = {"code": code, "traceback": traceback} if traceback else {"code": code}
            self._line(self.err, log_line("error", message, values))
            return
        if traceback:
            self._line(self.err, f"{traceback.rstrip()} [{code}]")
            return
        red, reset = ("\x1b[31m", "\x1b[0m") if self.err.isatty() else ("", "")
        self._line(self.err, f"{red}zync: {message}{reset}")

    def _line(self, stream: TextIO, text: str) -> None:
        stream.write(text + "\n")
        stream.flush()
