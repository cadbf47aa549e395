"""What a rule sees of Debezium's types: the lines of docs/reference/debezium-types.md, each by a documented record."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from tests.registry import RunningRegistry, avro, framed
from tests.spark.conftest import Pipeline
from tests.spark.debezium_values import INFINITE, OVERFLOWED, SEEN, TOO_MANY_DIGITS, unscaled
from tests.spark.formats import connect, of_connect, put, reasons, struct
from zync.config.model import Config, DebeziumModes, Formats, OutputRule, RegistryAccess, Topic, Transactions
from zync.debezium.preset import expand


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


@pytest.fixture(scope="module")
def of_connects_json(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> list[Any]:
    """What became of all those values, one after the other, each in a record with its schema: in one sync."""
    pipeline = Pipeline(tmp_path_factory.mktemp("connect"), spark)
    pipeline.change(formats=Formats(value="connect-json"), transactions=Transactions(done="count(*) = 1"))
    pipeline.rules(
        out="SELECT seqno, schema_of_variant(value:v::variant) AS kind, "
        "CASE WHEN schema_of_variant(value:v::variant) NOT LIKE 'OBJECT%' "
        "AND schema_of_variant(value:v::variant) <> 'BINARY' THEN value:v::string END AS text FROM a"
    )
    values = [*(line[:2] for line in SEEN), *TOO_MANY_DIGITS, *OVERFLOWED]
    records = [
        of_connect(struct(txn=connect("int32"), v=schema), {"txn": number, "v": payload})
        for number, (schema, payload) in enumerate(values)
    ]
    put(pipeline, *[("a", None, record) for record in records])
    pipeline.sync()
    outcomes = pipeline.outcomes()
    return [outcomes[1 + number] for number in range(len(values))]


def test_what_a_rule_sees_of_connects_json(of_connects_json: list[Any]) -> None:
    differing = {}
    for (schema, payload, kind, text), outcome in zip(SEEN, of_connects_json, strict=False):
        found: Any = outcome
        if isinstance(outcome, dict):
            zoned = outcome["text"] and outcome["text"].removesuffix("+00:00").removesuffix("+00")
            found = (outcome["kind"] or "VOID", zoned)
        if found != (kind, text):
            differing[str((schema, payload))] = found
    assert not differing, repr(differing)


def test_a_decimal_of_more_digits_than_spark_has_is_set_aside(of_connects_json: list[Any]) -> None:
    outcomes = of_connects_json[len(SEEN) :][: len(TOO_MANY_DIGITS)]
    assert outcomes == ["value is not as the schema beside it says"] * len(TOO_MANY_DIGITS)


def test_a_time_that_overflowed_on_its_way_is_set_aside(of_connects_json: list[Any]) -> None:
    """Microseconds beyond the year 294246: Debezium adds the fraction to the greatest number; and no time of day."""
    outcomes = of_connects_json[-len(OVERFLOWED) :]
    assert outcomes == ["value is not as the schema beside it says"] * len(OVERFLOWED)


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


_SINGLE = "id INT, at TIMESTAMP_NTZ, zoned TIMESTAMP, day DATE"
_TIMES = f"{_SINGLE}, list ARRAY<TIMESTAMP>"
_UNITS = "ms TIMESTAMP COMMENT 'millis', us TIMESTAMP COMMENT 'micros', ns TIMESTAMP COMMENT 'nanos', bare TIMESTAMP"
COLUMNS = {
    **dict.fromkeys(("connect", "microseconds", "nanoseconds"), f"{_TIMES}, total DECIMAL(10, 2)"),
    "isostring": _TIMES,
    "adaptive": _UNITS,
    "unsaid": _SINGLE,
}
"""The schema of rows that the config has for each of `CONNECTORS`."""
NUMBERS = [1767323045678, 1767323045678901, 1767323045, 20455]
COLUMN_OF = {"TIMESTAMP": "zoned", "TIMESTAMP_NTZ": "at", "DATE": "day"}


def times(mode: str) -> list[dict[str, Any]]:
    sent, day = TIMES[mode][0], 20455 if mode != "isostring" else "2026-01-02Z"
    return [{"id": 1, "at": sent, "zoned": "2026-01-02T03:04:05Z", "day": day, "list": [sent, None]}, {"id": 2}]


CONNECTORS: dict[str, tuple[DebeziumModes, dict[str, list[dict[str, Any]]]]] = {
    # the modes that the config says, and rows that are sent, by what they are to show
    "connect": (
        DebeziumModes(time_precision_mode="connect", decimal_handling_mode="precise"),
        {
            "times": times("connect"),
            "decimals": [
                {"total": "BNI="},
                {"total": unscaled("12.3")},
                {"total": None},
                {"total": unscaled("1.234")},
            ],
        },
    ),
    "microseconds": (
        DebeziumModes(time_precision_mode="microseconds", decimal_handling_mode="string"),
        {"times": times("microseconds"), "decimals": [{"total": "12.34"}]},
    ),
    "nanoseconds": (
        DebeziumModes(time_precision_mode="nanoseconds", decimal_handling_mode="double"),
        {"times": times("nanoseconds"), "decimals": [{"total": 12.34}]},
    ),
    "isostring": (
        DebeziumModes(time_precision_mode="isostring"),
        {"times": times("isostring"), "number": [{"zoned": 1767323045678}]},
    ),
    "adaptive": (
        DebeziumModes(time_precision_mode="adaptive"),
        {
            "times": [
                {"ms": 1767323045678, "us": 1767323045678901, "ns": 1767323045678901234},
                {"bare": 1767323045678901},
                {"us": INFINITE},
            ]
        },
    ),
    "unsaid": (
        DebeziumModes(),
        {
            **{f"{kind} {sent}": [{column: sent}] for kind, column in COLUMN_OF.items() for sent in NUMBERS},
            **{kind: [{column: "2026-01-02"}] for kind, column in COLUMN_OF.items()},
            "of day": [{"zoned": "12:00:00"}, {"zoned": "T12:00Z"}, {"zoned": "2026-01-02T12:00:00Z"}],
        },
    ),
}
Sent = Callable[[str, str], list[Any]]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Sent:
    """What became of those rows of that connector, in plain JSON: all of a connector's are in one sync."""
    outcomes: dict[str, list[Any]] = {}

    def outcomes_of(connector: str, what: str) -> list[Any]:
        modes, rows = CONNECTORS[connector]
        if connector not in outcomes:
            pipeline = Pipeline(tmp_path_factory.mktemp("shop"), spark)
            by_preset(pipeline, "SELECT seqno, row.*", COLUMNS[connector], debezium=modes)
            rows_of(pipeline, *chain(*rows.values()))
            pipeline.sync()
            outcomes[connector] = [outcome for _, outcome in sorted(pipeline.outcomes().items())]
            assert len(outcomes[connector]) == sum(map(len, rows.values()))
        first = sum(len(rows[one]) for one in list(rows)[: list(rows).index(what)])
        return outcomes[connector][first : first + len(rows[what])]

    return outcomes_of


