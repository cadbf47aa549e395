"""Values in the JSON of Kafka Connect, with their schema beside them."""

import base64
from decimal import Decimal
from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from tests.spark.formats import Cases, Records, Seen, compact, connect, logical, of_connect, struct

CASES = Cases()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Seen:
    return CASES.sync(Pipeline(tmp_path_factory.mktemp("connect"), spark))


TYPED = struct(
    txn=connect("string", optional=False),
    n=connect("int32"),
    amount=logical("bytes", "Decimal", scale="4"),
    number=logical("bytes", "Decimal", scale="2"),
    at=logical("int64", "Timestamp"),
    day=logical("int32", "Date"),
    time=logical("int32", "Time"),
    data=connect("bytes"),
    more=connect("array", items=struct(x=connect("int64"))),
    tags=connect("map", keys=connect("string"), values=connect("int16")),
    pairs=connect("map", keys=connect("int32"), values=connect("string")),
    odd=connect("double", name="io.debezium.Other"),
    days=connect("int32", name="io.debezium.time.Date"),
    millis=connect("int64", name="io.debezium.time.Timestamp"),
    micros=connect("int64", name="io.debezium.time.MicroTimestamp"),
    nanos=connect("int64", name="io.debezium.time.NanoTimestamp"),
    nothing=connect("string"),
)
AMOUNT = Decimal("-1234567890123456789012345678901234.5678")
DIGITS = int(str(AMOUNT).replace(".", "")).to_bytes(16, "big", signed=True)
PAYLOAD = {
    "txn": "1",
    "n": 2,
    "amount": base64.b64encode(DIGITS).decode(),
    "number": 12.5,
    "at": 1767323045678,
    "day": 20455,
    "time": 3723004,
    "data": "/wA=",
    "more": [{"x": 2**63 - 1}],
    "tags": {"it's": 7},
    "pairs": [[1, "one"]],
    "odd": "NaN",
    "days": 20455,
    "millis": 1767323045678,
    "micros": 1767323045678901,
    "nanos": 1767323045678901234,
    "nothing": None,
}


@CASES.case(
    "schema_of_variant(value) AS types, value:amount::decimal(38,4) AS amount, value:at AS at, value:day AS day, "
    "value:time AS time, value:more[0].x AS x, value:tags AS tags, value:pairs[0][1] AS pair, value:odd AS odd, "
    "key::int AS k, value:days AS days, value:millis AS millis, value:micros AS micros",
    key="connect-json",
    value="connect-json",
)
def typed(_: None) -> Records:
    return [(of_connect(connect("int32"), 5), of_connect(TYPED, PAYLOAD))]


@CASES.case("value:x::int AS x, key::string AS k", key="connect-json", value="connect-json")
def bare(_: None) -> Records:
    return [(of_connect(None, "k"), of_connect(None, {"txn": 1, "x": 3}))]


def test_connect_json_arrives_as_the_types_its_schema_says(seen: Seen) -> None:
    (value,) = seen["typed"]
    types = value.pop("types")
    kinds = ("amount: DECIMAL(38,4)", "at: TIMESTAMP,", "day: DATE", "data: BINARY", "n: BIGINT", "nothing: VOID")
    for one in (*kinds, "days: DATE", "millis: TIMESTAMP_NTZ", "micros: TIMESTAMP_NTZ", "nanos: TIMESTAMP_NTZ"):
        assert one in types, types
    assert value == {
        "amount": float(AMOUNT),
        "at": "2026-01-02 03:04:05.678+00:00",
        "day": "2026-01-02",
        "time": "01:02:03.004",
        "x": 2**63 - 1,
        "tags": {"it's": 7},
        "pair": "one",
        "odd": "NaN",
        "k": 5,
        "days": "2026-01-02",
        "millis": "2026-01-02 03:04:05.678",
        "micros": "2026-01-02 03:04:05.678901",
    }
    assert seen["bare"] == [{"x": 3, "k": "k"}]


