"""Reads staging's output rows without Spark.

`staged` has whole transactions in the order of delivery, as Kafka gets them; `OutputRows` those of a topic and of some
syncs.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.lake.files import DataFile, data_files, dataset
from zync.staging.kinds import COMPLETED_KINDS
from zync.staging.table import STAGING_SCHEMA

MOST_ROWS = 250_000
MOST_BYTES = 64 << 20
_MAX_SEQNO = 2**63 - 1
DELIVERY_ORDER = {
    "sync": ds.field("sync"),
    "turn": pc.coalesce(ds.field("head"), ds.field("seqno")),
    "seqno": ds.field("seqno"),
}
"""The columns of a delivery position, as expressions over staging."""
KAFKA_OFFSET = ds.field("kafka", "offset")
"""The offset of an output row in its topic, as an expression over staging."""
TRUNCATED = "truncate"
"""The reason of an output row that is a truncation: without key and value, it deletes all earlier rows of its topic."""


@dataclass(frozen=True, order=True)
class DeliveryPosition:
    """The progress of a delivery in staging: it delivered everything through the transaction `seqno` of `sync`.

    `turn` is the seqno at which the transaction's turn came (order: commit); without that order it is `seqno`.
    """

    sync: int = 0
    turn: int = 0
    seqno: int = 0


def staged(table: DeltaTable, after: DeliveryPosition) -> Iterator[pa.Table]:
    """Yields the output rows after a position as tables of whole transactions, each small enough for memory.

    Rows are ordered by sync, turn, seqno and offset, the order in which staging numbered them. The other columns are
    topic, key, value, position, reason (of a truncation), state and txn (null for a record without transaction).
    """
    for files, last_sync in _file_spans(data_files(table, "sync", above=after.sync - 1)):
        rows, end = dataset(table, files, STAGING_SCHEMA), DeliveryPosition(last_sync, _MAX_SEQNO, _MAX_SEQNO)
        is_output = _in_range(after, end) & (ds.field("kind") == "output")
        for last in _batch_ends(rows.to_table(columns=DELIVERY_ORDER, filter=is_output), _rows_per_batch(rows)):
            yield _read_outputs(rows, after, last)
            after = last
        after = max(after, end)


@dataclass(frozen=True, order=True)
class Truncation:
    """A truncation of an output topic, by its position in the source's order: it deletes all earlier rows.

    Attributes:
        position: The position of its transaction's commit in the source.
        seqno: The seqno of its transaction.
        offset: The offset of its output row; rows of its own transaction with lower offsets are earlier.
        turn: The seqno at which its transaction's turn came.
    """

    position: int
    seqno: int
    offset: int
    turn: int


@dataclass(frozen=True)
class Arrivals:
    """A summary of the output rows of a topic that a table does not have yet.

    Attributes:
        rows: Their number, truncations included.
        first_place: A lower bound (position, seqno) of their places in the source's order.
        without_position: Whether any row has no position.
        truncations: The truncations among the rows.
        left_out: The columns that the connector left out of any row.
        with_old_key: Whether an update gave any row another key.
    """

    rows: int
    first_place: tuple[int, int]
    without_position: bool
    truncations: list[Truncation]
    left_out: frozenset[str]
    with_old_key: bool


@dataclass(frozen=True)
class OutputRows:
    """The output rows of a topic, of the syncs after `after` up to and including `upto`.

    Attributes:
        table: The staging.
        files: Its files that may have them.
        topic: The topic.
        after: The last sync before them.
        upto: Their last sync.
    """

    table: DeltaTable
    files: list[DataFile]
    topic: str
    after: int
    upto: int

    @cached_property
    def _dataset(self) -> ds.FileSystemDataset:
        return dataset(self.table, self.files, STAGING_SCHEMA)

    @property
    def shares_files(self) -> bool:
        """Whether the files may have rows of other syncs, too."""
        return any(file.lowest <= self.after or file.highest > self.upto for file in self.files)

    @property
    def _is_wanted(self) -> ds.Expression:
        is_wanted = (ds.field("kind") == "output") & (ds.field("kafka", "topic") == self.topic)
        if self.shares_files:
            is_wanted &= (ds.field("sync") > self.after) & (ds.field("sync") <= self.upto)
        return is_wanted

    def read(self, columns: Mapping[str, ds.Expression], where: ds.Expression | None = None) -> pa.Table:
        """Reads columns of the rows, or of those of them `where` a condition holds; in any order."""
        is_wanted = self._is_wanted
        return self._dataset.to_table(columns, filter=is_wanted if where is None else is_wanted & where)

    def batches(self, columns: Mapping[str, ds.Expression], rows: int) -> Iterator[pa.RecordBatch]:
        """Reads columns of the rows a batch after the other, of so many rows at most; in any order."""
        size = min(rows, _rows_per_batch(self._dataset))
        scanner = self._dataset.scanner(
            columns, filter=self._is_wanted, batch_size=size, batch_readahead=1, fragment_readahead=1
        )
        yield from scanner.to_batches()

    def summary(self) -> Arrivals:
        """Summarizes the rows."""
        rows = self.read({name: ds.field(name) for name in ("position", "seqno", "reason", "state")})
        position, seqno = (pc.min(pc.fill_null(rows[name], 0)).as_py() or 0 for name in ("position", "seqno"))
        truncations: list[Truncation] = []
        if rows["reason"].null_count < rows.num_rows:
            columns = {"position": ds.field("position"), "seqno": ds.field("seqno"), "offset": KAFKA_OFFSET}
            truncation_rows = self.read({**columns, "turn": DELIVERY_ORDER["turn"]}, ds.field("reason") == TRUNCATED)
            truncations = sorted(Truncation(**row) for row in truncation_rows.to_pylist())
        states = [parse_state(state) for state in rows["state"].unique().to_pylist() if state]
        left_out = frozenset(column for columns, _ in states for column in columns)
        with_old_key = any(old_key for _, old_key in states)
        without_position = rows["position"].null_count > 0
        return Arrivals(rows.num_rows, (position, seqno), without_position, truncations, left_out, with_old_key)


def parse_state(state: str) -> tuple[list[str], str | None]:
    """Parses the state of an output row: the columns that the connector left out, and the key that it had before."""
    values = json.loads(state)
    return values["left_out"], values.get("old_key")


def columns_by_sync(table: DeltaTable, first: int, last: int) -> dict[int, dict[str, Any]]:
    """Reads the columns of the outputs (as `recorded` returns them) from the cursor rows of syncs `first` to `last`."""
    files = data_files(table, "sync", above=first - 1, upto=last)
    is_cursor = (ds.field("kind") == "cursor") & (ds.field("sync") >= first) & (ds.field("sync") <= last)
    rows = dataset(table, files, STAGING_SCHEMA).to_table(columns=["sync", "state"], filter=is_cursor)
    return {row["sync"]: recorded(row["state"]) for row in rows.to_pylist()}


def _in_range(after: DeliveryPosition, last: DeliveryPosition) -> ds.Expression:
    """Returns a filter for rows after the position `after` (exclusive) up to `last` (inclusive)."""
    sync, turn, seqno = DELIVERY_ORDER.values()
    above = (turn > after.turn) | ((turn == after.turn) & (seqno > after.seqno))
    not_above = (turn < last.turn) | ((turn == last.turn) & (seqno <= last.seqno))
    return ((sync > after.sync) | ((sync == after.sync) & above)) & (
        (sync < last.sync) | ((sync == last.sync) & not_above)
    )


def _file_spans(files: list[DataFile]) -> Iterator[tuple[list[DataFile], int]]:
    """Groups files, ordered by sync, into spans that share no sync; all but the last hold at least `MOST_ROWS` rows.

    Yields the files of each span and its last sync.
    """
    span: list[DataFile] = []
    count, highest = 0, 0
    for number, file in enumerate(files):
        span.append(file)
        count, highest = count + file.rows, max(highest, file.highest)
        next_lowest = files[number + 1].lowest if number + 1 < len(files) else None
        if next_lowest is None or (count >= MOST_ROWS and next_lowest > highest):
            yield span, highest
            span, count = [], 0


def _rows_per_batch(rows: ds.FileSystemDataset) -> int:
    """Computes how many rows fit into `MOST_BYTES`, by the sizes in the files' metadata; `MOST_ROWS` at most."""
    count = size = 0
    for fragment in rows.get_fragments():
        metadata = fragment.metadata
        count += metadata.num_rows
        for group in range(metadata.num_row_groups):
            size += metadata.row_group(group).total_byte_size
    return max(1, min(MOST_ROWS, MOST_BYTES * count // max(1, size)))


def _batch_ends(positions: pa.Table, rows_per_batch: int) -> Iterator[DeliveryPosition]:
    """Yields the last position of each batch of about `rows_per_batch` rows; no batch ends within a transaction."""
    counted = positions.group_by(list(DELIVERY_ORDER)).aggregate([([], "count_all")])
    counted = counted.sort_by([(column, "ascending") for column in DELIVERY_ORDER])
    running_total = np.cumsum(counted["count_all"].to_numpy())  # rows up to each position, inclusive
    delivered = index = 0
    while index < len(running_total):
        last = min(int(np.searchsorted(running_total, delivered + rows_per_batch)), len(running_total) - 1)
        yield DeliveryPosition(*(counted[column][last].as_py() for column in DELIVERY_ORDER))
        delivered, index = int(running_total[last]), last + 1


def _read_outputs(data: ds.FileSystemDataset, after: DeliveryPosition, last: DeliveryPosition) -> pa.Table:
    """Reads the output rows after the position `after` up to `last`, with their transaction ids, in order."""
    columns = DELIVERY_ORDER | {name: ds.field(name) for name in ("key", "value", "position", "reason", "state")}
    columns |= {name: ds.field("kafka", name) for name in ("topic", "offset")}
    rows = data.to_table(columns=columns, filter=_in_range(after, last) & (ds.field("kind") == "output"))
    in_syncs = (ds.field("sync") >= after.sync) & (ds.field("sync") <= last.sync)
    completed = data.to_table(columns=["seqno", "txn"], filter=in_syncs & ds.field("kind").isin(list(COMPLETED_KINDS)))
    rows = rows.append_column("txn", completed["txn"].take(pc.index_in(rows["seqno"], completed["seqno"])))
    order = np.lexsort([rows[name].to_numpy() for name in ("offset", *reversed(DELIVERY_ORDER))])
    return rows if (order[1:] > order[:-1]).all() else rows.take(order)


@lru_cache(16)
def recorded(state: str | None) -> dict[str, dict[str, Any]]:
    """Parses the columns of the outputs from a cursor row's state: by topic the types of its `key` and `value`.

    The types are in the JSON of Spark and Delta: `{"type": "struct", …`.
    """
    return json.loads(state or "{}").get("columns", {})  # type: ignore[no-any-return]
