"""Messages of protobuf as columns of Arrow, by Google's parser.

`Reader` goes to Spark's executors as it stands here: they need protobuf and pyarrow, and no zync.
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
    """What a FileDescriptorSet describes, by itself."""
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(one)
    return pool


_Values = list[Any]
_Kind = tuple[pa.DataType, Callable[[_Values], pa.Array]]
"""A type of Arrow, and what makes an array of it of the values of a field, None where it has none."""

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
"""What a decimal of Spark's has at most."""

_SCALE = 1_000
"""Digits that no decimal has: with a scale of 2**31 a few bytes say that there are so many."""

_FIRST, _LAST, _SECOND = -62_135_596_800, 253_402_300_799, 1_000_000_000
"""Seconds of the first and the last moment that a Timestamp may have, in 0001 and in 9999; and one in nanoseconds."""


class _NoType(Exception):
    """A message that has no type of Arrow: it holds itself, or nothing at all."""


class Reader:
    """Reads messages of the type `name` of a FileDescriptorSet.

    kind: their type; string where the type holds itself (as google.protobuf.Struct does) or a message without fields:
    then each is read as the text that protobuf's JSON mapping has for it.
    """

    def __init__(self, files: bytes, name: str) -> None:
        self._pool = pool_of(files)
        descriptor = self._pool.FindMessageTypeByName(name)
        self._class = message_factory.GetMessageClass(descriptor)
        try:
            self.kind, self._array = self._message(descriptor, ())
        except _NoType:
            self.kind, self._array = pa.string(), self._texts

    def read(self, data: _Values) -> pa.Array:
        """Those bytes as messages; null where there are none, and where they are not such a message."""
        try:
            return self._array([None if one is None else self._class.FromString(one) for one in data])
        except (DecodeError, json_format.Error, ValueError, ArithmeticError, RecursionError):
            if len(data) == 1:
                return pa.nulls(1, self.kind)
        half = len(data) // 2
        return pa.concat_arrays([self.read(data[:half]), self.read(data[half:])])

    def _texts(self, found: _Values) -> pa.Array:
        return pa.array([None if one is None else self._text(one) for one in found], pa.string())

    def _text(self, one: Message) -> str:
        try:
            return json_format.MessageToJson(
                one,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._pool,
                indent=None,
            )
        except TypeError as error:  # its way to say that it knows no such type as an Any in it has
            raise ValueError(error) from error

    def _message(self, descriptor: Descriptor, within: tuple[str, ...]) -> _Kind:
        if descriptor.full_name in within or not descriptor.fields:
            raise _NoType
        within = (*within, descriptor.full_name)
        fields = [(one, *self._field(one, within)) for one in descriptor.fields]
        kind = pa.struct([pa.field(one.name, its) for one, its, _ in fields])

        def array(found: _Values) -> pa.Array:
            arrays = [make(_values(one, found)) for one, _, make in fields]
            absent = pa.array([one is None for one in found], pa.bool_())
            return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=absent)

        return kind, array

    def _field(self, field: FieldDescriptor, within: tuple[str, ...]) -> _Kind:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(field.message_type, within)
        kind, make = self._single(field, within)
        if not field.is_repeated:
            return kind, make

        def array(lists: _Values) -> pa.Array:
            flat = [one for some in lists for one in some or ()]
            return pa.ListArray.from_arrays(_offsets(lists), make(flat), type=pa.list_(kind))

        return pa.list_(kind), array

    def _map(self, entry: Descriptor, within: tuple[str, ...]) -> _Kind:
        """With keys as text, as they are in JSON."""
        of_bool = entry.fields_by_name["key"].cpp_type == FieldDescriptor.CPPTYPE_BOOL
        names = {True: "true", False: "false"} if of_bool else {}
        value, make = self._single(entry.fields_by_name["value"], within)
        kind = pa.map_(pa.string(), value)

        def array(maps: _Values) -> pa.Array:
            keys = [names.get(key, str(key)) for one in maps for key in one or ()]
            values = make([one[key] for one in maps for key in one or ()])
            return pa.MapArray.from_arrays(_offsets(maps), pa.array(keys, pa.string()), values, type=kind)

        return kind, array

    def _single(self, field: FieldDescriptor, within: tuple[str, ...]) -> _Kind:
        """Of one value of a field, whatever number of them it has."""
        if field.message_type is not None:
            return self._known(field.message_type, field, within) or self._message(field.message_type, within)
        if field.enum_type is not None:
            names = {one.number: one.name for one in reversed(field.enum_type.values)}
            return _each(pa.string(), lambda number: names.get(number, str(number)))
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return _each(pa.string() if field.type == FieldDescriptor.TYPE_STRING else pa.binary())
        return _each(_NUMBERS[field.cpp_type])

    def _known(self, message: Descriptor, field: FieldDescriptor, within: tuple[str, ...]) -> _Kind | None:
        """Of a message that stands for a value of Spark's; None for others."""
        if message.file.name == "google/protobuf/wrappers.proto":
            kind, make = self._single(message.fields_by_name["value"], within)
            return kind, lambda found: make([None if one is None else one.value for one in found])
        digits = self._digits(field) if message.full_name == "confluent.type.Decimal" else None
        if digits:
            return _each(pa.decimal128(*digits), _decimal)
        return _each(*_KNOWN[message.full_name]) if message.full_name in _KNOWN else None

    def _digits(self, field: FieldDescriptor) -> tuple[int, int] | None:
        """Precision and scale of a decimal, if they are noted beside the field, as Connect's converter does."""
        try:
            meta: Any = self._pool.FindExtensionByName("confluent.field_meta")
            options = message_factory.GetMessageClass(meta.containing_type)
            params = options.FromString(field.GetOptions().SerializeToString()).Extensions[meta].params
            precision, scale = int(params["precision"]), int(params["scale"])
        except (KeyError, ValueError):
            return None
        return (precision, scale) if 0 <= scale <= precision <= _DIGITS else None


