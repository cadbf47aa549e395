"""Values in Avro, by a real schema registry or a file: each as its own types, what is bad by itself."""

import json
from datetime import UTC, date, datetime
from decimal import Context, Decimal, localcontext
from typing import Any

import pytest

from tests.registry import RunningRegistry, avro, framed
from tests.spark.conftest import Pipeline
from tests.spark.formats import JSON_SCHEMA, Cases, Records, Seen, put, reasons, record
from zync.config.model import Formats, RegistryAccess, Topic, Transactions

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4}
EVERY = record(
    "shop.Every",
    txn="string",
    n="int",
    amount=DECIMAL,
    at={"type": "long", "logicalType": "timestamp-micros"},
    day={"type": "int", "logicalType": "date"},
    id={"type": "string", "logicalType": "uuid"},
    time={"type": "long", "logicalType": "time-micros"},
    more=["null", {"type": "array", "items": "long"}],
    big="long",
)
VALUE = {
    "txn": "1",
    "n": 2,
    "amount": Decimal("1234567890123456789012345678901234.5678"),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "id": "7d444840-9dc0-11d1-b245-5ffdce74fad2",
    "time": 3723000004,
    "more": [1, 2],
    "big": 2**63 - 1,
}


CASES = Cases()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, spark: Any, registry: RunningRegistry) -> Seen:
    return CASES.sync(Pipeline(tmp_path_factory.mktemp("avro"), spark), registry)


def test_avro_arrives_as_the_types_it_has(pipeline: Pipeline, registry: RunningRegistry) -> None:
    number = registry.register("every-value", EVERY)
    key = registry.register("every-key", "long")
    pipeline.change(
        registry=RegistryAccess(registry.url),
        topics={"a": Topic("value:txn", key="avro", value="avro"), "b": Topic("value:txn")},
    )
    pipeline.rules(
        out="SELECT seqno, a.key::bigint AS k, schema_of_variant(a.value) AS kinds, a.value:amount::decimal(38, 4) AS "
        "amount, a.value:at::timestamp AS at, a.value:more[1]::int AS more, a.value:big::bigint AS big, "
        "a.value:time::string AS time, b.value:x::int AS x FROM a JOIN b USING (seqno)"
    )
    put(pipeline, ("a", framed(key, avro("long", 7)), framed(number, avro(EVERY, VALUE))))
    pipeline.load(("b", {"txn": 1, "n": 2, "x": 5}))
    assert pipeline.sync().transactions == 1
    (row,) = pipeline.of("output")
    assert '"amount":1234567890123456789012345678901234.5678,' in row["value"]
    (found,) = pipeline.values()
    assert found["kinds"] == (
        "OBJECT<amount: DECIMAL(38,4), at: TIMESTAMP, big: BIGINT, day: DATE, id: STRING, more: ARRAY<BIGINT>, "
        "n: BIGINT, time: STRING, txn: STRING>"
    )
    assert (found["k"], found["at"], found["more"], found["big"], found["time"], found["x"]) == (
        7,
        "2026-01-02T03:04:05.678901Z",
        2,
        2**63 - 1,
        "01:02:03.000004",
        5,
    )


@CASES.case("schema_of_variant(value) AS kinds, value", value="avro")
def times(registry: RunningRegistry) -> Records:
    """Of which only Connect's name says what they are."""
    names = {"d": ("int", "Date"), "ms": ("long", "Timestamp"), "us": ("long", "MicroTimestamp"), "z": ("int", "Year")}
    fields = [
        {"name": one, "type": ["null", {"type": kind, "connect.name": f"io.debezium.time.{name}"}]}
        for one, (kind, name) in names.items()
    ]
    schema = {"type": "record", "name": "Row", "fields": [{"name": "txn", "type": "int"}, *fields]}
    row = {"txn": 1, "d": 20455, "ms": 1767323045678, "us": 1767323045678901, "z": 2026}
    return [framed(registry.register("times-value", schema), avro(schema, row))]


