"""Runs a PostgreSQL and a Debezium (Kafka Connect, standalone), each in a folder of its own, for demo and tests."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zync import java
from zync.errors import UsageError, ZyncError
from zync.kafka.dev_broker import free_port

CONNECT = ("org.apache.kafka:connect-runtime:4.1.1", "org.slf4j:slf4j-simple:1.7.36")
DEBEZIUM = ("io.debezium:debezium-connector-postgres:3.7.0.Final",)
_MAX_CONNECTORS = 30
"""How many connectors may read a PostgreSQL at once."""


def _tool(name: str) -> str:
    paths = [*sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), *filter(None, [shutil.which(name)])]
    if not paths:
        msg = f"PostgreSQL's {name} is needed, and not installed (Debian: apt-get install postgresql)"
        raise UsageError(msg)
    return str(paths[-1])


def _check(result: "subprocess.CompletedProcess[str]") -> None:
    if result.returncode:
        msg = f"{Path(result.args[0]).name} failed: {(result.stderr or result.stdout).strip()}"
        raise ZyncError(msg)


@dataclass
class Postgres:
    """A cluster in `folder` with logical decoding; it trusts all connections of localhost as the user `postgres`."""

    folder: Path
    port: int = field(default_factory=free_port)

    def _as_owner(self) -> dict[str, Any]:
        if os.getuid():
            return {}
        owner = pwd.getpwnam("postgres")
        return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}

    def _run(self, name: str, *args: str) -> None:
        result = subprocess.run(
            [_tool(name), *args], cwd=self.folder, capture_output=True, text=True, check=False, **self._as_owner()
        )
        _check(result)

    def start(self) -> None:
        """Starts the cluster, and creates it if it does not exist."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._as_owner():
            shutil.chown(self.folder, "postgres")
        if not (self.folder / "data").exists():
            self._run("initdb", "-D", "data", "-A", "trust", "-U", "postgres", "--no-sync")
        options = f"-p {self.port} -k {self.folder} -c wal_level=logical -c fsync=off -c listen_addresses=localhost"
        options += f" -c max_wal_senders={_MAX_CONNECTORS} -c max_replication_slots={_MAX_CONNECTORS}"
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")

    def stop(self) -> None:
        """Stops the cluster at once; it recovers from its log at the next start."""
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "stop")

    def sql(self, text: str) -> list[list[str]]:
        """Runs SQL statements, and returns the rows of the last as text."""
        command = self._client("psql", "-AtqX", "-v", "ON_ERROR_STOP=1")
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        _check(result)
        return [line.split("|") for line in result.stdout.splitlines()]

    def pgbench(self, *options: str) -> "subprocess.Popen[bytes]":
        """Starts pgbench with `options`; by default its clients run its TPC-B transactions."""
        command = self._client("pgbench", "-n", *options, "postgres")
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _client(self, name: str, *options: str) -> list[str]:
        return [_tool(name), "-h", "localhost", "-p", str(self.port), "-U", "postgres", *options]


