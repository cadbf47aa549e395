"""A schema registry that is away, hangs, asks for a password, lost a schema, or has TLS."""

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import rows
from tests.registry import RunningRegistry, avro, framed
from tests.spark.conftest import Pipeline
from tests.spark.formats import put, reasons, record
from zync.config.model import Formats, Limits, RegistryAccess, Topic
from zync.errors import DataError, UsageError, ZyncError
from zync.formats.registry import Registry


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
