"""A server that speaks S3: Adobe's S3Mock, fetched from Maven Central once, its conditional puts made atomic."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zync import java

_VERSION = "4.7.0"
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="zync" module="tests"/>
  <dependencies>
    <dependency org="com.adobe.testing" name="s3mock" rev="{_VERSION}" transitive="false">
      <artifact name="s3mock" type="jar" ext="jar" m:classifier="exec"/>
    </dependency>
  </dependencies>
</ivy-module>"""
BUCKET = "lake"


def _jar() -> Path:
    folder = java.cache_folder() / "s3mock"
    jar = folder / f"s3mock-{_VERSION}.jar"
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            (Path(scratch) / "ivy.xml").write_text(_IVY)
            options = ["-ivy", f"{scratch}/ivy.xml"]
            java.retrieve(options, f"{scratch}/[artifact]-[revision].[ext]", cwd=Path(scratch))
            (Path(scratch) / jar.name).rename(jar)
    return jar


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


@contextmanager
def _proxy(upstream: str) -> Iterator[str]:
    """Runs a proxy in a process of its own, which hands conditional puts on one after the other."""
    command = [sys.executable, "-m", "tests.store.proxy", upstream]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    try:
        assert process.stdout
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


@contextmanager
def running_s3(folder: Path) -> Iterator[dict[str, str]]:
    """Runs the server with a bucket, and yields the environment by which the usual clients find it."""
    port = _free_port()
    settings = {
        "com.adobe.testing.s3mock.httpPort": port,
        "com.adobe.testing.s3mock.store.initialBuckets": BUCKET,
        "com.adobe.testing.s3mock.store.root": folder,
        "server.port": _free_port(),
    }
    command = [java.java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-jar", str(_jar())]
    with (folder.parent / "s3mock.log").open("w") as log:
        server = subprocess.Popen([*command, *(f"--{key}={value}" for key, value in settings.items())], stdout=log)
    try:
        until = time.monotonic() + 90
        while True:
            with socket.socket() as client:
                if client.connect_ex(("localhost", port)) == 0:
                    break
            assert server.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
        with _proxy(f"http://localhost:{port}") as url:
            yield {
                "AWS_ENDPOINT_URL": url,
                "AWS_REGION": "eu-central-1",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-the-store",
                "PATH": os.environ["PATH"],
            }
    finally:
        server.kill()
        server.wait()