def deep(levels: int) -> dict[str, Any]:
    return struct(x=deep(levels - 1)) if levels else connect("int32")


NARROW = struct(txn=connect("int32", optional=False), x=connect("int8"))
BAD = {
    '{"schema": {}, "payload"': "value is not one JSON value",
    of_connect(NARROW, {"txn": 1}).replace('"txn": 1', '"txn": 1, "txn": 2'): "value is not one JSON value",
    of_connect(NARROW, {"txn": 2}) + "{}": "value is not one JSON value",
    of_connect(NARROW, {"txn": 3}) + " x": "value is not one JSON value",
    compact(NARROW, {"txn": 5}).replace('"txn":5', '"txn":5,"txn":6'): "value is not one JSON value",
    compact(NARROW, {"txn": 7}) + " x": "value is not one JSON value",
    compact(NARROW, {"txn": 8})[:-1] + ',"schema":{}}': "value is not one JSON value",
    compact(NARROW, {"txn": 10}).replace(',"payload"', '.5,"payload"'): "value is not one JSON value",
    compact(NARROW, {"txn": 9}).replace('"type"', '"type":"int8","type"', 1): (
        'the schema beside it cannot be used: the key "type" is there twice'
    ),
    of_connect(NARROW, {"txn": 4}).replace("4", "NaN"): "value is not one JSON value",
    '{"txn": 1}': "value is not an object with schema and payload, as Connect writes it",
    "[1]": "value is not an object with schema and payload, as Connect writes it",
    of_connect({}, 1): "the schema beside it cannot be used: it has no type null",
    of_connect(connect("int33"), 1): 'the schema beside it cannot be used: it has no type "int33"',
    of_connect(struct(x=logical("bytes", "Decimal", scale="-2")), {"x": "AA=="}): "a decimal of scale -2",
    of_connect(deep(21), 1): "the schema beside it cannot be used: it is nested more than 20 deep",
    of_connect(deep(300), 1): "the schema beside it cannot be used: it is nested more than 20 deep",
    of_connect(deep(20), 1): "value is not as the schema beside it says",
    of_connect(connect("array"), []): "the schema beside it cannot be used: null is no schema",
    of_connect(NARROW, {"txn": None}): "value is not as the schema beside it says",
    of_connect(NARROW, {"txn": "1"}): "value is not as the schema beside it says",
    of_connect(NARROW, {"txn": 1.5}): "value is not as the schema beside it says",
    of_connect(NARROW, {"txn": 1, "x": 128}): "value is not as the schema beside it says",
    of_connect(NARROW, [1]): "value is not as the schema beside it says",
    of_connect(struct(txn=connect("int64")), {"txn": 2**63}): "value is not as the schema beside it says",
    of_connect(struct(txn=connect("int32"), x=connect("string")), {"txn": 1, "x": "?"})
    .encode()
    .replace(b"?", b"\xff"): "value is not UTF-8",
    of_connect(struct(x=logical("bytes", "Decimal", scale="2")), {"x": "A" * 100}): "value is not as the schema",
}
GOOD = {
    of_connect(NARROW, {"txn": 7, "x": -128}): 4,
    of_connect(struct(txn=connect("int32"), x=connect("string")), {"txn": 8, "x": "z" * 5_000_000}): 5_000_000,
    of_connect(struct(txn=connect("int32"), x=connect("int64")), {"txn": 9, "x": -(2**63)}): 20,
}


@CASES.case("length(value:x::string) AS x", value="connect-json")
def bad(_: None) -> Records:
    return [*BAD, *GOOD]


def test_connect_json_that_is_not_as_its_schema_says_is_set_aside_and_others_go_on(seen: Seen) -> None:
    reasons = seen["bad"][: len(BAD)]
    for reason, expected in zip(reasons, BAD.values(), strict=True):
        assert expected in reason
    assert seen["bad"][len(BAD) :] == [{"x": length} for length in GOOD.values()]
