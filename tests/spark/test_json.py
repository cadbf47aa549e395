"""Values in JSON, plain or by a schema registry: exact, however large, or set aside."""

from typing import Literal

import pytest

from tests.registry import RunningRegistry, framed
from tests.spark.conftest import Pipeline
from tests.spark.formats import JSON_SCHEMA, put, reasons
from zync.config.model import Formats, RegistryAccess, Topic


def test_no_digit_of_a_decimal_is_lost_to_the_topics_schema(pipeline: Pipeline) -> None:
    inner = "STRUCT<d: DECIMAL(38, 2)>"
    schema = f"d DECIMAL(38, 10), s STRUCT<l: ARRAY<{inner}>>, m MAP<STRING, DECIMAL(9, 1)>, f DOUBLE"
    pipeline.change(topics={"a": Topic("key", null_id="single", schema=schema)})
    pipeline.rules(out="SELECT seqno, value.* FROM a")
    kept = [
        ('{"d": 1.12345678900}', {"d": 1.123456789}),
        ('{"d": 1e-5}', {"d": 0.00001}),
        ('{"d": 15e-1, "f": 1e300}', {"d": 1.5, "f": 1e300}),
        ('{"d": "2.5"}', {"d": 2.5}),
        ('{"s": {"l": [{"d": 1.50}, null, {}]}, "m": {"y": 2.0, "x": 1.5, "z": null}}', None),
    ]
    bad = [
        '{"d": 1.12345678901}',
        '{"d": 1.12345678900000000000001}',
        '{"d": 1e-11}',
        '{"d": "true"}',
        '{"d": 1234567890123456789012345678.5, "s": {"l": [{"d": 1}, {"d": 1.505}]}}',
        '{"m": {"x": 1.25, "a": 1.5}}',
    ]
    put(pipeline, *(("a", None, value) for value, _ in kept), *(("a", None, value) for value in bad))
    pipeline.sync()
    assert reasons(pipeline) == ["value does not fit the schema"] * len(bad)
    nothing = dict.fromkeys(("d", "s", "m", "f"))
    last = {"s": {"l": [{"d": 1.5}, None, {"d": None}]}, "m": {"y": 2.0, "x": 1.5, "z": None}}
    assert pipeline.values() == [{**nothing, **(found or last)} for _, found in kept]


def test_json_with_a_registrys_header_is_json(pipeline: Pipeline, registry: RunningRegistry) -> None:
    number = registry.register("json-value", JSON_SCHEMA, "JSON")
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="json-schema"))
    pipeline.change(topics={"a": Topic("value:txn", schema="txn INT, n INT, x DECIMAL(4, 2)")})
    pipeline.rules(out="SELECT seqno, value.x AS x FROM a")
    put(
        pipeline,
        ("a", None, framed(number, b'{"txn":1,"n":1,"x":1.50}')),
        ("a", None, framed(number, b'{"txn":2,"n":1,"x":1.505}')),
        ("a", None, framed(number, b'{"txn":1,"txn":1,"n":1}')),
        ("a", None, framed(number + 1000, b'{"txn":3,"n":1}')),
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": 1.5}]
    assert reasons(pipeline) == [
        "value does not fit the schema",
        "value is not one JSON value",
        f"the schema registry knows no schema {number + 1000}",
    ]


@pytest.mark.parametrize("kind", ["json", "json-schema"])
def test_json_may_be_large_and_exact_and_is_set_aside_where_it_cannot_be(
    pipeline: Pipeline, registry: RunningRegistry, kind: Literal["json", "json-schema"]
) -> None:
    head = framed(registry.register("large-value", JSON_SCHEMA, "JSON"), b"") if kind == "json-schema" else b""
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value=kind))
    pipeline.rules(
        out="SELECT seqno, value:low::bigint AS low, value:high::bigint AS high, "
        "value:digits::decimal(38, 0) AS digits, length(value:note::string) AS n FROM a"
    )
    digits, deep = b"9" * 38, b"[" * 1001 + b"]" * 1001
    ends = (-(2**63), 2**63 - 1, digits, b"z" * 5_000_000)
    good = b'{"txn":0,"n":1,"low":%d,"high":%d,"digits":%s,"note":"%s"}' % ends
    wrong = (deep, digits + b"9", b"1e400", b"-Infinity")
    bad = [b'{"txn":%d,"n":1,"x":%s}' % pair for pair in enumerate(wrong, 1)]
    put(pipeline, *(("a", None, head + one) for one in (good, *bad)))
    pipeline.sync()
    assert pipeline.values() == [{"low": -(2**63), "high": 2**63 - 1, "digits": int(digits), "n": 5_000_000}]
    no_json, not_exact = "value is not one JSON value", "value has a number that cannot be kept exactly"
    assert reasons(pipeline) == [no_json, not_exact, not_exact, no_json]


def test_json_evolves_within_one_sync_and_its_schemas_may_refer_to_others(
    pipeline: Pipeline, registry: RunningRegistry
) -> None:
    registry.register("money", {**JSON_SCHEMA, "properties": {"cents": {"type": "integer"}}}, "JSON")
    old = {**JSON_SCHEMA, "properties": {"txn": {"type": "integer"}}}
    new = {**old, "properties": {**old["properties"], "price": {"$ref": "money.json"}}}
    refers = {"name": "money.json", "subject": "money", "version": 1}
    numbers = [registry.register("old", old, "JSON"), registry.register("new", new, "JSON", references=(refers,))]
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="json-schema"))
    pipeline.rules(out="SELECT seqno, value:price.cents::int AS cents FROM a")
    values = [b'{"txn":1,"n":1}', b'{"txn":2,"n":1,"price":{"cents":7}}', b'{"txn":3,"n":1}']
    bad = [b"", b"\0", framed(numbers[0], b""), framed(numbers[0], b'{"txn":'), framed(numbers[0], b'{"txn":"\xff"}')]
    bad += [b"\1" + framed(numbers[0], values[0])[1:], framed(numbers[0], b'{"txn":NaN}'), values[0]]
    put(
        pipeline,
        *(("a", None, framed(number, value)) for number, value in zip((*numbers, numbers[0]), values, strict=True)),
        *(("a", None, one) for one in bad),
    )
    pipeline.sync()
    assert pipeline.values() == [{"cents": None}, {"cents": 7}, {"cents": None}]
    unframed = "value does not begin with a zero byte and a schema's id, as a schema registry's clients write it"
    no_json, no_text = "value is not one JSON value", "value is not UTF-8"
    assert reasons(pipeline) == [unframed, unframed, no_json, no_json, no_text, unframed, no_json, unframed]
