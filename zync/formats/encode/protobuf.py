"""Output rows as messages of protobuf: https://protobuf.dev/programming-guides/proto3/."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from typing import Any, NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from zync.errors import UsageError
from zync.formats.decode.protobuf import pool_of
from zync.formats.encode.values import SIMPLE, Change, Kind, digits, field_name, fields, moment, no_type, parsed, word
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
"""Those that Connect's converter takes."""

_HEAD = """syntax = "proto3";
package {package};
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
"""

_EXACT = Context(prec=76)
"""For twice as many digits as a decimal has at most."""

Into = Callable[[Message, Any], None]
"""What puts a JSON value into a message."""
Numbers = dict[str, dict[str, int]]
"""Of messages by their full names, the numbers of fields by theirs."""


class _Single(NamedTuple):
    """A type of one value: its name, what is said of it beside the field, messages that it needs, how to fill it.

    Exactly one of `change`, for a scalar, and `into`, for a message.
    """

    name: str
    options: str = ""
    needs: tuple[str, ...] = ()
    change: Change | None = None
    into: Into | None = None


def protobuf(kind: Kind, name: str, within: str, earlier: Sequence[Schema] = ()) -> tuple[str, Callable[[str], bytes]]:
    """The schema of a message of that struct, and what makes the bytes of one of a row's JSON.

    Fields have the numbers that they have in `earlier` schemas of the subject, and new ones numbers that were in none.
    All may be absent, which is null; of lists and maps protobuf does not tell null from none. UsageError where it has
    no type, or no name, for a column.
    """
    package, _, message = name.rpartition(".")
    lines, into = _message(kind, name, within, _numbers(earlier))
    text = "\n".join([_HEAD.format(package=package), *lines, ""])
    try:
        pool = pool_of(compiled(Schema("PROTOBUF", text)))
    except UsageError as error:
        msg = f"{within} cannot be protobuf: {error}"
        raise UsageError(msg) from error
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{message}"))

    def encode(row: str) -> bytes:
        one = made()
        into(one, parsed(row))
        return b"\0" + one.SerializeToString()  # which of the schema's messages: the first

    return text, encode


def _numbers(earlier: Iterable[Schema]) -> Numbers:
    found: Numbers = {}

    def walk(messages: Iterable[Descriptor]) -> None:
        for message in messages:
            its = found.setdefault(message.full_name, {})
            for field in message.fields:
                its.setdefault(field.name, field.number)
            walk(message.nested_types)

    for schema in earlier:
        walk(pool_of(compiled(schema)).FindFileByName(MAIN).message_types_by_name.values())
    return found


def _message(kind: Kind, name: str, within: str, numbers: Numbers) -> tuple[list[str], Into]:
    """The lines of a message of that full name, and what fills it."""
    lines, puts = list[str](), list[tuple[str, Into]]()
    known = dict(numbers.get(name, {}))
    for column, its in fields(kind):
        field = field_name(column, within, "protobuf")
        number = known.setdefault(field, max([0, *known.values()]) + 1)
        text, needs, options, put = _field(its, field, name, f"{within}.{field}", numbers)
        lines += [*needs, f"{text} {field} = {number}{options};"]
        puts.append((field, put))

    def into(message: Message, found: Any) -> None:
        for field, put in puts:
            value = found.get(field)
            if value is not None:
                put(message, value)

    return [f"message {name.rpartition('.')[2]} {{", *(f"  {line}" for line in lines), "}"], into


def _field(
    kind: Kind, field: str, message: str, within: str, numbers: Numbers
) -> tuple[str, tuple[str, ...], str, Into]:
    if isinstance(kind, str) or word(kind) == "struct":
        one = _single(kind, field, message, within, numbers)
        return f"optional {one.name}", one.needs, one.options, _putting(one, field)
    inner = kind["elementType" if word(kind) == "array" else "valueType"]
    if word(inner) in ("array", "map"):
        msg = f"{within}: protobuf has no lists or maps within lists and maps: put a struct between them"
        raise UsageError(msg)
    one = _single(inner, field, message, within, numbers)
    if word(kind) == "array":
        return f"repeated {one.name}", one.needs, one.options, _adding(one, field)
    return f"map<string, {one.name}>", one.needs, one.options, _mapping(one, field)


def _single(kind: Kind, field: str, message: str, within: str, numbers: Numbers) -> _Single:
    simple = word(kind)
    if simple == "struct":
        name = f"{field}_of"  # a name of its own: fields and messages share them
        lines, into = _message(kind, f"{message}.{name}", within, numbers)
        return _Single(name, needs=tuple(lines), into=into)
    if simple == "decimal":
        precision, scale = digits(kind)
        meta = f'[(confluent.field_meta) = {{params: [{{key: "precision", value: "{precision}"}}, '
        meta += f'{{key: "scale", value: "{scale}"}}]}}]'
        return _Single(_MESSAGES[simple], options=f" {meta}", into=_decimal(precision, scale))
    if simple == "timestamp":
        return _Single(_MESSAGES[simple], into=lambda one, found: one.FromDatetime(moment(found)))  # type: ignore[attr-defined]
    if simple == "date":
        return _Single(_MESSAGES[simple], into=_date)
    if simple not in _TYPES:
        raise no_type(kind, within, "protobuf")
    as_text = simple == "timestamp_ntz"
    return _Single(_TYPES[simple], change=(None if as_text else SIMPLE[simple]) or (lambda found: found))


def _putting(one: _Single, field: str) -> Into:
    change, into = one.change, one.into
    if into is None:
        assert change  # noqa: S101 - one of both is there
        return lambda message, found: setattr(message, field, change(found))

    def put(message: Message, found: Any) -> None:
        part = getattr(message, field)
        part.SetInParent()
        into(part, found)

    return put


def _adding(one: _Single, field: str) -> Into:
    change, into = one.change, one.into

    def put(message: Message, found: Any) -> None:
        _no_null(found, field)
        if change:
            getattr(message, field).extend(map(change, found))
        elif into:
            for item in found:
                into(getattr(message, field).add(), item)

    return put


def _mapping(one: _Single, field: str) -> Into:
    change, into = one.change, one.into

    def put(message: Message, found: Any) -> None:
        _no_null(found.values(), field)
        items = getattr(message, field)
        for key, item in found.items():
            if change:
                items[key] = change(item)
            elif into:
                into(items[key], item)

    return put


def _no_null(values: Iterable[Any], field: str) -> None:
    if any(one is None for one in values):
        msg = f"protobuf has no null in a list or a map, and {field} has one"
        raise ValueError(msg)


def _decimal(precision: int, scale: int) -> Into:
    def into(message: Any, found: Any) -> None:
        unscaled = int(_EXACT.scaleb(Decimal(found), scale))
        message.value = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        message.precision, message.scale = precision, scale

    return into


def _date(message: Any, found: str) -> None:
    message.year, message.month, message.day = map(int, found.split("-"))
