"""Encodes output rows as JSON with a schema: https://json-schema.org/draft-07. The text stays as it is in staging."""

import json
from typing import Any

from zync.formats.encode.columns import RowEncoder
from zync.formats.encode.values import Kind, fields, type_name, unsupported_type

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


def json_schema(kind: Kind, name: str, within: str) -> tuple[str, RowEncoder]:
    """Returns the schema for a struct, and the encoder of its rows.

    Additional properties are not allowed: with such schemas a registry takes a new property for a compatible change.

    Args:
        kind: the type of the row.
        name: the schema's title.
        within: where the row is from, for errors.

    Raises:
        UsageError: JSON Schema has no type for a column.
    """
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_type(kind, within)}
    return json.dumps({**schema, "type": "object"}), RowEncoder(
        str.encode, lambda texts, header: [header + text.encode() for text in texts]
    )


def _type(kind: Kind, within: str) -> dict[str, Any]:
    kind_name = type_name(kind)
    if isinstance(kind, str):
        if kind_name not in _TYPES:
            raise unsupported_type(kind, within, "JSON Schema")
        return _TYPES[kind_name]
    if kind_name == "array":
        return {"type": ["null", "array"], "items": _type(kind["elementType"], within)}
    if kind_name == "map":
        return {"type": ["null", "object"], "additionalProperties": _type(kind["valueType"], within)}
    properties = {name: _type(field_type, f"{within}.{name}") for name, field_type in fields(kind)}
    return {"type": ["null", "object"], "properties": properties, "additionalProperties": False}
