"""What others did to the tables or to staging is recognised, or only delays the delivery."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.deliver.conftest import Staging
from tests.deliver.tables.conftest import Lake, transfers
from zync.deliver.tables import apply, batch, delivery, delta_rs, without_spark, writer
from zync.errors import OwnedError, UsageError, ZyncError
from zync.lake.lock import owned
from zync.raw.table import ensure_raw


def test_a_raw_is_no_staging_nor_waited_for_as_one(lake: Lake) -> None:
    ensure_raw(lake.staging.path)
    with pytest.raises(UsageError, match="is no staging"):
        lake.deliver(until_caught_up=False)


def test_one_deliverer_at_a_time(lake: Lake) -> None:
    lake.staging.sync(transfers(1, 0))
    with owned(str(lake.folder), what="sync-to tables"), pytest.raises(OwnedError):
        lake.deliver()


def test_the_second_deliverer_starts_no_spark(lake: Lake, warm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`zync run` starts it again and again, while the first, of a run that was killed, ends its batch."""
    monkeypatch.setattr("zync.spark.session.session", lambda *_, **__: pytest.fail("Spark was started"))
    with owned(str(lake.folder), what="sync-to tables"):
        second = warm("sync-to", "tables", "staging", cwd=lake.staging.folder, check=False)
    assert (second.returncode, "one at a time may" in second.stderr) == (3, True)


def test_what_others_did_to_a_table_is_recognised(lake: Lake) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    path = str(lake.folder / "accounts")
    lake.spark.sql(f"OPTIMIZE delta.`{path}`")
    lake.staging.sync(transfers(3, 3))
    lake.deliver()  # rows are the same after OPTIMIZE
    lake.spark.sql(f"UPDATE delta.`{path}` SET balance = 0 WHERE id = 1")  # noqa: S608
    lake.staging.sync(transfers(3, 6))
    with pytest.raises(ZyncError, match=r"somebody else changed the table at .*accounts: its version \d+ is UPDATE"):
        lake.deliver()
    (lake.folder / "accounts").rename(lake.folder / "elsewhere")
    with pytest.raises(ZyncError, match="accounts, of output accounts, is gone: put it back"):
        lake.deliver()


def test_what_others_did_is_recognised_without_a_new_sync(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_LOOK_AFTER_SECONDS", 0.0)
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    path = str(lake.folder / "accounts")
    lake.spark.sql(f"OPTIMIZE delta.`{path}` ZORDER BY (id)")
    before, now = lake.versions()[-1], lake.deliver()  # the older version's files may be vacuumed
    assert now.versions == {**before.versions, "accounts": before.versions["accounts"] + 1}
    assert [one.sync for one in lake.versions()] == [1, 1]
    assert lake.deliver() == now
    lake.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")  # noqa: S608
    with pytest.raises(ZyncError, match=r"somebody else changed the table at .*accounts: its version \d+ is DELETE"):
        lake.deliver()
    shutil.rmtree(path)
    with pytest.raises(ZyncError, match="accounts, of output accounts, is gone"):
        lake.deliver()


def test_who_compacts_a_table_meanwhile_only_delays_the_delivery(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """delta-rs, which puts files together while Spark merges what it has read of them."""
    caplog.set_level("INFO", "zync")
    for number in range(3):
        lake.staging.sync(transfers(3, 3 * number))
        lake.deliver()
    count = 40
    monkeypatch.setattr(without_spark, "apply", lambda *_, **__: None)  # so that Spark merges
    monkeypatch.setattr(delta_rs, "MAX_ROWS", 10)
    lake.staging.sync(transfers(count, 9))
    merge, table = writer.Writer.merge, str(lake.folder / "accounts")

    def disturbed(self: writer.Writer, text: str) -> None:
        monkeypatch.undo()  # once
        over = threading.Event()

        def compact() -> None:
            while not over.is_set():
                DeltaTable(table).optimize.z_order(["id"])

        thread = threading.Thread(target=compact)
        thread.start()
        try:
            merge(self, text)
        finally:
            over.set()
            thread.join()

    monkeypatch.setattr(writer.Writer, "merge", disturbed)
    assert lake.deliver().sync == 4
    (said,) = [one for one in caplog.messages if "trying again" in one]
    assert "output accounts could not be delivered" in said
    assert "[DELTA_CONCURRENT" in said
    assert "calling" not in said  # Java's method
    last = 9 + count
    assert {row["_seqno"] for row in lake.rows("accounts")} == {*range(last - 4, last + 1)}


def test_what_others_did_is_recognised_without_a_snapshot_on_record(lake: Lake) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    lake.spark.sql(f"DELETE FROM delta.`{lake.folder}/accounts` WHERE id = 1")  # noqa: S608
    shutil.rmtree(lake.folder / "_snapshots")
    with pytest.raises(ZyncError, match=r"somebody else changed the table .*: its version 2 is DELETE"):
        lake.deliver()


def test_what_others_did_meanwhile_is_recognised(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    lake.staging.sync(transfers(3, 3))

    def disturbed(*args: Any, **options: Any) -> int:
        count = apply.deliver(*args, **options)
        table = DeltaTable(str(lake.folder / "history"))
        write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append")
        return count

    monkeypatch.setattr(batch, "deliver", disturbed)
    with pytest.raises(ZyncError, match=r"somebody else changed the table .*history: its version \d+ is WRITE"):
        lake.deliver()
    monkeypatch.undo()
    with pytest.raises(ZyncError, match="somebody else changed the table"):
        lake.deliver()
    assert [one.sync for one in lake.versions()] == [1]


def test_that_what_was_deleted_is_not_known_any_more_is_recognised(lake: Lake) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    shutil.rmtree(lake.folder / "_deleted" / "accounts")
    lake.staging.sync(transfers(3, 3))
    with pytest.raises(ZyncError, match=r"_deleted/accounts, of output accounts, is gone: put it back"):
        lake.deliver()


def test_a_staging_that_was_made_anew_or_is_older_is_refused(lake: Lake) -> None:
    for number in range(3):
        lake.staging.sync(transfers(1, number))
    lake.deliver()
    staging = Path(lake.staging.path)
    shutil.move(staging, staging.with_name("before"))
    again = Staging(lake.staging.folder, "localhost:1")
    again.sync(transfers(1, 0))
    with pytest.raises(UsageError, match="the tables are of another staging"):
        lake.deliver()
    shutil.rmtree(staging)
    shutil.move(staging.with_name("before"), staging)
    max((staging / "_delta_log").glob("*.json")).unlink()
    with pytest.raises(UsageError, match="the tables are through sync 3, and .* has 2"):
        lake.deliver()


def test_a_table_that_is_not_ours_is_left_alone(lake: Lake) -> None:
    lake.staging.sync(transfers(1, 0))
    path = str(lake.folder / "accounts")
    lake.spark.range(3).write.format("delta").save(path)
    with pytest.raises(UsageError, match="is not zync's"):
        lake.deliver()
    assert DeltaTable(path).version() == 0
