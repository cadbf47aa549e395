"""What it costs to find the transactions that a rule fails on: a sync with some, and the same sync with none."""

import json
import random
import time
from dataclasses import replace
from pathlib import Path

from bench.harness import Result, alternately, log
from bench.pipeline import Raw, config
from zync.config.model import OutputRule
from zync.spark.session import session
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer

TRANSACTIONS = 5_000
RECORDS = 3
FAILING = 50
ROUNDS = 4

_RULE = "SELECT seqno, sum(value:x::int) AS x FROM t GROUP BY seqno\n"


def run(folder: Path) -> list[Result]:
    """Seconds of the one by seconds of the other, best of some rounds."""
    pipeline = config(folder)
    rule = folder / "sum.sql"
    rule.write_text(_RULE)
    pipeline = replace(pipeline, outputs=(*pipeline.outputs, OutputRule(topic="sums", sql=rule)))
    raws = {count: Raw(folder / f"raw-{count}") for count in (0, FAILING)}
    for failing, raw in raws.items():
        raw.append(_values(failing))
    spark = session("local[2]")

    def sync(number: int, failing: int) -> float:
        started = time.monotonic()
        outcome: Outcome = Syncer(
            pipeline, raws[failing].location, str(folder / f"staging-{failing}-{number}"), spark
        ).sync()
        if (outcome.transactions, outcome.set_aside.get("quarantined", 0)) != (TRANSACTIONS - failing, failing):
            msg = f"the sync with {failing} that fail gave {outcome}"
            raise RuntimeError(msg)
        return time.monotonic() - started

    for number in (-2, -1):
        sync(number, 0)
    some, none = alternately(ROUNDS, lambda number: sync(number, FAILING), lambda number: sync(number, 0))
    spark.stop()
    log(f"with {FAILING} that fail {some} s, with none {none} s")
    what = f"a rule fails on {FAILING} of {TRANSACTIONS:,} transactions, by the same sync with none"
    return [Result(what, min(some) / min(none), "×", 3, details={"failing_seconds": some, "none_seconds": none})]


def _values(failing: int) -> list[bytes]:
    chance = random.Random(5)
    bad = set(chance.sample(range(TRANSACTIONS), failing))
    row = {"id": 1, "balance": "1.00", "currency": "EUR"}
    return [
        json.dumps({"txn": str(txn), "n": RECORDS, "op": "c", "row": row, "x": "?" if txn in bad else at}).encode()
        for txn in range(TRANSACTIONS)
        for at in range(RECORDS)
    ]
