"""Keys and values in formats beside JSON, by a real schema registry: each as its own types, what is bad by itself."""

import base64
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, localcontext
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from google.protobuf import json_format

from tests.conftest import rows
from tests.registry import RunningRegistry, avro, classes, framed, packed
from tests.spark.conftest import Pipeline
from zync.config.model import Formats, Limits, RegistryAccess, Topic, Transactions
from zync.errors import DataError, UsageError, ZyncError
from zync.formats.registry import Registry
from zync.project.load import load as read_config
from zync.raw.jsonl import load


def put(pipeline: Pipeline, *records: tuple[str, bytes | str | None, bytes | str | None]) -> None:
    """Records (topic, key, value) into raw."""

    def field(data: bytes | str | None) -> Any:
        return {"base64": base64.b64encode(data).decode()} if isinstance(data, bytes) else data

    lines = [{"topic": topic, "key": field(key), "value": field(value)} for topic, key, value in records]
    path = pipeline.folder / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    load(pipeline.raw, [str(path)])


def reasons(pipeline: Pipeline) -> list[str]:
    return [row["reason"] for row in sorted(pipeline.of("quarantined"), key=lambda row: row["seqno"])]


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields.items()]}


NO_GZIP = "value is not gzip, or has more than 256.0 MiB in it"
JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}}
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


def test_debeziums_dates_and_times_arrive_as_such_from_avro(pipeline: Pipeline, registry: RunningRegistry) -> None:
    """Of which only Connect's name says what they are."""
    names = {"d": ("int", "Date"), "ms": ("long", "Timestamp"), "us": ("long", "MicroTimestamp"), "z": ("int", "Year")}
    fields = [
        {"name": one, "type": ["null", {"type": kind, "connect.name": f"io.debezium.time.{name}"}]}
        for one, (kind, name) in names.items()
    ]
    schema = {"type": "record", "name": "Row", "fields": [{"name": "txn", "type": "int"}, *fields]}
    number = registry.register("times-value", schema)
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="avro"))
    pipeline.change(transactions=Transactions(done="count(*) = 1"))
    pipeline.rules(out="SELECT seqno, schema_of_variant(value) AS kinds, value FROM a")
    row = {"txn": 1, "d": 20455, "ms": 1767323045678, "us": 1767323045678901, "z": 2026}
    put(pipeline, ("a", None, framed(number, avro(schema, row))))
    pipeline.sync()
    assert pipeline.values() == [
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


def test_decimals_of_more_digits_than_spark_has_arrive_where_they_fit(
    pipeline: Pipeline, registry: RunningRegistry
) -> None:
    """Connect writes a precision of 64 where nobody said another."""
    many = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    order = record("shop.Large", txn="int", n="int", amount=many, rest={"type": "array", "items": ["null", many]})
    number = registry.register("large-value", order)
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="avro"))
    pipeline.rules(out="SELECT seqno, value:amount::decimal(38, 2) AS amount, value:rest[0]::string AS rest FROM a")
    amounts = [Decimal("12.34"), Decimal("-" + "9" * 36 + ".99"), Decimal("1" + "0" * 36 + ".00")]
    with localcontext(Context(prec=64)):
        values = [{"txn": n, "n": 1, "amount": one, "rest": [one]} for n, one in enumerate(amounts)]
        put(pipeline, *[("a", None, framed(number, avro(order, value))) for value in values])
    pipeline.sync()
    assert [row["rest"] for row in pipeline.values()] == [str(amounts[0]), str(amounts[1])]
    assert reasons(pipeline) == [f"value is not Avro as schema {number} says"]


