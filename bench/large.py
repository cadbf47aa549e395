"""One transaction of a million records, scattered among others' records: at once, and arriving over 50 syncs."""

import itertools
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from bench.harness import RECORDS, Result, log, values
from bench.pipeline import Raw, config
from zync.config import Config
from zync.spark import session
from zync.sync import Outcome, Syncer

OTHERS = 100_000
SYNCS = 50
WARM_UPS = 3
"""Rounds of what is measured then, each a minute and more: the JVM compiles for minutes what a sync runs."""
DRIVER_GB = 2


def run(folder: Path) -> list[Result]:
    """Seconds of all the syncs by seconds of the one, in a driver of 2 GB."""
    pipeline = config(folder)
    spark = session("local[2]", {"spark.driver.memory": f"{DRIVER_GB}g"})
    for number in range(WARM_UPS + 1):
        once, (done,) = _syncs(folder / f"once-{number}", pipeline, spark, 1)
        many, outcomes = _syncs(folder / f"many-{number}", pipeline, spark, SYNCS)
        for one in (done, outcomes[-1]):
            if one.in_flight or one.cursor != RECORDS + OTHERS:
                msg = f"the last sync left {one}"
                raise RuntimeError(msg)
        log(f"at once {sum(once):.1f} s, over {SYNCS} syncs {sum(many):.1f} s, the last of them {many[-1]:.1f} s")
    spark.stop()
    details = {"once": once, "many": many, "stages": [one.seconds for one in (done, *outcomes)]}
    return [
        Result(f"a transaction of {RECORDS:,} records, in a driver of {DRIVER_GB} GB", sum(once), "s"),
        Result(f"one that arrives over {SYNCS} syncs, by one at once", sum(many) / sum(once), "×", 3, details=details),
    ]


def scattered(count: int, others: int) -> Iterator[bytes]:
    """The records of a transaction of `count` records, with those of small ones anywhere between them."""
    chance = random.Random(7)
    large = (value.replace(b'"txn":0,', b'"txn":-1,', 1) for value in values(count, count))
    small = values(others)
    left = [count, others]
    while any(left):
        which = 0 if chance.random() * sum(left) < left[0] else 1
        left[which] -= 1
        yield next((large, small)[which])


def _syncs(folder: Path, pipeline: Config, spark: object, syncs: int) -> tuple[list[float], list[Outcome]]:
    """The seconds of each, and what it did; they are taken away then."""
    raw, records, each = Raw(folder / "raw"), scattered(RECORDS, OTHERS), -(-(RECORDS + OTHERS) // syncs)
    syncer = Syncer(pipeline, raw.location, str(folder / "staging"), spark)  # type: ignore[arg-type]
    seconds, outcomes = [], []
    for _ in range(syncs):
        raw.append(itertools.islice(records, each))
        started = time.monotonic()
        outcomes.append(syncer.sync())
        seconds.append(time.monotonic() - started)
    shutil.rmtree(folder)
    return seconds, outcomes
