"""An HTTP proxy in front of a store: it counts requests, and delays, holds, refuses or breaks some of them.

It hands conditional puts on one after the other: S3Mock looks first and writes then, so that of two puts at once under
`If-None-Match: *` it mostly takes both.

`python -m tests.store.proxy URL` runs one in a process of its own, and prints its URL: some calls of delta-rs's hold
Python's lock while they wait for an answer, which a proxy in the same process could not give.
"""

import http.client
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlparse

from tests.store.servers import body_of


class Request(NamedTuple):
    method: str
    path: str
    body_bytes: int
    headers: dict[str, str]


class Answer(NamedTuple):
    """What a rule answers in the store's place."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Broken(Exception):
    """A rule raises it to close the connection without an answer."""


Rule = Callable[[Request, Callable[[], None]], Answer | None]
"""Is called with a request and with a function that lets the store have it; None lets it through and answers."""


@dataclass
class Proxy:
    """A running proxy.

    Attributes:
        url: The endpoint for clients.
        requests: All requests since the last `clear`.
        rule: Decides about each request; None lets all through.
        seconds: A delay of each request.
        dropped_headers: Names of headers, in lower case, that are not handed on.
        edit: Returns the content that is answered to a request in place of the store's; None leaves all as it is.
    """

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    rule: Rule | None = None
    seconds: float = 0.0
    dropped_headers: frozenset[str] = frozenset()
    edit: Callable[[Request, bytes], bytes] | None = None


class Outage:
    """A rule that holds requests, or breaks their connections, while the store is to be away."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._over.set()
        self._hangs = False

    def begin(self, *, hang: bool) -> None:
        self._hangs = hang
        self._over.clear()

    def end(self) -> None:
        self._over.set()

    def __call__(self, _: Request, forward: Callable[[], None]) -> None:
        if not self._over.is_set() and not self._hangs:
            raise Broken
        self._over.wait()


@contextmanager
def running_proxy(upstream: str) -> Iterator[Proxy]:
    """Runs a proxy in front of the server at `upstream`."""
    proxy, target = Proxy(), urlparse(upstream)
    connections, conditional = threading.local(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            body = body_of(self)
            request = Request(self.command, self.path, len(body), dict(self.headers.items()))
            proxy.requests.append(request)
            if proxy.seconds:
                time.sleep(proxy.seconds)
            passed: list[tuple[http.client.HTTPResponse, bytes]] = []
            try:
                answer = proxy.rule(request, lambda: passed.append(self._forward(body))) if proxy.rule else None
            except Broken:
                self.close_connection = True
                self.connection.close()
                return
            if answer is not None:
                self._answer(answer.status, dict(answer.headers), answer.body)
                return
            response, content = passed[0] if passed else self._forward(body)
            content = proxy.edit(request, content) if proxy.edit else content
            self._answer(response.status, dict(response.getheaders()), content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

        def handle_expect_100(self) -> bool:
            answered = super().handle_expect_100()
            self.wfile.flush()  # Arrow waits for it in Azure
            return answered

        def _forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            hop_by_hop = {"connection", "transfer-encoding", "expect", "content-length"}
            dropped = hop_by_hop | proxy.dropped_headers
            headers = {key: value for key, value in self.headers.items() if key.lower() not in dropped}
            is_conditional = self.command == "PUT" and {"if-none-match", "if-match"} & {key.lower() for key in headers}
            if body or self.command in ("PUT", "POST"):
                headers["Content-Length"] = str(len(body))
            with conditional if is_conditional else nullcontext():
                return self._exchange(body, headers)

        def _exchange(self, body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
            connection = getattr(connections, "connection", None)
            if connection is None:
                connection = connections.connection = http.client.HTTPConnection(str(target.hostname), target.port)
            try:
                connection.request(self.command, self.path, body or None, headers)
                response = connection.getresponse()
            except (http.client.HTTPException, OSError):  # the store closed a connection that was idle
                connection.close()
                connection.request(self.command, self.path, body or None, headers)
                response = connection.getresponse()
            return response, response.read()

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            is_head = self.command == "HEAD"
            for key, value in headers.items():
                if key.lower() not in ("connection", "transfer-encoding", "keep-alive"):
                    if key.lower() == "content-length" and not is_head:
                        continue
                    self.send_header(key, value)
            if not is_head and status not in (204, 304):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not is_head:
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: Any) -> None:
            pass  # a client that was killed

    server = Server(("localhost", 0), Handler)
    proxy.url = f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    with running_proxy(sys.argv[1]) as running:
        print(running.url, flush=True)
        threading.Event().wait()
