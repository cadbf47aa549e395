"""A schema registry that answers over HTTP as a test says: it fails for a moment, or for good."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


def gives(schema: str) -> Answer:
    """Answers with that schema."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        body = json.dumps({"schema": schema}).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


def status(number: int) -> Answer:
    """Answers with that HTTP status, and a page for people."""
    return lambda request: request.send_error(number)


def closes(request: BaseHTTPRequestHandler) -> None:
    """Closes the connection without an answer, as a registry that ends does."""
    request.connection.close()


def resets(request: BaseHTTPRequestHandler) -> None:
    """Resets the connection, as a load balancer does: SO_LINGER of 0 s sends RST at once."""
    connection = socket.socket(fileno=request.connection.detach())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def stops_halfway(request: BaseHTTPRequestHandler) -> None:
    """Closes the connection after a part of the answer."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b'{"schema": ')


def dribbles(request: BaseHTTPRequestHandler) -> None:
    """Sends the answer's head, and then a byte ten times a second."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    with suppress(ConnectionResetError):
        for _ in range(100):
            request.wfile.write(b" ")
            time.sleep(0.1)


def stalls(request: BaseHTTPRequestHandler) -> None:
    """Sends the answer's head, and then nothing for a while."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    time.sleep(3)


def after(seconds: float, answer: Answer) -> Answer:
    """Answers so much later."""

    def slowly(request: BaseHTTPRequestHandler) -> None:
        time.sleep(seconds)
        answer(request)

    return slowly


@contextmanager
def serving(answers: Iterable[Answer]) -> Iterator[tuple[str, list[str]]]:
    """The URL of a registry that gives those answers, one after the other, and the paths that it was asked for.

    The last answer is given again and again.
    """
    coming, asked = list(answers), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            with suppress(BrokenPipeError):  # whoever asked did not wait
                (coming.pop(0) if len(coming) > 1 else coming[0])(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://localhost:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
