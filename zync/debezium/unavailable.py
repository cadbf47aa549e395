"""The placeholder that stands where Debezium leaves a value out, in all its forms; and the images without it.

PostgreSQL's connector sends it for large values that an update did not touch (TOAST), Oracle's for LOBs, SQL Server's
for columns of type `max`: all by the connector's option `unavailable.value.placeholder`.
"""

import json
from base64 import b64encode
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from hashlib import md5
from uuid import UUID

from zync.config.model import Config
from zync.sql import literal

LEFT_OUT = "as_left_out"
"""The column of decoded records with the names of the fields that were left out; null where none was."""
CLEAN = "as_clean"
"""The column of decoded records with the envelope in whose images null is where fields were left out; null likewise."""
OLD_KEY = "__debezium.oldkey"
"""The header of a row that an update gave another primary key: the key that it had."""
KEY_CHANGED = f"coalesce(array_contains(headers.key, {literal(OLD_KEY)}), false)"
"""Whether a record is of a row that an update gave another key; it comes after the row's deletion by the old one."""
_OLD_KEY_TEXT = f"CAST(get(headers.value, CAST(array_position(headers.key, {literal(OLD_KEY)}) AS INT) - 1) AS STRING)"
OLD_KEY_VALUE = (
    f"CASE WHEN {KEY_CHANGED} THEN coalesce(try_variant_get(try_parse_json({_OLD_KEY_TEXT}), '$.payload', 'variant'), "
    f"try_parse_json({_OLD_KEY_TEXT})) END"
)
"""The key that such a row had (VARIANT), with the converter's wrapping or not."""
_OBJECT = "map<string, variant>"


@dataclass(frozen=True)
class Placeholder:
    """The forms of one placeholder, as io.debezium.connector.postgresql.UnchangedToastedPlaceholder makes them."""

    text: str

    @cached_property
    def data(self) -> bytes:
        """The placeholder of a binary column."""
        return self.text.encode()

    @property
    def base64(self) -> str:
        """The same as text, by `binary.handling.mode` and in JSON."""
        return b64encode(self.data).decode()

    @property
    def texts(self) -> tuple[str, ...]:
        """As text, and as bytes by `binary.handling.mode`."""
        return self.text, self.base64, self.data.hex()

    @cached_property
    def uuid(self) -> str:
        """The only element of an array of UUIDs: Java's `UUID.nameUUIDFromBytes`."""
        return str(UUID(bytes=md5(self.data, usedforsecurity=False).digest(), version=3))

    @property
    def numbers(self) -> list[int]:
        """The elements of an array of numbers: Java's bytes, which are signed."""
        return [one - 256 if one > 127 else one for one in self.data]  # noqa: PLR2004

    @cached_property
    def json(self) -> tuple[str, ...]:
        """All forms as `to_json` writes a VARIANT.

        An array of dates has the bytes as days; one of decimals has them each as a decimal's bytes. (An array of
        booleans has `true` for each byte, which is too much like a real one to be taken for a placeholder.)
        """
        days = [(date(1970, 1, 1) + timedelta(one)).isoformat() for one in self.numbers]
        decimals = [b64encode(bytes([one])).decode() for one in self.data]
        forms = (
            *self.texts,
            *([one] for one in (*self.texts, self.uuid)),
            self.numbers,
            days,
            decimals,
            {self.text: self.text},
        )
        return tuple(json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in forms)

    @property
    def traces(self) -> tuple[str, ...]:
        """What JSON text has at least one of, if a placeholder is in it that is no array."""
        return tuple(dict.fromkeys((*self.texts, json.dumps(self.text)[1:-1])))

    @property
    def array_traces(self) -> tuple[str, ...]:
        """The same of arrays of UUIDs, numbers and decimals, whatever is between their elements."""
        return self.uuid, f"[{self.numbers[0]}", f'["{b64encode(self.data[:1]).decode()}"'

    @cached_property
    def bytes_traces(self) -> tuple[bytes, ...]:
        """The same of other formats: Avro has numbers as zigzag varints, and Protobuf these as the bytes themselves."""
        zigzag = b"".join(_varint(one << 1 if one >= 0 else (-one << 1) - 1) for one in self.numbers)
        decimals = b"".join(_varint(1 << 1) + bytes([one]) for one in self.data)
        floats = ",".join(str(float(one)) for one in self.numbers)
        texts = (
            *self.traces,
            self.uuid,
            ",".join(map(str, self.numbers)),
            floats,
            '","'.join(json.loads(self.json[-2])),
        )
        return (self.data, *(one.encode() for one in texts if one != self.text), zigzag, decimals)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:  # noqa: PLR2004 - seven bits a byte
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def placeholder(config: Config) -> Placeholder:
    """The placeholder of the connector that the config says."""
    return Placeholder(config.transactions.unavailable_value)