@pytest.mark.parametrize("mode", TIMES)
def test_plain_json_comes_as_times_by_the_mode_that_the_config_says(sent: Sent, mode: str) -> None:
    seen = TIMES[mode][1]
    first, second = sent(mode, "times")
    wanted = {
        "id": 1,
        "at": seen,
        "zoned": "2026-01-02T03:04:05.000000Z",
        "day": "2026-01-02",
        "list": [f"{seen}Z", None],
    }
    assert {column: first[column] for column in wanted} == wanted
    assert {column: second[column] for column in wanted} == {**dict.fromkeys(wanted), "id": 2}


def test_in_an_adaptive_mode_the_schema_says_each_columns_unit(sent: Sent) -> None:
    known, unknown, infinite = sent("adaptive", "times")
    at = "2026-01-02T03:04:05.678901Z"
    assert known == {"ms": "2026-01-02T03:04:05.678000Z", "us": at, "ns": at, "bare": None}
    assert "after.bare is a number that no unit is known of: say its unit in the schema: COMMENT" in unknown
    assert "after.us is no time of the years 1 to 9999 in micros" in infinite


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", COLUMN_OF)
def test_a_number_is_no_time_where_nobody_says_its_unit(sent: Sent, kind: str, number: int) -> None:
    column = COLUMN_OF[kind]
    (reason,) = sent("unsaid", f"{kind} {number}")
    assert f"after.{column} is a number that no unit is known of: say debezium.time_precision_mode" in reason
    (text,) = sent("unsaid", kind)
    assert text[column].startswith("2026-01-02")


def test_where_times_come_as_text_a_number_is_none(sent: Sent) -> None:
    (reason,) = sent("isostring", "number")
    assert "a number that no unit is known of: with time.precision.mode: isostring there are none" in reason


def test_a_time_of_day_is_no_timestamp(sent: Sent) -> None:
    """Spark takes it for that time of the day on which it is asked."""
    *without_date, noon = sent("unsaid", "of day")
    assert noon["zoned"] == "2026-01-02T12:00:00.000000Z"
    assert [one.partition(" is no ")[2] for one in without_date] == ["timestamp of the years 1 to 9999"] * 2


def test_decimals_of_plain_json_come_as_such_by_the_mode(sent: Sent) -> None:
    *decimals, other_scale = sent("connect", "decimals")
    assert [row["total"] for row in decimals] == [12.34, 12.3, None]
    assert "after.total is no decimal(10,2)" in other_scale
    assert [row["total"] for mode in ("microseconds", "nanoseconds") for row in sent(mode, "decimals")] == [12.34] * 2


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


BEYOND = [
    "value:at::timestamp",
    "CAST(value:at::timestamp AS TIMESTAMP_NTZ)",
    "named_struct('x', array(value:at::timestamp))",
    "map('x', value:at::timestamp)",
    "DATE '2026-01-02' + CAST(value:at::bigint DIV 100000 AS INT)",
]


@pytest.fixture(scope="module")
def beyond(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> dict[int, Any]:
    """What becomes of a record for each column that makes a time beyond 9999, then as many of 2026, and of none."""
    pipeline = Pipeline(tmp_path_factory.mktemp("beyond"), spark)
    columns = (f"CASE value:column::int WHEN {n} THEN {one} END AS c{n}" for n, one in enumerate(BEYOND))
    pipeline.rules(out=f"SELECT seqno, {', '.join(columns)} FROM a")  # noqa: S608
    values = [{"column": n, **at} for at in ({"at": 1767323045678}, {"at": 1767323045}, {}) for n in range(len(BEYOND))]
    pipeline.load(*[("a", {"txn": number, "n": 1, **value}) for number, value in enumerate(values)])
    pipeline.sync()
    return pipeline.outcomes()


@pytest.mark.parametrize("column", BEYOND)
def test_a_rules_time_beyond_year_9999_sets_the_transaction_aside(beyond: dict[int, Any], column: str) -> None:
    number, count = BEYOND.index(column), len(BEYOND)
    reason, of_2026, of_none = (beyond[1 + number + turn * count] for turn in range(3))
    assert f"column 'c{number}' has a time that is not of the years 1 to 9999" in reason
    assert "use timestamp_millis" in reason
    assert "20" in str(of_2026[f"c{number}"])
    assert "20" not in str(of_none[f"c{number}"])
