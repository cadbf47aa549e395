"""Log lines of zync's own, as text or as JSON objects (`--log-format`)."""

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from zync.text import to_json


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
