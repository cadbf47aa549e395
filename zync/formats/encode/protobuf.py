"""Encodes output rows as protobuf messages: https://protobuf.dev/programming-guides/proto3/."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from zync.errors import UsageError
from zync.formats.decode.protobuf import pool_of
from zync.formats.encode.columns import (
    EncodeAll,
    EncodeColumn,
    RowEncoder,
    big_endian,
    by_column,
    integers,
    joined,
    little_endian,
    unscaled,
    varints,
    with_length,
    with_nulls_of,
)
from zync.formats.encode.values import (
    CONVERTERS,
    Convert,
    Kind,
    digits,
    field_name,
    fields,
    parse_row,
    parse_timestamp,
    type_name,
    unsupported_type,
)
from zync.formats.protoc import MAIN, compiled
from zync.formats.registry import Schema

_TYPES = {
    "boolean": "bool",
    "byte": "int32",
    "short": "int32",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "variant": "string",
    "binary": "bytes",
    "timestamp_ntz": "string",
}
_MESSAGES = {
    "date": "google.type.Date",
    "timestamp": "google.protobuf.Timestamp",
    "decimal": "confluent.type.Decimal",
}
"""The messages for types that protobuf has no scalar for; Connect's converter understands them."""

_HEAD = """syntax = "proto3";
package {package};
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
"""

_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
"""Wire types: https://protobuf.dev/programming-guides/encoding/#structure"""

_EXACT = Context(prec=76)
"""A context for twice the digits of the longest decimal, so that scaling never rounds."""

_FIRST = b"\0"
"""The index of the schema's first message type."""

Fill = Callable[[Message, Any], None]
"""Fills a message, or a field of it, from a JSON value."""
Numbers = dict[str, dict[str, int]]
"""Field numbers by the full name of the message and the name of the field."""


class _Single(NamedTuple):
    """The protobuf type of a single value. Exactly one of `convert` and `fill` is set.

    Attributes:
        name: the type's name.
        options: the options of a field of this type.
        messages: the lines of nested messages that it needs.
        convert: for a scalar, its converter from JSON.
        fill: for a message, the function that fills it.
    """

    name: str
    options: str = ""
    messages: tuple[str, ...] = ()
    convert: Convert | None = None
    fill: Fill | None = None


def protobuf(kind: Kind, name: str, within: str, earlier: Sequence[Schema] = ()) -> tuple[str, RowEncoder]:
    """Returns the schema for a struct, and the encoder of its rows.

    All fields may be absent, which means null. Protobuf has no difference between a null and an empty list or map.

    Args:
        kind: the type of the row.
        name: the full name of the message.
        within: where the row is from, for errors.
        earlier: earlier schemas of the subject. Fields keep their numbers; new fields get unused numbers.

    Raises:
        UsageError: protobuf has no type, or no name, for a column.
    """
    package, _, message_name = name.rpartition(".")
    lines, fill = _message(kind, name, within, _numbers(earlier))
    text = "\n".join([_HEAD.format(package=package), *lines, ""])
    try:
        pool = pool_of(compiled(Schema("PROTOBUF", text)))
    except UsageError as error:
        msg = f"{within} cannot be protobuf: {error}"
        raise UsageError(msg) from error
    descriptor = pool.FindMessageTypeByName(f"{package}.{message_name}")
    message_class = message_factory.GetMessageClass(descriptor)

    def encode(row: str) -> bytes:
        message = message_class()
        fill(message, parse_row(row))
        return _FIRST + message.SerializeToString()

    return text, RowEncoder(encode, _by_column(kind, descriptor))


def _by_column(kind: Kind, message: Descriptor) -> EncodeAll | None:
    """Returns a function that encodes many rows of a struct, in order of the fields' numbers."""
    numbers = {name: message.fields_by_name[name].number for name, _ in fields(kind)}
    ordered = {"fields": [{"name": name, "type": of} for name, of in sorted(fields(kind), key=lambda f: numbers[f[0]])]}

    def encoding(name: str, column_type: Kind) -> tuple[bytes, bytes, EncodeColumn] | None:
        wire_type, encode = _columns(column_type)
        return encode and (_tag(numbers[name], wire_type), b"", encode)

    encode_all = by_column(ordered, encoding)
    return encode_all and (lambda texts, header: encode_all(texts, header + _FIRST))


