"""A backlog of millions of records in a driver of the default memory: does it land, at what rate, with what memory.

ZYNC_BENCH_BACKLOG=RECORDS: another size, for example 100000000.
"""

import os
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pyarrow.dataset as ds
from deltalake import DeltaTable

from bench.harness import Result, log, values
from bench.pipeline import RULE
from bench.scale import Lake

RECORDS = int(os.environ.get("ZYNC_BENCH_BACKLOG", "10000000"))
_CONFIG = """\
topics: {t: {id: "value:txn"}}
transactions: {done: "count(*) = max(value:n::int)"}
outputs: [{topic: out, sql: out.sql}]
"""
_SOME = 5
"""Syncs at either end whose times are compared."""


def run(folder: Path) -> list[Result]:
    """Returns rate and peak memory, and what a sync takes at the end by what it takes near the begin.

    Raises:
        RuntimeError: Not all records are in staging's output.
    """
    lake = Lake(folder / "project", _CONFIG, RULE)
    peak = lake.sync(values(RECORDS))
    staging = folder / "project" / "lake" / "staging"
    if (landed := _outputs(staging)) != RECORDS:
        msg = f"{landed:,} of {RECORDS:,} records are in staging's output"
        raise RuntimeError(msg)
    seconds = _seconds_by_sync(DeltaTable(staging))
    log(f"{len(seconds) + 1} syncs; seconds of all but the first: {', '.join(f'{each:.1f}' for each in seconds)}")
    what = f"a backlog of {RECORDS:,} records"
    results = [
        Result(f"{what}: records synced", RECORDS / peak.seconds, "records/s"),
        Result(f"{what}: Python", peak.python, "MB"),
        Result(f"{what}: the JVM", peak.jvm, "MB"),
    ]
    if len(seconds) > 2 * _SOME:
        ratio = mean(seconds[-_SOME - 1 : -1]) / mean(seconds[:_SOME])  # the last takes what is left
        results.append(Result(f"{what}: the last {_SOME} full syncs by the second to the sixth", ratio, "×"))
    return results


def _outputs(staging: Path) -> int:
    rows = DeltaTable(staging).to_pyarrow_dataset()
    return int(rows.count_rows(filter=ds.field("kind") == "output"))


def _seconds_by_sync(staging: DeltaTable) -> list[float]:
    """Returns the seconds between the commits of one sync and the next, by the times in the table's log."""
    times = [commit["timestamp"] for commit in reversed(staging.history())]
    return [(after - before) / 1000 for before, after in pairwise(times[1:])]  # the first commit makes the table
