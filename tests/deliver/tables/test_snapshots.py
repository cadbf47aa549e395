"""Snapshots: which versions of all tables belong together, and the names of their views."""

from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from zync.deliver.tables import snapshots
from zync.deliver.tables.snapshots import Snapshot
from zync.errors import UsageError


def test_snapshots_stay_few_files_and_those_of_long_ago_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "TIDY_EVERY", 10)
    location, now = str(tmp_path / "_snapshots"), snapshots.now()
    for number in range(1, 36):
        taken = Snapshot(number, now - timedelta(days=70 - 2 * number), "s", {"t": number})
        snapshots.take(snapshots.ensure_snapshots(location), taken)
        assert snapshots.newest(location) == taken
        table = DeltaTable(location)
        assert len(table.file_uris()) <= 10
    assert len(list((tmp_path / "_snapshots" / "_delta_log").glob("*.checkpoint.parquet"))) == 3
    for number in range(16, 36):
        assert snapshots.at(location, number).versions == {"t": number}
    with pytest.raises(UsageError, match="there is no snapshot as old as 14"):
        snapshots.at(location, 14)


def test_views_have_names_that_spark_takes() -> None:
    found = Snapshot(1, snapshots.now(), "id", {"a.b-c": 1, "a_b.c": 2, "A_B_C": 3, "x": 4})
    views = [one.split("`")[1::2] for one in snapshots.views(found, "/lake")]
    assert views == [
        ["A_B_C", "/lake/A_B_C"],
        ["a_b_c_2", "/lake/a.b-c"],
        ["a_b_c_3", "/lake/a_b.c"],
        ["x", "/lake/x"],
    ]
