"""A real PostgreSQL and a real Debezium (Kafka Connect, standalone), in folders of their own: for demo and tests."""

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
_READERS = 30
"""So many connectors may read a PostgreSQL at once."""


def _tool(name: str) -> str:
    found = [*sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), *filter(None, [shutil.which(name)])]
    if not found:
        msg = f"PostgreSQL's {name} is needed, and not installed (Debian: apt-get install postgresql)"
        raise UsageError(msg)
    return str(found[-1])


def _check(done: "subprocess.CompletedProcess[str]") -> None:
    if done.returncode:
        msg = f"{Path(done.args[0]).name} failed: {(done.stderr or done.stdout).strip()}"
        raise ZyncError(msg)


@dataclass
class Postgres:
    """A cluster in `folder`, with logical decoding, for the user `postgres`; it trusts whoever asks on localhost."""

    folder: Path
    port: int = field(default_factory=free_port)

    def _as_owner(self) -> dict[str, Any]:
        if os.getuid():
            return {}
        owner = pwd.getpwnam("postgres")
        return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}

    def _run(self, name: str, *args: str) -> None:
        done = subprocess.run(
            [_tool(name), *args], cwd=self.folder, capture_output=True, text=True, check=False, **self._as_owner()
        )
        _check(done)

    def start(self) -> None:
        """Starts the cluster, made now if there is none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._as_owner():
            shutil.chown(self.folder, "postgres")
        if not (self.folder / "data").exists():
            self._run("initdb", "-D", "data", "-A", "trust", "-U", "postgres", "--no-sync")
        options = f"-p {self.port} -k {self.folder} -c wal_level=logical -c fsync=off -c listen_addresses=localhost"
        options += f" -c max_wal_senders={_READERS} -c max_replication_slots={_READERS}"
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")

    def stop(self) -> None:
        """Ends it at once: it recovers from its log when it is started again."""
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "stop")

    def sql(self, text: str) -> list[list[str]]:
        """The rows of the last statement, as text."""
        command = self._client("psql", "-AtqX", "-v", "ON_ERROR_STOP=1")
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        _check(done)
        return [line.split("|") for line in done.stdout.splitlines()]

    def pgbench(self, *options: str) -> "subprocess.Popen[bytes]":
        """Clients that make transactions, pgbench's own (TPC-B) or as the options say."""
        command = self._client("pgbench", "-n", *options, "postgres")
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _client(self, name: str, *options: str) -> list[str]:
        return [_tool(name), "-h", "localhost", "-p", str(self.port), "-U", "postgres", *options]


@dataclass
class Debezium:
    """The connector over all tables of that PostgreSQL, topics beginning with `prefix`, of three partitions each.

    `options`: more of the connector's config, or other values. `others`: the same of further connectors in the same
    Connect, by their prefixes. `worker`: more of Connect's config; `plugins`: folders of jars that it has, by name.
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
        """Starts Connect, or starts it again where it was killed; returns once the connectors run."""
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
        lib = java.fetch(CONNECT, transitive=True)[0].parent
        command = [java.java(), *java.QUICK, "-Xmx512m", "-cp", f"{lib}/*"]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties"]
        command += [f"{prefix}.json" for prefix in self._connectors]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + 90
        while not all(self._runs(port, prefix) for prefix in self._connectors):
            if self.process.poll() is not None or time.monotonic() > until:
                msg = f"Debezium did not start: see {self.folder}/log"
                raise ZyncError(msg)
            time.sleep(0.2)

    @property
    def _connectors(self) -> dict[str, dict[str, str]]:
        """The config of each connector, by its prefix."""
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
            "topic.creation.groups": "transactions",  # which order: commit needs in one partition
            "topic.creation.transactions.include": r".*\.transaction",
            "topic.creation.transactions.partitions": "1",
        }
        found = {}
        for prefix, options in {self.prefix: self.options, **self.others}.items():
            slot = "zync" if prefix == self.prefix else f"zync_{prefix}"
            own = {"topic.prefix": prefix, "slot.name": slot, "publication.name": slot}
            found[prefix] = {**common, **own, **options}
        return found

    def _runs(self, port: int, prefix: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/connectors/{prefix}/status", timeout=2) as answer:
                states = [task["state"] for task in json.load(answer)["tasks"]]
        except (urllib.error.URLError, OSError, ValueError):
            return False
        return states == ["RUNNING"]

    def kill(self) -> None:
        """Kill -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def wait_until_streamed(self) -> None:
        """Waits until Kafka has all that PostgreSQL has committed by now."""
        ((wanted,),) = self.postgres.sql("SELECT pg_current_wal_insert_lsn()")
        until = time.monotonic() + 120
        behind = f"SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= '{wanted}'::pg_lsn"
        while self.postgres.sql(behind) != [[str(1 + len(self.others))]]:
            self.postgres.sql("INSERT INTO pulse VALUES (1)")  # so that there is something to confirm
            if time.monotonic() > until:
                msg = f"Debezium does not get on: see {self.folder}/log"
                raise ZyncError(msg)
            time.sleep(0.5)
