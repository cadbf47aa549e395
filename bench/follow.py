"""A warm sync of 1,000 new records, as `--follow` does it; with 100 times the history, and with transactions in flight.

The lakes take turns in one process, so that whatever slows one slows the others.
"""

import gc
import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.harness import Result, log, median, values
from bench.pipeline import Raw, config
from zync.config.model import Config
from zync.spark.session import session
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer

NEW = 1_000
SHORT, LONG = 10_000, 1_000_000
WARM_UP, ROUNDS = 10, 20
_HISTORY_STEP = 200_000
_STUCK = [b'{"txn":-1,"n":1000000000}']
_FLYING = 100_000


class Lake:
    """A raw and its staging that grow together."""

    def __init__(
        self, folder: Path, pipeline: Config, spark: object, history: int, first: Iterable[bytes] = ()
    ) -> None:
        self.raw = Raw(folder / "raw")
        self.syncer = Syncer(pipeline, self.raw.location, str(folder / "staging"), spark)  # type: ignore[arg-type]
        self.records: Iterator[bytes] = values(history + NEW * (WARM_UP + ROUNDS))
        self.raw.append(first)
        for start in range(0, history, _HISTORY_STEP):
            self.raw.append(itertools.islice(self.records, min(_HISTORY_STEP, history - start)))
            self.syncer.sync()

    def sync(self) -> tuple[float, Outcome]:
        """How long a sync of new records takes, and what it did."""
        self.raw.append(itertools.islice(self.records, NEW))
        started = time.monotonic()
        done = self.syncer.sync()
        return time.monotonic() - started, done


def run(folder: Path) -> list[Result]:
    """The median of some syncs, and how many times that the other lakes take."""
    spark, pipeline = session("local[2]"), config(folder)
    lakes = {
        "short": Lake(folder / "short", pipeline, spark, SHORT),
        "long": Lake(folder / "long", pipeline, spark, LONG),
        "stuck": Lake(folder / "stuck", pipeline, spark, LONG, _STUCK),
        "flying": Lake(folder / "flying", pipeline, spark, LONG, _flying()),
    }
    seconds: dict[str, list[float]] = {name: [] for name in lakes}
    stages: dict[str, list[dict[str, float]]] = {name: [] for name in lakes}
    for number in range(WARM_UP + ROUNDS):
        for name, lake in lakes.items():
            took, done = lake.sync()
            if done.records != NEW:
                msg = f"a sync of {NEW} records gave {done}"
                raise RuntimeError(msg)
            if number >= WARM_UP:
                seconds[name].append(took)
                stages[name].append(done.seconds)
        if number == WARM_UP - 1:
            heap = _heap(spark)
        log(f"round {number + 1}: {', '.join(f'{name} {found[-1:]}' for name, found in seconds.items())}")
    grown = _heap(spark) / heap
    spark.stop()
    by_stage = {
        name: {stage: round(median(one[stage] for one in found), 3) for stage in found[0]}
        for name, found in stages.items()
    }
    for name, one in by_stage.items():
        log(f"{name}: {one}")
    short, long, stuck, flying = (median(seconds[name]) for name in lakes)
    details = {"seconds": seconds, "stages": by_stage}
    return [
        Result(f"warm sync of {NEW:,} records (p50)", short, "s", details=details),
        Result("the same with 100 times the history", long / short, "×", 1.3),
        Result("the same with a transaction in flight since the first record", stuck / long, "×", 1.3),
        Result(f"the same with {_FLYING:,} transactions in flight", flying / long, "×", 1.5),
        Result(f"the JVM's heap by that of {ROUNDS * len(lakes)} syncs before", grown, "×", 1.1),
    ]


def _heap(spark: Any) -> int:
    """Bytes that the JVM's garbage collector leaves, once Spark's cleaner has seen what went."""
    for _ in range(3):
        gc.collect()
        spark._jvm.System.gc()  # noqa: SLF001
        time.sleep(1)
    usage = spark._jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()  # noqa: SLF001
    return int(usage.getUsed())


def _flying() -> Iterator[bytes]:
    """The first record of each of many transactions that never get another."""
    return (b'{"txn":%d,"n":2}' % -number for number in range(2, _FLYING + 2))
