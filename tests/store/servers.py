"""What the stores' servers share: a process that listens, and a process in front of it."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path


@contextmanager
def listening(
    command: Sequence[str | Path], port: int, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Runs a server, whose output goes to the file `log`, from when it listens on the port until the context's end."""
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=None if env is None else dict(env))
    try:
        until = time.monotonic() + 90
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()


@contextmanager
def in_front(module: str, upstream: str) -> Iterator[str]:
    """Runs `python -m MODULE UPSTREAM`, a process in front of a server, and yields the URL that it prints."""
    command = [sys.executable, "-m", module, upstream]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    try:
        assert process.stdout
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def body_of(handler: BaseHTTPRequestHandler) -> bytes:
    """Returns the body of a request, chunked or not."""
    if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    chunks = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        chunks.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(chunks)
