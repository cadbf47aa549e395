"""An S3 server that refuses what a test says, as S3 words it, and hands everything else to another server."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    "<Error><Code>{code}</Code><Message>{message}</Message><RequestId>4442587FB7D0A2F9</RequestId></Error>"
)


@dataclass(frozen=True)
class Refusal:
    """An answer of S3's to requests of some methods: the status, S3's code, its words, and more headers."""

    status: int
    code: str
    message: str
    methods: tuple[str, ...] = ("GET", "HEAD", "PUT", "POST", "DELETE")
    only: Callable[[str], bool] = lambda _path: True
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Gate:
    """What the server does with requests.

    Attributes:
        refusal: The answer instead of the other server's; None: none is refused.
        ignores_conditions: Whether it drops `If-None-Match` and `If-Match`, as old stores that speak S3 do.
        requests: The method and the path of each request.
    """

    url: str = ""
    refusal: Refusal | None = None
    ignores_conditions: bool = False
    requests: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def refusing_s3(upstream: str) -> Iterator[Gate]:
    """Runs the server before the S3 server at the URL `upstream`.

    It hands conditional puts on one after the other: S3Mock looks first and writes then, so that of two puts at
    once under `If-None-Match: *` it mostly takes both.
    """
    gate, address, conditional = Gate(), urlsplit(upstream).netloc, threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_arguments: object) -> None:
            pass

        def answer(self) -> None:
            body = self.body()
            gate.requests.append((self.command, self.path))
            refusal = gate.refusal
            if refusal and self.command in refusal.methods and refusal.only(self.path):
                text = _ERROR.format(code=refusal.code, message=refusal.message).encode()
                self.reply(refusal.status, [("Content-Type", "application/xml"), *refusal.headers], text)
                return
            dropped = {"transfer-encoding"}  # http.client sends the body's length instead
            dropped |= {"if-none-match", "if-match"} if gate.ignores_conditions else set[str]()
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            has_condition = self.command == "PUT" and {"if-none-match", "if-match"} & {name.lower() for name in headers}
            server = http.client.HTTPConnection(address, timeout=60)
            with closing(server):
                with conditional if has_condition else nullcontext():
                    server.request(self.command, self.path, body, headers)
                    response = server.getresponse()
                    content = response.read()
                hop = ("connection", "transfer-encoding", "content-length", "keep-alive")
                passed = [(name, value) for name, value in response.getheaders() if name.lower() not in hop]
                length = response.getheader("Content-Length") if self.command == "HEAD" else None
                self.reply(response.status, passed, content, length)

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():  # trailers
                pass
            return b"".join(parts)

        def reply(self, status: int, headers: list[tuple[str, str]], body: bytes, length: str | None = None) -> None:
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - http.server's names

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="refusing S3", daemon=True)
    thread.start()
    gate.url = f"http://localhost:{server.server_address[1]}"
    try:
        yield gate
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
