"""A pipeline of processes on a lake in a store, for tests that do harm to its store or to them."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable

from tests.conftest import BRISK, TopicMaker, produce, start
from tests.store.choice import LAKES
from zync.kafka.dev_broker import free_port
from zync.lake.table import open_table

CONFIG = """\
lake: {lake}
kafka: {{bootstrap.servers: "{broker}"}}
topics: {{{topic}: {{id: "value:txn", as: arriving}}}}
transactions: {{done: "count(*) = 2"}}
outputs:
  - {{topic: changes, sql: changes.sql}}
  - {{topic: last, sql: last.sql, key: [id]}}
deliver: {{tables: {{}}}}
{brisk}{more}"""
PARTS = {
    "sync-from": ("sync-from", "kafka", "raw", "--commit-every", "300ms"),
    "sync": ("sync", "raw", "staging", "--follow"),
    "sync-to": ("sync-to", "tables", "staging"),
}


class Pipeline:
    """A lake of its own in the store, a topic, and the commands that bring one to the other.

    Transactions have two records, on two partitions; each row of both goes to the table changes, one to last.
    """

    def __init__(self, folder: Path, topic: TopicMaker, more: str = "") -> None:
        self.folder, self.broker, self.topic = folder, topic.broker, topic("orders", 2)
        self.lake, self.sent = f"{LAKES}/{folder.name}", 0
        values = {"lake": self.lake, "broker": self.broker, "topic": self.topic}
        (folder / "zync.yaml").write_text(CONFIG.format(**values, brisk=BRISK, more=more))
        columns = "value:txn::bigint AS id, value:n::int AS n"
        (folder / "changes.sql").write_text(f"SELECT seqno, {columns} FROM arriving")  # noqa: S608
        (folder / "last.sql").write_text(f"SELECT seqno, {columns} FROM arriving WHERE value:n::int = 1")  # noqa: S608
        self.ports: dict[str, int] = {}

    def start(self, part: str, env: Mapping[str, str]) -> "subprocess.Popen[str]":
        """Starts a part as a process group of its own, and its metrics at `ports[part]`."""
        port = self.ports[part] = free_port()
        words = (*PARTS[part], "--metrics", f"localhost:{port}", "--log-format", "json")
        return start(*words, cwd=self.folder, env=dict(env), start_new_session=True)

    def send(self, count: int = 5) -> None:
        numbers = range(self.sent, self.sent + count)
        records = [(self.topic, n, json.dumps({"txn": txn, "n": n}).encode()) for txn in numbers for n in (0, 1)]
        produce(self.broker, records)
        self.sent += count

    def table(self, name: str) -> DeltaTable | None:
        return open_table(f"{self.lake}/{name}")

    def is_delivered(self) -> bool:
        """Whether the tables have all that was sent."""
        changes = self.table("tables/changes")
        return changes is not None and changes.to_pyarrow_table().num_rows >= 2 * self.sent

    def events(self, part: str) -> list[str]:
        """The events in the part's logs, in order."""
        name = "-".join(PARTS[part][:2])  # as `start` names its log
        lines = [line for path in self.folder.glob(f"{name}-*.log") for line in path.read_text().splitlines()]
        return [json.loads(line).get("event", "") for line in lines if line.startswith("{")]

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def assert_each_row_is_there_once(self) -> None:
        changes, last = self.table("tables/changes"), self.table("tables/last")
        assert changes is not None
        assert last is not None
        found = changes.to_pyarrow_table()
        pairs = sorted(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))
        assert pairs == [(txn, n) for txn in range(self.sent) for n in (0, 1)]
        assert sorted(last.to_pyarrow_table()["id"].to_pylist()) == list(range(self.sent))
