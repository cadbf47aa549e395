"""Converts output rows from JSON text to values of their columns' types, for formats that have types.

A type (`Kind`) is what Spark and Delta write in JSON: a word ("long", "decimal(10,2)"), or an object for struct, array
and map.
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
Convert = Callable[[Any], Any]
"""Converts a JSON value that is not null."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_row(text: str) -> Any:
    """Parses JSON text; numbers that are not integers stay text, so that they keep their digits."""
    return json.loads(text, parse_float=Verbatim)


def type_name(kind: Kind) -> str:
    """Returns the name of a type: also struct, array and map; decimal without its digits."""
    return str(kind["type"]) if isinstance(kind, Mapping) else kind.partition("(")[0]


def fields(kind: Kind) -> list[tuple[str, Kind]]:
    """Returns names and types of the fields of a struct."""
    return [(field["name"], field["type"]) for field in kind["fields"]] if isinstance(kind, Mapping) else []


def digits(kind: Kind) -> tuple[int, int]:
    """Returns precision and scale of a decimal type."""
    match = _DECIMAL.fullmatch(str(kind))
    if match is None:
        msg = f"{kind} is no decimal"
        raise AssertionError(msg)
    return int(match[1]), int(match[2])


def field_name(name: str, within: str, format_: str) -> str:
    """Returns `name`; UsageError where the format does not allow it for a field. `within`: the column's path."""
    if not _NAME.fullmatch(name):
        msg = f"{within}: {format_} has no fields of the name {name!r}: select it as another, of letters, digits and _"
        raise UsageError(msg)
    return name


def unsupported_type(kind: Kind, within: str, format_: str) -> UsageError:
    """Returns the error for a column of a type that the format does not have."""
    return UsageError(f"{within}: {format_} has nothing for {type_name(kind)}: cast it to another type")


def parse_timestamp(text: str) -> datetime:
    """Parses a timestamp of a rule's row in JSON (`zync.rules`): with Z, as sessions are in UTC, or without a zone."""
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


CONVERTERS: dict[str, Convert | None] = {
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
    "timestamp": parse_timestamp,
    "timestamp_ntz": parse_timestamp,
    "variant": to_json,
}
"""The converter from JSON of each scalar type; None where the JSON value stays as it is. Variants become JSON text."""
