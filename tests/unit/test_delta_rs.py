"""Which tables delta-rs writes to, and how much of them it would have to read."""

import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
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

from zync.deliver.tables import delta_rs
from zync.deliver.tables.delta_rs import DeltaRs, NotPlainError, _key_range, _raise_outage, most_merged, reads_little
from zync.deliver.tables.plain import has_flat_columns, is_plain
from zync.errors import ZyncError
from zync.lake import table as lake_table


@pytest.mark.parametrize(
    ("kind", "stored", "inside", "outside"),
    [
        (pa.int64(), [2**62, 2**62 + 5], 2**62 + 3, 2**62 + 6),
        (pa.int8(), [-3, 3], 0, 4),
        (pa.string(), ["b", "d" * 100], "d" * 100, "e"),
        (pa.date32(), [date(1, 1, 1), date(2026, 1, 1)], date(2025, 1, 1), date(2026, 1, 2)),
    ],
)
def test_files_that_cannot_have_a_key_are_not_counted(
    tmp_path: Path, kind: pa.DataType, stored: list[Any], inside: Any, outside: Any
) -> None:
    write_deltalake(tmp_path / "t", pa.table({"k": pa.array(stored, kind)}))
    table = DeltaTable(tmp_path / "t")
    (size,) = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    assert _key_range(table, pa.table({"k": pa.array([inside], kind)}), ["k"]).bytes == size
    assert _key_range(table, pa.table({"k": pa.array([outside, None], kind)}), ["k"]).bytes == size
    assert _key_range(table, pa.table({"k": pa.array([outside], kind)}), ["k"]).bytes == 0


@pytest.mark.parametrize(
    ("kind", "stored", "outside"),
    [
        (
            pa.bool_(),
            [True, True],
            False,
        ),  # Spark writes no statistics of it, and delta-rs takes what has none for null
        (pa.string(), ["b"], "x" * 1000),  # which would be in the log with each commit
        (pa.int64(), [None], 1),
    ],
)
def test_files_that_a_merge_reads_all_the_same_are_counted(
    tmp_path: Path, kind: pa.DataType, stored: list[Any], outside: Any
) -> None:
    write_deltalake(tmp_path / "t", pa.table({"k": pa.array(stored, kind)}))
    table = DeltaTable(tmp_path / "t")
    (size,) = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    assert _key_range(table, pa.table({"k": pa.array([outside], kind)}), ["k"]).bytes == size


@pytest.mark.parametrize(
    ("kind", "files", "changes"),
    [
        (pa.int32(), [[1, 5], [10, 15], [20, 25]], [12, 15, 16]),
        (
            pa.string(),
            [["a"], ["b'", "m\\", "n" * 100], ["x"]],
            ["b'", "m\\", "m\n", "n" * 100, 'c"', "h$1", "b'\0", "f\U0001f642"],
        ),
        (pa.date32(), [[date(1, 1, 1)], [date(987, 1, 1), date(2026, 1, 1)], [date(9999, 1, 1)]], [date(2026, 1, 1)]),
    ],
    ids=str,
)
def test_a_merge_reads_the_files_that_may_have_the_keys_and_no_others(
    tmp_path: Path, kind: pa.DataType, files: list[list[Any]], changes: list[Any]
) -> None:
    def rows(keys: list[Any], seqno: int) -> pa.Table:
        numbers = pa.array([seqno] * len(keys), pa.int64())
        return pa.table({"k": pa.array(keys, kind), "_position": numbers, "_seqno": numbers})

    for keys in files:
        write_deltalake(tmp_path, rows(keys, 1), mode="append")
    changed = rows(changes, 2).append_column("_deleted", pa.array([False] * len(changes)))
    assert DeltaRs("s", 1, "{}", lambda *_: None).upsert(DeltaTable(tmp_path), changed, ["k"])
    table = DeltaTable(tmp_path)
    (commit,) = table.history(1)
    assert commit["operationMetrics"]["num_target_files_skipped_during_scan"] == 2
    expected = {key: 1 for keys in files for key in keys} | dict.fromkeys(changes, 2)
    found = table.to_pyarrow_table().to_pydict()
    assert dict(zip(found["k"], found["_seqno"], strict=True)) == expected
    assert len(found["k"]) == len(expected)


