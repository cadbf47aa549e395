"""Text for people and programs: compact JSON, counted nouns, sizes, names that are safe on a terminal."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any


class Verbatim(str):
    """Text that is JSON already: it goes out as it is, so that 1.50 stays 1.50."""

    __slots__ = ()


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
