"""What benchmarks of `zync sync` share: a raw with transactions in it, and the pipeline over it."""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from zync.config.model import Config, OutputRule, Topic, Transactions
from zync.kafka.partition import Partition
from zync.lake.types import TIMESTAMP
from zync.raw.append import Appender
from zync.raw.batch import RECORD_SCHEMA, Batch, Slice
from zync.raw.table import ensure_raw

_COMMIT_ROWS = 100_000
RULE = """\
SELECT seqno, value:row.id::int AS account, value:row.balance::decimal(12, 2) AS balance,
  value:row.currency::string AS currency, value:op::string AS op
FROM t
"""


def config(folder: Path) -> Config:
    """One topic, `done` by count, one rule."""
    rule = folder / "rule.sql"
    rule.write_text(RULE)
    return Config(
        topics={"t": Topic(id="value:txn")},
        transactions=Transactions(done="count(*) = max(value:n::int)"),
        outputs=(OutputRule(topic="out", sql=rule),),
    )


class Raw:
    """A raw table that grows as sync-from would let it grow."""

    def __init__(self, location: Path) -> None:
        self.location = str(location)
        ensure_raw(self.location)
        self._appender = Appender(self.location)
        self._next: Counter[str] = Counter()

    def append(self, values: Iterable[bytes]) -> None:
        """Appends the values as records of topic `t`, in commits of at most 100,000, as sync-from makes them."""
        self.append_of(("t", value) for value in values)

    def append_of(self, records: Iterable[tuple[str, bytes]]) -> None:
        """Appends (topic, value), in such commits."""
        source = iter(records)
        while some := list(itertools.islice(source, _COMMIT_ROWS)):
            topics, values = zip(*some, strict=True)
            batch, offsets = Batch(), np.zeros(len(some), np.int64)
            for topic, count in Counter(topics).items():
                begin, self._next[topic] = self._next[topic], self._next[topic] + count
                batch.slices[Partition(topic, 0)] = Slice(begin or None, self._next[topic])
                offsets[np.array([one == topic for one in topics])] = np.arange(begin, begin + count)
            batch.add(_rows(topics, values, offsets))
            self._appender.append(batch)


def _rows(topics: Sequence[str], values: Sequence[bytes], offsets: "np.ndarray[Any, Any]") -> pa.RecordBatch:
    count = len(values)
    kafka = pa.StructArray.from_arrays(
        [
            pa.array(topics),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            pa.array(offsets),
            pa.repeat(pa.scalar(1_772_000_000_000_000, pa.int64()), count).cast(TIMESTAMP),
        ],
        fields=list(RECORD_SCHEMA.field("kafka").type),
    )
    headers = pa.array([[]] * count, RECORD_SCHEMA.field("headers").type)
    return pa.RecordBatch.from_arrays(
        [kafka, pa.nulls(count, pa.binary()), pa.array(values, pa.binary()), headers], schema=RECORD_SCHEMA
    )
