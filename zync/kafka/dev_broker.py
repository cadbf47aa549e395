"""`zync broker`: runs a single-node Apache Kafka for development and tests, not for production."""

import base64
import os
import random
import signal
import socket
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from zync import java
from zync.errors import UsageError, ZyncError

_START_SECONDS = 60
_ATTEMPTS = 3
_STOP_SECONDS = 30
_PORT_WAIT_SECONDS = 3

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller}
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
advertised.listeners=PLAINTEXT://localhost:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
auto.create.topics.enable=true
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=33554432
replica.fetch.max.bytes=33554432
log.retention.check.interval.ms=1000
"""

_LOG4J = """\
Configuration:
  status: error
  Appenders:
    File: {{name: file, fileName: "{log}", append: true, PatternLayout: {{pattern: "%d %p %m (%c)%n"}}}}
  Loggers:
    Root: {{level: INFO, AppenderRef: {{ref: file}}}}
"""


@dataclass(frozen=True)
class DevKafka:
    """A broker with its data and logs in `folder`."""

    folder: Path

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    def pid(self) -> int | None:
        """Returns the broker's process id; None if it does not run."""
        try:
            pid = int(self._pid_file.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes() if Path("/proc").is_dir() else b"kafka.Kafka"
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid if b"kafka.Kafka" in command and not _is_zombie(pid) else None

    def servers(self) -> str | None:
        """Returns the broker's `bootstrap.servers`; None if it was never started."""
        try:
            return (self.folder / "servers").read_text().strip()
        except OSError:
            return None

    def start(self, port: int | None = None) -> str:
        """Starts the broker unless it runs, and returns its `bootstrap.servers` once it answers.

        Its process has a session of its own and none of the caller's pipes, so it outlives the caller.

        Args:
            port: The port to listen at; None for a free port.

        Raises:
            UsageError: The broker runs at another port, or another process has the port.
            ZyncError: The broker does not start.
        """
        if self.pid():
            if port and self.servers() != f"localhost:{port}":
                raise self._already_running()
            return str(self.servers())
        server_log = self.folder / "server.log"
        for _ in range(_ATTEMPTS):
            command = self._prepare(port)
            server_log.unlink(missing_ok=True)
            with (self.folder / "server.out").open("ab") as log:
                process = subprocess.Popen(  # noqa: S603 - Java, with fixed arguments
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
                )
            self._pid_file.write_text(str(process.pid))
            if self._answers(process):
                return str(self.servers())
            if not server_log.exists() or "Address already in use" not in server_log.read_text():
                break  # otherwise another process took the free port before the server bound it
        msg = f"Kafka did not start: see {self.folder}/server.out and {server_log}"
        raise ZyncError(msg)

    def run(self, port: int | None = None) -> int:
        """Runs the broker in the foreground until it is stopped; returns its exit code."""
        if self.pid():
            raise self._already_running()
        command = self._prepare(port)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=self.folder)  # noqa: S603 - Java
        try:
            self._pid_file.write_text(str(process.pid))
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            return 0
        finally:
            self._pid_file.unlink(missing_ok=True)

    def _already_running(self) -> UsageError:
        return UsageError(f"the broker in {self.folder} runs already at {self.servers()}: `zync broker stop` ends it")

    def stop(self) -> bool:
        """Stops the broker cleanly and waits for its end; False if it did not run."""
        pid = self.pid()
        if pid is None:
            return False
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while self.pid() is not None:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.05)
        self._pid_file.unlink(missing_ok=True)
        return True

    def _prepare(self, port: int | None) -> list[str]:
        """Formats the data folder if it is new, and returns the server's command line."""
        self.folder.mkdir(parents=True, exist_ok=True)
        library = java.fetch(java.KAFKA, transitive=True)[0].parent
        if port:
            _wait_for_port(port)
        port = port or free_port()
        properties = self.folder / "server.properties"
        data = self.folder / "data"
        properties.write_text(_PROPERTIES.format(port=port, controller=free_port(port), data=data))
        (self.folder / "log4j2.yaml").write_text(_LOG4J.format(log=self.folder / "server.log"))
        (self.folder / "servers").write_text(f"localhost:{port}\n")
        run_java = [
            java.java(),
            "-Xmx512m",
            *java.QUICK,
            f"-Dlog4j2.configurationFile={self.folder}/log4j2.yaml",
        ]
        run_java += ["-cp", f"{library}/*"]
        if not (data / "meta.properties").exists():
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            format_command = [
                *run_java,
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster_id}",
                f"--config={properties}",
            ]
            result = subprocess.run(format_command, capture_output=True, text=True, check=False)  # noqa: S603 - Java
            if result.returncode:
                msg = f"Kafka's data folder {data} could not be made: {(result.stderr or result.stdout).strip()}"
                raise ZyncError(msg)
        return [*run_java, "kafka.Kafka", str(properties)]

    def _answers(self, process: "subprocess.Popen[bytes]") -> bool:
        """Waits until the server answers; False if it has ended, or took too long and was killed."""
        admin = AdminClient({"bootstrap.servers": self.servers(), "log_level": "0", "reconnect.backoff.max.ms": "200"})
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            try:
                admin.list_topics(timeout=1)
            except KafkaException:
                continue
            return True
        if process.poll() is None:
            process.kill()
        self._pid_file.unlink(missing_ok=True)
        return False


def free_port(*others: int) -> int:
    """Returns a free port of this machine that is none of `others`.

    The port is outside of Linux's ephemeral range (32,768 to 60,999), so that it is probably still free when a server
    binds it seconds later.
    """
    while True:
        # SystemRandom ignores the seed: processes with the same seed would get the same port.
        port = random.SystemRandom().randrange(20_000, 32_768)
        if port not in others and _is_free(port):
            return port


def _wait_for_port(port: int) -> None:
    """Waits until a port is free, as a process that is about to end (after kill -9) may still have it.

    Raises:
        UsageError: The port is still taken after 3 seconds.
    """
    deadline = time.monotonic() + _PORT_WAIT_SECONDS
    while not _is_free(port):
        if time.monotonic() > deadline:
            msg = f"port {port} is taken by another process: give another --port, or none for a free one"
            raise UsageError(msg)
        time.sleep(0.05)


def _is_free(port: int) -> bool:
    with socket.socket() as listener, suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: ignores connections in TIME_WAIT
        listener.bind(("localhost", port))
        return True
    return False


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
