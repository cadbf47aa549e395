"""Output rows as Avro, by fastavro: https://avro.apache.org/docs/1.12.0/specification/."""

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro

from zync.formats.encode.values import SIMPLE, Change, Kind, digits, field_name, fields, no_type, parsed, word

_TYPES: dict[str, Any] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "variant": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def avro(kind: Kind, name: str, within: str) -> tuple[str, Callable[[str], bytes]]:
    """The schema of a record of that struct, with that full name, and what makes the bytes of one of a row's JSON.

    All fields may be null, which is their default: so a rule may select more columns, or fewer, and readers go on.
    UsageError where Avro has no type, or no name, for a column.
    """
    schema, change = _type(kind, name, within)
    compiled = fastavro.parse_schema(schema)

    def encode(text: str) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, compiled, change(parsed(text)), disable_tuple_notation=True)
        return out.getvalue()

    return json.dumps(schema), encode


def _type(kind: Kind, name: str, within: str) -> tuple[Any, Change]:
    """The schema of a type, where it is a record of that name; and what makes a value of what JSON has for it."""
    if isinstance(kind, str):
        simple = word(kind)
        if simple == "decimal":
            precision, scale = digits(kind)
            avro_type: Any = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        elif simple in _TYPES:
            avro_type = _TYPES[simple]
        else:
            raise no_type(kind, within, "Avro")
        return avro_type, SIMPLE[simple] or _same
    if word(kind) == "struct":
        return _record(kind, name, within)
    of = "elementType" if word(kind) == "array" else "valueType"
    inner, change = _optional(kind[of], name, within)
    if of == "elementType":
        return {"type": "array", "items": inner}, lambda found: [change(one) for one in found]
    return {"type": "map", "values": inner}, lambda found: {key: change(one) for key, one in found.items()}


def _record(kind: Kind, name: str, within: str) -> tuple[Any, Change]:
    schemas, changes = [], list[tuple[str, Change]]()
    for field, its in fields(kind):
        known = field_name(field, within, "Avro")
        schema, change = _optional(its, f"{name}_{known}", f"{within}.{known}")
        schemas.append({"name": known, "type": schema, "default": None})
        changes.append((known, change))
    record = {"type": "record", "name": name, "fields": schemas}
    return record, lambda found: {field: change(found.get(field)) for field, change in changes}


def _optional(kind: Kind, name: str, within: str) -> tuple[Any, Change]:
    schema, change = _type(kind, name, within)
    if change is _same:
        return ["null", schema], _same
    return ["null", schema], lambda found: None if found is None else change(found)


def _same(found: Any) -> Any:
    return found