def test_debeziums_dates_and_times_arrive_as_such_from_avro(seen: Seen) -> None:
    assert seen["times"] == [
        {
            "kinds": "OBJECT<d: DATE, ms: TIMESTAMP_NTZ, txn: BIGINT, us: TIMESTAMP_NTZ, z: BIGINT>",
            "value": {
                "d": "2026-01-02",
                "ms": "2026-01-02 03:04:05.678",
                "txn": 1,
                "us": "2026-01-02 03:04:05.678901",
                "z": 2026,
            },
        }
    ]


MANY = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
LARGE = record("shop.Large", txn="int", n="int", amount=MANY, rest={"type": "array", "items": ["null", MANY]})
AMOUNTS = [Decimal("12.34"), Decimal("-" + "9" * 36 + ".99"), Decimal("1" + "0" * 36 + ".00")]


@CASES.case("value:amount::decimal(38, 2) AS amount, value:rest[0]::string AS rest", value="avro")
def decimals(registry: RunningRegistry) -> Records:
    number = registry.register("large-value", LARGE)
    with localcontext(Context(prec=64)):
        values = [{"txn": n, "n": 1, "amount": one, "rest": [one]} for n, one in enumerate(AMOUNTS)]
        return [framed(number, avro(LARGE, value)) for value in values]


def test_decimals_of_more_digits_than_spark_has_arrive_where_they_fit(seen: Seen, registry: RunningRegistry) -> None:
    """Connect writes a precision of 64 where nobody said another."""
    first, second, third = seen["decimals"]
    assert [first["rest"], second["rest"]] == [str(one) for one in AMOUNTS[:2]]
    assert third == f"value is not Avro as schema {registry.register('large-value', LARGE)} says"


@CASES.case("value:x::bigint AS x, value:note::string AS note", value="avro")
def evolved(registry: RunningRegistry) -> Records:
    old = record("shop.Order", txn="int", n="int", x="int")
    new = record("shop.Order", txn="int", n="int", x="long", note=["null", "string"])
    numbers = [registry.register(f"orders-{version}", one) for version, one in enumerate((old, new))]
    return [
        framed(numbers[0], avro(old, {"txn": 1, "n": 1, "x": 4})),
        framed(numbers[1], avro(new, {"txn": 2, "n": 1, "x": 2**40, "note": "hé"})),
        framed(numbers[0], avro(old, {"txn": 3, "n": 1, "x": 5})),
    ]


def test_avro_evolves_within_one_sync(seen: Seen) -> None:
    assert seen["evolved"] == [{"x": 4, "note": None}, {"x": 2**40, "note": "hé"}, {"x": 5, "note": None}]


@CASES.case("value:lines[0].price.cents::int AS a, value:tip.cents::int AS b", value="avro")
def referring(registry: RunningRegistry) -> Records:
    money = {**record("Money", cents="long"), "namespace": "bank"}
    registry.register("bank.Money", money)
    line = record("bank.Line", price="bank.Money", old=["null", "bank.Money"])
    refers = {"name": "bank.Money", "subject": "bank.Money", "version": 1}
    registry.register("bank.Line", line, references=(refers,))
    order = record("bank.Order", txn="int", n="int", lines={"type": "array", "items": "Line"}, tip="bank.Money")
    both = ({"name": "bank.Line", "subject": "bank.Line", "version": 1}, refers)
    number = registry.register("bank.Order", order, references=both)
    whole = record(
        "bank.Order",
        txn="int",
        n="int",
        lines={"type": "array", "items": record("bank.Line", price=money, old=["null", "bank.Money"])},
        tip="bank.Money",
    )
    value = {"txn": 1, "n": 1, "lines": [{"price": {"cents": 5}, "old": None}], "tip": {"cents": 7}}
    return [framed(number, avro(whole, value))]


def test_a_schema_that_refers_to_others_is_written_out(seen: Seen) -> None:
    assert seen["referring"] == [{"a": 5, "b": 7}]


SMALL = record("shop.Small", txn="int", n="int", x="int")


@CASES.case("value:x::int AS x", value="avro")
def bad_bytes(registry: RunningRegistry) -> Records:
    number, other = registry.register("small-value", SMALL), registry.register("text-value", JSON_SCHEMA, "JSON")
    good = avro(SMALL, {"txn": 1, "n": 1, "x": 3})
    return [
        framed(number, good),
        framed(number, good)[:-1],
        framed(number, good) + b"\0",
        framed(number, good + good),
        framed(number, b""),
        b"\1" + framed(number, good)[1:],
        b"",
        framed(987_654, good),
        framed(other, b"{}"),
        '{"txn":1}',
        (b"\xff", None),
        framed(number, avro(SMALL, {"txn": 2, "n": 1, "x": 4})),
    ]


