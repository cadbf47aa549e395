"""What a rule sees of Debezium's types: the lines of docs/reference/debezium-types.md, each by a documented record."""

import base64
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.registry import RunningRegistry, avro, framed
from tests.spark.conftest import Pipeline
from tests.spark.test_formats import connect, logical, of_connect, put, reasons, struct
from zync.config.model import Config, DebeziumModes, Formats, OutputRule, RegistryAccess, Topic, Transactions
from zync.debezium.preset import expand

NTZ, BINARY = "TIMESTAMP_NTZ", "BINARY"
INFINITE, MINUS_INFINITE = 9223372036825200000, -9223372036832400000


def unscaled(number: str) -> dict[str, Any]:
    """A decimal as Debezium's VariableScaleDecimal has it."""
    sign, figures, exponent = Decimal(number).as_tuple()
    digits = int("".join(map(str, figures))) * (-1 if sign else 1)
    data = digits.to_bytes(digits.bit_length() // 8 + 1, "big", signed=True)
    return {"scale": -int(exponent), "value": base64.b64encode(data).decode()}


def time(name: str, kind: str = "int64") -> dict[str, Any]:
    return connect(kind, name=f"io.debezium.time.{name}", version=1)


def data(name: str, kind: str, **parameters: str) -> dict[str, Any]:
    return connect(kind, name=f"io.debezium.data.{name}", version=1, parameters=parameters)


VARIABLE = struct(scale=connect("int32", False), value=connect("bytes", False)) | {
    "name": "io.debezium.data.VariableScaleDecimal"
}
POINT = struct(x=connect("double"), y=connect("double"), wkb=connect("bytes"), srid=connect("int32"))
SHAPE = struct(wkb=connect("bytes"), srid=connect("int32")) | {"name": "io.debezium.data.geometry.Geometry"}

SEEN: list[tuple[dict[str, Any], Any, str, Any]] = [
    # schema, payload, the VARIANT's type, its text
    (time("Date", "int32"), 20455, "DATE", "2026-01-02"),
    (time("Date", "int32"), -719162, "DATE", "0001-01-01"),
    (time("Date", "int32"), 2932896, "DATE", "9999-12-31"),
    (time("Date", "int32"), -735160, "STRING", "-0043-03-15"),  # BC
    (time("Date", "int32"), 2146033979, "STRING", "infinity"),
    (time("Date", "int32"), -2147472692, "STRING", "infinity"),  # before Debezium 3.7
    (time("Date", "int32"), -622191234, "STRING", "infinity"),  # of a snapshot
    (time("Date", "int32"), -625821272, "STRING", "-infinity"),
    (time("Date", "int32"), -2147472691, "STRING", "-infinity"),
    (time("Timestamp"), 1767323045678, NTZ, "2026-01-02 03:04:05.678"),
    (time("Timestamp"), 9223372036825200, "STRING", "infinity"),
    (time("Timestamp"), INFINITE, "STRING", "infinity"),
    (time("Timestamp"), -9223372036832400, "STRING", "-infinity"),
    (time("MicroTimestamp"), 1767323045678901, NTZ, "2026-01-02 03:04:05.678901"),
    (time("MicroTimestamp"), -1, NTZ, "1969-12-31 23:59:59.999999"),
    (time("MicroTimestamp"), 253402300799999999, NTZ, "9999-12-31 23:59:59.999999"),
    (time("MicroTimestamp"), 253402300800000000, "STRING", "+10000-01-01 00:00:00"),
    (time("MicroTimestamp"), INFINITE, "STRING", "infinity"),
    (time("MicroTimestamp"), MINUS_INFINITE, "STRING", "-infinity"),
    (time("NanoTimestamp"), 1767323045678901234, NTZ, "2026-01-02 03:04:05.678901"),
    (time("NanoTimestamp"), -1, NTZ, "1969-12-31 23:59:59.999999"),
    (time("NanoTimestamp"), 2**63 - 1, "STRING", "infinity"),
    (time("NanoTimestamp"), -(2**63), "STRING", "-infinity"),
    (time("ZonedTimestamp", "string"), "2026-01-02T03:04:05.678901Z", "STRING", "2026-01-02T03:04:05.678901Z"),
    (time("ZonedTimestamp", "string"), "infinity", "STRING", "infinity"),
    (time("ZonedTime", "string"), "03:04:05.678Z", "STRING", "03:04:05.678Z"),
    (time("IsoDate", "string"), "2026-01-02Z", "STRING", "2026-01-02Z"),
    (time("IsoTimestamp", "string"), "2026-01-02T03:04:05.678Z", "STRING", "2026-01-02T03:04:05.678Z"),
    (time("IsoTime", "string"), "03:04:05Z", "STRING", "03:04:05Z"),
    (time("Time", "int32"), 11045678, "BIGINT", "11045678"),
    (time("MicroTime"), 11045678901, "BIGINT", "11045678901"),
    (time("NanoTime"), 11045678901234, "BIGINT", "11045678901234"),
    (time("Year", "int32"), 2026, "BIGINT", "2026"),
    (time("MicroDuration"), 2629800000000, "BIGINT", "2629800000000"),
    (time("Interval", "string"), "P1M", "STRING", "P1M"),
    (logical("int32", "Date"), 20455, "DATE", "2026-01-02"),
    (logical("int64", "Timestamp"), 1767323045678, "TIMESTAMP", "2026-01-02 03:04:05.678"),
    (logical("int64", "Timestamp"), 9223372036825200, "STRING", "infinity"),
    (logical("int32", "Time"), 11045678, "STRING", "03:04:05.678"),
    (logical("int32", "Time"), 86400000, "STRING", "24:00:00.000"),
    (logical("bytes", "Decimal", scale="2"), "BNI=", "DECIMAL(4,2)", "12.34"),
    (VARIABLE, unscaled("12.34"), "DECIMAL(4,2)", "12.34"),
    (VARIABLE, unscaled("-0.05"), "DECIMAL(2,2)", "-0.05"),
    (VARIABLE, unscaled("1E+3"), "BIGINT", "1000"),
    (VARIABLE, unscaled("0.00"), "BIGINT", "0"),
    (VARIABLE, unscaled("-" + "9" * 30 + ".12345678"), "DECIMAL(38,8)", "-" + "9" * 30 + ".12345678"),
    (VARIABLE, None, "VOID", None),
    (data("Bits", "bytes", length="12"), "0wQ=", BINARY, None),
    (data("Enum", "string", allowed="a,b"), "a", "STRING", "a"),
    (data("EnumSet", "string", allowed="a,b"), "a,b", "STRING", "a,b"),
    (data("Uuid", "string"), "7d444840-9dc0-11d1-b245-5ffdce74fad2", "STRING", "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
    (data("Json", "string"), '{"a": 1}', "STRING", '{"a": 1}'),
    (data("Xml", "string"), "<a/>", "STRING", "<a/>"),
    (data("Ltree", "string"), "a.b", "STRING", "a.b"),
    (
        POINT | {"name": "io.debezium.data.geometry.Point"},
        {"x": 1.0, "y": 2.0, "wkb": "AQE=", "srid": None},
        "OBJECT<srid: VOID, wkb: BINARY, x: DOUBLE, y: DOUBLE>",
        None,
    ),
    (SHAPE, {"wkb": "AQE=", "srid": 4326}, "OBJECT<srid: BIGINT, wkb: BINARY>", None),
]


def by_preset(pipeline: Pipeline, rule: str, schema: str | None = None, **more: Any) -> None:
    """A config with the preset for the topic shop.t, and that rule."""
    file = pipeline.folder / "out.sql"
    file.write_text(f"{rule} FROM `shop.t`")
    config = Config(
        lake=pipeline.config.lake,
        topics={"shop.t": Topic(schema=schema)} if schema else {},
        transactions=Transactions(preset="debezium", topic="shop.transaction"),
        outputs=(OutputRule("out", file),),
    )
    pipeline.config = expand(replace(config, **more))


def rows_of(pipeline: Pipeline, *values: Any) -> None:
    """Rows of a snapshot, in plain JSON."""
    put(pipeline, *[("shop.t", None, json.dumps({"op": "r", "before": None, "after": one})) for one in values])


def test_what_a_rule_sees_of_connects_json(pipeline: Pipeline) -> None:
    """In one sync, as a record each, with the number of its line in SEEN."""
    pipeline.change(formats=Formats(value="connect-json"), transactions=Transactions(done="count(*) = 1"))
    pipeline.rules(
        out="SELECT seqno, value:txn::int AS line, schema_of_variant(value:v::variant) AS kind, "
        "CASE WHEN schema_of_variant(value:v::variant) NOT LIKE 'OBJECT%' "
        "AND schema_of_variant(value:v::variant) <> 'BINARY' THEN value:v::string END AS text FROM a"
    )
    records = [
        ("a", None, of_connect(struct(txn=connect("int32"), v=schema), {"txn": number, "v": payload}))
        for number, (schema, payload, _, _) in enumerate(SEEN)
    ]
    put(pipeline, *records)
    pipeline.sync()
    assert reasons(pipeline) == []
    found = {row["line"]: (row["kind"] or "VOID", row["text"]) for row in pipeline.values()}
    wanted = {number: (kind, text) for number, (_, _, kind, text) in enumerate(SEEN)}
    zoned = {
        one: (kind, text and text.removesuffix("+00:00").removesuffix("+00")) for one, (kind, text) in found.items()
    }
    differing = {one: (SEEN[one][:2], zoned.get(one)) for one in wanted if wanted[one] != zoned.get(one)}
    assert not differing, repr(differing)


def test_a_decimal_of_more_digits_than_spark_has_is_set_aside(pipeline: Pipeline) -> None:
    pipeline.change(formats=Formats(value="connect-json"), transactions=Transactions(done="count(*) = 1"))
    schema = struct(txn=connect("int32"), v=VARIABLE)
    wrong = [unscaled("1E+40"), unscaled("1E-39"), unscaled("1" + "0" * 38)]
    put(pipeline, *[("a", None, of_connect(schema, {"txn": n, "v": one})) for n, one in enumerate(wrong)])
    pipeline.sync()
    assert reasons(pipeline) == ["value is not as the schema beside it says"] * len(wrong)


def test_a_time_that_overflowed_on_its_way_is_set_aside(pipeline: Pipeline) -> None:
    """Microseconds beyond the year 294246: Debezium adds the fraction to the greatest number; and no time of day."""
    pipeline.change(formats=Formats(value="connect-json"), transactions=Transactions(done="count(*) = 1"))
    wrong = [
        (time("MicroTimestamp"), -9223372036853776809),
        (logical("int32", "Time"), -1),
        (logical("int32", "Time"), 86400001),
    ]
    records = [
        of_connect(struct(txn=connect("int32"), v=schema), {"txn": n, "v": v}) for n, (schema, v) in enumerate(wrong)
    ]
    put(pipeline, *[("a", None, record) for record in records])
    pipeline.sync()
    assert reasons(pipeline) == ["value is not as the schema beside it says"] * len(wrong)


def test_what_a_rule_sees_of_avro(pipeline: Pipeline, registry: RunningRegistry) -> None:
    """As Confluent's converter writes an envelope: the second image refers to the first one's type by its name."""

    def named(kind: str, name: str) -> list[Any]:
        return ["null", {"type": kind, "connect.version": 1, "connect.name": f"io.debezium.{name}"}]

    def of_connect_in_avro(kind: str, name: str, logical_type: str) -> list[Any]:
        own = {"type": kind, "connect.name": f"org.apache.kafka.connect.data.{name}", "logicalType": logical_type}
        return ["null", own]

    number = {
        "type": "record",
        "name": "VariableScaleDecimal",
        "namespace": "io.debezium.data",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
        "connect.name": "io.debezium.data.VariableScaleDecimal",
    }
    columns: dict[str, Any] = {
        "day": named("int", "time.Date"),
        "at": named("long", "time.MicroTimestamp"),
        "nano": named("long", "time.NanoTimestamp"),
        "n": ["null", number],
        "m": ["null", "io.debezium.data.VariableScaleDecimal"],
        "list": {"type": "array", "items": named("long", "time.MicroTimestamp")},
        "text": ["null", "string"],
        "own_day": of_connect_in_avro("int", "Date", "date"),
        "own_at": of_connect_in_avro("long", "Timestamp", "timestamp-millis"),
        "own_time": of_connect_in_avro("int", "Time", "time-millis"),
    }
    row = {"type": "record", "name": "Value", "fields": [{"name": one, "type": its} for one, its in columns.items()]}
    schema = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.t",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    by_preset(pipeline, "SELECT seqno, schema_of_variant(row) AS kinds, row", formats=Formats(value="avro"))
    pipeline.change(registry=RegistryAccess(registry.url))

    def unpacked(text: str) -> dict[str, Any]:
        its = unscaled(text)
        return {"scale": its["scale"], "value": base64.b64decode(its["value"])}

    values = [
        {
            "day": 20455,
            "at": 1767323045678901,
            "nano": 1767323045678901234,
            "n": unpacked("12.34"),
            "m": unpacked("-0.05"),
            "list": [1767323045678901, None],
            "text": "é",
            "own_day": 20455,
            "own_at": 1767323045678,
            "own_time": 86400000,
        },
        {
            **dict.fromkeys(columns),
            "day": 2146033979,
            "at": INFINITE,
            "list": [],
            "own_day": -622191234,
            "own_at": 9223372036825200000,
        },
    ]
    number_of = registry.register("t-value", schema)
    put(
        pipeline,
        *[
            ("shop.t", None, framed(number_of, avro(schema, {"before": None, "after": one, "op": "r"})))
            for one in values
        ],
    )
    pipeline.sync()
    assert reasons(pipeline) == []
    first, second = pipeline.values()
    kinds = ("at: TIMESTAMP_NTZ", "day: DATE", "m: DECIMAL(2,2)", "n: DECIMAL(4,2)", "nano: TIMESTAMP_NTZ")
    for one in (*kinds, "list: ARRAY<TIMESTAMP_NTZ>"):
        assert one in first["kinds"]
    at = "2026-01-02 03:04:05.678901"
    assert first["row"] == {
        "day": "2026-01-02",
        "at": at,
        "nano": at,
        "n": 12.34,
        "m": -0.05,
        "list": [at, None],
        "text": "é",
        "own_day": "2026-01-02",
        "own_at": "2026-01-02 03:04:05.678+00:00",
        "own_time": "24:00:00.000",
    }
    assert [second["row"][one] for one in ("day", "at", "own_day", "own_at")] == ["infinity"] * 4


TIMES = {
    "connect": (1767323045678, "2026-01-02T03:04:05.678000"),
    "microseconds": (1767323045678901, "2026-01-02T03:04:05.678901"),
    "nanoseconds": (1767323045678901234, "2026-01-02T03:04:05.678901"),
    "isostring": ("2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678901"),
}


@pytest.mark.parametrize("mode", TIMES)
def test_plain_json_comes_as_times_by_the_mode_that_the_config_says(pipeline: Pipeline, mode: str) -> None:
    sent, seen = TIMES[mode]
    by_preset(
        pipeline,
        "SELECT seqno, row.id, row.at, row.zoned, row.day, row.list",
        "id INT, at TIMESTAMP_NTZ, zoned TIMESTAMP, day DATE, list ARRAY<TIMESTAMP>",
        debezium=DebeziumModes(time_precision_mode=mode),  # type: ignore[arg-type]
    )
    day = 20455 if mode != "isostring" else "2026-01-02Z"
    one = {"at": sent, "zoned": "2026-01-02T03:04:05Z", "day": day, "list": [sent, None]}
    rows_of(pipeline, {"id": 1, **one}, {"id": 2})
    pipeline.sync()
    assert reasons(pipeline) == []
    first, second = pipeline.values()
    assert first == {
        "id": 1,
        "at": seen,
        "zoned": "2026-01-02T03:04:05.000000Z",
        "day": "2026-01-02",
        "list": [f"{seen}Z", None],
    }
    assert second == {"id": 2, "at": None, "zoned": None, "day": None, "list": None}


def test_in_an_adaptive_mode_the_schema_says_each_columns_unit(pipeline: Pipeline) -> None:
    by_preset(
        pipeline,
        "SELECT seqno, row.ms, row.us, row.ns",
        "ms TIMESTAMP COMMENT 'millis', us TIMESTAMP COMMENT 'micros', ns TIMESTAMP COMMENT 'nanos', bare TIMESTAMP",
        debezium=DebeziumModes(time_precision_mode="adaptive"),
    )
    rows_of(
        pipeline,
        {"ms": 1767323045678, "us": 1767323045678901, "ns": 1767323045678901234},
        {"bare": 1767323045678901},
        {"us": INFINITE},
    )
    pipeline.sync()
    at = "2026-01-02T03:04:05.678901Z"
    assert pipeline.values() == [{"ms": "2026-01-02T03:04:05.678000Z", "us": at, "ns": at}]
    unknown, infinite = reasons(pipeline)
    assert "after.bare is a number that no unit is known of: say its unit in the schema: COMMENT" in unknown
    assert "after.us is no time of the years 1 to 9999 in micros" in infinite


@pytest.mark.parametrize("sent", [1767323045678, 1767323045678901, 1767323045, 20455])
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE"])
def test_a_number_is_no_time_where_nobody_says_its_unit(pipeline: Pipeline, kind: str, sent: int) -> None:
    by_preset(pipeline, "SELECT seqno, row.created", f"created {kind}")
    rows_of(pipeline, {"created": sent}, {"created": "2026-01-02"})
    pipeline.sync()
    (reason,) = reasons(pipeline)
    assert "after.created is a number that no unit is known of: say debezium.time_precision_mode" in reason
    assert len(pipeline.values()) == 1


def test_where_times_come_as_text_a_number_is_none(pipeline: Pipeline) -> None:
    by_preset(
        pipeline,
        "SELECT seqno, row.created",
        "created TIMESTAMP",
        debezium=DebeziumModes(time_precision_mode="isostring"),
    )
    rows_of(pipeline, {"created": 1767323045678})
    pipeline.sync()
    (reason,) = reasons(pipeline)
    assert "a number that no unit is known of: with time.precision.mode: isostring there are none" in reason


def test_a_time_of_day_is_no_timestamp(pipeline: Pipeline) -> None:
    """Spark takes it for that time of the day on which it is asked."""
    by_preset(pipeline, "SELECT seqno, row.created", "created TIMESTAMP")
    rows_of(pipeline, {"created": "12:00:00"}, {"created": "T12:00Z"}, {"created": "2026-01-02T12:00:00Z"})
    pipeline.sync()
    assert pipeline.values() == [{"created": "2026-01-02T12:00:00.000000Z"}]
    assert [one.partition(" is no ")[2] for one in reasons(pipeline)] == ["timestamp of the years 1 to 9999"] * 2


def test_decimals_of_plain_json_come_as_such_by_the_mode(pipeline: Pipeline) -> None:
    by_preset(
        pipeline,
        "SELECT seqno, row.total",
        "total DECIMAL(10, 2)",
        debezium=DebeziumModes(decimal_handling_mode="precise"),
    )
    rows_of(pipeline, {"total": "BNI="}, {"total": unscaled("12.3")}, {"total": None}, {"total": unscaled("1.234")})
    pipeline.sync()
    assert [row["total"] for row in pipeline.values()] == [12.34, 12.3, None]
    (reason,) = reasons(pipeline)
    assert "after.total is no decimal(10,2)" in reason
    for mode in ("string", "double"):
        by_preset(
            pipeline,
            "SELECT seqno, row.total",
            "total DECIMAL(10, 2)",
            debezium=DebeziumModes(decimal_handling_mode=mode),  # type: ignore[arg-type]
        )
        rows_of(pipeline, {"total": "12.34" if mode == "string" else 12.34})
        pipeline.sync()
    assert [row["total"] for row in pipeline.values()] == [12.34, 12.3, None, 12.34, 12.34]


def test_a_number_of_seconds_beyond_year_9999_is_set_aside_in_any_topic(pipeline: Pipeline, txn: Any) -> None:
    """Spark counts it times a million, and wraps round: microseconds became the year 5057."""
    pipeline.change(topics={"a": Topic("value:txn", schema="txn INT, n INT, created TIMESTAMP")})
    pipeline.rules(out="SELECT seqno, value.created FROM a")
    numbers = (1767323045, 1767323045678, 1767323045678901)
    pipeline.load(*[("a", txn(number, created=one)) for number, one in enumerate(numbers)])
    pipeline.sync()
    assert pipeline.values() == [{"created": "2026-01-02T03:04:05.000000Z"}]
    first, second = reasons(pipeline)
    assert first == second
    assert "a number is no timestamp, as it counts seconds to beyond the year 9999" in first


@pytest.mark.parametrize(
    "column",
    [
        "value:at::timestamp AS c",
        "CAST(value:at::timestamp AS TIMESTAMP_NTZ) AS c",
        "named_struct('x', array(value:at::timestamp)) AS c",
        "map('x', value:at::timestamp) AS c",
        "DATE '2026-01-02' + CAST(value:at::bigint DIV 100000 AS INT) AS c",
    ],
)
def test_a_rules_time_beyond_year_9999_sets_the_transaction_aside(pipeline: Pipeline, txn: Any, column: str) -> None:
    pipeline.rules(out=f"SELECT seqno, {column} FROM a")  # noqa: S608
    pipeline.load(("a", txn(1, at=1767323045678)), ("a", txn(2, at=1767323045)), ("a", txn(3)))
    pipeline.sync()
    assert len(pipeline.values()) == 2
    (reason,) = reasons(pipeline)
    assert "column 'c' has a time that is not of the years 1 to 9999" in reason
    assert "use timestamp_millis" in reason
