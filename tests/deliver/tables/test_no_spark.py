"""`sync-to tables` starts Spark when something needs it, and for plain tables never."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import start, zync
from tests.kafka.conftest import wait_until
from zync.deliver.tables import snapshots

WITHOUT_JAVA = {**os.environ, "JAVA_HOME": "/there/is/none"}
CONFIG = """\
lake: lake
topics: {records: {id: "value:txn", as: arriving}}
transactions: {done: "count(*) = 1"}
outputs:
  - {topic: accounts, sql: accounts.sql, key: [id]}
  - {topic: history, sql: history.sql}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "zync.yaml").write_text(CONFIG)
    for name, column in (("accounts", "value:name::string AS name"), ("history", "value:x::double AS x")):
        (tmp_path / f"{name}.sql").write_text(f"SELECT seqno, value:id::int AS id, {column} FROM arriving\n")  # noqa: S608
    return tmp_path


def synced(folder: Path, *ids: int) -> None:
    records = [{"topic": "records", "value": {"txn": f"t{one}", "id": one, "name": "a", "x": 0.5}} for one in ids]
    zync("load", "raw", "-", cwd=folder, input="".join(json.dumps(record) + "\n" for record in records))
    zync("sync", "raw", "staging", cwd=folder)


def delivered(folder: Path, *args: str, **options: Any) -> Any:
    return zync("sync-to", "tables", "staging", "--until-caught-up", *args, cwd=folder, **options)


def test_plain_tables_take_no_spark(folder: Path) -> None:
    """Neither the first batch nor later ones; and what differs from what the newest sync made takes it."""
    for number in (1, 2):
        synced(folder, 10 * number, 10 * number + 1)
        said = json.loads(delivered(folder, "--json", env=WITHOUT_JAVA).stdout)
        assert said["versions"] == {"accounts": number, "history": number}
    with (folder / "accounts.sql").open("a") as file:
        file.write("WHERE seqno > 0\n")
    refused = delivered(folder, env=WITHOUT_JAVA, check=False)
    assert refused.returncode == 2
    assert "Java 17 or newer is needed" in refused.stderr
    assert json.loads(delivered(folder, "--json").stdout)["versions"] == said["versions"]


def test_one_that_began_before_there_was_a_sync_takes_none(folder: Path) -> None:
    process = start("sync-to", "tables", "staging", cwd=folder, env=WITHOUT_JAVA)
    try:
        synced(folder, 1)
        wait_until(lambda: snapshots.newest(str(folder / "lake" / "tables" / snapshots.NAME)), 60)
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize("settings", ["{apply: history}", "{partition_by: [name]}", "{cluster_by: [name]}"])
def test_other_tables_take_it(folder: Path, settings: str) -> None:
    (folder / "zync.yaml").write_text(f"{CONFIG}deliver: {{tables: {{accounts: {settings}}}}}\n")
    synced(folder, 1)
    refused = delivered(folder, env=WITHOUT_JAVA, check=False)
    assert refused.returncode == 2
    assert "Java 17 or newer is needed" in refused.stderr
