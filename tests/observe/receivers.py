"""A real HTTP server that takes spans as a collector of OpenTelemetry does, and run events as OpenLineage's does."""

import gzip
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from referencing import Registry, Resource

SCHEMAS = Path(__file__).parents[1] / "data" / "openlineage"


@dataclass
class Receiver:
    """What has arrived.

    Attributes:
        hanging: While it is set, no request is answered.
    """

    port: int = 0
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    asked: int = 0
    hanging: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def traces(self) -> dict[str, str]:
        """The environment of a process whose traces go here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{self.port}"}

    @property
    def lineage(self) -> dict[str, str]:
        """The environment of a process whose lineage goes here."""
        return {"OPENLINEAGE_URL": f"http://localhost:{self.port}"}

    @property
    def spans(self) -> list[Span]:
        found = [
            span
            for request in self.requests
            for of in request.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def resources(self) -> list[dict[str, Any]]:
        return [attributes(of.resource) for request in self.requests for of in request.resource_spans]


def attributes(owner: Any) -> dict[str, Any]:
    """The attributes of a span, or of a resource."""
    return {pair.key: _value(pair.value) for pair in owner.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(part) for part in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def receiving(*, hanging: bool = False) -> Iterator[Receiver]:
    received = Receiver(hanging=hanging)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.asked += 1
            if received.hanging:
                received.ended.wait(60)
                return
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer = b""
            if self.path == "/v1/traces":
                received.requests.append(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
            elif self.path == "/api/v1/lineage":
                received.events.append(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Logs nothing for a request."""

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    server.daemon_threads = True
    received.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield received
    finally:
        received.ended.set()
        server.shutdown()
        server.server_close()


def assert_valid(event: dict[str, Any]) -> None:
    """An event fits OpenLineage's schema of run events, and each facet its own schema, which it names."""
    schemas = [json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")]
    registry = Registry().with_resources([(schema["$id"], Resource.from_contents(schema)) for schema in schemas])

    def check(value: Any, uri: str) -> None:
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.Draft202012Validator({"$ref": uri}, registry=registry, format_checker=checker).validate(value)

    check(event, event["schemaURL"])
    owners = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    facets = [
        facet for owner in owners for kind in ("facets", "outputFacets") for facet in owner.get(kind, {}).values()
    ]
    for facet in facets:
        check(facet, facet["_schemaURL"])


PRELUDE = """
import atexit, logging, sys, time
from zync.cli.options import debug_option
from zync.errors import UsageError
from zync.observe.datasets import Dataset, table
from zync.observe.lineage import run_of
from zync.observe.traces import span

def tell():
    print(f"ended after {time.monotonic() - began:.1f}")

atexit.register(tell)  # the first that is registered is the last that is called
debug_option(on=False)
"""


def process(code: str, env: dict[str, str]) -> tuple[str, float]:
    """Runs code as a command of zync's runs.

    Returns what it printed and logged, and how many seconds its end took, once the code was through.
    """
    names = ("OTEL_", "OPENLINEAGE_")
    others = {key: value for key, value in os.environ.items() if not key.startswith(names)}
    script = PRELUDE + textwrap.dedent(code) + "\nbegan = time.monotonic()\n"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**others, **env}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    text, _, seconds = done.stdout.rpartition("ended after ")
    return text + done.stderr, float(seconds)