def test_avro_evolves_within_one_sync(pipeline: Pipeline, registry: RunningRegistry) -> None:
    old = record("shop.Order", txn="int", n="int", x="int")
    new = record("shop.Order", txn="int", n="int", x="long", note=["null", "string"])
    numbers = [registry.register(f"orders-{version}", one) for version, one in enumerate((old, new))]
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="avro"))
    pipeline.rules(out="SELECT seqno, value:x::bigint AS x, value:note::string AS note FROM a ORDER BY seqno")
    put(
        pipeline,
        ("a", None, framed(numbers[0], avro(old, {"txn": 1, "n": 1, "x": 4}))),
        ("a", None, framed(numbers[1], avro(new, {"txn": 2, "n": 1, "x": 2**40, "note": "hé"}))),
        ("a", None, framed(numbers[0], avro(old, {"txn": 3, "n": 1, "x": 5}))),
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": 4, "note": None}, {"x": 2**40, "note": "hé"}, {"x": 5, "note": None}]


def test_a_schema_that_refers_to_others_is_written_out(pipeline: Pipeline, registry: RunningRegistry) -> None:
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
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="avro"))
    pipeline.rules(out="SELECT seqno, value:lines[0].price.cents::int AS a, value:tip.cents::int AS b FROM a")
    put(pipeline, ("a", None, framed(number, avro(whole, value))))
    pipeline.sync()
    assert pipeline.values() == [{"a": 5, "b": 7}]


def test_bad_bytes_are_set_aside_each_with_its_reason_and_others_go_on(
    pipeline: Pipeline, registry: RunningRegistry
) -> None:
    order = record("shop.Small", txn="int", n="int", x="int")
    number = registry.register("small-value", order)
    other = registry.register("text-value", JSON_SCHEMA, "JSON")
    good = avro(order, {"txn": 1, "n": 1, "x": 3})
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="avro"))
    pipeline.rules(out="SELECT seqno, value:x::int AS x FROM a")
    put(
        pipeline,
        ("a", None, framed(number, good)),
        ("a", None, framed(number, good)[:-1]),
        ("a", None, framed(number, good) + b"\0"),
        ("a", None, framed(number, good + good)),
        ("a", None, framed(number, b"")),
        ("a", None, b"\1" + framed(number, good)[1:]),
        ("a", None, b""),
        ("a", None, framed(987_654, good)),
        ("a", None, framed(other, b"{}")),
        ("a", None, '{"txn":1}'),
        ("a", b"\xff", None),
        ("a", None, framed(number, avro(order, {"txn": 2, "n": 1, "x": 4}))),
    )
    pipeline.change(topics={"a": Topic("value:txn", null_id="single")})
    assert pipeline.sync().set_aside == {"quarantined": 9}
    unframed = "value does not begin with a zero byte and a schema's id, as a schema registry's clients write it"
    assert reasons(pipeline) == [
        *[f"value is not Avro as schema {number} says"] * 4,
        unframed,
        unframed,
        "the schema registry knows no schema 987654",
        f"schema {other} is one of JSON, not AVRO",
        unframed,
    ]
    assert pipeline.values() == [{"x": 3}, {"x": None}, {"x": 4}]  # the tombstone is one by itself


def test_text_in_avro_that_is_not_utf_8_is_set_aside(pipeline: Pipeline, registry: RunningRegistry) -> None:
    some = {"type": "array", "items": {"type": "map", "values": ["null", record("shop.Inner", text="string")]}}
    order = record("shop.Outer", txn="string", n="int", more=some)
    number = registry.register("utf-value", order)
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="avro"))
    pipeline.rules(out="SELECT seqno, value:more[0].key.text::string AS text FROM a")
    good = avro(order, {"txn": "1", "n": 1, "more": [{"key": {"text": "\ufffdé"}, "none": None}]})
    assert good.count("é".encode()) == good.count(b"key") == 1
    bad = [
        good.replace("é".encode(), b"\xff\xfe"),
        good.replace(b"key", b"k\xe9y"),
        good.replace(b"\x021", b"\x02\xff"),
    ]
    put(pipeline, *[("a", None, framed(number, one)) for one in (good, *bad)])
    pipeline.sync()
    assert pipeline.values() == [{"text": "\ufffdé"}]
    assert reasons(pipeline) == [f"value is not Avro as schema {number} says"] * 3


