"""Topics in several formats beside each other, and the same records in each format."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from google.protobuf import json_format

from tests.registry import RunningRegistry, avro, classes, framed, packed
from tests.spark.conftest import Pipeline
from tests.spark.formats import connect, of_connect, put, reasons, record
from zync.config.model import RegistryAccess, Topic, Transactions
from zync.project.load import load as read_config

NO_GZIP = "value is not gzip, or has more than 256.0 MiB in it"


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