def test_an_empty_table_has_nothing_to_read(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64())])
    table = DeltaTable.create(tmp_path / "t", pa.schema(schema))
    assert _key_range(table, pa.table({"k": pa.array([1], pa.int64())}), ["k"]).bytes == 0


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
    assert has_flat_columns(schema, is_appended=True) == (as_column or kind == DoubleType())


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


def test_a_checkpoint_waits_for_as_many_commits_as_are_worth_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was replaced is in each: a checkpoint of many files is not written as often as one of few."""
    rows = pa.table({"k": pa.array([1], pa.int64())})
    monkeypatch.setattr(lake_table, "checkpoint_every", lambda _: 2)
    table = DeltaTable.create(tmp_path, rows.schema)
    for number in range(1, 5):
        assert DeltaRs("s", number, "{}", lambda *_: None).append(table, [rows])
    assert checkpoints(tmp_path) == [2, 4]
    removed = {"deletionTimestamp": time.time_ns() // 1_000_000, "dataChange": True, "size": 1}
    entry = "".join(json.dumps({"remove": {"path": f"{number}.parquet", **removed}}) + "\n" for number in range(500))
    (tmp_path / "_delta_log" / f"{5:020}.json").write_text(entry)
    table.update_incremental()
    table.create_checkpoint()
    for number in range(5, 13):
        assert DeltaRs("s", number, "{}", lambda *_: None).append(table, [rows])
    assert checkpoints(tmp_path) == [2, 4, 5, 10]
    monkeypatch.setattr(delta_rs, "_MOST_COMMITS", 2)
    assert DeltaRs("s", 13, "{}", lambda *_: None).append(table, [rows])
    assert checkpoints(tmp_path) == [2, 4, 5, 10, 14]


def test_a_merge_may_read_more_for_a_large_batch() -> None:
    assert [most_merged(size << 20) for size in (0, 2, 3, 8, 100)] == [size << 20 for size in (16, 16, 24, 64, 64)]


def test_a_merge_that_would_read_more_than_it_may_is_sparks(tmp_path: Path) -> None:
    rows = pa.table({"k": [1], "_position": [1], "_seqno": [1]})
    write_deltalake(tmp_path, rows)
    table = DeltaTable(tmp_path)
    (size,) = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    changes = rows.append_column("_deleted", pa.array([False]))
    for most_bytes, expected in ((size - 1, False), (size, True)):
        assert reads_little(table, changes, ["k"], most_bytes) == expected
        assert bool(DeltaRs("s", 1, "{}", lambda *_: None, most_bytes).upsert(table, changes, ["k"])) == expected


def test_rows_that_do_not_fit_are_sparks_and_errors_of_reading_them_are_raised(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, pa.schema([("k", pa.int8())]))
    delta_rs_of = DeltaRs("s", 1, "{}", lambda *_: None)

    def rows(error: Exception | None) -> Iterator[pa.Table]:
        yield pa.table({"k": pa.array([1], pa.int64())})
        if error:
            raise error
        yield pa.table({"k": pa.array([300], pa.int64())})

    assert delta_rs_of.append(table, rows(None)) is None
    assert delta_rs_of.append(table, rows(NotPlainError())) is None
    with pytest.raises(KeyError, match="one of zync's own"):
        delta_rs_of.append(table, rows(KeyError("one of zync's own")))
    assert DeltaTable(tmp_path).version() == 0


@pytest.mark.parametrize(
    ("text", "is_outage"),
    [
        ("Generic S3 error: Error performing PUT http://s3/lake/t/a in 60s, after 10 retries - HTTP error: error "
         "sending request: client error (Connect): tcp connect error: Connection refused (os error 111)", True),
        ("Generic S3 error: 403 Forbidden: <Error><Code>AccessDenied</Code><Message>no</Message></Error>", False),
    ],
)  # fmt: skip
def test_a_store_that_is_away_is_not_left_to_spark(text: str, *, is_outage: bool) -> None:
    """It is waited for; of all else Spark says what is the matter."""
    error = OSError(text)
    with pytest.raises(ZyncError, match="does not answer") if is_outage else nullcontext():
        _raise_outage(error, "s3://lake/t")
    _raise_outage(error, "/lake/t")
