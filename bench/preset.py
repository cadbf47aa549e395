"""What the preset `debezium` costs beside a plain `done` over the same records, which counts them as END says."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Result, alternately, log
from bench.pipeline import Raw
from zync.config.model import Config
from zync.project.load import load
from zync.spark.session import session
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer

TRANSACTIONS = 100_000
ROWS = 4
WARM_UP = 20_000
ROUNDS = 5

_RULE = (
    "SELECT seqno, value:after.id::int AS id, value:after.balance::decimal(12, 2) AS balance, value:op::string AS op\n"
    "FROM records WHERE value:op IS NOT NULL\n"
)
_PRESET = "transactions: {preset: debezium, topic: p.transaction}\noutputs: [{topic: out, sql: rule.sql}]\n"
_PLAIN = """\
topics:
  p.transaction: {id: "split_part(value:id::string, ':', 1)"}
  p.s.t: {id: "split_part(value:transaction.id::string, ':', 1)"}
transactions: {done: "count(value:op::string) = max(value:event_count::int)"}
outputs: [{topic: out, sql: rule.sql}]
"""


def run(folder: Path) -> list[Result]:
    """Seconds of the one by seconds of the other, best of some rounds."""
    (folder / "rule.sql").write_text(_RULE)
    configs = {}
    for name, text in (("preset", _PRESET), ("plain", _PLAIN)):
        (folder / f"{name}.yaml").write_text(text)
        configs[name] = load(folder / f"{name}.yaml")
    small, large = (_raw(folder / name, count) for name, count in (("small", WARM_UP), ("large", TRANSACTIONS)))
    spark = session("local[2]")
    outcomes: dict[str, Outcome] = {}

    def sync(name: str, number: int, raw: Raw = large) -> float:
        started = time.monotonic()
        config: Config = configs[name]
        outcomes[name] = Syncer(config, raw.location, str(folder / f"{name}-{number}"), spark).sync()
        return time.monotonic() - started

    for number in (-2, -1):
        for name in configs:
            sync(name, number, small)
    preset, plain = alternately(ROUNDS, lambda number: sync("preset", number), lambda number: sync("plain", number))
    spark.stop()
    for one in outcomes.values():
        if (one.transactions, one.outputs) != (TRANSACTIONS, {"out": TRANSACTIONS * ROWS}):
            msg = f"the sync of {TRANSACTIONS} transactions gave {one}"
            raise RuntimeError(msg)
    log(f"preset {preset} s, plain {plain} s; by stage { ({name: one.seconds for name, one in outcomes.items()}) }")
    details = {"preset_seconds": preset, "plain_seconds": plain}
    what = f"{TRANSACTIONS:,} transactions of {ROWS} rows by the preset, by a plain done over the same records"
    return [Result(what, min(preset) / min(plain), "×", 1.3, details=details)]


def _raw(location: Path, transactions: int) -> Raw:
    raw = Raw(location)
    raw.append_of(_records(transactions))
    return raw


def _records(transactions: int) -> Iterator[tuple[str, bytes]]:
    """(topic, value): BEGIN, rows and END, those of some dozens of transactions interleaved."""
    chance = random.Random(7)
    for start in range(0, transactions, 64):
        left = {txn: list(_transaction(txn, chance)) for txn in range(start, min(start + 64, transactions))}
        while left:
            txn = chance.choice(list(left))
            yield left[txn].pop(0)
            if not left[txn]:
                del left[txn]


def _transaction(txn: int, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    lsn = 1000 + txn * 10
    yield "p.transaction", json.dumps({"status": "BEGIN", "id": f"{txn}:{lsn}", "ts_ms": 1}).encode()
    for number in range(1, ROWS + 1):
        value = {
            "before": None,
            "after": {"id": chance.randrange(100_000), "balance": chance.randrange(10_000) / 100},
            "source": {
                "version": "3.7.0.Final",
                "connector": "postgresql",
                "name": "p",
                "ts_ms": 1,
                "db": "bank",
                "schema": "s",
                "table": "t",
                "txId": txn,
                "lsn": lsn + number,
            },
            "transaction": {"id": f"{txn}:{lsn + number}", "total_order": number, "data_collection_order": number},
            "op": "c",
            "ts_ms": 1,
        }
        yield "p.s.t", json.dumps(value).encode()
    said = [{"data_collection": "s.t", "event_count": ROWS}]
    end = {"status": "END", "id": f"{txn}:{lsn + 9}", "event_count": ROWS, "data_collections": said, "ts_ms": 1}
    yield "p.transaction", json.dumps(end).encode()
