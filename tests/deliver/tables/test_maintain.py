"""`zync maintain tables`: files that batches replaced are deleted, and the newest snapshot stays readable."""

import json
import os
import re
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import start, zync
from tests.deliver.tables.conftest import Lake, account, history, transfers
from zync.deliver.tables import batch, snapshots
from zync.operate import maintain as maintenance
from zync.operate.maintain import Maintained, maintain

DAY = 24 * 3600


def days_pass(folder: Path, days: float) -> None:
    """Makes the tables' files that old, and what their logs say of them."""
    past = time.time() - days * DAY
    for path in folder.rglob("*.parquet"):
        os.utime(path, (past, past))
    for path in folder.glob("**/_delta_log/*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            for name, key in (
                ("remove", "deletionTimestamp"),
                ("add", "modificationTime"),
                ("commitInfo", "timestamp"),
            ):
                if name in action:
                    action[name][key] = int(past * 1000)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(path, (past, past))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def parquet(lake: Lake, topic: str) -> set[str]:
    return {path.name for path in (lake.folder / topic).glob("*.parquet")}


def tidy(lake: Lake, **options: Any) -> Maintained:
    return maintain(str(lake.folder), **{"compact": True, "vacuum": True, **options})


def deliver_days_ago(lake: Lake, days: float) -> None:
    for number in range(4):
        lake.staging.sync([*transfers(4, 4 * number), [account(9, None if number % 2 else "1")]])
        lake.deliver()
    days_pass(lake.folder, days)


def test_what_batches_replaced_is_deleted_after_a_week_and_no_sooner(lake: Lake) -> None:
    deliver_days_ago(lake, 6)
    before = {topic: parquet(lake, topic) for topic in ("accounts", "history")}
    assert tidy(lake, dry_run=True).deleted == 0
    days_pass(lake.folder, 8)
    lake.staging.sync([[account(1, "100")]])
    lake.deliver()
    DeltaTable(str(lake.folder / "accounts")).create_checkpoint()  # which forgets what was replaced a week ago
    rows = {topic: lake.rows(topic) for topic in before}
    current = {topic: len(DeltaTable(str(lake.folder / topic)).file_uris()) for topic in before}
    kept = parquet(lake, "accounts")
    would = tidy(lake, dry_run=True)
    assert parquet(lake, "accounts") == kept
    done = tidy(lake)
    assert would.deleted == done.deleted > 0
    assert done.left_to_spark == []
    assert {topic: lake.rows(topic) for topic in before} == rows
    # What the last batch replaced has to stay for a week.
    assert len(parquet(lake, "accounts")) == current["accounts"] + 1 < len(kept)
    assert parquet(lake, "history") == before["history"]
    assert lake.violations() == []
    lake.staging.sync([[account(2, "200"), history(99, "1.00")]])
    lake.deliver()
    assert [int(row["balance"]) for row in lake.rows("accounts") if row["id"] in (1, 2)] == [100, 200]


