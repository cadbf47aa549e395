"""Whether the cost of a small commit to raw stays what it is while commits add up."""

import time
from pathlib import Path

import pyarrow as pa

from bench.harness import Result, log, median
from zync.ingest.append import Appender
from zync.ingest.batch import RECORD_SCHEMA, Batch, Slice, Source
from zync.ingest.raw import ensure_raw

COMMITS = 5_000
ROWS = 10
_SOURCE = Source("t", 0)


def run(folder: Path) -> list[Result]:
    """The last hundred of many commits of ten rows by the first hundred."""
    location = str(folder / "raw")
    ensure_raw(location)
    appender, seconds = Appender(location), []
    for number in range(COMMITS):
        at = number * ROWS
        batch = Batch(slices={_SOURCE: Slice(at or None, at + ROWS)})
        batch.add(_rows(at))
        started = time.monotonic()
        appender.append(batch)
        seconds.append(time.monotonic() - started)
        if number % 500 == 499:
            log(f"commit {number + 1}: {1000 * sum(seconds[-100:]) / 100:.1f} ms")
    first, last = sum(seconds[:100]), sum(seconds[-100:])
    details = {"first_ms": 10 * first, "last_ms": 10 * last, "last_median_ms": 1000 * median(seconds[-100:])}
    return [Result(f"last 100 of {COMMITS:,} commits by the first 100", last / first, "×", 3, details=details)]


def _rows(at: int) -> pa.RecordBatch:
    kafka = [
        {"topic": "t", "partition": 0, "offset": at + one, "timestamp": 1_700_000_000_000_000} for one in range(ROWS)
    ]
    columns = [kafka, [b"key"] * ROWS, [b'{"txn":1,"n":4}'] * ROWS, [[]] * ROWS]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, one.type) for column, one in zip(columns, RECORD_SCHEMA, strict=True)], schema=RECORD_SCHEMA
    )
