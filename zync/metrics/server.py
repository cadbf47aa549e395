"""Metrics answered over HTTP: for Prometheus, and for those who ask whether a process lives and gets on."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.exposition import choose_encoder

from zync.errors import UsageError, ZyncError
from zync.metrics.base import Metrics

_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
_EXPECTED = "give HOST:PORT, like localhost:9464 or [::1]:9464"

_LOOK_SECONDS = 0.1
"""For so long the end of a process may wait for the thread that listens; socketserver's own are 0.5."""


class _Server(ThreadingHTTPServer):
    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        families = [family for family, *_ in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        self.address_family = socket.AF_INET if socket.AF_INET in families else families[0]
        super().__init__((host, port), handler)

    def handle_error(self, *_: object) -> None:
        """Says nothing: who asked has gone away."""


@contextmanager
def serving(address: str, metrics: Metrics) -> Iterator[int]:
    """Answers at HOST:PORT, or [IPv6]:PORT, while this context lasts; yields the port (that it took, for port 0).

    `/metrics`, `/healthz` (200 while the process lives), `/readyz` (503 and why, when it is stuck). A name that has
    addresses of both kinds is listened for at its IPv4 address.

    Raises:
        UsageError: the address is none, or nobody can listen there.
    """
    parts = _ADDRESS.fullmatch(address)
    if not parts:
        msg = f"--metrics {address}: {_EXPECTED}"
        raise UsageError(msg)
    try:
        server = _Server(parts["ipv6"] or parts["host"], int(parts["port"]), _handler(metrics))
    except (OSError, OverflowError, UnicodeError) as error:  # no such port; no such name
        msg = f"--metrics {address}: cannot listen there ({error}): {_EXPECTED}"
        raise UsageError(msg) from error
    threading.Thread(target=server.serve_forever, args=(_LOOK_SECONDS,), name="metrics", daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802 - the library's name
            answers: dict[str, Callable[[], tuple[int, str, bytes]]] = {
                "/metrics": self._metrics,
                "/healthz": lambda: (200, "text/plain", b"alive\n"),
                "/readyz": self._ready,
            }
            known = answers.get(self.path.partition("?")[0])
            code, kind, body = known() if known else (404, "text/plain", b"/metrics, /healthz, /readyz\n")
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _metrics(self) -> tuple[int, str, bytes]:
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            try:
                return 200, kind, encode(metrics.registry)
            except ZyncError as error:
                return 503, "text/plain", f"{error}\n".encode()

        def _ready(self) -> tuple[int, str, bytes]:
            why = metrics.stuck()
            return (503, "text/plain", f"{why}\n".encode()) if why else (200, "text/plain", b"ready\n")

        def log_message(self, *_: object) -> None:
            """Says nothing: requests are no news."""

    return Handler
