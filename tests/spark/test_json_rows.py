"""Rows that are parsed by column, without Spark, are as Spark's from_json reads them; or they are not parsed at all."""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from zync.deliver.tables.apply import FROM_JSON
from zync.formats.encode.json_rows import PARSE_ERRORS, parser
from zync.formats.encode.values import Kind
from zync.spark.frames import from_rows
from zync.sql import literal, options

WHOLE = ["0", "-1", "127", "-128", "128", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "1" * 20]
NUMBERS = [
    *WHOLE,
    "1.0",
    "1.50",
    "-0.00",
    "1e2",
    "1E+2",
    "1E-2",
    "0.12345678901",
    "0E-10",
    "9" * 13 + ".99",
    "9" * 14,
    "9" * 15,
    "1" * 14 + ".25",
    "01",
    "+1",
    ".5",
    "NaN",
]
TEXTS = ["", "a", " 1", "1", "o'clock", "größer", "🙂", "x" * 5000, "AP8=", "AP8", "A P8=", "/////w==", "null", "true"]
DATES = [
    "2026-02-28",
    "2026-02-30",
    "2026-2-3",
    "0001-01-01",
    "0000-01-01",
    "-0001-01-01",
    "9999-12-31",
    "+12026-01-01",
]
TIMES = ["2026-03-29T01:30:00.000000", "0001-01-01T00:00:00.000000", "1969-12-31T23:59:59.999999"]
TIMES += ["2026-03-29", "2026-03-29 01:30:00.000000", "2026-03-29T01:30:00.1234567", "2026-03-29T24:00:00.000000"]
TIMES += ["2026-03-29T01:30:60.000000", "9999-12-31T23:59:59.999999", "10000-01-01T00:00:00.000000"]
ZONES = ["", "Z", "+02", "+02:00", "+0200", " Z", "[UTC]"]
QUOTED = [f'"{text}"' for text in [*TEXTS, *NUMBERS, *DATES, *(f"{time}{zone}" for time in TIMES for zone in ZONES)]]
JSON = [
    *NUMBERS,
    *QUOTED,
    "true",
    "false",
    "null",
    "",
    "{}",
    "[]",
    "[1]",
    '{"b": 1}',
    '"\\ud83d"',
    '"\\u0000"',
    '"\\n"',
]
TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "DECIMAL(15, 2)": "decimal(15,2)",
    "DECIMAL(18, 18)": "decimal(18,18)",
    "DOUBLE": "double",
}
ROWS = [
    '{"a":1,"a":2}',
    '{"a":2,"a":1}',
    '{"A":1}',
    '{"b":{"a":1}}',
    "{}",
    '{"a":1},{"a":2}',
    '[{"a":1}]',
    "1",
    "null",
    "",
]
ROWS += ['{"a":1}}', '{"a":1', ' {"a" : 1} ', '{"a":1}x', "{'a':1}", "{a:1}", '{"a":1,}', '{"a":1}//', '\ufeff{"a":1}']


def parsed(kind: Kind, text: str) -> pa.Array | None:
    try:
        return parser({"type": "struct", "fields": [{"name": "a", "type": kind}]})([text])[0]
    except PARSE_ERRORS:
        return None


def changed(chance: random.Random, texts: list[str]) -> Iterator[str]:
    """Each text, and some with a character left out, written twice or replaced."""
    yield from texts
    for text in texts:
        for _ in range(3):
            place = chance.randrange(len(text) + 1)
            yield text[:place] + chance.choice(["", text[place : place + 1] * 2, *' 0-+.e"Z\\:']) + text[place + 1 :]


def bits(array: pa.Array) -> pa.Array:
    """Floating point numbers by their bits, of which NaN's are equal."""
    return array.view(pa.int64()) if array.type == pa.float64() else array


@pytest.mark.parametrize("name", TYPES)
def test_a_value_that_is_parsed_is_the_value_that_spark_reads(spark: Any, name: str) -> None:
    texts = [*(f'{{"a":{value}}}' for value in changed(random.Random(7), JSON))]
    if name == "INT":
        texts += [*changed(random.Random(8), ROWS)]
    values = {text: values for text in texts if (values := parsed(TYPES[name], text)) is not None}
    assert 2 < len(values) < len(texts)
    rows = from_rows(spark, [(text,) for text in values], "text STRING")
    schema, how = literal(f"a {name}"), options({**FROM_JSON})
    by_spark = rows.selectExpr(f"from_json(text, {schema}, {how}).a AS a").toArrow()["a"]
    together = parser({"type": "struct", "fields": [{"name": "a", "type": TYPES[name]}]})([*values])[0]
    assert bits(together) == bits(pa.concat_arrays([*values.values()]))
    as_spark = pa.chunked_array([*values.values()]).cast(by_spark.type).combine_chunks()
    assert bits(as_spark) == bits(by_spark.combine_chunks())


def test_a_column_may_have_the_name_that_spark_gives_to_what_it_cannot_read(spark: Any) -> None:
    text = '{"_corrupt_record":"x"}'
    rows = from_rows(spark, [(text,)], "text STRING")
    (row,) = rows.selectExpr(
        f"from_json(text, '_corrupt_record STRING', {options({**FROM_JSON})})._corrupt_record"
    ).collect()
    kind = {"type": "struct", "fields": [{"name": "_corrupt_record", "type": "string"}]}
    assert row[0] == parser(kind)([text])[0][0].as_py() == "x"
