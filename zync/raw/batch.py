"""Records that were consumed from Kafka and are not in raw yet: rows, and a slice of positions for each partition."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zync.kafka.partition import LastRecord, Partition
from zync.lake.types import TIMESTAMP

RECORD_SCHEMA = pa.schema(
    [
        pa.field(
            "kafka",
            pa.struct(
                [
                    pa.field("topic", pa.string()),
                    pa.field("partition", pa.int32()),
                    pa.field("offset", pa.int64()),
                    pa.field("timestamp", TIMESTAMP),
                ]
            ),
        ),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    ]
)
"""A record as it was consumed: raw's columns without `seqno` and `ingested`, which the commit sets."""

MOST_BYTES = 2**31 - 1
"""The bytes of keys, or of values, that a batch may have: as many as an Arrow `binary` column holds in a single chunk.

delta-rs writes several chunks in any order, and then seqnos would not rise within a file.
"""


@dataclass
class Slice:
    """A partition's part of a batch. Positions are next offsets to read, never counts.

    Attributes:
        begin: The stored position at which consumption began; None if raw has none. The slice may be committed only
            while raw still stores `begin` and `begin_id`.
        next: The position after the slice.
        topic_id: The topic's id from the broker; None if unknown.
        gap: A range of offsets (first, exclusive end) that an operator skipped; its end is below its start if reading
            went back.
        begin_id: The topic's id that raw stores with `begin`.
        first: The timestamp of the first record, in seconds since 1970; None if it has none, or no metrics are
            kept.
        last: The last record below `next`; None if its leader's epoch is unknown.
        begin_last: The last record below `begin`, as raw stores it; None if its leader's epoch is unknown.
    """

    begin: int | None
    next: int
    topic_id: int | None = None
    gap: tuple[int, int] | None = None
    begin_id: int | None = None
    first: float | None = None
    last: LastRecord | None = None
    begin_last: LastRecord | None = None

    def is_cut_to(self, end: int) -> bool:
        """Returns whether a partition that ends at `end` lost only transaction markers behind the last record.

        Reading from `end` on then delivers the records that replaced them.
        """
        return self.last is not None and self.last.offset < end < self.next


@dataclass
class Batch:
    """Rows in the order of consumption, and the slices of their partitions. A slice without rows moves its position.

    Attributes:
        since: When the batch began, by `time.monotonic`.
    """

    rows: list[pa.RecordBatch] = field(default_factory=list)
    slices: dict[Partition, Slice] = field(default_factory=dict)
    num_rows: int = 0
    num_bytes: int = 0
    since: float = field(default_factory=time.monotonic)

    def add(self, rows: pa.RecordBatch) -> None:
        """Appends rows of RECORD_SCHEMA. The caller extends their slices."""
        self.rows.append(rows)
        self.num_rows += rows.num_rows
        self.num_bytes += rows.nbytes

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Removes the slices and the rows of partitions."""
        removed = [partition for partition in partitions if self.slices.pop(partition, None) is not None]
        if not removed:
            return
        self.rows = [rows.filter(_not_from(rows, removed)) for rows in self.rows]
        self.num_rows = sum(rows.num_rows for rows in self.rows)
        self.num_bytes = sum(rows.nbytes for rows in self.rows)


def last_rows(rows: pa.RecordBatch) -> dict[Partition, int]:
    """Returns the index of each partition's last row, in order of the partitions' first appearance.

    Args:
        rows: Rows of RECORD_SCHEMA.
    """
    kafka = rows["kafka"]
    indexes = pa.table([kafka.field(0), kafka.field(1), np.arange(rows.num_rows)], ["topic", "partition", "row"])
    last = indexes.group_by(["topic", "partition"], use_threads=False).aggregate([("row", "last")])
    return {Partition(row["topic"], row["partition"]): row["row_last"] for row in last.to_pylist()}


def last_offsets(rows: pa.RecordBatch) -> dict[Partition, int]:
    """Returns each partition's last offset, in order of the partitions' first appearance.

    Args:
        rows: Rows of RECORD_SCHEMA.
    """
    offsets = rows["kafka"].field(2)
    return {partition: offsets[row].as_py() for partition, row in last_rows(rows).items()}


def _not_from(rows: pa.RecordBatch, partitions: list[Partition]) -> pa.Array:
    kafka = rows["kafka"]
    topics, numbers = pc.struct_field(kafka, "topic"), pc.struct_field(kafka, "partition")
    keep = pa.array([True] * rows.num_rows, pa.bool_())
    for topic, number in partitions:
        keep = pc.and_not(keep, pc.and_(pc.equal(topics, topic), pc.equal(numbers, number)))
    return keep
