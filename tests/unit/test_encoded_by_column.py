"""Rows that are encoded by column have the same bytes as those encoded one by one by fastavro and Google's protobuf."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from zync.formats.encode.avro import avro
from zync.formats.encode.columns import RowEncoder
from zync.formats.encode.protobuf import protobuf

HEADER = b"\0\0\0\0\7"
FORMATS: dict[str, Callable[..., tuple[str, RowEncoder]]] = {"avro": avro, "protobuf": protobuf}
VALUES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "byte": ["0", "-128", "127"],
    "short": ["-32768", "32767", "64", "-65"],
    "integer": ["0", "-1", "2147483647", "-2147483648", "63", "64", "8191", "8192"],
    "long": ["0", "9223372036854775807", "-9223372036854775808", "-1", "4503599627370497"],
    "float": ["0.1", "-0.0", "3.4028235E38", "1.4E-45", '"NaN"', '"Infinity"', '"-Infinity"', "7"],
    "double": ["0.1", "-0.0", "1.7976931348623157E308", "5E-324", '"NaN"', '"-Infinity"', "9007199254740993"],
    "decimal(12,2)": ["0.00", "-0.01", "1.28", "-1.28", "-1.29", "327.68", "-9999999999.99", "9999999999.99", "5"],
    "decimal(18,0)": ["999999999999999999", "-999999999999999999", "0", "-128", "128", "36028797018963968"],
    "string": ['""', '"a"', '"\\u0000é\\ud83d\\ude00"', '"' + "x" * 130 + '"', '"{\\"a\\": [1]}\\n"'],
    "binary": ['""', '"AAECAw=="', '"/////w=="'],
    "date": ['"0001-01-01"', '"1582-10-04"', '"1969-12-31"', '"1970-01-01"', '"9999-12-31"'],
    "timestamp": [
        '"0001-01-01T00:00:00.000000Z"',
        '"1969-12-31T23:59:59.999999Z"',
        '"1970-01-01T00:00:00.000000Z"',
        '"2026-03-29T01:30:00.000001Z"',
        '"9999-12-31T23:59:59.999999Z"',
    ],
    "timestamp_ntz": ['"0001-01-01T00:00:00.000000"', '"1969-12-31T23:59:59.999999"', '"2026-03-29T02:30:00.100000"'],
}
NOT_BY_COLUMN = {"protobuf": {"timestamp_ntz"}}
"""In protobuf a local time is the text that it is in staging, which Arrow would write otherwise."""


def struct(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return {"type": "struct", "fields": fields}


def rows_of(types: dict[str, str], count: int, seed: int) -> list[str]:
    """Rows with values at random, some of them null, some left out, their fields in any order."""
    chance, rows = random.Random(seed), []
    for _ in range(count):
        fields = [f'"{name}":{chance.choice([*VALUES[kind], "null"])}' for name, kind in types.items()]
        chance.shuffle(fields)
        rows.append("{" + ",".join(fields[: chance.randrange(len(fields) + 1)]) + "}")
    return rows


@pytest.mark.parametrize("format_", FORMATS)
def test_all_types_at_once(format_: str) -> None:
    kinds = [kind for kind in VALUES if kind not in NOT_BY_COLUMN.get(format_, ())]
    types = {f"c{number}": kind for number, kind in enumerate(kinds)}
    _, encoder = FORMATS[format_](struct(**types), "shop.Value", "topic shop")
    rows = rows_of(types, 500, 1)
    encoded = encoder.encoded(rows, HEADER)
    assert encoded == [HEADER + encoder.one(row) for row in rows]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("kind", VALUES)
def test_each_value_of_each_type(format_: str, kind: str) -> None:
    _, encoder = FORMATS[format_](struct(c=kind), "shop.Value", "topic shop")
    rows = [f'{{"c":{value}}}' for value in VALUES[kind]]
    encoded = encoder.encoded(rows, HEADER)
    if kind in NOT_BY_COLUMN.get(format_, ()):
        assert encoded is None
    else:
        assert encoded == [HEADER + encoder.one(row) for row in rows]


@pytest.mark.parametrize("kind", ["variant", "decimal(19,0)", {"type": "array", "elementType": "integer"}])
def test_other_types_are_encoded_row_by_row(kind: Any) -> None:
    _, encoder = avro(struct(c=kind), "shop.Value", "topic shop")
    assert encoder.all is None


@pytest.mark.parametrize("row", ['{"c":"x"}', '{"c":9223372036854775808}', '{"c":', '{"c":1.5}'])
def test_a_row_that_does_not_fit_is_left_to_what_names_it(row: str) -> None:
    _, encoder = avro(struct(c="long"), "shop.Value", "topic shop")
    assert encoder.encoded(['{"c":1}', row], HEADER) is None


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(("kind", "value"), [("integer", 1 << 31), ("short", -(1 << 15) - 1), ("byte", 128)])
def test_an_integer_beyond_its_type_is_left_to_it_as_well(format_: str, kind: str, value: int) -> None:
    _, encoder = FORMATS[format_](struct(c=kind), "shop.Value", "topic shop")
    assert encoder.encoded([f'{{"c":{value}}}'], HEADER) is None


def test_so_is_a_decimal_with_more_digits_than_its_type() -> None:
    _, encoder = avro(struct(c="decimal(4,2)"), "shop.Value", "topic shop")
    assert encoder.encoded(['{"c":1.25}', '{"c":1.255}'], HEADER) is None
    assert encoder.encoded(['{"c":100.25}'], HEADER) is None


@pytest.mark.parametrize("format_", FORMATS)
def test_a_float_beyond_its_type_is_not_infinite(format_: str) -> None:
    _, encoder = FORMATS[format_](struct(c="float"), "shop.Value", "topic shop")
    assert encoder.encoded(['{"c":1E39}'], HEADER) is None


def test_protobuf_has_fields_in_order_of_their_numbers() -> None:
    """As a column that was added before others has a higher number than they have."""
    text, first = protobuf(struct(b="long", d="string"), "shop.Value", "topic shop")
    from zync.formats.registry import Schema  # noqa: PLC0415

    _, encoder = protobuf(
        struct(a="long", b="long", c="date", d="string"), "shop.Value", "t", [Schema("PROTOBUF", text)]
    )
    row = json.dumps({"a": 300, "b": 2, "c": "2026-01-31", "d": "x"})
    assert first.all
    assert encoder.encoded([row], HEADER) == [HEADER + encoder.one(row)]
