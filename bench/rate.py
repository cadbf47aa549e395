"""Whether `zync run` sustains a rate with tables and Kafka on: ten minutes at so many rows a second, once it is warm.

What it does not sustain waits ever longer: the last minutes' rows are later than the first's.
"""

import os
from pathlib import Path

from bench.harness import Result, log
from bench.latency import follow, quantiles

ROWS = int(os.environ.get("ZYNC_BENCH_RATE", "3000"))
"""Rows a second, four a transaction. (The bank and the broker are on the same cores.)"""
_COMPILED, _MINUTES = 600.0, 10
_GOAL = 1.2


def run(folder: Path) -> list[Result]:
    """Seconds at p50 and p99 over the ten minutes, and the last two minutes' p50 by that of the first two."""
    _, late_by_place = follow(folder / "rate", ROWS / 4, _COMPILED, 60.0 * _MINUTES, tables=True)
    results = []
    for place, late in late_by_place.items():
        minutes = [[seconds for at, seconds in late if at // 60 == minute] for minute in range(_MINUTES)]
        log(f"{place}: p50 of each minute: {', '.join(f'{quantiles(one)[0]:.1f}' for one in minutes)} s")
        first, last = (quantiles([*one, *other])[0] for one, other in (minutes[:2], minutes[-2:]))
        p50, p99 = quantiles([seconds for _, seconds in late])
        of = f"from commit to {place}, at {ROWS:,} rows/s for ten minutes"
        results += [Result(f"p50 {of}", p50, "s"), Result(f"p99 {of}", p99, "s")]
        results.append(Result(f"p50 {of}: the last two minutes by the first two", last / first, "", _GOAL))
    return results
