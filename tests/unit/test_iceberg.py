"""Iceberg metadata of tables that Iceberg can show, and of those that it cannot."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from pyiceberg.table import StaticTable

from zync.deliver.catalog import iceberg
from zync.deliver.catalog.entries import CatalogError
from zync.errors import UsageError

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "day": [date(2026, 1, 31), date(1969, 12, 31), None],
        "at": pa.array([datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        "small": pa.array([1, 2, None], pa.int16()),
        "lines": pa.array([[{"a": 1}], [], [{"a": None}]], pa.list_(pa.struct({"a": pa.int32()}))),
    }
)


def read(location: Path) -> pa.Table:
    metadata = location.parent / "_iceberg" / location.name / "metadata"
    number = (metadata / "version-hint.text").read_text()
    return StaticTable.from_metadata(f"file://{metadata}/v{number}.metadata.json").scan().to_arrow().sort_by("id")


@pytest.mark.parametrize("columns", [[], ["day"], ["at"], ["day", "small"]])
def test_rows_come_back_whatever_partitions_the_table(tmp_path: Path, columns: list[str]) -> None:
    table = tmp_path / "tables" / "orders"
    write_deltalake(table, ROWS, partition_by=columns)
    iceberg.write_metadata(str(table), 0)
    assert read(table).to_pylist() == ROWS.to_pylist()


def test_a_version_is_written_once_and_a_later_one_beside_it(tmp_path: Path) -> None:
    table = tmp_path / "tables" / "orders"
    write_deltalake(table, ROWS)
    for _ in range(2):
        iceberg.write_metadata(str(table), 0)
    DeltaTable(table).delete("id = 2")
    iceberg.write_metadata(str(table), 1)
    assert read(table)["id"].to_pylist() == [1, 3]
    hint = tmp_path / "tables" / "_iceberg" / "orders" / "metadata" / "version-hint.text"
    assert hint.read_text() == "2"


def test_a_table_whose_rows_iceberg_would_see_otherwise_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "tables" / "orders"
    write_deltalake(table, ROWS)
    DeltaTable(table).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(CatalogError, match="Iceberg has no deletionVectors, which somebody gave the table"):
        iceberg.write_metadata(str(table), 1)


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    iceberg.require_iceberg()  # it is there in development
    monkeypatch.setattr(iceberg, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"iceberg: true needs the extra: pip install 'zync\[iceberg\]'"):
        iceberg.require_iceberg()
