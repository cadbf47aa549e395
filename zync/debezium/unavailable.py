"""Recognises Debezium's unavailable-value placeholder in all its forms, and replaces it in a row's images by null.

PostgreSQL's connector sends it for large values that an update did not touch (TOAST), Oracle's for LOBs, SQL Server's
for columns of type `max`; its text is the connector's option `unavailable.value.placeholder`.
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
"""The column of decoded records with the names of the fields that were left out; null if there are none."""
CLEAN = "as_clean"
"""The column of decoded records with the envelope after placeholders became null; null if nothing was left out."""
OLD_KEY = "__debezium.oldkey"
"""The header of a row whose primary key an update changed: the key before the update."""
KEY_CHANGED = f"coalesce(array_contains(headers.key, {literal(OLD_KEY)}), false)"
"""SQL: whether an update changed the row's key. Such a record comes after the row's deletion under the old key."""
_OLD_KEY_TEXT = f"CAST(get(headers.value, CAST(array_position(headers.key, {literal(OLD_KEY)}) AS INT) - 1) AS STRING)"
OLD_KEY_VALUE = (
    f"CASE WHEN {KEY_CHANGED} THEN coalesce(try_variant_get(try_parse_json({_OLD_KEY_TEXT}), '$.payload', 'variant'), "
    f"try_parse_json({_OLD_KEY_TEXT})) END"
)
"""SQL for the key that such a row had (VARIANT), without the JSON converter's `schema` and `payload` around it."""
_OBJECT = "map<string, variant>"


@dataclass(frozen=True)
class Placeholder:
    """The forms of a placeholder, as io.debezium.connector.postgresql.UnchangedToastedPlaceholder creates them."""

    text: str

    @cached_property
    def data(self) -> bytes:
        """The placeholder in a binary column."""
        return self.text.encode()

    @property
    def base64(self) -> str:
        """The bytes as Base64, as JSON has them, and as `binary.handling.mode` may set."""
        return b64encode(self.data).decode()

    @property
    def texts(self) -> tuple[str, ...]:
        """The text itself, and its bytes as Base64 and in hexadecimal, as `binary.handling.mode` may set."""
        return self.text, self.base64, self.data.hex()

    @cached_property
    def uuid(self) -> str:
        """The only element of an array of UUIDs: what Java's `UUID.nameUUIDFromBytes` returns for the bytes."""
        return str(UUID(bytes=md5(self.data, usedforsecurity=False).digest(), version=3))

    @property
    def numbers(self) -> list[int]:
        """The elements of an array of numbers: Java's bytes, which are signed."""
        return [byte - 256 if byte > 127 else byte for byte in self.data]  # noqa: PLR2004

    @cached_property
    def json(self) -> tuple[str, ...]:
        """All forms as `to_json` writes a VARIANT.

        An array of dates has the bytes as days since 1970, an array of decimals has each byte as a decimal's bytes. (An
        array of booleans has `true` for each byte, which a real array may have, too; it is not recognised.)
        """
        days = [(date(1970, 1, 1) + timedelta(number)).isoformat() for number in self.numbers]
        decimals = [b64encode(bytes([byte])).decode() for byte in self.data]
        forms = (
            *self.texts,
            *([text] for text in (*self.texts, self.uuid)),
            self.numbers,
            days,
            decimals,
            {self.text: self.text},
        )
        return tuple(json.dumps(form, separators=(",", ":"), ensure_ascii=False) for form in forms)

    @property
    def traces(self) -> tuple[str, ...]:
        """Texts of which a JSON text contains some if it has a placeholder outside of arrays."""
        return tuple(dict.fromkeys((*self.texts, json.dumps(self.text)[1:-1])))

    @property
    def array_traces(self) -> tuple[str, ...]:
        """The same for arrays of UUIDs, numbers and decimals, whatever separates their elements."""
        return self.uuid, f"[{self.numbers[0]}", f'["{b64encode(self.data[:1]).decode()}"'

    @cached_property
    def bytes_traces(self) -> tuple[bytes, ...]:
        """The same for Avro, which has numbers as zigzag varints, and Protobuf, which has the bytes themselves."""
        zigzag = b"".join(_varint(number << 1 if number >= 0 else (-number << 1) - 1) for number in self.numbers)
        decimals = b"".join(_varint(1 << 1) + bytes([byte]) for byte in self.data)
        floats = ",".join(str(float(number)) for number in self.numbers)
        texts = (
            *self.traces,
            self.uuid,
            ",".join(map(str, self.numbers)),
            floats,
            '","'.join(json.loads(self.json[-2])),
        )
        return (self.data, *(text.encode() for text in texts if text != self.text), zigzag, decimals)