def _values(field: FieldDescriptor, found: _Values) -> _Values:
    name = field.name
    if field.has_presence:
        return [getattr(one, name) if one is not None and one.HasField(name) else None for one in found]
    return [None if one is None else getattr(one, name) for one in found]


def _each(kind: pa.DataType, change: Callable[[Any], Any] | None = None) -> _Kind:
    if change is None:
        return kind, lambda found: pa.array(found, kind)
    return kind, lambda found: pa.array([None if one is None else change(one) for one in found], kind)


def _offsets(lists: _Values) -> pa.Array:
    ends = [0]
    for one in lists:
        ends.append(ends[-1] + (len(one) if one is not None else 0))
    return pa.array(ends, pa.int32())


def _microseconds(moment: Any) -> int:  # noqa: ANN401 - a Timestamp
    if not (_FIRST <= moment.seconds <= _LAST and 0 <= moment.nanos < _SECOND):
        msg = "no moment between the years 1 and 9999"
        raise ValueError(msg)
    return int(moment.seconds * 1_000_000 + moment.nanos // 1_000)


def _time(one: Any) -> str:  # noqa: ANN401 - a TimeOfDay
    return time(one.hours, one.minutes, one.seconds, one.nanos // 1_000).isoformat("microseconds")


def _decimal(one: Any) -> Decimal:  # noqa: ANN401 - a Decimal of Confluent's
    if abs(one.scale) > _SCALE or len(one.value) > _SCALE:
        msg = f"a decimal of more than {_SCALE} digits"
        raise ValueError(msg)
    unscaled = int.from_bytes(one.value, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -one.scale))


_KNOWN: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": (pa.timestamp("us", "UTC"), _microseconds),
    "google.type.Date": (pa.date32(), lambda one: date(one.year, one.month, one.day)),
    "google.type.TimeOfDay": (pa.string(), _time),
    "confluent.type.Decimal": (pa.string(), lambda one: f"{_decimal(one):f}"),
}
"""By the message's name. A decimal without digits said beside its field has them in each value: it is text."""
