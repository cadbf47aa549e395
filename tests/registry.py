"""A real schema registry (Apicurio, in memory), started by a test; and what its clients put before what they write."""

import gzip
import io
import json
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import message_factory

from tests import certificates
from zync import java
from zync.formats.decode.protobuf import pool_of
from zync.formats.protoc import compiled
from zync.formats.registry import Schema
from zync.kafka.dev_broker import free_port

_VERSION = "2.6.13.Final"
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="zync" module="tests"/>
<dependencies>
<dependency org="io.apicurio" name="apicurio-registry-app" rev="{_VERSION}" transitive="false" conf="default->default">
<artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
</dependency>
</dependencies>
</ivy-module>"""


def _installed() -> Path:
    """The folder with the registry's jars, fetched the first time (142 MB)."""
    folder = java.cache_folder() / f"apicurio-registry-app-{_VERSION}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=java.cache_folder(), prefix=".fetch-") as scratch:
            (Path(scratch) / "ivy.xml").write_text(_IVY)
            java.retrieve(["-ivy", f"{scratch}/ivy.xml"], f"{scratch}/[artifact].[ext]", cwd=Path(scratch))
            with tarfile.open(f"{scratch}/apicurio-registry-app.tar.gz") as packed:
                packed.extractall(f"{scratch}/app", filter="data")
            (Path(scratch) / "app").rename(folder)
    return folder


@dataclass
class RunningRegistry:
    """A registry that answers Confluent's API at `url`, and by TLS at `secure_url`, by a certificate of `ca`."""

    folder: Path
    port: int = field(default_factory=free_port)
    secure_port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/apis/ccompat/v7"

    @property
    def secure_url(self) -> str:
        return f"https://localhost:{self.secure_port}/apis/ccompat/v7"

    @property
    def ca(self) -> Path:
        return self.folder / certificates.CA

    def start(self) -> None:
        store, _ = certificates.make(self.folder)
        runner = next(_installed().glob("*-runner.jar"))
        command = [java.java(), *java.QUICK, "-Xmx384m", f"-Dquarkus.http.port={self.port}"]
        command += [f"-Dquarkus.http.ssl-port={self.secure_port}"]
        command += [f"-Dquarkus.http.ssl.certificate.key-store-file={store}"]
        command += [f"-Dquarkus.http.ssl.certificate.key-store-password={certificates.PASSWORD}"]
        command += ["-cp", f"{runner}:{runner.parent}/lib/*", "io.quarkus.runner.GeneratedMain"]
        with (self.folder / "registry.log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + 120
        while True:
            try:
                self._ask("/subjects")
            except OSError:
                assert time.monotonic() < until, (self.folder / "registry.log").read_text()
                assert self._process.poll() is None, (self.folder / "registry.log").read_text()
                time.sleep(0.2)
            else:
                return

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: tuple[Any, ...] = ()) -> int:
        """The id of that schema, now that it is a version of the subject."""
        text = schema if isinstance(schema, str) and kind == "PROTOBUF" else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        return int(self._ask(f"/subjects/{subject}/versions", body)["id"])

    def only_compatible(self, subject: str) -> None:
        """From now on that subject takes a schema only if its readers can read what was written before."""
        self._ask(f"/config/{subject}", {"compatibility": "BACKWARD"}, method="PUT")

    def _ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the one of this machine
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if body is None:
                raise
            raise AssertionError(error.read().decode()) from error


def framed(number: int, data: bytes) -> bytes:
    """As a registry's clients write it."""
    return b"\0" + number.to_bytes(4, "big") + data


def avro(schema: Any, value: Any) -> bytes:
    """The value in Avro, without a header."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def classes(text: str) -> dict[str, Any]:
    """The messages of a schema of protobuf, by their names without the package."""
    main = pool_of(compiled(Schema("PROTOBUF", text))).FindFileByName("zync_schema.proto")
    return {name: message_factory.GetMessageClass(one) for name, one in main.message_types_by_name.items()}


def packed(text: str | bytes) -> bytes:
    return gzip.compress(text.encode() if isinstance(text, str) else text)


if __name__ == "__main__":  # for examples/avro-registry by hand: python -m tests.registry PORT
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="zync-registry-") as scratch:
        server = RunningRegistry(Path(scratch), *map(int, sys.argv[1:2]))
        server.start()
        try:
            print(f"a schema registry answers at {server.url}; Ctrl-C ends it", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            server.stop()
