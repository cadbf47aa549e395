"""Which tables delta-rs writes small batches to, and how much of them it would have to read."""

import json
import time
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from zync.deliver.tables.small import SmallBatch, _bytes_to_read, has_flat_columns, is_plain


@pytest.mark.parametrize(
    ("kind", "stored", "inside", "outside"),
    [
        (pa.int64(), [2**62, 2**62 + 5], 2**62 + 3, 2**62 + 6),
        (pa.int8(), [-3, 3], 0, 4),
        (pa.string(), ["b", "d" * 100], "d" * 100, "e"),
        (pa.date32(), [date(1, 1, 1), date(2026, 1, 1)], date(2025, 1, 1), date(2026, 1, 2)),
        (pa.bool_(), [True, True], True, False),
    ],
)
def test_files_that_cannot_have_a_key_are_not_counted(
    tmp_path: Path, kind: pa.DataType, stored: list[Any], inside: Any, outside: Any
) -> None:
    write_deltalake(tmp_path / "t", pa.table({"k": pa.array(stored, kind)}))
    table = DeltaTable(tmp_path / "t")
    (size,) = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    assert _bytes_to_read(table, pa.table({"k": pa.array([inside], kind)}), ["k"]) == size
    assert _bytes_to_read(table, pa.table({"k": pa.array([outside, None], kind)}), ["k"]) == size
    assert _bytes_to_read(table, pa.table({"k": pa.array([outside], kind)}), ["k"]) == 0


def test_an_empty_table_has_nothing_to_read(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64())])
    table = DeltaTable.create(tmp_path / "t", pa.schema(schema))
    assert _bytes_to_read(table, pa.table({"k": pa.array([1], pa.int64())}), ["k"]) == 0


@pytest.mark.parametrize(
    ("kind", "as_column", "as_key"),
    [
        (LongType(), True, True),
        (StringType(), True, True),
        (StringType("UTF8_LCASE"), False, False),
        (DateType(), True, True),
        (TimestampType(), True, False),
        (DecimalType(15, 2), True, False),
        (DecimalType(16, 2), False, False),
        (DoubleType(), False, False),
        (FloatType(), False, False),
        (ArrayType(LongType()), False, False),
        (StructType().add("a", LongType()), False, False),
    ],
    ids=str,
)
def test_columns_whose_statistics_delta_rs_rounds_are_sparks(kind: DataType, *, as_column: bool, as_key: bool) -> None:
    schema = StructType().add("Id", LongType()).add("X", kind)
    assert has_flat_columns(schema, ["id"]) == as_column
    assert has_flat_columns(schema, ["id", "x"]) == as_key


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"configuration": {"delta.checkpointInterval": "5", "zync.key": "k"}}, True),
        ({"configuration": {"delta.compatibility.symlinkFormatManifest.enabled": "true"}}, False),
        ({"configuration": {"delta.enableChangeDataFeed": "true"}}, False),
        ({"partition_by": ["k"]}, False),
    ],
)
def test_tables_with_more_to_them_are_sparks(tmp_path: Path, settings: dict[str, Any], *, expected: bool) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
    table = DeltaTable.create(tmp_path / "t", schema, raise_if_key_not_exists=False, **settings)
    assert is_plain(table) == expected


def checkpoints(folder: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in (folder / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_checkpoint_waits_for_as_many_commits_as_are_worth_it(tmp_path: Path) -> None:
    """What was replaced is in each: a checkpoint of many files is not written as often as one of few."""
    rows = pa.table({"k": pa.array([1], pa.int64())})
    interval = {"delta.checkpointInterval": "2"}
    table = DeltaTable.create(tmp_path, rows.schema, configuration=interval)
    for number in range(1, 5):
        assert SmallBatch("s", number, "{}", lambda *_: None).append(table, rows)
    assert checkpoints(tmp_path) == [2, 4]
    removed = {"deletionTimestamp": time.time_ns() // 1_000_000, "dataChange": True, "size": 1}
    entry = "".join(json.dumps({"remove": {"path": f"{number}.parquet", **removed}}) + "\n" for number in range(500))
    (tmp_path / "_delta_log" / f"{5:020}.json").write_text(entry)
    table.update_incremental()
    table.create_checkpoint()
    for number in range(5, 13):
        assert SmallBatch("s", number, "{}", lambda *_: None).append(table, rows)
    assert checkpoints(tmp_path) == [2, 4, 5, 10]
