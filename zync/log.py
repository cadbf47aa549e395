"""Formats zync's log lines as text or as JSON objects (`--log-format`)."""

import logging
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from zync.text import to_json


def logs_as_json() -> bool:
    """Returns whether the option `--log-format json` is set."""
    return os.environ.get("ZYNC_LOG_FORMAT") == "json"


def log_line(level: str, message: str, values: Mapping[str, Any] | None = None) -> str:
    """Returns a log line as JSON: `time` (UTC), `level`, `message`, and the fields in `values`."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return to_json({"time": now, "level": level, "message": message, **(values or {})})


def event(name: str, **values: Any) -> dict[str, Any]:
    """Returns the fields of a log line for programs, as `extra` of the logger's methods."""
    return {"values": {"event": name, **values}}


class LogFormatter(logging.Formatter):
    """Formats zync's log lines by `--log-format`.

    Args:
        mask: Takes secrets out of a message, which may quote another program's error.
    """

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        """Returns the log line of a record."""
        message = self._mask(record.getMessage())
        if logs_as_json():
            return log_line(record.levelname.lower(), message, getattr(record, "values", None))
        return f"zync: {message}"