def test_bad_bytes_are_set_aside_each_with_its_reason_and_others_go_on(seen: Seen, registry: RunningRegistry) -> None:
    number, other = registry.register("small-value", SMALL), registry.register("text-value", JSON_SCHEMA, "JSON")
    unframed = "value does not begin with a zero byte and a schema's id, as a schema registry's clients write it"
    assert seen["bad_bytes"] == [
        {"x": 3},
        *[f"value is not Avro as schema {number} says"] * 4,
        unframed,
        unframed,
        "the schema registry knows no schema 987654",
        f"schema {other} is one of JSON, not AVRO",
        unframed,
        {"x": None},  # the tombstone is one by itself
        {"x": 4},
    ]


SOME = {"type": "array", "items": {"type": "map", "values": ["null", record("shop.Inner", text="string")]}}
OUTER = record("shop.Outer", txn="string", n="int", more=SOME)


@CASES.case("value:more[0].key.text::string AS text", value="avro")
def no_text(registry: RunningRegistry) -> Records:
    number = registry.register("utf-value", OUTER)
    good = avro(OUTER, {"txn": "1", "n": 1, "more": [{"key": {"text": "\ufffdé"}, "none": None}]})
    assert good.count("é".encode()) == good.count(b"key") == 1
    bad = [
        good.replace("é".encode(), b"\xff\xfe"),
        good.replace(b"key", b"k\xe9y"),
        good.replace(b"\x021", b"\x02\xff"),
    ]
    return [framed(number, one) for one in (good, *bad)]


def test_text_in_avro_that_is_not_utf_8_is_set_aside(seen: Seen, registry: RunningRegistry) -> None:
    reason = f"value is not Avro as schema {registry.register('utf-value', OUTER)} says"
    assert seen["no_text"] == [{"text": "\ufffdé"}, reason, reason, reason]


TEXT = record("shop.Text", txn="string", n="int", more={"type": "array", "items": "int"})


@CASES.case("value:txn::string AS x", value="avro")
def announced(registry: RunningRegistry) -> Records:
    number = registry.register("text-avro-value", TEXT)
    good = avro(TEXT, {"txn": "1", "n": 1, "more": []})
    huge = b"\xee\xff\xff\xff\x0f"  # 2**31 - 9
    return [
        framed(number, huge),
        framed(number, good[:-1] + huge),
        framed(2**32 - 1, good),
        framed(number, good),
    ]


def test_what_announces_more_than_there_is_does_no_harm(seen: Seen, registry: RunningRegistry) -> None:
    """Avro's reader makes room for what is announced before it looks: two gigabytes, and a list of eight."""
    reason = f"value is not Avro as schema {registry.register('text-avro-value', TEXT)} says"
    assert seen["announced"] == [reason, reason, "the schema registry knows no schema 4294967295", {"x": "1"}]


AGAIN = record("shop.Again", txn="string", n="int", within=["null", "shop.Again"])


@CASES.case(
    f"variant_get(value:x, '${'.of' * 60}', 'string') AS x, length(value:note::string) AS n, "
    "isnan(value:list[0]::double) AS nan, value:list[1]::double = double('Infinity') AS inf",
    value="avro",
)
def large_and_deep(registry: RunningRegistry) -> Records:
    kind: Any = "string"
    for depth in range(60):
        kind = record(f"Level{depth}", of=kind)
    order = record("shop.Deep", txn="string", n="int", x=kind, note="string", list={"type": "array", "items": "double"})
    inner: Any = "at the bottom"
    for _ in range(60):
        inner = {"of": inner}
    values = {"txn": "1", "n": 1, "x": inner, "note": "é" * 2_500_000, "list": [float("nan"), float("inf"), -0.0]}
    again = {"txn": "2", "n": 1, "within": {"txn": "", "n": 0, "within": None}}
    return [
        framed(registry.register("deep-value", order), avro(order, values)),
        framed(registry.register("again-value", AGAIN), avro(AGAIN, again)),
    ]


