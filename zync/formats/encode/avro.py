"""Encodes output rows as Avro, with fastavro: https://avro.apache.org/docs/1.12.0/specification/."""

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zync.formats.encode.columns import (
    EncodeColumn,
    RowEncoder,
    big_endian,
    by_column,
    integers,
    little_endian,
    unscaled,
    varints,
    with_length,
    with_nulls_of,
    zigzag,
)
from zync.formats.encode.values import (
    CONVERTERS,
    Convert,
    Kind,
    digits,
    field_name,
    fields,
    parse_row,
    type_name,
    unsupported_type,
)

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


def avro(kind: Kind, name: str, within: str) -> tuple[str, RowEncoder]:
    """Returns the schema for a struct, and the encoder of its rows.

    All fields may be null, which is their default: so rules may add and remove columns, and readers go on.

    Args:
        kind: the type of the row.
        name: the full name of the Avro record.
        within: where the row is from, for errors.

    Raises:
        UsageError: Avro has no type, or no name, for a column.
    """
    schema, convert = _type(kind, name, within)
    compiled = fastavro.parse_schema(schema)

    def encode(text: str) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, compiled, convert(parse_row(text)), disable_tuple_notation=True)
        return buffer.getvalue()

    return json.dumps(schema), RowEncoder(encode, by_column(kind, _encoding))


def _encoding(_: str, kind: Kind) -> tuple[bytes, bytes, EncodeColumn] | None:
    """Returns the encoding of a column: before it is the index of its type, or that of null, in `["null", type]`."""
    encode = _COLUMNS.get(type_name(kind))
    return encode and (b"\x02", b"\x00", encode)


def _long(numbers: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.Array:
    return varints(zigzag(numbers))


def _integer_column(values: pa.Array) -> pa.Array:
    return with_nulls_of(values, _long(integers(values)))


def _text_column(values: pa.Array) -> pa.Array:
    return with_length(values, _long)


def _boolean_column(values: pa.Array) -> pa.Array:
    return pc.if_else(values, b"\x01", b"\x00")


def _float_column(values: pa.Array) -> pa.Array:
    return with_nulls_of(values, little_endian(values))


def _decimal_column(values: pa.Array) -> pa.Array:
    return with_nulls_of(values, with_length(big_endian(unscaled(values)), _long))


_COLUMNS: dict[str, EncodeColumn] = {
    "boolean": _boolean_column,
    **dict.fromkeys(("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz"), _integer_column),
    **dict.fromkeys(("float", "double"), _float_column),
    **dict.fromkeys(("string", "binary"), _text_column),
    "decimal": _decimal_column,
}


def _type(kind: Kind, name: str, within: str) -> tuple[Any, Convert]:
    """Returns the schema for a type, and its converter from JSON. `name`: the name of the record, if it is a struct."""
    if isinstance(kind, str):
        kind_name = type_name(kind)
        if kind_name == "decimal":
            precision, scale = digits(kind)
            avro_type: Any = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        elif kind_name in _TYPES:
            avro_type = _TYPES[kind_name]
        else:
            raise unsupported_type(kind, within, "Avro")
        return avro_type, CONVERTERS[kind_name] or _unchanged
    if type_name(kind) == "struct":
        return _record(kind, name, within)
    item_key = "elementType" if type_name(kind) == "array" else "valueType"
    item_schema, convert = _optional(kind[item_key], name, within)
    if item_key == "elementType":
        return {"type": "array", "items": item_schema}, lambda values: [convert(value) for value in values]
    return {"type": "map", "values": item_schema}, lambda items: {key: convert(value) for key, value in items.items()}


def _record(kind: Kind, name: str, within: str) -> tuple[Any, Convert]:
    schemas, converters = [], list[tuple[str, Convert]]()
    for column, column_type in fields(kind):
        field = field_name(column, within, "Avro")
        schema, convert = _optional(column_type, f"{name}_{field}", f"{within}.{field}")
        schemas.append({"name": field, "type": schema, "default": None})
        converters.append((field, convert))
    record = {"type": "record", "name": name, "fields": schemas}
    return record, lambda row: {field: convert(row.get(field)) for field, convert in converters}


def _optional(kind: Kind, name: str, within: str) -> tuple[Any, Convert]:
    schema, convert = _type(kind, name, within)
    if convert is _unchanged:
        return ["null", schema], _unchanged
    return ["null", schema], lambda value: None if value is None else convert(value)


def _unchanged(value: Any) -> Any:
    return value
