"""`zync sync-to tables` and the commands that read what it delivered; how it follows staging."""

import itertools
import json
import shutil
import threading
import time
from typing import Any

from tests.conftest import BRISK, zync
from tests.deliver.tables.conftest import Lake, account, transfers
from tests.kafka.conftest import wait_until
from zync.deliver.tables import delivery
from zync.deliver.tables.batch import Batch
from zync.project.load import load


def test_an_output_that_was_left_out_for_a_while_gets_all_its_rows(lake: Lake) -> None:
    lake.staging.sync(transfers(2, 0))
    lake.deliver()
    lake.staging.sync(transfers(2, 2))
    config = lake.staging.folder / "zync.yaml"
    whole = config.read_text()
    config.write_text("".join(line for line in whole.splitlines(keepends=True) if "topic: history" not in line))
    assert lake.deliver().versions == {"accounts": 2}
    config.write_text(whole)
    lake.staging.sync(transfers(2, 4))
    assert lake.deliver().sync == 3
    assert [one["id"] for one in lake.rows("history")] == list(range(6))


def test_the_commands(lake: Lake, warm: Any) -> None:
    lake.staging.sync(transfers(3, 0))
    folder = lake.staging.folder
    none = warm("snapshot", cwd=folder, check=False)
    assert none.returncode == 2
    said = warm("sync-to", "tables", "staging", "--until-caught-up", "--json", cwd=folder)
    assert json.loads(said.stdout)["versions"] == {"accounts": 1, "history": 1}
    assert "delivered through sync 1, rows: accounts 3, history 3" in said.stderr
    lake.staging.sync(transfers(3, 3))
    lake.deliver()
    assert json.loads(warm("snapshot", "--at", "1", "--json", cwd=folder).stdout)["versions"]["accounts"] == 1
    assert json.loads(warm("snapshot", "--json", cwd=folder).stdout)["sync"] == 2
    assert warm("snapshot", "--at", "2001-01-01", cwd=folder, check=False).returncode == 2
    first = json.loads(warm("snapshot", "--at", "1", "--json", cwd=folder).stdout)
    assert json.loads(warm("snapshot", "--at", first["at"], "--json", cwd=folder).stdout) == first
    views = warm("snapshot", "--sql", cwd=folder).stdout.splitlines()
    assert views == json.loads(warm("snapshot", "--sql", "--json", cwd=folder).stdout)["sql"]
    for number, kind in itertools.product(range(2), ("VIEW", "TEMPORARY VIEW")):
        for view in views if number else warm("snapshot", "--sql", "--at", "1", cwd=folder).stdout.splitlines():
            lake.spark.sql(view.replace("VIEW", kind, 1).rstrip(";"))
        joined = lake.spark.sql("SELECT count(DISTINCT a.id), sum(delta) FROM accounts a, history")
        assert joined.collect() == [(5, 5 * 15) if number else (3, 3 * 3)]
        for name in ("accounts", "history"):
            lake.spark.sql(f"DROP VIEW {name}")
    query = warm("query", "--consistent", "--json", "SELECT sum(delta) AS total FROM history", cwd=folder)
    assert json.loads(query.stdout) == {"total": 15.0}
    for file in (lake.folder / "history").glob("*.parquet"):
        file.unlink()
    vacuumed = warm("query", "--consistent", "SELECT sum(delta) AS total FROM history", cwd=folder, check=False)
    assert "a file of a table is gone" in vacuumed.stderr
    assert "`zync sync-to tables staging` names newer versions" in vacuumed.stderr
    shutil.rmtree(lake.folder / "accounts")
    gone = warm("query", "--consistent", "SELECT 1", cwd=folder, check=False)
    assert gone.returncode == 1
    assert "version 2 of" in gone.stderr
    assert "accounts, which the newest snapshot names" in gone.stderr
    wrong = warm("sync-to", "tables", "staging", "--one-by-one", cwd=folder, check=False)
    assert wrong.returncode == 2


def test_it_follows(lake: Lake) -> None:
    stop, seen = threading.Event(), list[Batch]()
    config = load(lake.staging.folder / "zync.yaml")

    def follow() -> None:
        delivery.sync_to_tables(lake.spark, config, lake.staging.path, str(lake.folder), stop, seen.append)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        for number in range(2):
            lake.staging.sync(transfers(2, 2 * number))
            wait_until(lambda n=number: len(seen) > n, 60)  # type: ignore[misc]
        time.sleep(0.5)
    finally:
        stop.set()
        thread.join()
    assert [(one.after, one.sync, one.rows) for one in seen] == [
        (0, 1, {"accounts": 2, "history": 2}),
        (1, 2, {"accounts": 2, "history": 2}),
    ]


def test_files_are_as_the_users_umask_says(lake: Lake) -> None:
    lake.config(BRISK)
    lake.staging.sync([[account(1, "1")], [account(2, None)]])
    zync("sync-to", "tables", "staging", "--until-caught-up", cwd=lake.staging.folder, umask=0o027)
    found = {path.stat().st_mode & 0o777 for path in lake.folder.rglob("*") if path.is_file()}
    folders = {path.stat().st_mode & 0o777 for path in lake.folder.rglob("*") if path.is_dir()}
    assert (found, folders) == ({0o640}, {0o750})