def test_avro_may_be_large_and_deep_and_a_schema_that_holds_itself_is_said_to_be_no_use(
    seen: Seen, registry: RunningRegistry
) -> None:
    found, reason = seen["large_and_deep"]
    assert found == {"x": "at the bottom", "n": 2_500_000, "nan": True, "inf": True}
    assert reason.startswith(f"schema {registry.register('again-value', AGAIN)} cannot be used: ")
    assert "recursive" in reason.lower()


def test_a_null_that_is_meant_and_a_choice_of_records_are_values(pipeline: Pipeline, registry: RunningRegistry) -> None:
    made, paid = record("shop.Made", txn="int", n="int"), record("shop.Paid", txn="int", n="int", nothing="null")
    either, key = registry.register("either-value", [made, paid]), registry.register("maybe-key", ["null", "string"])
    pipeline.change(
        registry=RegistryAccess(registry.url),
        formats=Formats(key="avro", value="avro"),
        topics={"a": Topic("coalesce(value:member0.txn::string, value:member1.txn::string)")},
        transactions=Transactions(done="count(*) = 2"),
    )
    pipeline.rules(out="SELECT seqno, count(*) AS n, count(key::string) AS keys FROM a GROUP BY seqno")
    put(
        pipeline,
        ("a", framed(key, avro(["null", "string"], None)), framed(either, avro([made, paid], {"txn": 1, "n": 2}))),
        (
            "a",
            framed(key, avro(["null", "string"], "k")),
            framed(either, avro([made, paid], ("shop.Paid", {"txn": 1, "n": 2, "nothing": None}))),
        ),
    )
    pipeline.sync()
    assert pipeline.values() == [{"n": 2, "keys": 1}]


def test_avro_that_does_not_fit_the_topics_schema_is_set_aside(pipeline: Pipeline) -> None:
    written = record("shop.Wide", txn="int", n="int", x="long", d=DECIMAL, f="double")
    file = pipeline.folder / "wide.avsc"
    file.write_text(json.dumps(written))
    schema = "txn INT, n INT, x INT, d DECIMAL(4, 2), f INT"
    pipeline.change(topics={"a": Topic("value:txn", value="avro", avro_schema=file, schema=schema)})
    pipeline.rules(out="SELECT seqno, value.x, value.d, value.f FROM a")
    rows: list[dict[str, Any]] = [
        {"x": 1, "d": Decimal("1.5000"), "f": 2.0},
        {"x": 2**40, "d": Decimal("1.5"), "f": 2.0},
        {"x": 1, "d": Decimal("1.505"), "f": 2.0},
        {"x": 1, "d": Decimal("1.5"), "f": 2.5},
    ]
    put(pipeline, *(("a", None, avro(written, {"txn": at, "n": 1, **row})) for at, row in enumerate(rows)))
    pipeline.sync()
    assert pipeline.values() == [{"x": 1, "d": 1.5, "f": 2}]
    assert reasons(pipeline) == ["value does not fit the schema"] * 3


def test_avro_by_a_file_that_another_version_wrote_is_set_aside_until_the_file_is_that_version(
    pipeline: Pipeline,
) -> None:
    old, new = (record("shop.Order", txn="int", n="int", x="int", **more) for more in ({}, {"note": "string"}))
    file = pipeline.folder / "order.avsc"
    pipeline.rules(out="SELECT seqno, value:x::int AS x, value:note::string AS note FROM a")
    for txn, schema in enumerate((old, new)):
        file.write_text(json.dumps(schema))
        pipeline.change(topics={"a": Topic("value:txn", null_id="single", value="avro", avro_schema=file)})
        put(
            pipeline,
            ("a", None, avro(old, {"txn": 2 * txn, "n": 1, "x": 1})),
            ("a", None, avro(new, {"txn": 2 * txn + 1, "n": 1, "x": 2, "note": "é"})),
        )
        pipeline.sync()
    assert pipeline.values() == [{"x": 1, "note": None}, {"x": 2, "note": "é"}]
    assert reasons(pipeline) == [f"value is not Avro as {file.name} says"] * 2
