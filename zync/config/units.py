"""Parses durations, times and sizes of the config and of options."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LONGEST = timedelta(days=36_500)
_SIZES = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_MOST_BYTES = 2**63


def duration(text: str) -> timedelta:
    """Parses a duration like `30s`, `500ms`, `24h` or `7d`.

    Raises:
        ValueError: The text is no duration, or longer than 36,500 days.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*", text)
    if not match:
        msg = f"{text!r} is not a length of time: write it like 500ms, 30s, 15m, 24h or 7d"
        raise ValueError(msg)
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > _LONGEST.total_seconds():
        msg = f"{text!r} is longer than {_LONGEST.days:,} days"
        raise ValueError(msg)
    return timedelta(seconds=seconds)


def moment(text: str) -> datetime:
    """Parses a time in ISO 8601, which is in UTC if it has no zone.

    Raises:
        ValueError: The text is no such time.
    """
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def duration_text(length: timedelta) -> str:
    """Formats a duration in the config's form, in whole units: `24h`, `90m`, `1500ms`."""
    milliseconds = length // timedelta(milliseconds=1)
    for unit in ("h", "m", "s"):
        count, rest = divmod(milliseconds, round(_UNITS[unit] * 1000))
        if not rest:
            return f"{count}{unit}"
    return f"{milliseconds}ms"


def size(text: str) -> int:
    """Parses a size like `64 MiB`, `10MB` or `1024` to a number of bytes.

    Raises:
        ValueError: The text is no size, or 8 EiB or more.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?i?b?)\s*", text.lower())
    if not match or match[2] not in _SIZES:
        msg = f"{text!r} is not a size: write it like 1048576, 64 MiB or 10MB"
        raise ValueError(msg)
    count = Decimal(match[1]) * _SIZES[match[2]]
    if count >= _MOST_BYTES:
        msg = f"{text!r} is 8 EiB or more"
        raise ValueError(msg)
    return int(count)