def test_what_the_newest_snapshot_names_stays_readable(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery ended after it committed to one table, before a snapshot, and nobody delivered for a month."""

    def ended(*_: Any) -> None:
        raise KeyboardInterrupt

    lake.staging.sync(transfers(4, 0))
    lake.deliver()
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "take", ended)
        lake.staging.sync([[account(1, "50")]])
        with pytest.raises(KeyboardInterrupt):
            lake.deliver()
    newest = lake.versions()[-1]
    rows = lake.rows("accounts", newest.versions["accounts"])
    assert rows != lake.rows("accounts")
    days_pass(lake.folder, 40)
    later = snapshots.now() + timedelta(days=40)
    monkeypatch.setattr(snapshots, "now", lambda: later)
    tidy(lake)
    assert lake.rows("accounts", newest.versions["accounts"]) == rows
    monkeypatch.undo()
    lake.deliver()
    assert lake.violations() == []


def test_the_log_is_shortened(lake: Lake) -> None:
    deliver_days_ago(lake, 1)
    tidy(lake)  # which writes the checkpoint that entries are read from after a month
    deliver_days_ago(lake, 31)
    entries = {*(lake.folder / "accounts" / "_delta_log").glob("*.json")}
    lake.staging.sync([[account(1, "100")]])
    lake.deliver()
    tidy(lake)
    left = entries & {*(lake.folder / "accounts" / "_delta_log").glob("*.json")}
    assert 0 < len(left) <= len(entries) - 4
    assert lake.violations() == []
    lake.staging.sync([[account(1, "200")]])
    lake.deliver()
    assert [int(row["balance"]) for row in lake.rows("accounts") if row["id"] == 1] == [200]


@pytest.mark.parametrize("settings", ["cluster_by: [note]", 'properties: {delta.enableChangeDataFeed: "true"}'])
def test_tables_with_more_to_them_are_left_to_spark(lake: Lake, settings: str) -> None:
    lake.config(f"deliver: {{tables: {{accounts: {{{settings}}}}}}}\n")
    deliver_days_ago(lake, 8)
    files = parquet(lake, "accounts")
    done = tidy(lake)
    assert done.left_to_spark == ["accounts"]
    assert maintenance.describe(done).endswith("; left to Spark's VACUUM: accounts")
    assert parquet(lake, "accounts") == files
    lake.staging.sync([[account(1, "100")]])
    lake.deliver()


def test_a_table_that_deletion_vectors_were_given_is_left_alone(lake: Lake) -> None:
    deliver_days_ago(lake, 8)
    table = f"delta.`{lake.folder / 'accounts'}`"
    lake.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    assert tidy(lake).left_to_spark == ["accounts"]


def test_a_delivery_goes_on_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vacuum's commits come between what a batch was planned from and its own."""
    deliver_days_ago(lake, 8)
    real, deleted = batch.deliver, list[int]()

    def disturbed(*args: Any) -> int:
        if not deleted:
            deleted.append(tidy(lake).deleted)
        return real(*args)

    monkeypatch.setattr(batch, "deliver", disturbed)
    lake.staging.sync([[account(1, "100"), history(99, "1.00")]])
    lake.deliver()
    assert deleted[0] > 0
    assert [int(row["balance"]) for row in lake.rows("accounts") if row["id"] == 1] == [100]
    assert len(lake.rows("history")) == 17


@pytest.mark.parametrize("sign", ["accounts/*.parquet", "accounts/_delta_log/*.json", "_deleted/accounts/_delta_log/*"])
def test_maintenance_that_was_killed_left_tables_as_they_were_and_is_made_up_for(lake: Lake, sign: str) -> None:
    """kill -9 as soon as a first file is deleted, or the log of the first or the last table has a new entry."""

    def files() -> set[Path]:
        return {*lake.folder.glob(sign)}

    deliver_days_ago(lake, 8)
    lake.staging.sync([[account(1, "100")]])
    lake.deliver()
    names = ("accounts", "history", "_deleted/accounts")
    rows = {name: DeltaTable(str(lake.folder / name)).to_pyarrow_table().to_pylist() for name in names}
    before, until = files(), time.monotonic() + 60
    process = start("maintain", "tables", cwd=lake.staging.folder, start_new_session=True)
    try:
        while files() == before and process.poll() is None:
            assert time.monotonic() < until
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it had ended before it could be killed"
    assert {name: DeltaTable(str(lake.folder / name)).to_pyarrow_table().to_pylist() for name in names} == rows
    assert lake.violations() == []
    tidy(lake)
    assert tidy(lake, dry_run=True).deleted == 0
    assert len(parquet(lake, "accounts")) == len(DeltaTable(str(lake.folder / "accounts")).file_uris()) + 1
    lake.staging.sync([[account(1, "200"), account(9, None)]])
    lake.deliver()
    assert [int(row["balance"]) for row in lake.rows("accounts") if row["id"] in (1, 9)] == [200]


def test_the_command(lake: Lake) -> None:
    deliver_days_ago(lake, 8)
    cwd = lake.staging.folder
    assert re.fullmatch(
        r"\d+ files in 3 tables; \d+ files that nobody needs would be deleted\n",
        zync("maintain", "tables", "--dry-run", cwd=cwd).stdout,
    )
    done = json.loads(zync("maintain", "tables", "--json", cwd=cwd).stdout)
    assert done["deleted"] > 0
    assert {*done["seconds"]} == {"vacuum", "log"}
    for options, said in ((("--compact",), "compacted by deliveries"), (("--retain", "8d"), "deletedFileRetention")):
        refused = zync("maintain", "tables", *options, cwd=cwd, check=False)
        assert (refused.returncode, said in refused.stderr) == (2, True)
    refused = zync("maintain", "nothing", cwd=cwd, check=False)
    assert (refused.returncode, "no table at" in refused.stderr) == (2, True)
