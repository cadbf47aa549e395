"""Schemas that a record names in a header, by id or by GUID, as clients of Confluent Platform 8.1 may write them."""

import base64
import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.registry import avro, classes, framed
from tests.spark.conftest import Pipeline
from tests.spark.formats import reasons
from zync.config.model import Formats, RegistryAccess
from zync.raw.jsonl import load

ORDER = {"type": "record", "name": "Order", "fields": [{"name": one, "type": "int"} for one in ("txn", "n", "x")]}
PROTO = """syntax = "proto3"; package shop;
message Other {int32 y = 1;}
message Order {int32 txn = 1; int32 n = 2; int32 x = 3;}"""
GUIDS = {kind: str(uuid.uuid5(uuid.NAMESPACE_DNS, kind)) for kind in ("AVRO", "PROTOBUF", "JSON", "unknown")}
SCHEMAS = {
    f"/schemas/guids/{GUIDS['AVRO']}": {"schema": json.dumps(ORDER)},
    f"/schemas/guids/{GUIDS['PROTOBUF']}": {"schema": PROTO, "schemaType": "PROTOBUF"},
    f"/schemas/guids/{GUIDS['JSON']}": {"schema": '{"type": "object"}', "schemaType": "JSON"},
    "/schemas/ids/7": {"schema": json.dumps(ORDER)},
}


class Answer(BaseHTTPRequestHandler):
    """A registry with those schemas; like Confluent's it says 404 for others."""

    def do_GET(self) -> None:
        found = SCHEMAS.get(self.path)
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found or {"error_code": 404, "message": "HTTP 404 Not Found"}).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def of_guids() -> Iterator[RegistryAccess]:
    server = ThreadingHTTPServer(("localhost", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield RegistryAccess(f"http://localhost:{server.server_port}")
    server.shutdown()
    server.server_close()


Headers = list[tuple[str, bytes]]


def header(kind: str, indexes: bytes = b"", part: str = "value") -> Headers:
    """What confluent_kafka's `header_schema_id_serializer` adds for a schema of that kind: a one, the GUID, and …

    `indexes`: of protobuf, which of the schema's messages it is (`SchemaId.guid_to_bytes`).
    """
    return [(f"__{part}_schema_id", b"\1" + uuid.UUID(GUIDS[kind]).bytes + indexes)]


def put(pipeline: Pipeline, *records: tuple[bytes | None, bytes | None, Headers]) -> None:
    def field(data: bytes | None) -> Any:
        return None if data is None else {"base64": base64.b64encode(data).decode()}

    lines = [
        {
            "topic": "a",
            "key": field(key),
            "value": field(value),
            "headers": [[name, field(one)] for name, one in headers],
        }
        for key, value, headers in records
    ]
    path = pipeline.folder / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    load(pipeline.raw, [str(path)])


def order(number: int) -> bytes:
    return avro(ORDER, {"txn": number, "n": 1, "x": 10 * number})


def test_avro_by_a_header_is_as_avro_by_its_first_bytes(pipeline: Pipeline, of_guids: RegistryAccess) -> None:
    pipeline.change(registry=of_guids, formats=Formats(value="avro"))
    by_id = [("__value_schema_id", framed(7, b""))]
    put(
        pipeline,
        (None, framed(7, order(1)), []),
        (None, order(2), header("AVRO")),
        (None, order(3), [("other", b"\1"), *by_id]),
        (None, order(4), header("unknown")),
        (None, order(5), header("PROTOBUF")),
        (None, b"\xff", header("AVRO")),
        (None, framed(7, order(6)), [("__value_schema_id", b"\2nonsense")]),
        (None, order(7), []),
        (None, None, header("AVRO")),
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": 10}, {"x": 20}, {"x": 30}, {"x": 60}]
    found = reasons(pipeline)
    assert found[:4] == [
        f"the schema registry knows no schema {GUIDS['unknown']}",
        f"schema {GUIDS['PROTOBUF']} is one of PROTOBUF, not AVRO",
        f"value is not Avro as schema {GUIDS['AVRO']} says",
        "value does not begin with a zero byte and a schema's id, as a schema registry's clients write it",
    ]


def test_keys_have_a_header_of_their_own(pipeline: Pipeline, of_guids: RegistryAccess) -> None:
    pipeline.change(registry=of_guids, formats=Formats(key="avro", value="avro"))
    pipeline.rules(out="SELECT seqno, key:x::int AS k, value:x::int AS x FROM a")
    put(pipeline, (order(4), order(2), [*header("AVRO"), *header("AVRO", part="key")]))
    pipeline.sync()
    assert pipeline.values() == [{"k": 40, "x": 20}]


def test_protobuf_by_a_header_says_there_which_message_it_is(pipeline: Pipeline, of_guids: RegistryAccess) -> None:
    pipeline.change(registry=of_guids, formats=Formats(value="protobuf"))
    message = classes(PROTO)["Order"](txn=1, n=1, x=5).SerializeToString()
    put(pipeline, (None, message, header("PROTOBUF", b"\2\2")))
    pipeline.sync()
    assert pipeline.values() == [{"x": 5}]


def test_json_by_a_header_is_json(pipeline: Pipeline, of_guids: RegistryAccess) -> None:
    pipeline.change(registry=of_guids, formats=Formats(value="json-schema"))
    put(
        pipeline,
        (None, b'{"txn":1,"n":1,"x":5}', header("JSON")),
        (None, b"no JSON", header("JSON")),
        (None, b'{"txn":1,"n":1,"x":5}', []),
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": 5}]
    assert reasons(pipeline)[1].startswith("value does not begin with a zero byte")
