"""Decodes protobuf messages to Arrow columns, with Google's parser.

Spark sends `Reader` to its executors by value: they need protobuf and pyarrow, but not zync.
"""

from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message


def pool_of(files: bytes) -> descriptor_pool.DescriptorPool:
    """Returns a pool of its own with the types of a FileDescriptorSet."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return pool


_Values = list[Any]
_Converter = tuple[pa.DataType, Callable[[_Values], pa.Array]]
"""An Arrow type, and a function that converts the values of a field, or None, to an array of that type."""

_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
}
_DIGITS = 38
"""The most digits of a Spark decimal."""

_SCALE = 1_000
"""The largest scale, and the most bytes, of a decimal: a scale of 2**31 claims two thousand million digits."""

_FIRST, _LAST, _SECOND = -62_135_596_800, 253_402_300_799, 1_000_000_000
"""The first and last second of a Timestamp, in the years 1 and 9999; and the nanoseconds of a second."""


class _NoArrowType(Exception):
    """A message type contains itself, or has no fields, and so has no Arrow type."""


class Reader:
    """Decodes messages of the type `name` of a FileDescriptorSet.

    `kind` is their Arrow type. It is string where the message type contains itself (as google.protobuf.Struct does) or
    a message without fields: such messages become the text of protobuf's JSON mapping.
    """

    def __init__(self, files: bytes, name: str) -> None:
        self._pool = pool_of(files)
        descriptor = self._pool.FindMessageTypeByName(name)
        self._class = message_factory.GetMessageClass(descriptor)
        try:
            self.kind, self._array = self._message(descriptor, ())
        except _NoArrowType:
            self.kind, self._array = pa.string(), self._texts

    def read(self, data: _Values) -> pa.Array:
        """Decodes a batch of bytes; null for None, and where the bytes are no such message."""
        try:
            return self._array([None if value is None else self._class.FromString(value) for value in data])
        except (DecodeError, json_format.Error, ValueError, ArithmeticError, RecursionError):
            if len(data) == 1:
                return pa.nulls(1, self.kind)
        half = len(data) // 2
        return pa.concat_arrays([self.read(data[:half]), self.read(data[half:])])

    def _texts(self, messages: _Values) -> pa.Array:
        return pa.array([None if message is None else self._text(message) for message in messages], pa.string())

    def _text(self, message: Message) -> str:
        try:
            return json_format.MessageToJson(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._pool,
                indent=None,
            )
        except TypeError as error:  # json_format raises it where an Any has an unknown type
            raise ValueError(error) from error

    def _message(self, descriptor: Descriptor, within: tuple[str, ...]) -> _Converter:
        """Returns the converter of a message type; `within` are the message types that it is nested in."""
        if descriptor.full_name in within or not descriptor.fields:
            raise _NoArrowType
        within = (*within, descriptor.full_name)
        fields = [(field, *self._field(field, within)) for field in descriptor.fields]
        kind = pa.struct([pa.field(field.name, field_type) for field, field_type, _ in fields])

        def array(messages: _Values) -> pa.Array:
            arrays = [convert(_values(field, messages)) for field, _, convert in fields]
            absent = pa.array([message is None for message in messages], pa.bool_())
            return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=absent)

        return kind, array

    def _field(self, field: FieldDescriptor, within: tuple[str, ...]) -> _Converter:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(field.message_type, within)
        kind, convert = self._single(field, within)
        if not field.is_repeated:
            return kind, convert

        def array(lists: _Values) -> pa.Array:
            items = [item for values in lists for item in values or ()]
            return pa.ListArray.from_arrays(_offsets(lists), convert(items), type=pa.list_(kind))

        return pa.list_(kind), array

    def _map(self, entry: Descriptor, within: tuple[str, ...]) -> _Converter:
        """Returns the converter of a map field; its keys become text, as in JSON."""
        has_bool_keys = entry.fields_by_name["key"].cpp_type == FieldDescriptor.CPPTYPE_BOOL
        names = {True: "true", False: "false"} if has_bool_keys else {}
        value_type, convert = self._single(entry.fields_by_name["value"], within)
        kind = pa.map_(pa.string(), value_type)

        def array(maps: _Values) -> pa.Array:
            keys = [names.get(key, str(key)) for items in maps for key in items or ()]
            values = convert([items[key] for items in maps for key in items or ()])
            return pa.MapArray.from_arrays(_offsets(maps), pa.array(keys, pa.string()), values, type=kind)

        return kind, array

    def _single(self, field: FieldDescriptor, within: tuple[str, ...]) -> _Converter:
        """Returns the converter of a single value of a field, which may be repeated."""
        if field.message_type is not None:
            return self._known(field.message_type, field, within) or self._message(field.message_type, within)
        if field.enum_type is not None:
            names = {value.number: value.name for value in reversed(field.enum_type.values)}
            return _each(pa.string(), lambda number: names.get(number, str(number)))
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return _each(pa.string() if field.type == FieldDescriptor.TYPE_STRING else pa.binary())
        return _each(_NUMBERS[field.cpp_type])

    def _known(self, message: Descriptor, field: FieldDescriptor, within: tuple[str, ...]) -> _Converter | None:
        """Returns the converter of a message type that stands for a single value; None for other types."""
        if message.file.name == "google/protobuf/wrappers.proto":
            kind, convert = self._single(message.fields_by_name["value"], within)
            return kind, lambda wrappers: convert([None if wrapper is None else wrapper.value for wrapper in wrappers])
        digits = self._digits(field) if message.full_name == "confluent.type.Decimal" else None
        if digits:
            return _each(pa.decimal128(*digits), _decimal)
        return _each(*_KNOWN[message.full_name]) if message.full_name in _KNOWN else None

    def _digits(self, field: FieldDescriptor) -> tuple[int, int] | None:
        """Returns precision and scale of a decimal from the field's options, where Connect's converter puts them."""
        try:
            meta: Any = self._pool.FindExtensionByName("confluent.field_meta")
            options = message_factory.GetMessageClass(meta.containing_type)
            params = options.FromString(field.GetOptions().SerializeToString()).Extensions[meta].params
            precision, scale = int(params["precision"]), int(params["scale"])
        except (KeyError, ValueError):
            return None
        return (precision, scale) if 0 <= scale <= precision <= _DIGITS else None


def _values(field: FieldDescriptor, messages: _Values) -> _Values:
    """Returns the field of each message; None for no message, and for a field that is not set."""
    name = field.name
    if field.has_presence:
        return [
            getattr(message, name) if message is not None and message.HasField(name) else None for message in messages
        ]
    return [None if message is None else getattr(message, name) for message in messages]


def _each(kind: pa.DataType, convert: Callable[[Any], Any] | None = None) -> _Converter:
    """Returns the converter that makes an array of values as they are, or as `convert` returns them."""
    if convert is None:
        return kind, lambda values: pa.array(values, kind)
    return kind, lambda values: pa.array([None if value is None else convert(value) for value in values], kind)


def _offsets(lists: _Values) -> pa.Array:
    offsets = [0]
    for values in lists:
        offsets.append(offsets[-1] + (len(values) if values is not None else 0))
    return pa.array(offsets, pa.int32())


def _microseconds(timestamp: Any) -> int:  # noqa: ANN401 - a Timestamp
    if not (_FIRST <= timestamp.seconds <= _LAST and 0 <= timestamp.nanos < _SECOND):
        msg = "no moment between the years 1 and 9999"
        raise ValueError(msg)
    return int(timestamp.seconds * 1_000_000 + timestamp.nanos // 1_000)


def _time(value: Any) -> str:  # noqa: ANN401 - a TimeOfDay
    return time(value.hours, value.minutes, value.seconds, value.nanos // 1_000).isoformat("microseconds")


def _decimal(value: Any) -> Decimal:  # noqa: ANN401 - a Decimal of Confluent's
    if abs(value.scale) > _SCALE or len(value.value) > _SCALE:
        msg = f"a decimal of more than {_SCALE} digits"
        raise ValueError(msg)
    unscaled = int.from_bytes(value.value, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -value.scale))


_KNOWN: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": (pa.timestamp("us", "UTC"), _microseconds),
    "google.type.Date": (pa.date32(), lambda value: date(value.year, value.month, value.day)),
    "google.type.TimeOfDay": (pa.string(), _time),
    "confluent.type.Decimal": (pa.string(), lambda value: f"{_decimal(value):f}"),
}
"""The Arrow type and converter of well-known messages, by name. A decimal whose field has no precision becomes text."""
