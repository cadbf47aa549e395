"""Formats and parses text: compact JSON, counted nouns, sizes, and names that are safe on a terminal."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn


class Verbatim(str):
    """JSON text, which `to_json` does not change, so that 1.50 stays 1.50."""

    __slots__ = ()


def to_json(value: Any) -> str:
    """Formats a value as compact JSON, with times in ISO 8601."""
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


def strict_json(text: str | bytes, parse_number: Callable[[str], Any] | None = None) -> Any:
    """Parses JSON as the standard has it, where Python's parser takes a key twice, NaN and Infinity.

    Args:
        text: The JSON; bytes are UTF-8.
        parse_number: Makes a number of its text; None: int and float.

    Raises:
        ValueError: The text is not JSON, or nested too deep for Python's parser; the message says where and why.
    """
    try:
        return json.loads(
            text,
            parse_int=parse_number,
            parse_float=parse_number,
            parse_constant=_reject_constant,
            object_pairs_hook=_reject_duplicate_keys,
        )
    except RecursionError:
        msg = "it is nested too deep"
        raise ValueError(msg) from None


def json_object(data: str | bytes | None) -> dict[str, Any] | None:
    """Parses JSON that another program wrote: None for whatever is no JSON object (`strict_json`)."""
    try:
        value = strict_json(data or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _reject_constant(text: str) -> NoReturn:
    msg = f"{text} is no number in JSON"
    raise ValueError(msg)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        msg = f"the key {json.dumps(next(key for key in keys if keys.count(key) > 1))} is there twice"
        raise ValueError(msg)
    return values


def printable(text: str) -> str:
    """Escapes line breaks and control characters, which a terminal may take for commands: ids come from anywhere."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda match: repr(match[0])[1:-1], text)


def amount(count: int, singular: str, plural: str | None = None) -> str:
    """Formats a counted noun: `1 record`, `2,000 records`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Joins names, `most` of them at most: `a, b, c and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def byte_size(count: float) -> str:
    """Formats a number of bytes: `512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":  # noqa: PLR2004 - the next unit has 1024 times as many
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError
