"""A schema registry that fails for a moment, and one that fails for good."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from zync.config.model import RegistryAccess
from zync.errors import ZyncError
from zync.formats import registry as transport
from zync.formats.registry import Registry

Answer = Callable[[BaseHTTPRequestHandler], None]
Serve = Callable[[list[Answer]], Registry]


def schema(request: BaseHTTPRequestHandler) -> None:
    body = json.dumps({"schema": '"string"'}).encode()
    request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def reset(request: BaseHTTPRequestHandler) -> None:
    request.connection.close()


def overloaded(request: BaseHTTPRequestHandler) -> None:
    request.send_error(503)


def broken(request: BaseHTTPRequestHandler) -> None:
    request.send_error(500)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A registry that gives those answers, one after the other, and then the last one again and again."""
    servers: list[ThreadingHTTPServer] = []

    def start(answers: list[Answer]) -> Registry:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                (answers.pop(0) if len(answers) > 1 else answers[0])(self)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("localhost", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return Registry(RegistryAccess(f"http://localhost:{server.server_port}", timeout=timedelta(seconds=5)))

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("failure", [reset, overloaded])
def test_a_failure_that_passes_is_not_noticed(serve: Serve, failure: Answer) -> None:
    found = serve([failure, failure, schema]).schema(1)
    assert found is not None
    assert found.text == '"string"'


@pytest.mark.parametrize(
    ("failure", "gist"), [(reset, "does not answer .*try again"), (overloaded, "answers 503"), (broken, "answers 500")]
)
def test_a_failure_that_lasts_is_told(
    serve: Serve, failure: Answer, gist: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_RETRY_AFTER", (0.01, 0.01))
    with pytest.raises(ZyncError, match=gist):
        serve([failure]).schema(1)


def test_an_answer_that_no_repeating_would_change_is_asked_for_once(serve: Serve) -> None:
    with pytest.raises(ZyncError, match="answers 500"):
        serve([broken, schema]).schema(1)