def test_what_announces_more_than_there_is_does_no_harm(pipeline: Pipeline, registry: RunningRegistry) -> None:
    """Avro's reader makes room for what is announced before it looks: two gigabytes, and a list of eight."""
    text = record("shop.Text", txn="string", n="int", more={"type": "array", "items": "int"})
    number = registry.register("text-avro-value", text)
    good = avro(text, {"txn": "1", "n": 1, "more": []})
    huge = b"\xee\xff\xff\xff\x0f"  # 2**31 - 9
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="avro"))
    pipeline.rules(out="SELECT seqno, value:txn::string AS x FROM a")
    put(
        pipeline,
        ("a", None, framed(number, huge)),
        ("a", None, framed(number, good[:-1] + huge)),
        ("a", None, framed(2**32 - 1, good)),
        ("a", None, framed(number, good)),
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": "1"}]
    assert reasons(pipeline) == [
        f"value is not Avro as schema {number} says",
        f"value is not Avro as schema {number} says",
        "the schema registry knows no schema 4294967295",
    ]


def test_avro_may_be_large_and_deep_and_a_schema_that_holds_itself_is_said_to_be_no_use(
    pipeline: Pipeline, registry: RunningRegistry
) -> None:
    kind: Any = "string"
    for depth in range(60):
        kind = record(f"Level{depth}", of=kind)
    order = record("shop.Deep", txn="string", n="int", x=kind, note="string", list={"type": "array", "items": "double"})
    inner: Any = "at the bottom"
    for _ in range(60):
        inner = {"of": inner}
    values = {"txn": "1", "n": 1, "x": inner, "note": "é" * 2_500_000, "list": [float("nan"), float("inf"), -0.0]}
    number = registry.register("deep-value", order)
    again = record("shop.Again", txn="string", n="int", within=["null", "shop.Again"])
    recursive = registry.register("again-value", again)
    pipeline.change(registry=RegistryAccess(registry.url), formats=Formats(value="avro"))
    pipeline.rules(
        out="SELECT seqno, variant_get(value:x, '$LEVELS', 'string') AS x, length(value:note::string) AS n, "
        "isnan(value:list[0]::double) AS nan, value:list[1]::double = double('Infinity') AS inf FROM a".replace(
            "LEVELS", ".of" * 60
        )
    )
    put(
        pipeline,
        ("a", None, framed(number, avro(order, values))),
        (
            "a",
            None,
            framed(recursive, avro(again, {"txn": "2", "n": 1, "within": {"txn": "", "n": 0, "within": None}})),
        ),
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": "at the bottom", "n": 2_500_000, "nan": True, "inf": True}]
    (reason,) = reasons(pipeline)
    assert reason.startswith(f"schema {recursive} cannot be used: ")
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


def test_a_topics_own_format_goes_before_that_of_a_regex(pipeline: Pipeline) -> None:
    pipeline.change(
        topics={
            "^.*": Topic("value:txn", compression="gzip"),
            "a": Topic("value:txn"),
        }
    )
    pipeline.rules(out="SELECT seqno, value:x::int AS x FROM records")
    put(
        pipeline,
        ("a", None, '{"txn":1,"n":1,"x":1}'),
        ("b", None, packed('{"txn":2,"n":1,"x":2}')),
        ("b", None, '{"txn":3,"n":1,"x":3}'),
        ("b", None, packed('{"txn":4,') + packed('"n":1,"x":4}') + b"\0\0\0"),
        ("b", None, packed("")),
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": 1}, {"x": 2}, {"x": 4}]
    assert reasons(pipeline) == [NO_GZIP, "value is not one JSON value"]


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


def test_a_registry_that_is_away_stops_the_sync_and_sets_nothing_aside(
    pipeline: Pipeline, registry: RunningRegistry
) -> None:
    order = record("shop.Away", txn="int", n="int", x="int")
    number = registry.register("away-value", order)
    pipeline.change(registry=RegistryAccess("http://localhost:9/none"), formats=Formats(value="avro"))
    pipeline.rules(out="SELECT seqno, value:x::int AS x FROM a")
    put(pipeline, ("a", None, framed(number, avro(order, {"txn": 1, "n": 1, "x": 3}))))
    with pytest.raises(ZyncError, match="the schema registry at http://.* does not answer"):
        pipeline.sync()
    pipeline.change(registry=RegistryAccess(registry.url.replace("/apis/ccompat/v7", "/nothing/here")))
    with pytest.raises(ZyncError, match="the schema registry at http://.* answers 404"):
        pipeline.sync()
    pipeline.change(registry=RegistryAccess(registry.url))
    assert pipeline.sync().transactions == 1
    assert pipeline.values() == [{"x": 3}]


def test_what_a_registry_asks_for_is_given_to_it_alone(registry: RunningRegistry) -> None:
    """A server that sends us on to the registry: it gets the password, the registry does not."""
    number = registry.register("redirected-value", record("shop.Redirected", x="int"))
    given: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given.append(self.headers.get("Authorization"))
            self.send_response(302 if self.path.startswith("/first") else 404)
            self.send_header("Location", self.path.replace("/first", f"http://127.0.0.1:{server.server_port}/second"))
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    access = RegistryAccess(f"http://localhost:{server.server_port}/first", basic_auth="me:secret")
    try:
        with pytest.raises(ZyncError, match="answers 404") as raised:
            Registry(access).schema(number)
    finally:
        server.shutdown()
    assert given == ["Basic bWU6c2VjcmV0", None]
    assert "secret" not in f"{raised.value} {access}"


def test_a_registry_that_hangs_is_not_waited_for_and_one_that_answers_is_asked_once() -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            answer = json.dumps({"schema": '"string"'}).encode() if not self.path.endswith("/5") else b"<html>"
            if self.path.endswith("/2"):
                return  # and says nothing
            self.send_response(404 if self.path.endswith("/4") else 200)
            self.end_headers()
            while self.path.endswith(("/3", "/4")) and not done.wait(0.1):
                self.wfile.write(b" ")
            self.wfile.write(answer)

        def finish(self) -> None:
            if self.path.endswith("/2"):
                done.wait(20)
            super().finish()

        def log_message(self, *_: object) -> None: ...

    done, server = threading.Event(), ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    one = Registry(RegistryAccess(f"http://localhost:{server.server_port}", timeout=timedelta(seconds=0.3)))
    try:
        assert one.schema(1) == one.schema(1)
        with pytest.raises(ZyncError, match="the schema registry at http://.* does not answer"):
            one.schema(2)
        with pytest.raises(ZyncError, match=r"does not answer \(not all of the answer came within 0.3 s\)"):
            one.schema(3)
        with pytest.raises(ZyncError, match="answers 404"):
            one.schema(4)
        with pytest.raises(ZyncError, match="is not a schema registry: schemas/ids/5 is no JSON"):
            one.schema(5)
    finally:
        done.set()
        server.shutdown()
    assert asked == [f"/schemas/ids/{number}" for number in range(1, 6)]


def test_what_a_schema_refers_to_may_have_been_deleted(pipeline: Pipeline) -> None:
    """Softly, which readers are to ask for all the same; or for good, of which only its own records know."""
    paid = record("bank.Paid", txn="int", n="int", it="bank.Money")
    answers: dict[str, dict[str, Any]] = {
        f"/schemas/ids/{number}": {
            "schema": json.dumps(paid),
            "references": [{"name": "bank.Money", "subject": subject, "version": 1}],
        }
        for number, subject in ((7, "soft"), (8, "hard"))
    }
    answers["/subjects/soft/versions/1?deleted=true"] = {"schema": json.dumps(record("bank.Money", amount="int"))}
    gone = {"error_code": 40402, "message": "Version not found"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in answers else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(self.path, gone)).encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipeline.change(
        registry=RegistryAccess(f"http://localhost:{server.server_port}"),
        formats=Formats(value="avro"),
    )
    pipeline.rules(out="SELECT seqno, value:it.amount::int AS amount FROM a")
    put(pipeline, *(("a", None, framed(number, bytes([2, 2, 2 * number]))) for number in (7, 8)))
    try:
        assert pipeline.sync().set_aside == {"quarantined": 1}
    finally:
        server.shutdown()
    assert pipeline.values() == [{"amount": 7}]
    (reason,) = reasons(pipeline)
    assert "schema 8 cannot be used: it refers to version 1 of 'hard', which the registry does not have any" in reason


def test_files_for_tls_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    for files in ({"ca": tmp_path / "no.pem"}, {"certificate": tmp_path / "no.pem"}):
        with pytest.raises(UsageError, match=f"the registry's {next(iter(files))} {tmp_path}/no.pem.* cannot be used"):
            Registry(RegistryAccess("https://localhost:1", **files))


def test_bytes_that_only_look_like_a_registrys_stop_the_sync(pipeline: Pipeline) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = json.dumps({"error_code": 40403, "message": "Schema not found"}).encode()
            self.send_response(404)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipeline.change(
        registry=RegistryAccess(f"http://localhost:{server.server_port}"),
        topics={"a": Topic("value:txn", value="avro")},
        limits=Limits(max_quarantined=5_000),
    )
    put(pipeline, *(("a", None, framed(number, b"")) for number in range(1_001)))
    try:
        with pytest.raises(DataError, match="knows none of more than 1,000 schema ids: are all the topics .* avro"):
            pipeline.sync()
    finally:
        server.shutdown()
    assert not rows(pipeline.staging)


def test_a_registry_with_tls_is_asked_if_its_certificate_is_trusted(
    pipeline: Pipeline, registry: RunningRegistry
) -> None:
    order = record("shop.Secure", txn="int", n="int", x="int")
    number = registry.register("secure-value", order)
    pipeline.change(registry=RegistryAccess(registry.secure_url), formats=Formats(value="avro"))
    pipeline.rules(out="SELECT seqno, value:x::int AS x FROM a")
    put(pipeline, ("a", None, framed(number, avro(order, {"txn": 1, "n": 1, "x": 3}))))
    with pytest.raises(ZyncError, match="https://.* does not answer .*CERTIFICATE_VERIFY_FAILED.*: nothing"):
        pipeline.sync()
    pipeline.change(registry=RegistryAccess(registry.secure_url, ca=registry.ca))
    assert pipeline.sync().transactions == 1
    assert pipeline.values() == [{"x": 3}]


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


def connect(kind: str, optional: bool = True, **more: Any) -> dict[str, Any]:
    """A schema as Kafka Connect writes it."""
    return {"type": kind, "optional": optional, **more}


def logical(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return connect(kind, name=f"org.apache.kafka.connect.data.{name}", version=1, parameters=parameters)


def of_connect(schema: Any, payload: Any) -> str:
    return json.dumps({"schema": schema, "payload": payload})


def compact(schema: Any, payload: Any) -> str:
    """As Connect itself has it."""
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":"))


def struct(**fields: dict[str, Any]) -> dict[str, Any]:
    return connect("struct", fields=[{"field": one, **schema} for one, schema in fields.items()])


def test_connect_json_arrives_as_the_types_its_schema_says(pipeline: Pipeline) -> None:
    pipeline.change(formats=Formats(key="connect-json", value="connect-json"))
    pipeline.change(topics={"a": Topic("value:txn"), "b": Topic("value:txn")})
    schema = struct(
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
    amount = Decimal("-1234567890123456789012345678901234.5678")
    digits = int(str(amount).replace(".", "")).to_bytes(16, "big", signed=True)
    payload = {
        "txn": "1",
        "n": 2,
        "amount": base64.b64encode(digits).decode(),
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
    pipeline.rules(
        out="SELECT seqno, schema_of_variant(value) AS types, value:amount::decimal(38,4) AS amount, value:at AS at, "
        "value:day AS day, value:time AS time, value:more[0].x AS x, value:tags AS tags, value:pairs[0][1] AS pair, "
        "value:odd AS odd, key::int AS k, value:days AS days, value:millis AS millis, value:micros AS micros FROM a",
        bare="SELECT seqno, value:x::int AS x, key::string AS k FROM b",
    )
    put(
        pipeline,
        ("a", of_connect(connect("int32"), 5), of_connect(schema, payload)),
        ("b", of_connect(None, "k"), of_connect(None, {"txn": 1, "x": 3})),
    )
    pipeline.sync()
    (value,) = pipeline.values()
    assert reasons(pipeline) == []
    types = value.pop("types")
    kinds = ("amount: DECIMAL(38,4)", "at: TIMESTAMP,", "day: DATE", "data: BINARY", "n: BIGINT", "nothing: VOID")
    for one in (*kinds, "days: DATE", "millis: TIMESTAMP_NTZ", "micros: TIMESTAMP_NTZ", "nanos: TIMESTAMP_NTZ"):
        assert one in types, types
    assert value == {
        "amount": float(amount),
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
    assert pipeline.values("bare") == [{"x": 3, "k": "k"}]


def test_connect_json_that_is_not_as_its_schema_says_is_set_aside_and_others_go_on(pipeline: Pipeline) -> None:
    pipeline.change(formats=Formats(value="connect-json"), transactions=Transactions(done="count(*) = 1"))
    schema = struct(txn=connect("int32", optional=False), x=connect("int8"))

    def deep(levels: int) -> dict[str, Any]:
        return struct(x=deep(levels - 1)) if levels else connect("int32")

    bad = {
        '{"schema": {}, "payload"': "value is not one JSON value",
        of_connect(schema, {"txn": 1}).replace('"txn": 1', '"txn": 1, "txn": 2'): "value is not one JSON value",
        of_connect(schema, {"txn": 2}) + "{}": "value is not one JSON value",
        of_connect(schema, {"txn": 3}) + " x": "value is not one JSON value",
        compact(schema, {"txn": 5}).replace('"txn":5', '"txn":5,"txn":6'): "value is not one JSON value",
        compact(schema, {"txn": 7}) + " x": "value is not one JSON value",
        compact(schema, {"txn": 8})[:-1] + ',"schema":{}}': "value is not one JSON value",
        compact(schema, {"txn": 10}).replace(',"payload"', '.5,"payload"'): "value is not one JSON value",
        compact(schema, {"txn": 9}).replace('"type"', '"type":"int8","type"', 1): (
            'the schema beside it cannot be used: the key "type" is there twice'
        ),
        of_connect(schema, {"txn": 4}).replace("4", "NaN"): "value is not one JSON value",
        '{"txn": 1}': "value is not an object with schema and payload, as Connect writes it",
        "[1]": "value is not an object with schema and payload, as Connect writes it",
        of_connect({}, 1): "the schema beside it cannot be used: it has no type null",
        of_connect(connect("int33"), 1): 'the schema beside it cannot be used: it has no type "int33"',
        of_connect(struct(x=logical("bytes", "Decimal", scale="-2")), {"x": "AA=="}): "a decimal of scale -2",
        of_connect(deep(21), 1): "the schema beside it cannot be used: it is nested more than 20 deep",
        of_connect(deep(300), 1): "the schema beside it cannot be used: it is nested more than 20 deep",
        of_connect(deep(20), 1): "value is not as the schema beside it says",
        of_connect(connect("array"), []): "the schema beside it cannot be used: null is no schema",
        of_connect(schema, {"txn": None}): "value is not as the schema beside it says",
        of_connect(schema, {"txn": "1"}): "value is not as the schema beside it says",
        of_connect(schema, {"txn": 1.5}): "value is not as the schema beside it says",
        of_connect(schema, {"txn": 1, "x": 128}): "value is not as the schema beside it says",
        of_connect(schema, [1]): "value is not as the schema beside it says",
        of_connect(struct(txn=connect("int64")), {"txn": 2**63}): "value is not as the schema beside it says",
        of_connect(struct(txn=connect("int32"), x=connect("string")), {"txn": 1, "x": "?"})
        .encode()
        .replace(b"?", b"\xff"): "value is not as the schema beside it says",
        of_connect(struct(x=logical("bytes", "Decimal", scale="2")), {"x": "A" * 100}): "value is not as the schema",
    }
    put(
        pipeline,
        *(("a", None, value) for value in bad),
        ("a", None, of_connect(schema, {"txn": 7, "x": -128})),
        ("a", None, of_connect(struct(txn=connect("int32"), x=connect("string")), {"txn": 8, "x": "z" * 5_000_000})),
        ("a", None, of_connect(struct(txn=connect("int32"), x=connect("int64")), {"txn": 9, "x": -(2**63)})),
    )
    pipeline.rules(out="SELECT seqno, length(value:x::string) AS x FROM a")
    pipeline.sync()
    assert pipeline.values() == [{"x": 4}, {"x": 5_000_000}, {"x": 20}]
    found = reasons(pipeline)
    assert len(found) == len(bad)
    for reason, expected in zip(found, bad.values(), strict=True):
        assert expected in reason


def test_plain_avro_text_bytes_and_what_was_compressed(pipeline: Pipeline, registry: RunningRegistry) -> None:
    order = record("shop.Plain", txn="int", n="int", x="int")
    file = pipeline.folder / "plain.avsc"
    file.write_text(json.dumps(order))
    pipeline.change(
        topics={
            "a": Topic(
                "value:txn",
                key="avro",
                key_avro_schema=file,
                value="avro",
                avro_schema=file,
                schema="txn INT, n INT, x INT",
            ),
            "b": Topic("key", key="string", value="bytes", null_id="single"),
            "c": Topic("value:txn", compression="gzip"),
            "d": Topic("value", value="string"),
            "e": Topic("value:txn", value="avro", compression="gzip"),
        },
        registry=RegistryAccess(registry.url),
        transactions=Transactions(done="count(*) = 5"),
    )
    pipeline.rules(
        out="SELECT seqno, a.value.x, a.key:x::int AS k, hex(b.value::binary) AS bytes, c.value:y::int AS y, "
        "d.value::string AS text, e.value:x::int AS e FROM a "
        "JOIN b USING (seqno) JOIN c USING (seqno) JOIN d USING (seqno) JOIN e USING (seqno)"
    )
    number = registry.register("plain-value", order)
    framed_order = framed(number, avro(order, {"txn": 1, "n": 4, "x": 5}))
    too_large = packed(b"\0" * (256 * 1024 * 1024 + 1))
    put(
        pipeline,
        ("a", avro(order, {"txn": 1, "n": 4, "x": 8}), avro(order, {"txn": 1, "n": 4, "x": 3})),
        ("b", "1", b"\xff\x00"),
        ("c", None, packed('{"txn":1,"y":9}')),
        ("c", None, b"\x1f\x8bno gzip"),
        ("c", None, packed('{"txn":5,"y":9}')[:-9]),
        ("c", None, too_large),
        ("e", None, framed_order),
        ("e", None, packed(framed_order[:-1])),
        ("e", None, packed(framed_order)),
        ("d", None, b"\xff\xfe"),
        ("a", avro(order, {"txn": 1, "n": 4, "x": 8}), b"\x02"),
        ("a", b"\x02", avro(order, {"txn": 9, "n": 4, "x": 3})),
        ("d", None, "1"),
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": 3, "k": 8, "bytes": "FF00", "y": 9, "text": "1", "e": 5}]
    assert reasons(pipeline) == [
        *[NO_GZIP] * 4,
        f"value is not Avro as schema {number} says",
        "value is not UTF-8",
        "value is not Avro as plain.avsc says",
    ]
    assert [row["reason"] for row in pipeline.of("pending")] == ["key is not Avro as plain.avsc says"]


ROW = record("bank.Row", id="int", balance="long")
SOURCE = record("bank.Source", connector="string", version="string", schema="string", table="string", lsn="long")
BLOCK = record("bank.Block", id="string", total_order="long", data_collection_order="long")
ENVELOPE = record(
    "bank.Envelope",
    before=["null", ROW],
    after=["null", "bank.Row"],
    source=SOURCE,
    op="string",
    ts_ms="long",
    transaction=["null", BLOCK],
)
WIDER = json.loads(
    json.dumps(ENVELOPE).replace('{"name": "balance"', '{"name": "note", "type": "string"}, {"name": "balance"')
)
END = record(
    "bank.Status",
    status="string",
    id="string",
    event_count=["null", "long"],
    data_collections=[
        "null",
        {"type": "array", "items": record("bank.Counted", data_collection="string", event_count="long")},
    ],
)


def as_connect(schema: Any, optional: bool = False) -> dict[str, Any]:
    """An Avro schema of those above as Kafka Connect writes it beside values."""
    names = {"int": "int32", "long": "int64", "string": "string"}
    if schema == "bank.Row":
        schema = ROW
    if isinstance(schema, list):
        return as_connect(schema[1], optional=True)
    if isinstance(schema, str):
        return connect(names[schema], optional)
    if schema["type"] == "array":
        return connect("array", optional, items=as_connect(schema["items"]))
    fields = [{"field": one["name"], **as_connect(one["type"])} for one in schema["fields"]]
    return connect("struct", optional, name=schema["name"], fields=fields)


PROTOBUF = """syntax = "proto3"; package bank;
message Envelope {
  Row before = 1; Row after = 2; Source source = 3; string op = 4; int64 ts_ms = 5; Block transaction = 6;
}
message Row { int32 id = 1; int64 balance = 2; }
message Source { string connector = 1; string version = 2; string schema = 3; string table = 4; int64 lsn = 5; }
message Block { string id = 1; int64 total_order = 2; int64 data_collection_order = 3; }
message Status {
  string status = 1; string id = 2; optional int64 event_count = 3; repeated Counted data_collections = 4;
}
message Counted { string data_collection = 1; int64 event_count = 2; }
"""


def test_debezium_in_other_formats_is_as_debezium_in_json(pipeline: Pipeline, registry: RunningRegistry) -> None:
    envelope, status = registry.register("bank-value", ENVELOPE), registry.register("status-value", END)
    both = registry.register("bank-protobuf", PROTOBUF, "PROTOBUF")
    which = {"Envelope": b"\0", "Status": b"\2\x08"}

    def of_protobuf(schema: Any, value: dict[str, Any]) -> bytes:
        name = schema["name"].removeprefix("bank.")
        one = json_format.ParseDict(value, classes(PROTOBUF)[name]())
        return framed(both, which[name] + one.SerializeToString())

    def row(order: int) -> dict[str, Any]:
        return {
            "before": None,
            "after": {"id": order, "balance": 10 * order},
            "source": {
                "connector": "postgresql",
                "version": "3.7.0.Final",
                "schema": "public",
                "table": "accounts",
                "lsn": order,
            },
            "op": "c",
            "ts_ms": 1_772_000_000_000,
            "transaction": {"id": f"77:{order}", "total_order": order, "data_collection_order": order},
        }

    begin = {"status": "BEGIN", "id": "77:1", "event_count": None, "data_collections": None}
    counted = [{"data_collection": "public.accounts", "event_count": 2}]
    end = {"status": "END", "id": "77:9", "event_count": 2, "data_collections": counted}
    data, said = "bank.public.accounts", "bank.transaction"
    records = [(said, begin), (data, row(2)), (said, end), (data, row(1))]
    rule = "SELECT seqno, _order, op, `row`:id::int AS id, `row`:balance::int AS balance FROM accounts"
    found = []
    for kind in ("avro", "protobuf", "connect-json", "json"):
        (pipeline.folder / kind).mkdir()
        one = Pipeline(pipeline.folder / kind, pipeline.spark)
        one.rules(out=rule)
        (one.folder / "zync.yaml").write_text(
            f"registry: {{url: '{registry.url}'}}\nformats: {{value: {kind}}}\n"
            f"topics: {{{data}: {{as: accounts}}}}\ntransactions: {{preset: debezium, topic: {said}}}\n"
            "outputs: [{topic: out, sql: out.sql}]\n"
        )
        one.config = replace(read_config(one.folder / "zync.yaml"), lake=one.config.lake)
        write: dict[str, Callable[[int, Any, Any], bytes | str]] = {
            "avro": lambda number, schema, value: framed(number, avro(schema, value)),
            "protobuf": lambda _, schema, value: of_protobuf(schema, value),
            "connect-json": lambda _, schema, value: of_connect(as_connect(schema), value),
            "json": lambda _, __, value: json.dumps(value),
        }
        schemas = {said: (status, END), data: (envelope, ENVELOPE)}
        sent = [(topic, None, write[kind](*schemas[topic], value)) for topic, value in records]
        if kind == "avro":  # after a column came to the table
            last = records[-1][1]
            wider_row = {**last, "after": {**last["after"], "note": "new"}}
            sent[-1] = (data, None, framed(registry.register("bank-wider", WIDER), avro(WIDER, wider_row)))
        put(one, *sent)
        assert one.sync().transactions == 1
        found.append(one.values())
    assert (
        found[0]
        == found[1]
        == found[2]
        == found[3]
        == [{"op": "c", "id": 1, "balance": 10}, {"op": "c", "id": 2, "balance": 20}]
    )