@dataclass
class Debezium:
    """A Debezium connector for all tables of a PostgreSQL, whose topics have three partitions.

    Attributes:
        folder: The folder of Kafka Connect.
        broker: Kafka's `bootstrap.servers`.
        postgres: The database.
        prefix: The prefix of its topics.
        options: Properties of the connector, which add to the defaults or replace them.
        others: The properties of more connectors in the same Connect, by their prefixes.
        worker: Properties of Connect, which add to the defaults or replace them.
        plugins: Connect's folders of jars, by name.
        process: The process of Connect; None before the start.
    """

    folder: Path
    broker: str
    postgres: Postgres
    prefix: str
    options: dict[str, str] = field(default_factory=dict)
    others: dict[str, dict[str, str]] = field(default_factory=dict)
    worker: dict[str, str] = field(default_factory=dict)
    plugins: dict[str, Path] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Starts Connect, also after `kill`, and returns when the connectors run."""
        port = free_port()
        (self.folder / "plugins").mkdir(parents=True, exist_ok=True)
        for name, jars in {"debezium": java.fetch(DEBEZIUM, transitive=True)[0].parent, **self.plugins}.items():
            if not (self.folder / "plugins" / name).exists():
                (self.folder / "plugins" / name).symlink_to(jars)
        worker = {
            "bootstrap.servers": self.broker,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "offset.flush.interval.ms": "500",
            "plugin.path": str(self.folder / "plugins"),
            "plugin.discovery": "service_load",
            "listeners": f"http://localhost:{port}",
            **self.worker,
        }
        (self.folder / "worker.properties").write_text("".join(f"{key}={value}\n" for key, value in worker.items()))
        for prefix, options in self._connectors.items():
            (self.folder / f"{prefix}.json").write_text(json.dumps({"name": prefix, "config": options}))
        library = java.fetch(CONNECT, transitive=True)[0].parent
        command = [java.java(), *java.QUICK, "-Xmx512m", "-cp", f"{library}/*"]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties"]
        command += [f"{prefix}.json" for prefix in self._connectors]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 90
        while not all(self._runs(port, prefix) for prefix in self._connectors):
            if self.process.poll() is not None or time.monotonic() > deadline:
                msg = f"Debezium did not start: see {self.folder}/log"
                raise ZyncError(msg)
            time.sleep(0.2)

    @property
    def _connectors(self) -> dict[str, dict[str, str]]:
        """The properties of each connector, by its prefix."""
        common = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "all_tables",
            "snapshot.mode": "initial",
            "provide.transaction.metadata": "true",
            "decimal.handling.mode": "string",
            "database.hostname": "localhost",
            "database.port": str(self.postgres.port),
            "database.user": "postgres",
            "database.password": "",
            "database.dbname": "postgres",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "3",
            "topic.creation.groups": "transactions",  # `order: commit` needs a single partition
            "topic.creation.transactions.include": r".*\.transaction",
            "topic.creation.transactions.partitions": "1",
        }
        connectors = {}
        for prefix, options in {self.prefix: self.options, **self.others}.items():
            slot = "zync" if prefix == self.prefix else f"zync_{prefix}"
            own = {"topic.prefix": prefix, "slot.name": slot, "publication.name": slot}
            connectors[prefix] = {**common, **own, **options}
        return connectors

    def _runs(self, port: int, prefix: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/connectors/{prefix}/status", timeout=2) as answer:
                states = [task["state"] for task in json.load(answer)["tasks"]]
        except (urllib.error.URLError, OSError, ValueError):
            return False
        return states == ["RUNNING"]

    def kill(self) -> None:
        """Kills Connect by SIGKILL, but not while it writes its file of offsets.

        A standalone Connect truncates that file first, and without it would read all tables anew. (A distributed one
        has its offsets in Kafka.)
        """
        if self.process is None:
            return
        self.process.send_signal(signal.SIGSTOP)
        while self.process.poll() is None and self._writes_offsets():
            self.process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
            self.process.send_signal(signal.SIGSTOP)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _writes_offsets(self) -> bool:
        """Returns whether the file of offsets is empty, or was written to within the last 0.1 s."""
        try:
            state = (self.folder / "offsets").stat()
        except FileNotFoundError:  # none was written yet
            return False
        return not state.st_size or time.time() - state.st_mtime < 0.1  # noqa: PLR2004

    def wait_until_streamed(self) -> None:
        """Waits until Kafka has all that PostgreSQL has committed before the call."""
        ((lsn,),) = self.postgres.sql("SELECT pg_current_wal_insert_lsn()")
        deadline = time.monotonic() + 120
        confirmed = f"SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= '{lsn}'::pg_lsn"
        while self.postgres.sql(confirmed) != [[str(1 + len(self.others))]]:
            self.postgres.sql("INSERT INTO pulse VALUES (1)")  # so that the connector has a change to confirm
            if time.monotonic() > deadline:
                msg = f"Debezium does not get on: see {self.folder}/log"
                raise ZyncError(msg)
            time.sleep(0.5)
