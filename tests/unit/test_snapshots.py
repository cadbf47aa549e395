"""Which versions of the delivered tables belong together, and that others' upkeep of them is followed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql.types import StructType

from zync.config.model import DeliveredTable
from zync.deliver.tables import snapshots
from zync.deliver.tables.batch import look_after
from zync.deliver.tables.snapshots import Snapshot
from zync.deliver.tables.target import TableTarget
from zync.errors import ConflictError, UsageError, ZyncError
from zync.lake.delivered import APP

MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)
STAGING = "5a6e"


def delivered(folder: Path, topic: str) -> TableTarget:
    """The target of an output, whose table has two syncs of STAGING."""
    target = TableTarget(topic, str(folder / topic), StructType().add("n", "long"), (), DeliveredTable())
    for sync in (1, 2):
        said = CommitProperties({"userMetadata": '{"zync":{}}'}, app_transactions=[Transaction(APP + STAGING, sync)])
        write_deltalake(target.location, pa.table({"n": [sync]}), mode="append", commit_properties=said)
    return target


def test_a_new_output_has_no_table_to_look_after_while_staging_is_away(tmp_path: Path) -> None:
    targets = {"old": delivered(tmp_path, "old")}
    targets["new"] = TableTarget("new", str(tmp_path / "new"), StructType().add("n", "long"), (), DeliveredTable())
    snapshot = Snapshot(2, MOMENT, STAGING, {"old": 1, "dropped": 7})
    assert look_after(targets, str(tmp_path), snapshot) == snapshot
    assert not (tmp_path / snapshots.NAME).exists()


def test_a_table_that_others_compacted_gets_a_new_snapshot_with_all_versions(tmp_path: Path) -> None:
    targets = {topic: delivered(tmp_path, topic) for topic in ("a", "b")}
    DeltaTable(targets["a"].location).optimize.compact()
    now = look_after(targets, str(tmp_path), Snapshot(2, MOMENT, STAGING, {"a": 1, "b": 1, "dropped": 7}))
    assert (now.sync, now.versions) == (2, {"a": 2, "b": 1, "dropped": 7})
    assert snapshots.newest(str(tmp_path / snapshots.NAME)) == now


def test_a_table_that_others_wrote_to_or_took_away_is_named(tmp_path: Path) -> None:
    target = delivered(tmp_path, "a")
    snapshot = Snapshot(2, MOMENT, STAGING, {"a": 1})
    write_deltalake(target.location, pa.table({"n": [3]}), mode="append")
    with pytest.raises(ZyncError, match="somebody else changed the table at .*a: its version 2 is WRITE"):
        look_after({"a": target}, str(tmp_path), snapshot)
    Path(target.location).rename(tmp_path / "elsewhere")
    with pytest.raises(ZyncError, match="the table at .*a, of output a, is gone"):
        look_after({"a": target}, str(tmp_path), snapshot)


def test_the_snapshot_of_a_moment_is_the_newest_before_it(tmp_path: Path) -> None:
    location = str(tmp_path / snapshots.NAME)
    for sync in (1, 2, 3):
        snapshots.take(
            snapshots.ensure_snapshots(location), Snapshot(sync, MOMENT + timedelta(hours=sync), STAGING, {"a": sync})
        )
    assert snapshots.at(location, None).sync == 3
    assert snapshots.at(location, 2).sync == 2
    assert snapshots.at(location, MOMENT + timedelta(hours=2, minutes=59)).sync == 2
    with pytest.raises(UsageError, match="no snapshot as old as 0"):
        snapshots.at(location, 0)


def test_without_a_snapshot_the_message_says_what_makes_one(tmp_path: Path) -> None:
    assert snapshots.newest(str(tmp_path / snapshots.NAME)) is None
    with pytest.raises(UsageError, match="`zync sync-to tables staging` makes it"):
        snapshots.at(str(tmp_path / snapshots.NAME), None)


def test_views_have_names_that_sparks_catalog_takes(tmp_path: Path) -> None:
    statements = snapshots.views(Snapshot(1, MOMENT, STAGING, {"a.b": 4, "a-b": 5, "A_b": 6}), "/lake/tables")
    assert statements == [
        "CREATE OR REPLACE VIEW `A_b` AS SELECT * FROM delta.`/lake/tables/A_b` VERSION AS OF 6;",
        "CREATE OR REPLACE VIEW `a_b_2` AS SELECT * FROM delta.`/lake/tables/a-b` VERSION AS OF 5;",
        "CREATE OR REPLACE VIEW `a_b_3` AS SELECT * FROM delta.`/lake/tables/a.b` VERSION AS OF 4;",
    ]


def test_a_snapshot_is_not_taken_after_one_of_another_process(tmp_path: Path) -> None:
    location = str(tmp_path / snapshots.NAME)
    opened = snapshots.ensure_snapshots(location)
    snapshots.take(snapshots.ensure_snapshots(location), Snapshot(2, MOMENT, STAGING, {"a": 2}))
    with pytest.raises(ConflictError, match="another process took a snapshot"):
        snapshots.take(opened, Snapshot(1, MOMENT, STAGING, {"a": 1}))
    assert [snapshot.sync for snapshot in snapshots.read(location)] == [2]


def test_a_table_that_another_process_delivered_to_is_in_no_snapshot_of_an_earlier_sync(tmp_path: Path) -> None:
    target = delivered(tmp_path, "a")
    with pytest.raises(ConflictError, match="another process delivered to the table of a, .* later sync than 1"):
        look_after({"a": target}, str(tmp_path), Snapshot(1, MOMENT, STAGING, {"a": 0}))
    assert not (tmp_path / snapshots.NAME).exists()
