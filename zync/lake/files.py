"""The data files of a Delta table, selected by the log's statistics, and their rows as an Arrow dataset."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import FileInfo, FileSystem, LocalFileSystem, SubTreeFileSystem

from zync.lake.paths import for_spark, is_local, locate
from zync.lake.storage import arrow_files


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Attributes:
        path: Its path below the table.
        uri: Its URI for Spark.
        logged: Its path as the log has it, percent-encoded.
        size: Its size in bytes.
        rows: Its number of rows.
        lowest: The smallest value of the selected column.
        highest: The largest value of the selected column.
    """

    path: str
    uri: str
    logged: str
    size: int
    rows: int
    lowest: int
    highest: int


_ACTIONS = "_zync_add_actions"
"""The attribute of a handle that keeps the version and the answer of `add_actions`."""


def add_actions(table: DeltaTable) -> pa.Table:
    """Returns a row for each file of the table, with its statistics in columns like `min.seqno`.

    delta-rs reads the log anew for each call, and in an object store by several requests. So the handle keeps the last
    answer. (A version may have other files in a copy of the table, which has the same id.)
    """
    version, actions = getattr(table, _ACTIONS, (-1, None))
    if version != table.version():
        actions = pa.table(table.get_add_actions(flatten=True))
        setattr(table, _ACTIONS, (table.version(), actions))
    return actions


def data_files(table: DeltaTable, column: str, above: int = -(2**63), upto: int = 2**63 - 1) -> list[DataFile]:
    """Lists the files that may have rows with `above < column <= upto`, in order of their lowest value.

    It uses the log's statistics; a file without statistics of the column is included.
    """
    actions = add_actions(table)
    if not actions.num_rows:
        return []
    unknown = pa.nulls(actions.num_rows, pa.int64())
    lows, highs = (
        actions[name] if name in actions.column_names else unknown for name in (f"min.{column}", f"max.{column}")
    )
    may_have = pc.and_(  # a table may have many files, and a sync asks for the newest several times
        pc.fill_null(pc.greater(highs, above), fill_value=True),
        pc.fill_null(pc.less_equal(lows, upto), fill_value=True),
    )
    columns = (*(actions[name] for name in ("path", "size_bytes", "num_records")), lows, highs)
    root = for_spark(table.table_uri)
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
            *(values.filter(may_have).to_pylist() for values in columns), strict=True
        )
    ]
    return sorted(files, key=lambda file: (file.lowest, file.uri))


def end_within(files: Sequence[DataFile], weights: Sequence[int], limit: int, *, above: int, upto: int) -> int:
    """Returns how far to read so that no more is read than `limit`: the largest such end, but at least `above` + 1.

    A file's rows count as spread evenly over the values of the column.

    Args:
        files: The files that may have rows with `above` < column <= `upto`, from `data_files`.
        weights: What each file weighs: its bytes, or its rows.
        limit: The most that may be read.
        above: The value of the column that was read before.
        upto: The largest value to read.
    """
    lowest = np.array([max(file.lowest, above + 1) for file in files], float)
    highest = np.array([file.highest for file in files], float)
    spans = np.array([file.highest - file.lowest + 1 for file in files], float)

    def weight(end: int) -> int:
        shares = np.clip(np.minimum(highest, end) - lowest + 1, 0, None) / spans
        return int(shares @ np.array(weights, float))

    fitting = bisect_right(range(above + 1, upto + 1), limit, key=weight)
    return min(above + max(fitting, 1), upto)


def folder_files(location: str) -> FileSystem:
    """Opens a local folder or a folder of an object store as a file system."""
    return SubTreeFileSystem(location, LocalFileSystem()) if is_local(location) else arrow_files(location)


def table_files(table: DeltaTable) -> FileSystem:
    """Opens the table's folder, local or in an object store, as a file system."""
    return folder_files(locate(table.table_uri, ""))


def dataset(table: DeltaTable, files: Iterable[DataFile | FileInfo | str], schema: pa.Schema) -> ds.Dataset:
    """Returns the rows of files below the table's folder, whether committed or not.

    An object store is asked for the size of a file that is given as a path only.
    """
    file_system, parquet = table_files(table), ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(file, file_system)
        if isinstance(file, str)
        else parquet.make_fragment(file.path, file_system, file_size=file.size)
        for file in files
    ]
    return ds.FileSystemDataset(fragments, schema, parquet, file_system)


def file_statistics(metadata: Any, columns: Collection[str]) -> dict[str, Any]:
    """Returns the log's statistics of a Parquet file: its rows, and the bounds of `columns`, which have no nulls."""
    lowest: dict[str, int] = {}
    highest: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            if column.path_in_schema in columns and column.statistics and column.statistics.has_min_max:
                name, statistics = column.path_in_schema, column.statistics
                lowest[name] = min(statistics.min, lowest.get(name, statistics.min))
                highest[name] = max(statistics.max, highest.get(name, statistics.max))
    nulls = dict.fromkeys(lowest, 0)
    return {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
