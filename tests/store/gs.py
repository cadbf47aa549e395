"""A server that speaks Google Cloud Storage's API: fake-gcs-server, built from its pinned Go module.

It has the JSON API, by which Spark's connector and Arrow work, with preconditions that are checked and applied in one
step. Of the XML API, by which delta-rs works, it lacks the upload, and its listing has no pages; so a process in front
of it makes a request of the JSON API of each of these. The precondition `x-goog-if-generation-match` becomes
`ifGenerationMatch`, and it is the server that decides about it.

`python -m tests.store.gs URL` runs that process in front of a server, and prints its URL.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlparse
from xml.sax.saxutils import escape

import pytest

from tests.store.servers import body_of, in_front, listening
from zync import java
from zync.kafka.dev_broker import free_port

_MODULE = Path(__file__).parent / "fake-gcs-server"
"""A Go module that names the server and its dependencies by version and hash."""
_PACKAGE = "github.com/fsouza/fake-gcs-server"
_BOUNDARY = "part-of-an-upload"
BUCKET = "lake"


def _binary() -> Path:
    """Returns the path of the server's program, and builds it the first time, in a minute."""
    version = next(
        line.split()[1] for line in (_MODULE / "go.mod").read_text().splitlines() if _PACKAGE in line and " v" in line
    )
    program = java.cache_folder() / f"fake-gcs-server-{version}"
    if not program.exists():
        go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
        if not go:
            pytest.skip("Go is needed to build fake-gcs-server: install Go 1.21 or newer")
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
            command = [go, "build", "-mod=readonly", "-o", f"{scratch}/server", _PACKAGE]
            subprocess.run(command, cwd=_MODULE, check=True, env={**os.environ, "GOFLAGS": ""})
            Path(scratch, "server").rename(program)
    return program


@contextmanager
def running_gs(folder: Path) -> Iterator[dict[str, str]]:
    """Runs the server with the bucket BUCKET, and yields the variable by which Google's clients find an emulator."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    options = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    with listening([_binary(), *options, "-public-host", address], port, folder / "fake-gcs-server.log"):
        body = json.dumps({"name": BUCKET}).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"http://{address}/storage/v1/b", body, headers)).close()
        with in_front("tests.store.gs", f"http://{address}") as url:
            yield {"STORAGE_EMULATOR_HOST": url, "PATH": os.environ["PATH"]}


class _Translator(BaseHTTPRequestHandler):
    """Hands requests on, those of the XML API's uploads and listings as requests of the JSON API."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    upstream = ""
    connections = threading.local()

    def handle_any(self) -> None:
        body, url = body_of(self), urlparse(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        is_xml = bucket not in ("storage", "upload", "download", "batch", "b", "_internal")
        if is_xml and self.command == "PUT":
            self._upload(bucket, key, body)
        elif is_xml and self.command == "GET" and not key:
            self._list(bucket, {name: values[0] for name, values in parse_qs(url.query).items()})
        else:
            hop_by_hop = ("connection", "transfer-encoding", "expect", "content-length", "host")
            headers = {name: value for name, value in self.headers.items() if name.lower() not in hop_by_hop}
            self._answer(*self._exchange(self.command, self.path, body, headers))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = handle_any  # noqa: N815

    def handle_expect_100(self) -> bool:
        answered = super().handle_expect_100()
        self.wfile.flush()
        return answered

    def _upload(self, bucket: str, key: str, body: bytes) -> None:
        query = {"uploadType": "multipart", "name": key}
        if (generation := self.headers.get("x-goog-if-generation-match")) is not None:
            query["ifGenerationMatch"] = generation
        kind = self.headers.get("Content-Type") or "application/octet-stream"
        parts = (("application/json", json.dumps({"name": key, "contentType": kind}).encode()), (kind, body))
        content = b"".join(
            f"--{_BOUNDARY}\r\nContent-Type: {part_kind}\r\n\r\n".encode() + part + b"\r\n" for part_kind, part in parts
        )
        path = f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}"
        headers = {"Content-Type": f"multipart/related; boundary={_BOUNDARY}"}
        status, _, text = self._exchange("POST", path, content + f"--{_BOUNDARY}--\r\n".encode(), headers)
        if status != 200:
            self._answer(status, {}, _error(status, text))
            return
        item = json.loads(text)
        self._answer(200, {"ETag": f'"{item["etag"]}"', "x-goog-generation": item["generation"]}, b"")

    def _list(self, bucket: str, wanted: dict[str, str]) -> None:
        names = {
            "prefix": "prefix",
            "delimiter": "delimiter",
            "max-keys": "maxResults",
            "continuation-token": "pageToken",
            "start-after": "startOffset",
        }
        query = {names[name]: value for name, value in wanted.items() if name in names}
        status, _, text = self._exchange("GET", f"/storage/v1/b/{quote(bucket)}/o?{urlencode(query)}", b"", {})
        if status != 200:
            self._answer(status, {}, _error(status, text))
            return
        listed, after = json.loads(text), wanted.get("start-after", "")
        items = "".join(
            f"<Contents><Key>{escape(item['name'])}</Key><Generation>{item['generation']}</Generation>"
            f"<LastModified>{item['updated']}</LastModified><ETag>{item['etag']}</ETag><Size>{item['size']}</Size></Contents>"
            for item in listed.get("items", ())
            if item["name"] != after
        )
        prefixes = "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in listed.get("prefixes", ())
        )
        token = listed.get("nextPageToken", "")
        following = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        document = f"<ListBucketResult><Name>{bucket}</Name>{following}{items}{prefixes}</ListBucketResult>"
        self._answer(200, {"Content-Type": "application/xml"}, document.encode())

    def _exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        if method in ("PUT", "POST", "PATCH"):
            headers = {**headers, "Content-Length": str(len(body))}
        connection = getattr(self.connections, "connection", None)
        if connection is None:
            connection = self.connections.connection = http.client.HTTPConnection(urlparse(self.upstream).netloc)
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        is_head = self.command == "HEAD"
        for name, value in headers.items():
            if name.lower() in ("connection", "transfer-encoding") or (
                name.lower() == "content-length" and not is_head
            ):
                continue
            is_upload = name.lower() == "location"  # of a resumable upload
            here = f"http://{self.headers['Host']}{value.removeprefix(self.upstream)}"
            self.send_header(name, here if is_upload else value)
        if not is_head and status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def _error(status: int, text: bytes) -> bytes:
    """Returns the XML API's words for an error."""
    codes = {404: "NoSuchBucket", 412: "PreconditionFailed"}
    message = escape(text.decode(errors="replace"))
    return f"<Error><Code>{codes.get(status, 'InternalError')}</Code><Message>{message}</Message></Error>".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        pass  # a client that was killed


if __name__ == "__main__":
    _Translator.upstream = sys.argv[1]
    running = _Server(("127.0.0.1", 0), _Translator)
    print(f"http://127.0.0.1:{running.server_port}", flush=True)
    running.serve_forever()