def has_envelopes(config: Config) -> bool:
    """Whether any topic has a connector's envelopes, in which values may be left out."""
    return any(topic.envelope for topic in config.topics.values())


def is_placeholder(config: Config, value: str) -> str:
    """A condition on a VARIANT: it is the placeholder, in one of its forms."""
    return f"to_json({value}) IN ({', '.join(map(literal, placeholder(config).json))})"


def has_placeholder(config: Config, data: str) -> str:
    """A condition on a record in sql/decode/decode.sql, `data` being its value's bytes: it may have a placeholder.

    Those of updates are looked through alone, and of rows that an update gave another key: a new row has all values.
    """
    ends = ", ".join(map(literal, config.transactions.end_topics))
    operation = "try_variant_get(value, '$.op', 'string')"
    inner = "try_variant_get(value, '$.payload.op', 'string')"
    stands = placeholder(config)
    in_text, in_arrays = (
        " OR ".join(f"contains(value_text, {literal(one)})" for one in traces)
        for traces in (stands.traces, stands.array_traces)
    )
    in_bytes = " OR ".join(f"contains({data}, X'{one.hex()}')" for one in stands.bytes_traces)
    # Each is a pass over all of the text: most records have no array.
    traces = (
        f"CASE WHEN value_text IS NULL THEN {in_bytes} "
        f"ELSE {in_text} OR contains(value_text, '[') AND ({in_arrays}) END"
    )
    # To look for a field that is not there is slow (VariantGet returns by an exception): `payload` comes last.
    update = f"CASE WHEN {operation} IS NOT NULL THEN {operation} = 'u' ELSE {inner} = 'u' END"
    return f"kafka.topic NOT IN ({ends}) AND ({KEY_CHANGED} OR {update}) AND {traces}"


def without_placeholders(config: Config, value: str) -> str:
    """The envelope `value`, without its converter's wrapping, with null in its images where placeholders are."""
    envelope = f"coalesce(try_variant_get({value}, '$.payload', 'variant'), {value})"
    image = f"CASE WHEN name IN ('after', 'before') THEN {_image(config, 'field')} ELSE field END"
    return _mapped(envelope, image)


def _image(config: Config, image: str) -> str:
    return _mapped(image, f"CASE WHEN NOT {is_placeholder(config, 'of')} THEN of END", "of")


def _mapped(value: str, becomes: str, field: str = "field") -> str:
    """The object `value` (VARIANT) with each of its fields as `becomes` says; what is no object as it is."""
    name = "name" if field == "field" else f"name_{field}"
    fields = f"try_variant_get({value}, '$', '{_OBJECT}')"
    return f"coalesce(to_variant_object(transform_values({fields}, ({name}, {field}) -> {becomes})), {value})"


def names_left_out(config: Config, value: str) -> str:
    """The names of the fields that are placeholders in an image of the envelope `value`, as an array, sorted.

    Null for none.
    """
    wrapped = f"coalesce(try_variant_get({value}, '$.payload.{{0}}', '{_OBJECT}'), {{1}})"
    found = []
    for image in ("after", "before"):
        fields = wrapped.format(image, f"try_variant_get({value}, '$.{image}', '{_OBJECT}')")
        left_out = f"map_filter({fields}, (name, field) -> {is_placeholder(config, 'field')})"
        found.append(f"coalesce(map_keys({left_out}), CAST(array() AS ARRAY<STRING>))")
    return f"nullif(sort_array(array_union({', '.join(found)})), CAST(array() AS ARRAY<STRING>))"
