"""Whether the cost of a small commit to raw stays what it is while commits add up; and how long a large one takes.

Processes on one raw commit one after the other, so 100,000 by the seconds of a large one is what all of them can do.
"""

import time
from itertools import islice
from pathlib import Path

import pyarrow as pa

from bench.harness import Result, log, median, values
from zync.kafka.partition import Partition
from zync.raw.append import Appender
from zync.raw.batch import RECORD_SCHEMA, Batch, Slice
from zync.raw.table import ensure_raw

COMMITS = 5_000
ROWS = 10
LARGE = 100_000
TIMES = 10
_PARTITION = Partition("t", 0)


def run(folder: Path) -> list[Result]:
    """The last hundred of many commits of ten rows by the first hundred."""
    location = str(folder / "raw")
    ensure_raw(location)
    appender, seconds = Appender(location), []
    for number in range(COMMITS):
        at = number * ROWS
        batch = Batch(slices={_PARTITION: Slice(at or None, at + ROWS)})
        batch.add(_rows(at, [b'{"txn":1,"n":4}'] * ROWS))
        started = time.monotonic()
        appender.append(batch)
        seconds.append(time.monotonic() - started)
        if number % 500 == 499:
            log(f"commit {number + 1}: {1000 * sum(seconds[-100:]) / 100:.1f} ms")
    first, last = sum(seconds[:100]), sum(seconds[-100:])
    details = {"first_ms": 10 * first, "last_ms": 10 * last, "last_median_ms": 1000 * median(seconds[-100:])}
    large = _large(str(folder / "large"))
    log(f"commits of {LARGE:,} records: {large} s")
    return [
        Result(f"last 100 of {COMMITS:,} commits by the first 100", last / first, "×", 3, details=details),
        Result(f"a commit of {LARGE:,} records of 200 B", min(large), "s", details={"seconds": large}),
    ]


def _large(location: str) -> list[float]:
    ensure_raw(location)
    appender, seconds, records = Appender(location), [], values(TIMES * LARGE)
    for number in range(TIMES):
        at = number * LARGE
        batch = Batch(slices={_PARTITION: Slice(at or None, at + LARGE)})
        batch.add(_rows(at, list(islice(records, LARGE))))
        started = time.monotonic()
        appender.append(batch)
        seconds.append(time.monotonic() - started)
    return seconds


def _rows(at: int, values: list[bytes]) -> pa.RecordBatch:
    count = len(values)
    kafka = [
        {"topic": "t", "partition": 0, "offset": at + one, "timestamp": 1_700_000_000_000_000} for one in range(count)
    ]
    columns = [kafka, [b"key"] * count, values, [[]] * count]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, one.type) for column, one in zip(columns, RECORD_SCHEMA, strict=True)], schema=RECORD_SCHEMA
    )
