"""A real Hive metastore: the server that Spark's own jars have, with Derby for its database."""

import socket
import subprocess
import time
from pathlib import Path

from zync import java
from zync.java import _spark_jar

_SECONDS = 120


class MetastoreServer:
    """A metastore that may be stopped and started again, at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("localhost", 0))
            self.port = int(free.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"thrift://localhost:{self.port}"

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self.folder}/metastore;create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.async.log.enabled": "false",  # it needs a jar that Spark has not
            "hive.metastore.warehouse.dir": f"{self.folder}/warehouse",
            "derby.stream.error.file": f"{self.folder}/derby.log",
        }
        command = [java.java(), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", f"{_spark_jar('hive-metastore').parent}/*"]
        command += [f"-D{name}={value}" for name, value in settings.items()]
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)]
        with (self.folder / "metastore.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self) -> None:
        """Waits until it answers."""
        until = time.monotonic() + _SECONDS
        while True:
            with socket.socket() as client:
                if client.connect_ex(("localhost", self.port)) == 0:
                    return
            assert self.process
            assert self.process.poll() is None, (self.folder / "metastore.log").read_text()
            assert time.monotonic() < until
            time.sleep(0.1)

    def stop(self) -> None:
        """Kills it."""
        if self.process:
            self.process.kill()
            self.process.wait()
