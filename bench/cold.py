"""What a first sync costs beside later ones: syncs of a million typed records each, in one process.

Cold: the first, with the start of Spark. Warm: the fastest of the last three. The CPU time of each is told apart by the
JVM's threads: tasks, the compilers C1 and C2, the garbage collector, and all else, most of which is Spark planning.
"""

import os
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from bench.harness import Result, log, values
from bench.pipeline import Raw, config
from bench.plain_stream import VALUE
from zync.config.model import OutputRule, Topic
from zync.spark.session import session
from zync.sync.syncer import Syncer

RECORDS = 999_936
"""A million, and whole windows of `values`, so that no transaction goes on in the next million."""
SYNCS, LAST = 7, 3
_KINDS = {"Executor": "tasks", "C1": "C1", "C2": "C2", "GC": "GC", "ParGC": "GC"}
"""What a thread is for, by the beginning of its name."""
_GOAL = 1.4


def run(folder: Path) -> list[Result]:
    """Seconds of the first by those of a warm one, and the CPU seconds of both."""
    rule = folder / "rows.sql"
    rule.write_text("SELECT seqno, value.row.* FROM t\n")
    pipeline = replace(
        config(folder),
        topics={"t": Topic("value:txn::string", schema=VALUE)},
        outputs=(OutputRule(topic="rows", sql=rule),),
    )
    raw = Raw(folder / "raw")
    started = time.monotonic()
    spark = session("local[2]")
    syncer = Syncer(pipeline, raw.location, str(folder / "staging"), spark)
    seconds, cpu = [time.monotonic() - started], list[dict[str, float]]()
    for number in range(SYNCS):
        raw.append(islice(values(SYNCS * RECORDS), number * RECORDS, (number + 1) * RECORDS))
        before, started = cpu_seconds(), time.monotonic()
        syncer.sync()
        seconds.append(time.monotonic() - started)
        cpu.append({kind: some - before.get(kind, 0.0) for kind, some in cpu_seconds().items()})
        log(f"{number + 1}. sync: {seconds[-1]:.1f} s, CPU {_rounded(cpu[-1])}")
    cold, warm = seconds[0] + seconds[1], min(seconds[-LAST:])
    details = {"seconds": seconds, "CPU": [*map(_rounded, cpu)]}
    spark.stop()
    first, last = cpu[0], cpu[seconds.index(warm) - 1]
    return [
        Result("a first sync of a million typed records, with Spark's start, by a warm one", cold / warm, "×", _GOAL),
        Result("the first", cold, "s", details=details),
        Result("its CPU time", sum(first.values()), "s", details=_rounded(first)),
        Result("CPU time of a warm one", sum(last.values()), "s", details=_rounded(last)),
    ]


def cpu_seconds() -> dict[str, float]:
    """The CPU seconds of Spark's JVM so far, by what its threads are for; without threads that have ended."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - it has the process
    seconds = defaultdict[str, float](float)
    for task in Path(f"/proc/{gateway.proc.pid}/task").iterdir():
        with suppress(OSError):
            name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
            kind = next((kind for begin, kind in _KINDS.items() if name.startswith(begin)), "planning and all else")
            ticks = sum(map(int, fields.split()[11:13]))
            seconds[kind] += ticks / os.sysconf("SC_CLK_TCK")
    return seconds


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {kind: round(some, 1) for kind, some in sorted(seconds.items(), key=lambda item: -item[1])}
