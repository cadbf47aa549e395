"""`zync_json` takes one JSON value exactly as it is, or says why not, and sees what a cast to a schema may change."""

import json
from typing import Any

import pytest
from pyspark.sql.types import StructType

from zync.spark.functions import register
from zync.sql import literal

NOT_UTF8, NOT_ONE, NOT_EXACT = "is not UTF-8", "is not one JSON value", "has a number that cannot be kept exactly"
FAILURES = {
    b'{"a":1} x': NOT_ONE,
    b'{"a":1}}': NOT_ONE,
    b'{"a":1},{"b":2}': NOT_ONE,
    b"[1]]": NOT_ONE,
    b"1,2": NOT_ONE,
    b"1 2": NOT_ONE,
    b'{"a":1,"a":2}': NOT_ONE,
    b'{"x":[{"a":1,"a":1}]}': NOT_ONE,
    b"": NOT_ONE,
    b" ": NOT_ONE,
    b'{"a":NaN}': NOT_ONE,
    b"{'a':1}": NOT_ONE,
    b"01": NOT_ONE,
    b'"\\ud800"': NOT_ONE,
    b'{"a":1': NOT_ONE,
    b'{"a":1}//': NOT_ONE,
    b"\xef\xbb\xbf1": NOT_ONE,
    b"\x001": NOT_ONE,
    b"1\x00": NOT_ONE,
    '{"a":1}'.encode("utf-16-le"): NOT_ONE,
    '{"a":1}'.encode("utf-32-be"): NOT_ONE,
    '{"a":1}'.encode("utf-16"): NOT_UTF8,
    b'{"a":"\xc0\x80"}': NOT_UTF8,
    b'{"a":"\xed\xa0\x80"}': NOT_UTF8,
    b'{"\xff":1}': NOT_UTF8,
    b'{"a":1}\xff': NOT_UTF8,
    b"1e400": NOT_EXACT,
    b"[1e-400]": NOT_EXACT,
    b"1" * 39: NOT_EXACT,
    b"1." + b"1" * 38: NOT_EXACT,
    b"123456789012345678e1": NOT_EXACT,
}
VALUES = {
    b' {"b": [1, {"c": null}], "a": "\\u00e9\xc3\xa9"}\n': ({"a": "éé", "b": [1, {"c": None}]}, 0, False),
    b'"]} x"': ("]} x", 0, False),
    b"0e0": (0.0, 99, True),
    b"1" * 38: (int("1" * 38), 0, True),
    b"253402300799": (253402300799, 0, False),
    b"-253402300800": (-253402300800, 0, True),
    b'"253402300800"': ("253402300800", 0, True),
    b"[1.5, 1.250, 12]": ([1.5, 1.25, 12], 2, False),
    b'{"x": "12.3456"}': ({"x": "12.3456"}, 4, False),
    b'["v1.23456", "1.23 EUR"]': (["v1.23456", "1.23 EUR"], 0, False),
    b'["1e3"]': (["1e3"], 99, True),
    b'{"12:00": " T9:30"}': ({"12:00": " T9:30"}, 0, True),
    b'["2026-01-01T12:00:00Z", "noon: 12:00", "123:4"]': (["2026-01-01T12:00:00Z", "noon: 12:00", "123:4"], 0, False),
    b"[" * 900 + b"]" * 900: (json.loads("[" * 900 + "]" * 900), 0, False),
}


@pytest.fixture(scope="module")
def parsed(spark: Any) -> dict[bytes, Any]:
    register(spark)
    rows = spark.createDataFrame([(bytearray(data),) for data in (*FAILURES, *VALUES)], "data BINARY")
    rows = rows.selectExpr("data", "zync_json(data) AS j")
    rows = rows.selectExpr("data", "to_json(j.value) AS value", "j.error", "j.decimals", "j.odd_time")
    return {bytes(row["data"]): row for row in rows.collect()}


@pytest.mark.parametrize("data", FAILURES, ids=repr)
def test_what_is_not_one_value_that_can_be_kept_is_an_error(parsed: dict[bytes, Any], data: bytes) -> None:
    row = parsed[data]
    assert (row["error"], row["value"] is None) == (FAILURES[data], FAILURES[data] != NOT_EXACT)


@pytest.mark.parametrize("data", VALUES, ids=lambda data: repr(data[:30]))
def test_a_value_is_kept_and_what_a_cast_may_change_is_seen(parsed: dict[bytes, Any], data: bytes) -> None:
    row = parsed[data]
    assert row["error"] is None
    assert (json.loads(row["value"]), row["decimals"], row["odd_time"]) == VALUES[data]


def test_names_that_differ_from_record_to_record_are_kept(spark: Any) -> None:
    register(spark)
    rows = spark.range(20_000).selectExpr("to_json(map(concat('key ', id * 7919), id)) AS text")
    rows = rows.selectExpr("text", "zync_json(CAST(text AS BINARY)) AS j")
    assert rows.where("to_json(j.value) <> text OR j.error IS NOT NULL").count() == 0


def test_null_is_null(spark: Any) -> None:
    register(spark)
    assert spark.sql("SELECT zync_json(NULL) IS NULL AS x").first()["x"]


def test_with_a_schema_the_struct_comes_of_the_same_tokens_as_the_value(spark: Any) -> None:
    register(spark)
    schema = "id INT, at TIMESTAMP, price DECIMAL(6, 2), more STRUCT<x: ARRAY<INT>, y: MAP<STRING, INT>>, text STRING"
    kind = StructType.fromDDL(schema).json()
    given = {
        '{"id": 1, "at": "2026-01-02T03:04:05Z", "price": 1.50, "more": {"x": [1, 2], "z": {"a": [{}]}}, "u": [[1]]}': (
            '{"id":1,"at":"2026-01-02T03:04:05.000Z","price":1.50,"more":{"x":[1,2]}}'
        ),
        '{"text": {"a": 1.10,  "b": [1e2]}, "more": {"y": {"k": 2}}}': (
            '{"more":{"y":{"k":2}},"text":"{\\"a\\": 1.10,  \\"b\\": [1e2]}"}'
        ),
        '{"text": 1.10}': '{"text":"1.10"}',
        '{"text": "\\u00e9", "id": null}': '{"text":"é"}',
        "{}": "{}",
        '{"id": "x", "text": "kept in the value"}': None,
        '{"id": 1.5}': None,
        "[1]": None,
        "null": None,
        "5": None,
    }
    rows = spark.createDataFrame([(text, json.dumps(json.loads(text))) for text in given], "text STRING, same STRING")
    rows = rows.selectExpr("*", f"zync_json(CAST(text AS BINARY), {literal(kind)}) AS j")
    rows = rows.selectExpr("*", "to_json(j.typed) AS typed", "to_json(j.value) AS value", "j.error AS error")
    for row in rows.collect():
        assert row["typed"] == given[row["text"]], row
        assert (json.loads(row["value"]), row["error"]) == (json.loads(row["same"]), None)


def test_with_a_schema_the_same_is_no_value_as_without(spark: Any, parsed: dict[bytes, Any]) -> None:
    register(spark)
    kind = literal(StructType.fromDDL("a INT").json())
    rows = spark.createDataFrame([(bytearray(data),) for data in (*FAILURES, *VALUES)], "data BINARY")
    rows = rows.selectExpr("data", f"zync_json(data, {kind}) AS j")
    rows = rows.selectExpr("data", "to_json(j.value) AS value", "j.error", "j.decimals", "j.odd_time")
    assert {bytes(row["data"]): row for row in rows.collect()} == parsed
