"""Serves metrics over HTTP to Prometheus, and answers whether a process lives and whether it is stuck."""

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
_ADDRESS_HELP = "give HOST:PORT, like localhost:9464 or [::1]:9464"

_SHUTDOWN_POLL_SECONDS = 0.1
"""How long the end of a process may wait for the server's thread; socketserver's default is 0.5."""


class _Server(ThreadingHTTPServer):
    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        families = [family for family, *_ in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        self.address_family = socket.AF_INET if socket.AF_INET in families else families[0]
        super().__init__((host, port), handler)

    def handle_error(self, *_: object) -> None:
        """Ignores the error: the client has closed the connection."""


@contextmanager
def serving(address: str, metrics: Metrics) -> Iterator[int]:
    """Serves metrics in this context; yields the port (the chosen port for port 0).

    It answers `/metrics`, `/healthz` (200 while the process lives) and `/readyz` (503 with the reason if it is stuck; a
    standby that waits is ready).

    Args:
        address: HOST:PORT or [IPv6]:PORT. Of a name with IPv4 and IPv6 addresses it uses the IPv4 address.
        metrics: The metrics to serve.

    Raises:
        UsageError: The address is invalid, or the server cannot listen at it.
    """
    parts = _ADDRESS.fullmatch(address)
    if not parts:
        msg = f"--metrics {address}: {_ADDRESS_HELP}"
        raise UsageError(msg)
    try:
        server = _Server(parts["ipv6"] or parts["host"], int(parts["port"]), _handler(metrics))
    except (OSError, OverflowError, UnicodeError) as error:  # no such port; no such name
        msg = f"--metrics {address}: cannot listen there ({error}): {_ADDRESS_HELP}"
        raise UsageError(msg) from error
    threading.Thread(target=server.serve_forever, args=(_SHUTDOWN_POLL_SECONDS,), name="metrics", daemon=True).start()
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
            answer = answers.get(self.path.partition("?")[0])
            code, content_type, body = answer() if answer else (404, "text/plain", b"/metrics, /healthz, /readyz\n")
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _metrics(self) -> tuple[int, str, bytes]:
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            try:
                return 200, content_type, encode(metrics.registry)
            except ZyncError as error:
                return 503, "text/plain", f"{error}\n".encode()

        def _ready(self) -> tuple[int, str, bytes]:
            if reason := metrics.stuck():
                return 503, "text/plain", f"{reason}\n".encode()
            return 200, "text/plain", f"{metrics.waits() or 'ready'}\n".encode()

        def log_message(self, *_: object) -> None:
            """Logs nothing for a request."""

    return Handler
