"""Output rows' JSON text back to values of their columns' types, for formats that have types.

A type is what Spark and Delta write in JSON: a word ("long", "decimal(10,2)"), or an object for struct, array and map.
See https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from zync.errors import UsageError
from zync.text import Verbatim, to_json

Kind = str | Mapping[str, Any]
Change = Callable[[Any], Any]
"""What makes a value of a JSON value that is not null."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parsed(text: str) -> Any:
    """The value of a JSON text, with the numbers that are not whole as they are written."""
    return json.loads(text, parse_float=Verbatim)


def word(kind: Kind) -> str:
    """What kind of type that is, in a word: struct, array and map too; decimals without their digits."""
    return str(kind["type"]) if isinstance(kind, Mapping) else kind.partition("(")[0]


def fields(kind: Kind) -> list[tuple[str, Kind]]:
    """The fields of a struct."""
    return [(one["name"], one["type"]) for one in kind["fields"]] if isinstance(kind, Mapping) else []


def digits(kind: Kind) -> tuple[int, int]:
    """Precision and scale of a decimal."""
    match = _DECIMAL.fullmatch(str(kind))
    if match is None:
        msg = f"{kind} is no decimal"
        raise AssertionError(msg)
    return int(match[1]), int(match[2])


def field_name(name: str, within: str, format_: str) -> str:
    """That name, if the format has it for fields; UsageError otherwise."""
    if not _NAME.fullmatch(name):
        msg = f"{within}: {format_} has no fields of the name {name!r}: select it as another, of letters, digits and _"
        raise UsageError(msg)
    return name


def no_type(kind: Kind, within: str, format_: str) -> UsageError:
    """What is wrong with a column of that type."""
    return UsageError(f"{within}: {format_} has nothing for {word(kind)}: cast it to another type")


def moment(text: str) -> datetime:
    """A timestamp as rules' rows have it in JSON (`zync.rules`): with Z, for sessions are in UTC, or of nowhere."""
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


SIMPLE: dict[str, Change | None] = {
    "boolean": None,
    "byte": None,
    "short": None,
    "integer": None,
    "long": None,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "string": None,
    "binary": base64.b64decode,
    "date": date.fromisoformat,
    "timestamp": moment,
    "timestamp_ntz": moment,
    "variant": to_json,
}
"""Types of single values, and what makes one of what JSON has for it; None where that is it. Variants become JSON."""
