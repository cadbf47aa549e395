"""Readers of Iceberg read delivered tables, at the newest snapshot and at those before."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from tests.deliver.tables.conftest import ACCOUNTS, Lake, account, version_of
from zync.deliver.catalog import iceberg
from zync.deliver.catalog.entries import CatalogError

ICEBERG = "deliver: {tables: {accounts: {iceberg: true, partition_by: [note]}}}\n"


def metadata(lake: Lake) -> Path:
    return lake.folder / "_iceberg" / "accounts" / "metadata"


def table(lake: Lake) -> StaticTable:
    number = (metadata(lake) / "version-hint.text").read_text()
    return StaticTable.from_metadata(f"file://{metadata(lake)}/v{number}.metadata.json")


def rows(lake: Lake, **scan: Any) -> list[dict[str, Any]]:
    return sorted(table(lake).scan(**scan).to_arrow().to_pylist(), key=lambda one: one["id"])


def test_pyiceberg_reads_the_rows_of_each_snapshot(lake: Lake) -> None:
    lake.config(ICEBERG)
    lake.staging.sync([[account(1, "1.50", "a b"), account(2, "2", "größer"), account(3, "3", "größer")]])
    lake.deliver()
    first = lake.rows("accounts")
    assert rows(lake) == first
    assert rows(lake, row_filter="note = 'größer'") == first[1:]
    version = version_of(lake, "accounts")
    lake.config(ICEBERG, accounts=f"{ACCOUNTS}, value:since::date AS since")
    lake.staging.sync([[account(1, "7", "a b"), account(2, None)]])
    lake.deliver()
    assert rows(lake) == lake.rows("accounts") != first
    assert "since" in table(lake).schema().column_names
    one = table(lake)
    earliest = min(one.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)
    assert earliest.summary["zync.version"] == str(version)
    columns = tuple(first[0])
    assert rows(lake, snapshot_id=earliest.snapshot_id, selected_fields=columns) == first
    lake.config(ICEBERG, accounts=f"{ACCOUNTS.replace('decimal(10, 2)', 'string')}, value:since::date AS since")
    lake.staging.sync([[account(4, "4", "a b")]])
    lake.deliver()  # Iceberg has no way from a decimal to text
    assert rows(lake) == lake.rows("accounts")
    assert {type(row["balance"]) for row in rows(lake)} == {str}


def test_older_snapshots_and_their_files_are_deleted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "_KEPT", 1)
    lake.config(ICEBERG)
    for number in range(3):
        lake.staging.sync([[account(number, "1", "a")]])
        lake.deliver()
    assert rows(lake) == lake.rows("accounts")
    assert len(table(lake).metadata.snapshots) == 1
    assert len(list(metadata(lake).glob("snap-*.avro"))) == 1
    assert len(list(metadata(lake).glob("v*.metadata.json"))) == 1


def test_metadata_that_cannot_be_written_loses_no_row(lake: Lake) -> None:
    lake.config(ICEBERG)
    lake.staging.sync([[account(1, "1", "a")]])
    folder = lake.folder / "_iceberg"
    folder.parent.mkdir(parents=True)
    folder.write_text("a file where the folder should be")
    with pytest.raises(CatalogError, match="the Iceberg metadata of .*accounts cannot be written"):
        lake.deliver()
    folder.unlink()
    lake.deliver()
    assert rows(lake) == lake.rows("accounts")
