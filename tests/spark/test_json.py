"""Values in JSON, plain or by a schema registry: exact, however large, or set aside."""

from typing import Any

import pytest

from tests.registry import RunningRegistry, framed
from tests.spark.conftest import Pipeline
from tests.spark.formats import JSON_SCHEMA, Cases, Records, Seen

UNFRAMED = "value does not begin with a zero byte and a schema's id, as a schema registry's clients write it"
NO_JSON, NOT_EXACT = "value is not one JSON value", "value has a number that cannot be kept exactly"
UNFIT, NO_TEXT = "value does not fit the schema", "value is not UTF-8"

CASES = Cases()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, spark: Any, registry: RunningRegistry) -> Seen:
    return CASES.sync(Pipeline(tmp_path_factory.mktemp("json"), spark), registry)


NOTHING = dict.fromkeys(("d", "s", "m", "f"))
EXACT = {
    '{"d": 1.12345678900}': {"d": 1.123456789},
    '{"d": 1e-5}': {"d": 0.00001},
    '{"d": 15e-1, "f": 1e300}': {"d": 1.5, "f": 1e300},
    '{"d": "2.5"}': {"d": 2.5},
    '{"s": {"l": [{"d": 1.50}, null, {}]}, "m": {"y": 2.0, "x": 1.5, "z": null}}': {
        "s": {"l": [{"d": 1.5}, None, {"d": None}]},
        "m": {"y": 2.0, "x": 1.5, "z": None},
    },
}
ROUNDED = [
    '{"d": 1.12345678901}',
    '{"d": 1.12345678900000000000001}',
    '{"d": 1e-11}',
    '{"d": "true"}',
    '{"d": 1234567890123456789012345678.5, "s": {"l": [{"d": 1}, {"d": 1.505}]}}',
    '{"m": {"x": 1.25, "a": 1.5}}',
]
TYPES = "d DECIMAL(38, 10), s STRUCT<l: ARRAY<STRUCT<d: DECIMAL(38, 2)>>>, m MAP<STRING, DECIMAL(9, 1)>, f DOUBLE"


@CASES.case("value.*", schema=TYPES)
def digits(_: RunningRegistry) -> Records:
    return [*EXACT, *ROUNDED]


def test_no_digit_of_a_decimal_is_lost_to_the_topics_schema(seen: Seen) -> None:
    assert seen["digits"] == [*({**NOTHING, **row} for row in EXACT.values()), *[UNFIT] * len(ROUNDED)]


@CASES.case("value.x AS x", value="json-schema", schema="txn INT, n INT, x DECIMAL(4, 2)")
def with_header(registry: RunningRegistry) -> Records:
    number = registry.register("json-value", JSON_SCHEMA, "JSON")
    return [
        framed(number, b'{"txn":1,"n":1,"x":1.50}'),
        framed(number, b'{"txn":2,"n":1,"x":1.505}'),
        framed(number, b'{"txn":1,"txn":1,"n":1}'),
        framed(number + 1000, b'{"txn":3,"n":1}'),
    ]


def test_json_with_a_registrys_header_is_json(seen: Seen, registry: RunningRegistry) -> None:
    number = registry.register("json-value", JSON_SCHEMA, "JSON")
    unknown = f"the schema registry knows no schema {number + 1000}"
    assert seen["with_header"] == [{"x": 1.5}, UNFIT, NO_JSON, unknown]


DIGITS = b"9" * 38
LARGE = (
    "value:low::bigint AS low, value:high::bigint AS high, value:digits::decimal(38, 0) AS digits, "
    "length(value:note::string) AS n"
)


NUMBERS = (-(2**63), 2**63 - 1, DIGITS)
WRONG = (b"[" * 1001 + b"]" * 1001, DIGITS + b"9", b"1e400", b"-Infinity")
LARGE_VALUES = [
    b'{"txn":0,"n":1,"low":%d,"high":%d,"digits":%s,"note":"%s"}' % (*NUMBERS, b"z" * 5_000_000),
    *(b'{"txn":1,"n":1,"x":%s}' % one for one in WRONG),
]


@CASES.case(LARGE)
def large(_: RunningRegistry) -> Records:
    return [*LARGE_VALUES]


@CASES.case(LARGE, value="json-schema")
def large_with_header(registry: RunningRegistry) -> Records:
    head = framed(registry.register("large-json-value", JSON_SCHEMA, "JSON"), b"")
    return [head + one for one in LARGE_VALUES]


@pytest.mark.parametrize("case", ["large", "large_with_header"])
def test_json_may_be_large_and_exact_and_is_set_aside_where_it_cannot_be(seen: Seen, case: str) -> None:
    whole = {"low": -(2**63), "high": 2**63 - 1, "digits": int(DIGITS), "n": 5_000_000}
    assert seen[case] == [whole, NO_JSON, NOT_EXACT, NOT_EXACT, NO_JSON]


@CASES.case("value:price.cents::int AS cents", value="json-schema")
def evolved(registry: RunningRegistry) -> Records:
    registry.register("money-json", {**JSON_SCHEMA, "properties": {"cents": {"type": "integer"}}}, "JSON")
    old = {**JSON_SCHEMA, "properties": {"txn": {"type": "integer"}}}
    new = {**old, "properties": {**old["properties"], "price": {"$ref": "money.json"}}}
    refers = {"name": "money.json", "subject": "money-json", "version": 1}
    first, second = registry.register("old", old, "JSON"), registry.register("new", new, "JSON", references=(refers,))
    value = b'{"txn":1,"n":1}'
    good = [framed(first, value), framed(second, b'{"txn":2,"n":1,"price":{"cents":7}}'), framed(first, value)]
    bad = [b"", b"\0", framed(first, b""), framed(first, b'{"txn":'), framed(first, b'{"txn":"\xff"}')]
    return [*good, *bad, b"\1" + framed(first, value)[1:], framed(first, b'{"txn":NaN}'), value]


def test_json_evolves_within_one_sync_and_its_schemas_may_refer_to_others(seen: Seen) -> None:
    good = [{"cents": None}, {"cents": 7}, {"cents": None}]
    assert seen["evolved"] == [*good, UNFRAMED, UNFRAMED, NO_JSON, NO_JSON, NO_TEXT, UNFRAMED, NO_JSON, UNFRAMED]
