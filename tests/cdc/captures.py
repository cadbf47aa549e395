"""The real captures in tests/data/debezium, and what of each is to land, counted in plain Python."""

import gzip
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data" / "debezium"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))
SHORT = {"copy360_kill9_midoffset"}
"""Of this one the connector lost rows: one transaction cannot become whole."""


@dataclass(frozen=True)
class Capture:
    """The records of a capture, by partition; `prefix` of its topics."""

    prefix: str
    partitions: dict[tuple[str, int], list[dict[str, Any]]]

    def interleaved(self, seed: int) -> list[dict[str, Any]]:
        """All records in some order that keeps each partition's: now evenly mixed, now partition after partition."""
        chance = random.Random(seed)  # noqa: S311 - a test's
        left = {place: list(reversed(records)) for place, records in self.partitions.items()}
        weight = {place: chance.choice([1, 1, 10, 1000]) for place in left}
        found = []
        while left:
            places = list(left)
            sizes = [len(left[place]) * weight[place] for place in places]
            place = chance.choices(places, sizes)[0]
            for _ in range(chance.choice([1, 1, 5, 50])):
                if left[place]:
                    found.append(left[place].pop())
            if not left[place]:
                del left[place]
        return found

    def with_retries(self, seed: int) -> "tuple[Capture, int]":
        """As a producer sends it that is not idempotent and gets no answer now and then; how many rows come twice."""
        chance = random.Random(seed)  # noqa: S311 - a test's
        rows, partitions = 0, {}
        for place, records in self.partitions.items():
            sent: list[dict[str, Any]] = []
            left = [{name: part for name, part in one.items() if name != "offset"} for one in records]
            while left:
                size = chance.randint(1, 20)
                batch, left = left[:size], left[size:]
                values = [one["value"] and json.loads(one["value"]) for one in batch]
                again = all(value and value.get("transaction", True) for value in values) and chance.random() < 0.3
                rows += again * sum("transaction" in value for value in values)
                sent += batch * (1 + again)
            partitions[place] = sent
        return Capture(self.prefix, partitions), rows


def read(name: str) -> Capture:
    partitions: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt") as lines:
        for record in map(json.loads, lines):
            partitions[record["topic"], record["partition"]].append(record)
    topic = next(topic for topic, _ in partitions if topic.endswith(".transaction"))
    return Capture(topic.removesuffix(".transaction"), dict(partitions))


@dataclass(frozen=True)
class Truth:
    """What a capture is: of each transaction its different rows (with how often), single rows, repeats, tombstones.

    commits: the LSN at which each transaction was committed, which its END says.
    """

    transactions: dict[str, "Counter[str]"]
    singles: int
    repeats: int
    empty: int
    commits: dict[str, int]


def truth(capture: Capture) -> Truth:
    """By the README's identity: transaction, LSN, table, operation, image; a repeat within one run is a real row."""
    by_run: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    commits: dict[str, int] = {}
    singles = empty = rows = 0
    for record, value in _values(capture):
        if record["topic"].endswith(".transaction"):
            txn, _, lsn = value["id"].partition(":")
            by_run[txn]  # noqa: B018 - it is there, also without rows
            if value["status"] == "END":
                commits[txn] = int(lsn)
        elif value is None:
            empty += 1
        elif value.get("transaction") is None:
            singles += 1
        else:
            run = dict(record["headers"]).get("__debezium.context.runId", "")
            by_run[value["transaction"]["id"].split(":")[0]][run][image(value)] += 1
            rows += 1
    transactions = {}
    for txn, runs in by_run.items():
        together: Counter[str] = Counter()
        for one in runs.values():
            together |= one
        transactions[txn] = together
    repeats = rows - sum(one.total() for one in transactions.values())
    return Truth(transactions, singles, repeats, empty, commits)


def _values(capture: Capture) -> Iterator[tuple[dict[str, Any], Any]]:
    for records in capture.partitions.values():
        for record in records:
            yield record, record["value"] and json.loads(record["value"])


def image(value: dict[str, Any]) -> str:
    """What tells a row of a transaction from its others."""
    source = value["source"]
    images = json.dumps([value.get("before"), value.get("after"), value.get("message")], sort_keys=True)
    return f"{source['lsn']}|{source['schema']}|{source['table']}|{value['op']}|{images}"