def _varint(number: int) -> bytes:
    """Encodes an unsigned number as a varint."""
    encoded = bytearray()
    while number > 127:  # noqa: PLR2004 - seven bits a byte
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def placeholder(config: Config) -> Placeholder:
    """Returns the connector's placeholder, as the config sets it."""
    return Placeholder(config.transactions.unavailable_value)


def has_envelopes(config: Config) -> bool:
    """Whether any topic has a connector's envelopes, in which values may be left out."""
    return any(topic.envelope for topic in config.topics.values())


def is_placeholder(config: Config, value: str) -> str:
    """Returns the condition that a VARIANT is the placeholder, in any of its forms."""
    return f"to_json({value}) IN ({', '.join(map(literal, placeholder(config).json))})"


def has_placeholder(config: Config, data: str) -> str:
    """Returns the condition, in sql/read/decode.sql, that a record may have a placeholder.

    Only updates and rows whose key an update changed are searched: other new rows have all values.

    Args:
        config: The config.
        data: SQL for the bytes of the record's value.
    """
    ends = ", ".join(map(literal, config.transactions.end_topics))
    operation = "try_variant_get(value, '$.op', 'string')"
    inner = "try_variant_get(value, '$.payload.op', 'string')"
    unavailable = placeholder(config)
    in_text, in_arrays = (
        " OR ".join(f"contains(value_text, {literal(trace)})" for trace in traces)
        for traces in (unavailable.traces, unavailable.array_traces)
    )
    in_bytes = " OR ".join(f"contains({data}, X'{trace.hex()}')" for trace in unavailable.bytes_traces)
    # Each `contains` is a pass over the whole text. Most records have no array, so the last ones are skipped.
    has_trace = (
        f"CASE WHEN value_text IS NULL THEN {in_bytes} "
        f"ELSE {in_text} OR contains(value_text, '[') AND ({in_arrays}) END"
    )
    # To test for a field that a VARIANT lacks is slow (VariantGet returns by an exception): `payload` comes last.
    is_update = f"CASE WHEN {operation} IS NOT NULL THEN {operation} = 'u' ELSE {inner} = 'u' END"
    return f"kafka.topic NOT IN ({ends}) AND ({KEY_CHANGED} OR {is_update}) AND {has_trace}"


def without_placeholders(config: Config, value: str) -> str:
    """Returns SQL for an envelope with null instead of placeholders in its images.

    Args:
        config: The config.
        value: SQL for the envelope; the JSON converter's `schema` and `payload` around it are removed.
    """
    envelope = f"coalesce(try_variant_get({value}, '$.payload', 'variant'), {value})"
    image = f"CASE WHEN name IN ('after', 'before') THEN {_image(config, 'field')} ELSE field END"
    return _mapped(envelope, image)


def _image(config: Config, image: str) -> str:
    """Returns SQL for an image with null instead of placeholders."""
    return _mapped(image, f"CASE WHEN NOT {is_placeholder(config, 'of')} THEN of END", "of")


def _mapped(value: str, becomes: str, field: str = "field") -> str:
    """Returns SQL for an object (VARIANT) with each of its fields replaced; another value stays as it is.

    Args:
        value: SQL for the object.
        becomes: SQL for a field's new value, over the lambda's variables.
        field: The variable with the field's value.
    """
    name = "name" if field == "field" else f"name_{field}"
    fields = f"try_variant_get({value}, '$', '{_OBJECT}')"
    return f"coalesce(to_variant_object(transform_values({fields}, ({name}, {field}) -> {becomes})), {value})"


def names_left_out(config: Config, value: str) -> str:
    """Returns SQL for the sorted names of the fields that are placeholders in an image of an envelope; null if none is.

    Args:
        config: The config.
        value: SQL for the envelope.
    """
    fields_of_image = f"coalesce(try_variant_get({value}, '$.payload.{{0}}', '{_OBJECT}'), {{1}})"
    names = []
    for image in ("after", "before"):
        fields = fields_of_image.format(image, f"try_variant_get({value}, '$.{image}', '{_OBJECT}')")
        left_out = f"map_filter({fields}, (name, field) -> {is_placeholder(config, 'field')})"
        names.append(f"coalesce(map_keys({left_out}), CAST(array() AS ARRAY<STRING>))")
    return f"nullif(sort_array(array_union({', '.join(names)})), CAST(array() AS ARRAY<STRING>))"
