"""A staging with accounts and their history, and the tables that it is delivered to."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import start
from tests.deliver.conftest import Row, Staging
from tests.kafka.conftest import wait_until
from zync.deliver.tables import delivery, snapshots
from zync.deliver.tables.snapshots import Snapshot
from zync.lake.table import open_table
from zync.operate.verify.claim import Claim
from zync.operate.verify.tables import tables_claims
from zync.project.load import load

CONFIG = """\
topics: {{records: {{id: "value:txn", as: arriving}}}}
outputs:
  - {{topic: accounts, sql: accounts.sql, key: [{key}]}}
  - {{topic: history, sql: history.sql}}
{more}"""
ACCOUNTS = "SELECT seqno, value:id::int AS id, value:balance::decimal(10, 2) AS balance, value:note::string AS note"
HISTORY = "SELECT seqno, value:id::int AS id, value:delta::decimal(10, 2) AS delta"


class Lake:
    """A staging, and the tables that it is delivered to."""

    def __init__(self, staging: Staging, spark: Any) -> None:
        self.staging, self.spark = staging, spark
        self.config()

    def config(self, more: str = "", accounts: str = ACCOUNTS, key: str = "id") -> None:
        self.staging.config(CONFIG.format(more=more, key=key))
        for name, text in (("accounts", accounts), ("history", HISTORY)):
            (self.staging.folder / f"{name}.sql").write_text(f"{text} FROM arriving")

    @property
    def folder(self) -> Path:
        return self.staging.folder / "lake" / "tables"

    def deliver(self, *, damaged: bool = False, **options: Any) -> Snapshot:
        """Delivers, and verifies the tables then, if the test did not damage them."""
        config = load(self.staging.folder / "zync.yaml")
        found = delivery.sync_to_tables(
            self.spark,
            config,
            self.staging.path,
            str(self.folder),
            threading.Event(),
            **{"until_caught_up": True, **options},
        )
        assert found
        assert damaged or self.violations() == []
        return found

    def claims(self) -> list[Claim]:
        """What `zync verify` says of the tables."""
        return [*tables_claims(str(self.folder), self.staging.path)]

    def violations(self) -> list[str]:
        return [text for claim in self.claims() for text in claim.violations]

    def rows(self, topic: str, version: int | None = None) -> list[dict[str, Any]]:
        found = DeltaTable(str(self.folder / topic), version=version).to_pyarrow_table()
        return found.sort_by([("id", "ascending"), ("_seqno", "ascending")]).to_pylist()

    def versions(self) -> list[Snapshot]:
        return snapshots._all(snapshots._rows(DeltaTable(str(self.folder / snapshots.NAME))))  # noqa: SLF001


@pytest.fixture
def lake(tmp_path: Path, spark: Any) -> Lake:
    return Lake(Staging(tmp_path, "localhost:1"), spark)


def account(key: int, balance: str | None, note: str | None = None) -> Row:
    """A row of `accounts`; no balance: deleted."""
    name = json.dumps({"id": key}, separators=(",", ":"))
    value = f'{{"id":{key},"balance":{balance},"note":{json.dumps(note)}}}'
    return "accounts", name, None if balance is None else value


def history(key: int, delta: str) -> Row:
    return "history", None, f'{{"id":{key},"delta":{delta}}}'


def transfers(count: int, first: int) -> list[list[Row]]:
    return [[account(n % 5, f"{n}.00"), history(n, f"{n}.00")] for n in range(first, first + count)]


def assert_together(lake: Lake) -> None:
    """At each snapshot, the accounts have what the newest history row of each says."""
    for one in lake.versions():
        newest: dict[int, int] = {}
        for change in lake.rows("history", one.versions["history"]):
            newest[change["id"] % 5] = change["id"]
        rows = [row for row in lake.rows("accounts", one.versions["accounts"]) if row.get("current", True)]
        assert len(rows) == len(newest)
        assert {row["id"]: int(row["balance"]) for row in rows} == newest


def version_of(lake: Lake, topic: str) -> int:
    table = open_table(str(lake.folder / topic))
    return table.version() if table else -1


def kill_when(lake: Lake, holds: Callable[[], bool], then: Callable[[], None] = lambda: None) -> None:
    """Starts `zync sync-to tables`, a process of its own, and kills it with -9 once `holds`, and after `then`."""
    process = start("sync-to", "tables", "staging", cwd=lake.staging.folder, start_new_session=True)
    try:
        wait_until(holds, 120)
        then()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
