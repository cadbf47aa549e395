"""What has been taken from Kafka and is not in raw yet: rows, and a slice of each partition: from where to where."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zync.kafka.partition import LastRecord, Source
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
"""A record as it came: raw's columns without `seqno` and `ingested`, which the commit gives."""

MOST_BYTES = 2**31 - 1
"""The bytes of keys, or of values, that a batch may have: as many as an Arrow `binary` column holds in one chunk.

delta-rs writes several chunks in any order, and then seqnos would not rise within a file.
"""


@dataclass
class Slice:
    """One partition's part of a batch. Positions are next offsets to read, never counts.

    `begin` is the stored position (None: none) at which consumption began, `begin_id` the topic's id stored
    with it: only while raw still stores both may the slice be committed. `topic_id` is the id the broker
    gave the topic (None: unknown); `gap` is a range of offsets that an operator let go. `first` is the time of its
    first record, in seconds since 1970, where somebody wants to know. `last` is the last record below `next`, and
    `begin_last` that below `begin` as raw stores it; None where the leader's epoch is unknown.
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
        """Whether a partition that ends there has all records that were taken, and not all that came behind them.

        Those were markers of transactions: who is led to read there again takes what came in their place.
        """
        return self.last is not None and self.last.offset < end < self.next


@dataclass
class Batch:
    """Rows in the order they were taken, and their slices. A slice without rows still moves its position."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    slices: dict[Source, Slice] = field(default_factory=dict)
    num_rows: int = 0
    num_bytes: int = 0
    since: float = field(default_factory=time.monotonic)

    def add(self, rows: pa.RecordBatch) -> None:
        """Puts rows of RECORD_SCHEMA at the end. Their slices are the caller's to extend."""
        self.rows.append(rows)
        self.num_rows += rows.num_rows
        self.num_bytes += rows.nbytes

    def drop(self, sources: Iterable[Source]) -> None:
        """Takes out those partitions: their slices, and their rows."""
        gone = [source for source in sources if self.slices.pop(source, None) is not None]
        if not gone:
            return
        self.rows = [rows.filter(_not_from(rows, gone)) for rows in self.rows]
        self.num_rows = sum(rows.num_rows for rows in self.rows)
        self.num_bytes = sum(rows.nbytes for rows in self.rows)


def last_rows(rows: pa.RecordBatch) -> dict[Source, int]:
    """Which of these rows of RECORD_SCHEMA, counted from 0, is each partition's last, in order of first appearance."""
    kafka = rows["kafka"]
    place = pa.table([kafka.field(0), kafka.field(1), np.arange(rows.num_rows)], ["topic", "partition", "row"])
    last = place.group_by(["topic", "partition"], use_threads=False).aggregate([("row", "last")])
    return {Source(one["topic"], one["partition"]): one["row_last"] for one in last.to_pylist()}


def last_offsets(rows: pa.RecordBatch) -> dict[Source, int]:
    """Each partition's last offset among rows of RECORD_SCHEMA, in order of first appearance."""
    offsets = rows["kafka"].field(2)
    return {source: offsets[row].as_py() for source, row in last_rows(rows).items()}


def _not_from(rows: pa.RecordBatch, sources: list[Source]) -> pa.Array:
    kafka = rows["kafka"]
    topic, partition = pc.struct_field(kafka, "topic"), pc.struct_field(kafka, "partition")
    keep = pa.array([True] * rows.num_rows, pa.bool_())
    for source in sources:
        keep = pc.and_not(keep, pc.and_(pc.equal(topic, source.topic), pc.equal(partition, source.partition)))
    return keep
