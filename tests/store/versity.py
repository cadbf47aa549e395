"""A second server that speaks S3: versitygw, whose users have the rights that a bucket's policy gives them."""

import hashlib
import hmac
import http.client
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.golang import GoProgram
from tests.store.s3 import BUCKET
from tests.store.servers import listening
from zync.kafka.dev_broker import free_port

GATEWAY = GoProgram(
    module="github.com/versity/versitygw",
    version="v1.8.0",
    sum="h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc=",
    package="cmd/versitygw",
    oldest_go=(1, 25),
)
REGION = "us-east-1"
ROOT = ("root", "r00t-of-the-store")
USER = ("zync", "s3cr3t-of-the-store")


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
    """Runs the server on an empty folder. Raises NotBuiltError where it cannot be built."""
    program, port = GATEWAY.build(), free_port()
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
