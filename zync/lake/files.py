"""The files of a Delta table: which of them hold what, and their rows, as Arrow reads them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from zync.lake.paths import for_spark, is_local, locate


@dataclass(frozen=True)
class DataFile:
    """A data file of a table: where it is, below the table, for Spark and in the log; and what the log says of it.

    `size` in bytes; `lowest` and `highest` of one column.
    """

    path: str
    uri: str
    logged: str
    size: int
    rows: int
    lowest: int
    highest: int


def data_files(table: DeltaTable, column: str, above: int = -(2**63), upto: int = 2**63 - 1) -> list[DataFile]:
    """The table's files that can hold rows with `above < column <= upto`, by the log's statistics, lowest first.

    A file without statistics for the column counts as holding everything.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    root = for_spark(table.table_uri)
    names = set(actions.column_names)
    lows = actions[f"min.{column}"].to_pylist() if f"min.{column}" in names else [None] * actions.num_rows
    highs = actions[f"max.{column}"].to_pylist() if f"max.{column}" in names else [None] * actions.num_rows
    files = [
        DataFile(
            unquote(path),
            f"{root}/{unquote(path)}",
            path,
            size,
            rows or 0,
            -(2**63) if low is None else low,
            2**63 - 1 if high is None else high,
        )
        for path, size, rows, low, high in zip(
            *(actions[name].to_pylist() for name in ("path", "size_bytes", "num_records")), lows, highs, strict=True
        )
    ]
    return sorted((f for f in files if f.highest > above and f.lowest <= upto), key=lambda f: (f.lowest, f.uri))


def folder_files(location: str) -> FileSystem:
    """A folder, here or in an object store, as a file system."""
    if is_local(location):  # Arrow's own: its threads would call Python, and abort a process that is about to end
        return SubTreeFileSystem(location, LocalFileSystem())
    return PyFileSystem(DeltaStorageHandler(location))


def table_files(table: DeltaTable) -> FileSystem:
    """The table's folder as a file system, wherever it is."""
    return folder_files(locate(table.table_uri, ""))


def dataset(table: DeltaTable, paths: list[str], schema: pa.Schema) -> ds.Dataset:
    """The rows of those files below the table's folder, whether committed or not."""
    files, parquet = table_files(table), ds.ParquetFileFormat()
    return ds.FileSystemDataset([parquet.make_fragment(path, files) for path in paths], schema, parquet, files)


def file_statistics(metadata: Any, columns: Collection[str]) -> dict[str, Any]:
    """What the log is to say of a Parquet file: its rows, and the bounds of those columns, none of which has nulls."""
    lowest: dict[str, int] = {}
    highest: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            if column.path_in_schema in columns and column.statistics and column.statistics.has_min_max:
                name, found = column.path_in_schema, column.statistics
                lowest[name] = min(found.min, lowest.get(name, found.min))
                highest[name] = max(found.max, highest.get(name, found.max))
    nulls = dict.fromkeys(lowest, 0)
    return {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
