"""One transaction of a million records, by itself or scattered among others' records: at once, and over 50 syncs."""

import itertools
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.harness import RECORDS, Result, log, values
from bench.pipeline import Raw, config
from zync.config.model import Config
from zync.spark.session import session
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer

OTHERS = 100_000
"""Records of small transactions that arrive between those of the large one."""
SYNCS = 50
WARM_UPS = 3
"""Rounds of what is measured then, each a minute and more: the JVM compiles for minutes what a sync runs."""
DRIVER_GB = 2


def run(folder: Path) -> list[Result]:
    """Seconds of all the syncs by seconds of the one, in a driver of 2 GB."""
    pipeline = config(folder)
    spark = session("local[2]", {"spark.driver.memory": f"{DRIVER_GB}g"})
    for _ in range(WARM_UPS):
        _both(folder, pipeline, spark, OTHERS)
    alone, among = _both(folder, pipeline, spark, 0), _both(folder, pipeline, spark, OTHERS)
    spark.stop()
    over = f"one that arrives over {SYNCS} syncs"
    return [
        Result(f"a transaction of {RECORDS:,} records, in a driver of {DRIVER_GB} GB", sum(alone["once"]), "s"),
        Result(f"{over}, by one at once", _ratio(alone), "×", 3, details=alone),
        Result(f"{over} with {OTHERS:,} records of others, by all at once", _ratio(among), "×", details=among),
    ]


def _both(folder: Path, pipeline: Config, spark: object, others: int) -> dict[str, list[Any]]:
    """The seconds of the one sync, of the many, and of the stages of each."""
    once, (done,) = _syncs(folder, pipeline, spark, 1, others)
    many, outcomes = _syncs(folder, pipeline, spark, SYNCS, others)
    for one in (done, outcomes[-1]):
        if one.in_flight or one.cursor != RECORDS + others:
            msg = f"the last sync left {one}"
            raise RuntimeError(msg)
    log(
        f"with {others:,} others at once {sum(once):.1f} s, over {SYNCS} syncs {sum(many):.1f} s, "
        f"the last of them {many[-1]:.1f} s"
    )
    return {"once": once, "many": many, "stages": [one.seconds for one in (done, *outcomes)]}


def _ratio(found: dict[str, list[Any]]) -> float:
    return float(sum(found["many"]) / sum(found["once"]))


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


def _syncs(folder: Path, pipeline: Config, spark: object, syncs: int, others: int) -> tuple[list[float], list[Outcome]]:
    """The seconds of each, and what it did; the tables are taken away then."""
    lake = folder / "lake"
    raw, records, each = Raw(lake / "raw"), scattered(RECORDS, others), -(-(RECORDS + others) // syncs)
    syncer = Syncer(pipeline, raw.location, str(lake / "staging"), spark)  # type: ignore[arg-type]
    seconds, outcomes = [], []
    for _ in range(syncs):
        raw.append(itertools.islice(records, each))
        started = time.monotonic()
        outcomes.append(syncer.sync())
        seconds.append(time.monotonic() - started)
    shutil.rmtree(lake)
    return seconds, outcomes
