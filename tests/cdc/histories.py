"""Histories of transactions, the rule for completion in plain Python, and syncs of several of them together."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cdc.test_captures import pipeline
from tests.conftest import Loader, rows
from zync.operate.decide import decide, undecided
from zync.operate.verify import verify
from zync.raw.table import existing_raw, next_seqno
from zync.staging.kinds import UNDECIDED_KINDS
from zync.sync.syncer import Syncer
from zync.transactions import gather


@dataclass
class Transaction:
    """What has come of one: rows as (run, total_order, table), those that are no repeats, and what each END said."""

    seen: list[tuple[str, int, str]] = field(default_factory=list)
    used: list[tuple[str, int, str]] = field(default_factory=list)
    orders: "dict[Any, list[int]]" = field(default_factory=dict)
    numbered: "dict[int, Any]" = field(default_factory=dict)
    clashes: bool = False
    ends: list[dict[str, int]] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    uncounted: str = ""

    def row(self, run: str, total_order: int, table: str, identity: Any, *, numbered: bool) -> bool:
        """Takes a row; whether it is no repeat: the nth of its run is the same row as the nth of another.

        What one run sends twice with the same total_order is the same row; where no run is named that is not known, but
        for rows that are numbered for good. Two of those with one number that differ are of two transactions.
        """
        self.clashes |= numbered and self.numbered.setdefault(total_order, identity) != identity
        orders = self.orders.setdefault((run, identity), [])
        if total_order in orders and (run or numbered):
            return False
        orders.append(total_order)
        self.seen.append((run, total_order, table))
        new = not any(len(own) >= len(orders) for (r, i), own in self.orders.items() if i == identity and r != run)
        if new:
            self.used.append((run, total_order, table))
        return new

    def done(self) -> bool:
        """Whether every END is satisfied."""
        return bool(self.ends) and all(map(self.satisfies, self.ends))

    def satisfies(self, end: dict[str, int]) -> bool:
        """Whether one run, or all different rows, are what that END says: by table, or all of them together (ALL)."""
        runs = {run for run, _, _ in self.seen}
        return (
            not sum(end.values())
            or counted([one for one in self.used if one[2] != self.uncounted], end) == end
            or any(self.whole_run([one for one in self.seen if one[0] == run], end) for run in runs)
        )

    @staticmethod
    def whole_run(mine: list[tuple[str, int, str]], end: dict[str, int]) -> bool:
        return len(mine) == max(order for _, order, _ in mine) and counted(mine, end) == end


ALL = "all"
"""What an END counts that does not count by table."""


def counted(some: list[tuple[str, int, str]], end: dict[str, int]) -> dict[str, int]:
    return dict(Counter(ALL if ALL in end else table for _, _, table in some))


def history(chance: random.Random, version: str) -> list[dict[str, Any]]:
    """Records of forty transactions, two runs and some without a name, and two tables, at random."""
    found: list[dict[str, Any]] = []
    for _ in range(200):
        txn, kind = chance.randint(1, 40), chance.random()
        record: dict[str, Any]
        if kind < 0.3:
            counts = {table: n for table in "tu" if (n := chance.choice([0, 1, 1, 2]))}
            said = [{"data_collection": f"s.{table}", "event_count": n} for table, n in counts.items()]
            value = {"status": "END", "id": f"{txn}:9", "event_count": sum(counts.values()), "data_collections": said}
            if chance.random() < 0.3:
                value["data_collections"] = None
            record = {"topic": "p.transaction", "value": value}
        elif kind < 0.4:
            record = {"topic": "p.transaction", "value": {"status": "BEGIN", "id": f"{txn}:1"}}
        else:
            table, lsn, x = chance.choice("tu"), chance.choice([1, 2]), chance.choice([1, 2])
            number = chance.choice([1, 1, 2, 2, 3])
            if version.startswith("3.7") and chance.random() < 0.9:  # as the numbers say, but for a database made anew
                table, lsn, x = "tu"[(txn + number) % 2], number, number
            source = {"version": version, "connector": "postgresql", "schema": "s", "table": table, "lsn": lsn}
            order = {"id": f"{txn}:{lsn}", "total_order": number}
            value = {"op": "c", "after": {"x": x}, "source": source, "transaction": order}
            run = chance.choice(["A", "A", "A", "B", "B", ""])
            headers = [["__debezium.context.runId", run]] if run else []
            record = {"topic": f"p.s.{table}", "value": value, "headers": headers}
        found.append(record)
    return found


def expected(
    records: list[dict[str, Any]], version: str, *, several: bool = False, uncounted: str = ""
) -> tuple[dict[str, tuple[str, list[int]]], dict[str, Transaction], dict[int, str]]:
    """Kind and members of each transaction that is settled (by its seqno), those in flight (by id), others by kind."""
    flying: dict[str, Transaction] = {}
    done: dict[str, tuple[str, list[int]]] = {}
    settled: dict[str, Transaction] = {}
    aside: dict[int, str] = {}
    for seqno, record in enumerate(records, start=1):
        value = record["value"]
        txn = (value["id"] if "status" in value else value["transaction"]["id"]).split(":")[0]
        txn = f"{record['topic'].partition('.')[0]}/{txn}" if several else txn
        mine = settled.get(txn) or flying.setdefault(txn, Transaction(uncounted=uncounted))
        new, said = True, value.get("status") == "BEGIN"
        if value.get("status") == "END":
            said_of = value["data_collections"]
            by_table = {one["data_collection"][2:]: one["event_count"] for one in said_of or []}
            by_table = {table: count for table, count in by_table.items() if table != uncounted}
            mine.ends.append({ALL: value["event_count"]} if said_of is None else by_table)
            said = mine.satisfies(mine.ends[-1])
        elif "status" not in value:
            source, order = value["source"], value["transaction"]["total_order"]
            identity = (source["lsn"], source["table"], value["after"]["x"])
            run, numbered = dict(record["headers"]).get("__debezium.context.runId", ""), version.startswith("3.7")
            new = mine.row(run, order, source["table"], (*identity, order) if numbered else identity, numbered=numbered)
        if not new:
            aside[seqno] = "duplicate"
            mine.repeated.append(seqno)
        elif txn in settled:
            aside[seqno] = "ignored" if said else "late"
        else:
            mine.members.append(seqno)
        if txn in flying and mine.done():
            done[f"{txn}@{seqno}"] = ("quarantined" if mine.clashes else "done"), mine.members
            settled[txn] = flying.pop(txn)
    return done, {txn: one for txn, one in flying.items() if one.members}, aside


def sync_small_files(
    folder: Path, records: list[dict[str, Any]], cuts: set[int], spark: Any, said: str = "", config: Any = None
) -> Syncer:
    """Syncs after each of the numbers of records in `cuts`, and after the last; raw has three records a file.

    What is in flight comes as its state, or what began lately is read again.
    """
    config = config or pipeline(folder, "p", said=said)
    syncer = Syncer(config, str(folder / "raw"), str(folder / "staging"), spark)
    loader = Loader(str(folder / "raw"))
    with pytest.MonkeyPatch.context() as patch:
        for number, (start, end) in enumerate(pairwise(sorted({0, *cuts, len(records)}))):
            for first in range(start, end, 3):
                loader.load(records[first : min(first + 3, end)])
            patch.setattr(gather, "RECENT", (len(records), 1000, 12, 0)[number % 4])
            syncer.sync()
    return syncer


def is_of(in_flight: list[int], one: Transaction) -> bool:
    """Whether these are its members in flight, maybe with some that repeat others, as is known in the end."""
    return {*one.members} <= {*in_flight} <= {*one.members, *one.repeated}


def some_cuts(chance: random.Random, records: list[dict[str, Any]]) -> set[int]:
    return {chance.randrange(1, len(records)) for _ in range(2)}


def end(txn: int, **counts: int) -> dict[str, Any]:
    said = [{"data_collection": f"s.{table}", "event_count": n} for table, n in counts.items()]
    value = {"status": "END", "id": f"{txn}:9", "event_count": sum(counts.values()), "data_collections": said}
    return {"topic": "p.transaction", "value": value}


def row(txn: int, run: str, order: int, table: str, x: int) -> dict[str, Any]:
    source = {"version": "3.6.0.Final", "connector": "postgresql", "schema": "s", "table": table, "lsn": 1}
    value = {"op": "c", "after": {"x": x}, "source": source, "transaction": {"id": f"{txn}:1", "total_order": order}}
    return {"topic": f"p.s.{table}", "value": value, "headers": [["__debezium.context.runId", run]]}


def by_itself(x: int) -> dict[str, Any]:
    """A row that is in no transaction, as those of a snapshot are."""
    found = row(0, "A", 1, "t", x)
    del found["value"]["transaction"]
    return found


def members(row: dict[str, Any]) -> list[int]:
    return [n for one in row["records"] for n in range(one["first"], one["last"] + 1)]


def violations(folder: Path, said: str) -> list[str]:
    config = pipeline(folder, "p", said=said)
    claims = verify(str(folder / "raw"), str(folder / "staging"), config, every_version=True, kafka=False)
    return [text for claim in claims for text in claim.violations]


class Decision(NamedTuple):
    """What an operator decides about a transaction; of what was set aside of it, where `aside`."""

    action: Any
    txn: int
    why: str
    aside: bool = False


Step = Sequence[dict[str, Any] | Decision]


def parts(records: Sequence[dict[str, Any]], cuts: set[int]) -> list[Step]:
    """The records as steps that end after those numbers of them."""
    return [records[start:end] for start, end in pairwise(sorted({0, *cuts, len(records)}))]


class Together:
    """Cases of one pipeline that are synced together, step by step; each is looked at as if it were alone.

    The first step of all cases comes before the first sync, and so on. A case's transactions have numbers of two
    digits; in raw they have those after a hundred of its own. Its records are counted from 1, decisions among them.
    Raw has a few records in a file. What is in flight comes as its state, or what began lately is read again.
    """

    _IN_A_FILE = 7

    def __init__(self, folder: Path, spark: Any, cases: dict[str, list[Step]], said: str = "") -> None:
        self.folder, self.said = folder, said
        self.config = pipeline(folder, "p", said=said)
        self.raw, self.staging = str(folder / "raw"), str(folder / "staging")
        self.syncer = Syncer(self.config, self.raw, self.staging, spark)
        self._loader = Loader(self.raw)
        self.base = {name: 100 * number for number, name in enumerate(cases, start=1)}
        self._place: dict[int, tuple[str, int]] = {}
        self._count: Counter[str] = Counter()
        with pytest.MonkeyPatch.context() as patch:
            for number in range(max(map(len, cases.values()))):
                for name, steps in cases.items():
                    self._take(name, steps[number] if number < len(steps) else [])
                patch.setattr(gather, "RECENT", (len(self._place), 1000, 12, 0)[number % 4])
                self.syncer.sync()
        self._rows = sorted(rows(folder / "staging"), key=lambda one: (one["sync"], one["seqno"]))
        self.violations = violations(folder, said)

    def txn(self, name: str, txn: int) -> str:
        """The id that a transaction of a case has in raw."""
        return str(self.base[name] + txn)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Staging's rows of that case, by sync; `members`: the numbers of the records that a row is about."""
        return [
            {**one, "seqno": self._place[one["seqno"]][1], "txn": self._own(one["txn"]), "members": self._members(one)}
            for one in self._rows
            if one["kind"] != "cursor" and self._place[one["seqno"]][0] == name
        ]

    def members(self, name: str, *kinds: str) -> dict[str, list[int]]:
        """The numbers of all records that rows of each of those kinds are about."""
        found = self.rows(name)
        return {kind: sorted(n for one in found if one["kind"] == kind for n in one["members"]) for kind in kinds}

    def in_flight(self, name: str) -> dict[str, list[int]]:
        """The numbers of the records of each transaction that is in flight in the end."""
        assert self.syncer.bookkeeping is not None
        found = self.syncer.bookkeeping.in_flight.to_pylist()
        return {self._own(one["txn"]): self._members(one) for one in found if self._place[one["seqno"]][0] == name}

    def _take(self, name: str, step: Step) -> None:
        waiting: list[dict[str, Any]] = []
        for one in step:
            if isinstance(one, Decision):
                self._load(name, waiting)
                waiting = []
                txn = self.txn(name, one.txn)
                aside = partial(undecided, self.raw, self.staging, [txn], None, among=UNDECIDED_KINDS)
                decide(self.raw, aside().chosen if one.aside else [txn], one.action, one.why)
                self._count_to_head(name)
            else:
                waiting.append(self._with_id(name, one))
        self._load(name, waiting)

    def _load(self, name: str, records: list[dict[str, Any]]) -> None:
        for first in range(0, len(records), self._IN_A_FILE):
            self._loader.load(records[first : first + self._IN_A_FILE])
        if records:
            self._count_to_head(name)

    def _count_to_head(self, name: str) -> None:
        for seqno in range(len(self._place) + 1, next_seqno(existing_raw(self.raw))):
            self._count[name] += 1
            self._place[seqno] = name, self._count[name]

    def _with_id(self, name: str, record: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(json.dumps(record))
        holder = made["value"] if "status" in made["value"] else made["value"]["transaction"]
        txn, _, rest = holder["id"].partition(":")
        holder["id"] = f"{self.txn(name, int(txn))}:{rest}"
        return made

    def _own(self, txn: str | None) -> str:
        return str(int(txn) % 100) if txn else ""

    def _members(self, one: dict[str, Any]) -> list[int]:
        return [self._place[n][1] for n in members(one)] if one["records"] else []
