"""What decoding costs by format: the same records as JSON, and as each other format that zync reads."""

import gzip
import io
import json
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import json_format, message_factory

from bench.harness import Result, alternately, answering, log, values
from bench.pipeline import Raw, config
from zync.config.model import RegistryAccess, Topic
from zync.formats.decode.protobuf import pool_of
from zync.formats.protoc import compiled
from zync.formats.registry import Schema
from zync.lake.files import data_files
from zync.lake.table import existing_table
from zync.spark.frames import read_parquet
from zync.spark.session import session
from zync.spark.sizing import Sizing, tune
from zync.transactions.decode import RAW_COLUMNS, Decoder
from zync.transactions.done import take_apart

COUNT = 200_000
ROUNDS = 4
_ROW = {"id": "int", "owner": "string", "branch": "string", "balance": "double", "currency": "string"}


def _record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields.items()]}


_SCHEMA = _record(
    "Value",
    {
        "txn": "long",
        "n": "int",
        "op": "string",
        "table": "string",
        "row": _record("Row", {**_ROW, "changed": "string"}),
    },
)


_CONNECT = {"int": "int32", "long": "int64", "double": "double", "string": "string"}
_BESIDE = json.dumps(
    {
        "type": "struct",
        "fields": [
            *({"field": one["name"], "type": _CONNECT[one["type"]]} for one in _SCHEMA["fields"][:-1]),
            {
                "field": "row",
                "type": "struct",
                "fields": [
                    {"field": one["name"], "type": _CONNECT[one["type"]]}
                    for one in _SCHEMA["fields"][-1]["type"]["fields"]
                ],
            },
        ],
    },
    separators=(",", ":"),
)


def run(folder: Path) -> list[Result]:
    """Seconds of decoding each format by seconds of decoding JSON, best of some rounds."""
    schema = folder / "value.avsc"
    schema.write_text(json.dumps(_SCHEMA))
    topics: dict[str, tuple[Topic, Callable[[bytes], bytes]]] = {
        "JSON": (Topic("value:txn"), bytes),
        "Avro, schema in a file": (Topic("value:txn", value="avro", avro_schema=schema), _avro),
        "Avro, schema registry": (Topic("value:txn", value="avro"), lambda one: _framed(1, _avro(one))),
        "JSON Schema, schema registry": (Topic("value:txn", value="json-schema"), lambda one: _framed(2, one)),
        "protobuf, schema registry (through Python)": (
            Topic("value:txn", value="protobuf"),
            lambda one: _framed(3, b"\0" + _protobuf(one)),
        ),
        "Connect JSON, schema beside it": (Topic("value:txn", value="connect-json"), _connect),
        "JSON in gzip (through Python)": (Topic("value:txn", compression="gzip"), gzip.compress),
        "string": (Topic("offset", value="string"), bytes),
        "bytes": (Topic("offset", value="bytes"), bytes),
    }
    spark = session("local[2]")
    tune(spark, {}, Sizing(COUNT))
    with answering(_ANSWERS) as url:
        timed = [_decoding(spark, folder, number, *topic, url) for number, topic in enumerate(topics.values())]
        found = alternately(ROUNDS, *timed)
    spark.stop()
    best = {name: min(seconds) for name, seconds in zip(topics, found, strict=True)}
    for name, seconds in best.items():
        log(f"{name}: {COUNT / seconds:,.0f} records/s")
    json_, *others = best.items()
    rate = COUNT / json_[1]
    return [
        Result("decoding JSON", rate, "records/s", details={"seconds": best}),
        *(Result(f"time to decode by JSON's: {name}", seconds / json_[1], "×") for name, seconds in others),
    ]


def _connect(value: bytes) -> bytes:
    return b'{"schema":%s,"payload":%s}' % (_BESIDE.encode(), value)


def _decoding(
    spark: Any, folder: Path, number: int, topic: Topic, made: Callable[[bytes], bytes], url: str
) -> Callable[[int], float]:
    raw = Raw(folder / f"raw-{number}")
    raw.append(map(made, values(COUNT)))
    pipeline = replace(config(folder), topics={"t": topic}, registry=RegistryAccess(url))
    done = take_apart(spark, "count(*) = 4")

    def decoding(_: int) -> float:
        started = time.monotonic()
        Decoder(spark, pipeline, done).decode(_rows(spark, raw)).write.format("noop").mode("overwrite").save()
        return time.monotonic() - started

    bad = (
        Decoder(spark, pipeline, done)
        .decode(_rows(spark, raw))
        .where("record_error IS NOT NULL OR transaction_error IS NOT NULL")
    )
    if some := bad.select("record_error", "transaction_error").take(1):
        msg = f"what was to be measured does not decode: {some}"
        raise RuntimeError(msg)
    return decoding


def _rows(spark: Any, raw: Raw) -> Any:
    files = [one.uri for one in data_files(existing_table(raw.location, "this benchmark"), "seqno")]
    return read_parquet(spark, files, RAW_COLUMNS)


def _avro(value: bytes) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, _PARSED, json.loads(value))
    return target.getvalue()


_PARSED = fastavro.parse_schema(_SCHEMA)


def _protobuf(value: bytes) -> bytes:
    return bytes(json_format.Parse(value, _MESSAGE()).SerializeToString())


_TEXT = """syntax = "proto3";
message Value { int64 txn = 1; int32 n = 2; string op = 3; string table = 4; Row row = 5; }
message Row { int32 id = 1; string owner = 2; string branch = 3; double balance = 4; string currency = 5;
  string changed = 6; }
"""
_MESSAGE = message_factory.GetMessageClass(pool_of(compiled(Schema("PROTOBUF", _TEXT))).FindMessageTypeByName("Value"))


def _framed(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


_ANSWERS = {
    "GET /schemas/ids/1": {"schema": json.dumps(_SCHEMA)},
    "GET /schemas/ids/2": {"schema": "{}", "schemaType": "JSON"},
    "GET /schemas/ids/3": {"schema": _TEXT, "schemaType": "PROTOBUF"},
}