def _tag(number: int, wire_type: int) -> bytes:
    """Returns what is before a field's value."""
    return bytes(varints(np.array([number << 3 | wire_type], np.uint64))[0].as_py())


def _columns(kind: Kind) -> tuple[int, EncodeColumn | None]:
    """Returns the wire type and the encoder of a column's values, which is None for types that are not scalars."""
    kind_name = type_name(kind)
    if kind_name in ("byte", "short", "integer", "long"):
        return _VARINT, lambda values: with_nulls_of(values, _int64(integers(values)))
    if kind_name in ("float", "double"):
        wire_type = _FIXED_32 if kind_name == "float" else _FIXED_64
        return wire_type, lambda values: with_nulls_of(values, little_endian(values))
    if kind_name == "decimal":
        precision, scale = digits(kind)
        return _LENGTH, lambda values: _decimals(values, precision, scale)
    return {
        "boolean": (_VARINT, lambda values: pc.if_else(values, b"\x01", b"\x00")),
        "string": (_LENGTH, lambda values: with_length(values, _int64)),
        "binary": (_LENGTH, lambda values: with_length(values, _int64)),
        "date": (_LENGTH, _dates),
        "timestamp": (_LENGTH, _timestamps),
    }.get(kind_name, (_LENGTH, None))


def _int64(numbers: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.Array:
    return varints(numbers.view(np.uint64))


def _field_of(number: int, numbers: "np.ndarray[Any, np.dtype[np.int64]]") -> list[Any]:
    """Returns what to join for a field of numbers in a message of Google's, which leaves 0 out."""
    values = pa.array(numbers, mask=numbers == 0)
    return [pc.if_else(values.is_valid(), _tag(number, _VARINT), b""), with_nulls_of(values, _int64(numbers))]


def _decimals(values: pa.Array, precision: int, scale: int) -> pa.Array:
    constant = np.ones(len(values), np.int64)
    content = with_length(big_endian(unscaled(values)), _int64)
    parts = [_tag(1, _LENGTH), content, *_field_of(2, constant * precision), *_field_of(3, constant * scale)]
    return with_nulls_of(values, with_length(joined(*parts), _int64))


def _dates(values: pa.Array) -> pa.Array:
    known = values.fill_null(0)
    parts = (part(known).cast(pa.int64()).to_numpy(zero_copy_only=False) for part in (pc.year, pc.month, pc.day))
    content = joined(b"", *(item for number, part in enumerate(parts, 1) for item in _field_of(number, part)))
    return with_nulls_of(values, with_length(content, _int64))


def _timestamps(values: pa.Array) -> pa.Array:
    seconds, micros = np.divmod(integers(values), 1_000_000)
    content = joined(b"", *_field_of(1, seconds), *_field_of(2, micros * 1_000))
    return with_nulls_of(values, with_length(content, _int64))


def _numbers(earlier: Iterable[Schema]) -> Numbers:
    """Returns the field numbers in schemas; of a field with several numbers the first."""
    numbers: Numbers = {}

    def walk(messages: Iterable[Descriptor]) -> None:
        for message in messages:
            of_message = numbers.setdefault(message.full_name, {})
            for field in message.fields:
                of_message.setdefault(field.name, field.number)
            walk(message.nested_types)

    for schema in earlier:
        walk(pool_of(compiled(schema)).FindFileByName(MAIN).message_types_by_name.values())
    return numbers


def _message(kind: Kind, name: str, within: str, numbers: Numbers) -> tuple[list[str], Fill]:
    """Returns the lines of a message of the full name `name`, and the function that fills it."""
    lines, fills = list[str](), list[tuple[str, Fill]]()
    field_numbers = dict(numbers.get(name, {}))
    for column, column_type in fields(kind):
        field = field_name(column, within, "protobuf")
        number = field_numbers.setdefault(field, max([0, *field_numbers.values()]) + 1)
        declaration, nested, options, fill_field = _field(column_type, field, name, f"{within}.{field}", numbers)
        lines += [*nested, f"{declaration} {field} = {number}{options};"]
        fills.append((field, fill_field))

    def fill(message: Message, row: Any) -> None:
        for field, fill_field in fills:
            value = row.get(field)
            if value is not None:
                fill_field(message, value)

    return [f"message {name.rpartition('.')[2]} {{", *(f"  {line}" for line in lines), "}"], fill


def _field(
    kind: Kind, field: str, message: str, within: str, numbers: Numbers
) -> tuple[str, tuple[str, ...], str, Fill]:
    """Returns a field's label and type, the lines of nested messages, its options, and the function that fills it."""
    if isinstance(kind, str) or type_name(kind) == "struct":
        single = _single(kind, field, message, within, numbers)
        return f"optional {single.name}", single.messages, single.options, _fill_single(single, field)
    item_type = kind["elementType" if type_name(kind) == "array" else "valueType"]
    if type_name(item_type) in ("array", "map"):
        msg = f"{within}: protobuf has no lists or maps within lists and maps: put a struct between them"
        raise UsageError(msg)
    single = _single(item_type, field, message, within, numbers)
    if type_name(kind) == "array":
        return f"repeated {single.name}", single.messages, single.options, _fill_list(single, field)
    return f"map<string, {single.name}>", single.messages, single.options, _fill_map(single, field)


def _single(kind: Kind, field: str, message: str, within: str, numbers: Numbers) -> _Single:
    kind_name = type_name(kind)
    if kind_name == "struct":
        name = f"{field}_of"  # unlike the field's name, as fields and nested messages share a namespace
        lines, fill = _message(kind, f"{message}.{name}", within, numbers)
        return _Single(name, messages=tuple(lines), fill=fill)
    if kind_name == "decimal":
        precision, scale = digits(kind)
        meta = f'[(confluent.field_meta) = {{params: [{{key: "precision", value: "{precision}"}}, '
        meta += f'{{key: "scale", value: "{scale}"}}]}}]'
        return _Single(_MESSAGES[kind_name], options=f" {meta}", fill=_fill_decimal(precision, scale))
    if kind_name == "timestamp":
        return _Single(_MESSAGES[kind_name], fill=_fill_timestamp)
    if kind_name == "date":
        return _Single(_MESSAGES[kind_name], fill=_fill_date)
    if kind_name not in _TYPES:
        raise unsupported_type(kind, within, "protobuf")
    is_text = kind_name == "timestamp_ntz"
    return _Single(_TYPES[kind_name], convert=(None if is_text else CONVERTERS[kind_name]) or (lambda value: value))


def _fill_single(single: _Single, field: str) -> Fill:
    convert, fill = single.convert, single.fill
    if fill is None:
        assert convert  # noqa: S101 - either convert or fill is set
        return lambda message, value: setattr(message, field, convert(value))

    def fill_field(message: Message, value: Any) -> None:
        part = getattr(message, field)
        part.SetInParent()
        fill(part, value)

    return fill_field


def _fill_list(single: _Single, field: str) -> Fill:
    convert, fill = single.convert, single.fill

    def fill_field(message: Message, values: Any) -> None:
        _check_no_null(values, field)
        if convert:
            getattr(message, field).extend(map(convert, values))
        elif fill:
            for value in values:
                fill(getattr(message, field).add(), value)

    return fill_field


def _fill_map(single: _Single, field: str) -> Fill:
    convert, fill = single.convert, single.fill

    def fill_field(message: Message, values: Any) -> None:
        _check_no_null(values.values(), field)
        items = getattr(message, field)
        for key, value in values.items():
            if convert:
                items[key] = convert(value)
            elif fill:
                fill(items[key], value)

    return fill_field


def _check_no_null(values: Iterable[Any], field: str) -> None:
    if any(value is None for value in values):
        msg = f"protobuf has no null in a list or a map, and {field} has one"
        raise ValueError(msg)


def _fill_decimal(precision: int, scale: int) -> Fill:
    def fill(message: Any, number: Any) -> None:
        unscaled = int(_EXACT.scaleb(Decimal(number), scale))
        message.value = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        message.precision, message.scale = precision, scale

    return fill


def _fill_timestamp(message: Any, text: str) -> None:
    message.FromDatetime(parse_timestamp(text))


def _fill_date(message: Any, text: str) -> None:
    message.year, message.month, message.day = map(int, text.split("-"))
