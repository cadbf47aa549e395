"""Output rows as JSON with a schema: https://json-schema.org/draft-07. The text stays as staging has it."""

import json
from collections.abc import Callable
from typing import Any

from zync.formats.encode.values import Kind, fields, no_type, word

_NUMBER = {"anyOf": [{"type": ["null", "number"]}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_TYPES: dict[str, dict[str, Any]] = {
    "boolean": {"type": ["null", "boolean"]},
    "byte": {"type": ["null", "integer"]},
    "short": {"type": ["null", "integer"]},
    "integer": {"type": ["null", "integer"]},
    "long": {"type": ["null", "integer"]},
    "float": _NUMBER,
    "double": _NUMBER,
    "decimal": {"type": ["null", "number"]},
    "string": {"type": ["null", "string"]},
    "variant": {},
    "binary": {"type": ["null", "string"], "contentEncoding": "base64"},
    "date": {"type": ["null", "string"], "format": "date"},
    "timestamp": {"type": ["null", "string"], "format": "date-time"},
    "timestamp_ntz": {"type": ["null", "string"]},
}


def json_schema(kind: Kind, name: str, within: str) -> tuple[str, Callable[[str], bytes]]:
    """The schema of an object of that struct, and what makes the bytes of one of a row's JSON.

    Objects have the properties that it names and no others, so that a registry takes one more for compatible.
    UsageError where it has no type for a column.
    """
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_type(kind, within)}
    return json.dumps({**schema, "type": "object"}), str.encode


def _type(kind: Kind, within: str) -> dict[str, Any]:
    simple = word(kind)
    if isinstance(kind, str):
        if simple not in _TYPES:
            raise no_type(kind, within, "JSON Schema")
        return _TYPES[simple]
    if simple == "array":
        return {"type": ["null", "array"], "items": _type(kind["elementType"], within)}
    if simple == "map":
        return {"type": ["null", "object"], "additionalProperties": _type(kind["valueType"], within)}
    properties = {name: _type(its, f"{within}.{name}") for name, its in fields(kind)}
    return {"type": ["null", "object"], "properties": properties, "additionalProperties": False}
