"""A server that speaks S3: Adobe's S3Mock, fetched from Maven Central once, its conditional puts made atomic."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.store.servers import in_front, listening
from zync import java
from zync.kafka.dev_broker import free_port

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


@contextmanager
def running_s3(folder: Path) -> Iterator[dict[str, str]]:
    """Runs the server with a bucket, and yields the environment by which the usual clients find it."""
    port = free_port()
    settings = {
        "com.adobe.testing.s3mock.httpPort": port,
        "com.adobe.testing.s3mock.store.initialBuckets": BUCKET,
        "com.adobe.testing.s3mock.store.root": folder,
        "server.port": free_port(port),
    }
    command = [java.java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-jar", str(_jar())]
    command += [f"--{key}={value}" for key, value in settings.items()]
    with (
        listening(command, port, folder.parent / "s3mock.log"),
        in_front("tests.store.proxy", f"http://localhost:{port}") as url,  # hands on one conditional put at a time
    ):
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-the-store",
            "PATH": os.environ["PATH"],
        }
