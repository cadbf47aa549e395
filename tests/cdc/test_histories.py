"""The rule for completion in plain Python, and Spark beside it, over histories madder than any connector's."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.test_captures import SEED, pipeline
from tests.conftest import rows
from zync.errors import UsageError
from zync.operate.decide import SET_ASIDE, decide, undecided
from zync.operate.explain import explain
from zync.operate.txn import transactions
from zync.operate.txn_show import show
from zync.operate.verify import verify
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.spark import tuning
from zync.sync import context, judge
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
    with pytest.MonkeyPatch.context() as patch:
        for number, (start, end) in enumerate(pairwise(sorted({0, *cuts, len(records)}))):
            for first in range(start, end, 3):
                part = records[first : min(first + 3, end)]
                (folder / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in part))
                load(str(folder / "raw"), [str(folder / "in.jsonl")])
            patch.setattr(gather, "RECENT", (len(records), 1000, 12, 0)[number % 4])
            syncer.sync()
    return syncer


@pytest.mark.parametrize("seed", range(2))
def test_spark_completes_what_the_rule_says_and_when(tmp_path: Path, spark: Any, seed: int) -> None:
    chance = random.Random(seed)
    version = "3.7.0.Final" if seed % 2 else "3.6.0.Final"
    records = history(chance, version)
    check(tmp_path, sync_small_files(tmp_path, records, some_cuts(chance, records), spark), expected(records, version))


def test_of_several_connectors_with_the_same_ids_spark_completes_what_the_rule_says(tmp_path: Path, spark: Any) -> None:
    chance, version = random.Random(SEED), "3.7.0.Final"
    records = history(chance, version)
    for record in records:
        if chance.random() < 0.4:
            record["topic"] = f"q{record['topic'][1:]}"
    pipeline(tmp_path, "p")
    text = (tmp_path / "zync.yaml").read_text()
    several = text.replace("topic: p.transaction", "connectors: [{topic: p.transaction}, {topic: q.transaction}]")
    (tmp_path / "zync.yaml").write_text(several)
    config = read_config(tmp_path / "zync.yaml")
    syncer = sync_small_files(tmp_path, records, some_cuts(chance, records), spark, config=config)
    check(tmp_path, syncer, expected(records, version, several=True))


@pytest.mark.parametrize("version", ["3.6.0.Final", "3.7.0.Final"])
def test_what_is_uncounted_completes_nothing_and_holds_nothing_up(tmp_path: Path, spark: Any, version: str) -> None:
    chance = random.Random(SEED)
    records = history(chance, version)
    syncer = sync_small_files(tmp_path, records, some_cuts(chance, records), spark, ", uncounted: [s.u]")
    check(tmp_path, syncer, expected(records, version, uncounted="u"))


def some_cuts(chance: random.Random, records: list[dict[str, Any]]) -> set[int]:
    return {chance.randrange(1, len(records)) for _ in range(2)}


def check(
    tmp_path: Path,
    syncer: Syncer,
    truth: tuple[dict[str, tuple[str, list[int]]], dict[str, Transaction], dict[int, str]],
) -> None:
    """Staging is what the rule says, `truth` being what `expected` found."""
    done, flying, aside = truth
    assert len(done) >= 3
    assert {"duplicate", "late"} <= {*aside.values()}
    staging = rows(tmp_path / "staging")
    kinds = ("done", "quarantined")
    settled = {f"{one['txn']}@{one['seqno']}": (one["kind"], members(one)) for one in staging if one["kind"] in kinds}
    assert settled == done
    assert syncer.known is not None
    in_flight = {one["txn"]: members(one) for one in syncer.known.in_flight.to_pylist()}
    assert in_flight.keys() == flying.keys()
    assert all(is_of(in_flight[txn], one) for txn, one in flying.items())
    undecided = {n for txn, one in flying.items() for n in {*in_flight[txn]} & {*one.repeated}}
    assert {
        n: one["kind"] for one in staging if one["kind"] in ("late", "duplicate", "ignored") for n in members(one)
    } == {n: kind for n, kind in aside.items() if n not in undecided}


def is_of(in_flight: list[int], one: Transaction) -> bool:
    """Whether these are its members in flight, maybe with some that repeat others, as is known in the end."""
    return {*one.members} <= {*in_flight} <= {*one.members, *one.repeated}


def end(txn: int, **counts: int) -> dict[str, Any]:
    said = [{"data_collection": f"s.{table}", "event_count": n} for table, n in counts.items()]
    value = {"status": "END", "id": f"{txn}:9", "event_count": sum(counts.values()), "data_collections": said}
    return {"topic": "p.transaction", "value": value}


def row(txn: int, run: str, order: int, table: str, x: int) -> dict[str, Any]:
    source = {"version": "3.6.0.Final", "connector": "postgresql", "schema": "s", "table": table, "lsn": 1}
    value = {"op": "c", "after": {"x": x}, "source": source, "transaction": {"id": f"{txn}:1", "total_order": order}}
    return {"topic": f"p.s.{table}", "value": value, "headers": [["__debezium.context.runId", run]]}


def of_life(life: int, txn: int, order: int, x: int, run: str = "A") -> dict[str, Any]:
    """A row as 3.7 sends it, of the first or second life of a database: LSNs begin again, the time does not."""
    made = row(txn, run, order, "t", x)
    made["value"]["source"] |= {"version": "3.7.0.Final", "lsn": 1000 // life + order, "ts_ms": 10**12 * life}
    return made


@pytest.mark.parametrize("cuts", [set(), {3}, {3, 5}], ids=["at once", "later", "in parts"])
@pytest.mark.parametrize("image", [1, 9], ids=["same image", "another image"])
def test_rows_of_a_database_that_was_made_anew_are_late_and_no_duplicates(
    tmp_path: Path, spark: Any, cuts: set[int], image: int
) -> None:
    first = [of_life(1, 5, 1, 1), of_life(1, 5, 2, 2), end(5, t=2)]
    again = [of_life(1, 5, 1, 1, "B"), of_life(2, 5, 1, image, "C"), of_life(2, 5, 2, 2, "C")]
    syncer = sync_small_files(tmp_path, [*first, *again, of_life(2, 5, 2, 2, "D")], cuts, spark)
    settled = (one for one in rows(tmp_path / "staging") if one["kind"] not in ("output", "cursor"))
    kinds = {one["seqno"]: one["kind"] for one in settled}
    assert kinds == {3: "done", 4: "duplicate", 5: "late", 6: "late", 7: "duplicate"}
    raw, staging = str(tmp_path / "raw"), str(tmp_path / "staging")
    decide(raw, undecided(raw, staging, ["5"], None, among=SET_ASIDE).chosen, "redrive", "the database was made anew")
    assert syncer.sync().outputs == {"rows": 2}
    assert violations(tmp_path, "") == []


@pytest.mark.parametrize("cuts", [set(), {1, 2}], ids=["at once", "later"])
@pytest.mark.parametrize("version", ["3.6.0.Final", "3.7.0.Final"])
def test_rows_of_two_lives_of_a_database_never_go_out_as_one_transaction(
    tmp_path: Path, spark: Any, cuts: set[int], version: str
) -> None:
    """The first life ended within a transaction; together with a row of the second it is as many as END counts."""
    records = [of_life(1, 5, 2, 2), of_life(2, 5, 1, 1, "B"), end(5, t=2)]
    for one in records[:2]:
        one["value"]["source"]["version"] = version
    sync_small_files(tmp_path, records, cuts, spark)
    (found,) = [one for one in rows(tmp_path / "staging") if one["kind"] == "quarantined"]
    assert (found["seqno"], members(found)) == (3, [1, 2, 3])
    assert "another transaction that has the same id" in found["reason"]


@pytest.mark.parametrize("cuts", [set(), {1, 2}], ids=["once", "cut"])
def test_an_end_that_counts_no_tables_is_satisfied_by_its_count_alone(
    tmp_path: Path, spark: Any, cuts: set[int]
) -> None:
    last, short = end(1, t=1, u=1), end(2, t=2)
    last["value"]["data_collections"] = None
    del short["value"]["data_collections"]
    records = [row(1, "A", 2, "u", 2), last, row(2, "A", 1, "t", 1), short, row(1, "A", 1, "t", 1)]
    sync_small_files(tmp_path, records, cuts, spark)
    found = {one["txn"]: (one["kind"], members(one)) for one in rows(tmp_path / "staging") if one["txn"]}
    assert found == {"1": ("done", [1, 2, 5]), "2": ("pending", [3, 4])}
    config = pipeline(tmp_path, "p")
    shown = show(str(tmp_path / "raw"), str(tmp_path / "staging"), "2", config)
    assert shown["missing"] == ["END counts 2 rows, 1 are here"]


def test_rows_sent_again_count_for_their_run_in_later_syncs(tmp_path: Path, spark: Any) -> None:
    records = [
        end(1, t=2),
        end(1, t=1, u=1),
        row(1, "A", 1, "t", 1),
        row(1, "A", 2, "t", 2),
        row(1, "B", 1, "t", 2),
        row(1, "B", 2, "u", 3),
    ]
    sync_small_files(tmp_path, records, set(range(len(records))), spark)
    (done,) = [row for row in rows(tmp_path / "staging") if row["kind"] == "done"]
    assert (done["seqno"], members(done)) == (6, [1, 2, 3, 4, 6])


def test_rows_of_one_run_are_judged_by_their_sums_alone(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(*_: Any) -> None:
        msg = "judged row by row"
        raise AssertionError(msg)

    monkeypatch.setattr(judge, "_by_run", one_by_one)
    first = [row(1, "A", n, "t" if n % 3 else "u", n) for n in range(1, 31)]
    second = [row(2, "", 2, "t", 2), end(2, t=1, u=1), row(2, "", 1, "u", 1)]
    records = [*first[20:], *second, end(1, t=20, u=10), *first[:20]]
    sync_small_files(tmp_path, records, {5, 12, 20}, spark)
    done = {row["txn"]: row["seqno"] for row in rows(tmp_path / "staging") if row["kind"] == "done"}
    assert done == {"2": 13, "1": len(records)}


@pytest.mark.parametrize("by_table", [2, 10**15])
def test_an_end_that_counts_more_than_there_can_be_is_waited_for(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, by_table: int
) -> None:
    """In a sync as large ones are done, where Spark evaluates what is decoded by itself."""
    for module in (tuning, context):
        monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(tuning, "TINY", 0)
    last = end(1, t=by_table)
    last["value"]["event_count"] = 10**15
    sync_small_files(tmp_path, [row(1, "A", 1, "t", 1), last, row(2, "A", 1, "t", 1), end(2, t=1)], {2}, spark)
    kinds = {row["txn"]: row["kind"] for row in rows(tmp_path / "staging") if row["txn"]}
    assert kinds == {"1": "pending", "2": "done"}


def test_what_has_no_number_where_one_belongs_is_said_to_be_bad(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (tuning, context):
        monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(tuning, "TINY", 0)
    odd, null = row(1, "A", 1, "t", 1), row(3, "A", 1, "t", 1)
    odd["value"]["transaction"]["total_order"], null["value"]["transaction"]["total_order"] = "one", None
    uncounted = end(4, t=1)
    del uncounted["value"]["event_count"]
    good = [row(2, "A", 1, "t", 1), end(2, t=1)]
    records = [odd, end(1, t=1), *good, null, end(3), row(4, "A", 1, "t", 1), uncounted]
    sync_small_files(tmp_path, records, {2}, spark)
    found = {row["txn"]: (row["kind"], row["reason"]) for row in rows(tmp_path / "staging") if row["txn"]}
    bad = "the done condition fails on it"
    assert found == {"1": ("pending", bad), "2": ("done", None), "3": ("done", None), "4": ("pending", bad)}


@pytest.mark.parametrize("only_messages", [False, True])
def test_logical_messages_sent_again_are_duplicates_though_they_do_not_say_by_which_run(
    tmp_path: Path, spark: Any, *, only_messages: bool
) -> None:
    """As PostgreSQL's connector 3.7.0 was seen to send them: on a topic of their own, without headers."""

    def message(order: int) -> dict[str, Any]:
        source = {"version": "3.7.0.Final", "connector": "postgresql", "schema": "", "table": "", "lsn": order}
        value = {"op": "m", "source": source, "transaction": {"id": f"1:{order}", "total_order": order}}
        return {"topic": "p.message", "value": value | {"message": {"prefix": "p", "content": "bTEwMDA="}}}

    def numbered(run: str, order: int) -> dict[str, Any]:
        one = row(1, run, order, "t", order)
        one["value"]["source"]["version"] = "3.7.0.Final"
        return one

    ids = [f"io.debezium.connector.postgresql.LogicalDecodingMessageMonitor$LogicalDecodingMessageId@{n}" for n in "ab"]
    said = [{"data_collection": name, "event_count": 1} for name in ids]
    counts = {} if only_messages else {"t": 2}
    last = end(1, **counts)
    last["value"]["event_count"] += 2
    last["value"]["data_collections"] += said
    rows_sent = [] if only_messages else [numbered("A", 1), numbered("A", 4), numbered("B", 1), numbered("B", 4)]
    records = [message(2), message(3), message(2), message(3), *rows_sent, last]
    sync_small_files(tmp_path, records, {2, 5}, spark)
    by_kind = {
        kind: sorted(n for one in rows(tmp_path / "staging") if one["kind"] == kind for n in members(one))
        for kind in ("done", "duplicate")
    }
    done, repeated = ([1, 2, 5], [3, 4]) if only_messages else ([1, 2, 5, 6, 9], [3, 4, 7, 8])
    assert by_kind == {"done": done, "duplicate": repeated}


@pytest.mark.parametrize("version", ["3.6.0.Final", "3.7.0.Final"])
def test_what_a_producer_sent_twice_stands_in_for_no_row_that_is_missing(
    tmp_path: Path, spark: Any, version: str
) -> None:
    """As Connect's producers do, which are not idempotent by default: a batch, with rows 1 and 4, has no answer."""

    def of(txn: int, *orders: int) -> list[dict[str, Any]]:
        found = [row(txn, "A", order, "t", order) for order in orders]
        for one in found:
            one["value"]["source"]["version"] = version
        return found

    records = [*of(1, 1, 4, 1, 4), end(1, t=4), *of(1, 2, 3), *of(1, 2), *of(2, 1, 1), end(3, t=1), *of(3, 1)]
    records += [*of(4, 1, 1), end(4, t=2)]
    syncer = sync_small_files(tmp_path, records, {2, 5, 6}, spark)
    raw, staging = str(tmp_path / "raw"), str(tmp_path / "staging")
    decide(raw, ["2"], "release", "its END is lost")
    syncer.sync()
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(of(txn, 1)[0]) + "\n" for txn in (3, 4)))
    load(raw, [str(tmp_path / "in.jsonl")])
    assert syncer.sync().set_aside == {"duplicate": 2}
    assert {
        kind: sorted(n for one in rows(Path(staging)) if one["kind"] == kind for n in members(one))
        for kind in ("done", "released", "duplicate", "late")
    } == {
        "done": [1, 2, 5, 6, 7, 11, 12],
        "released": [9, 16],
        "duplicate": [3, 4, 8, 10, 14, 17, 18],
        "late": [],
    }
    assert violations(tmp_path, "") == []


def members(row: dict[str, Any]) -> list[int]:
    return [n for one in row["records"] for n in range(one["first"], one["last"] + 1)]


def test_in_order_of_commit_what_is_whole_waits_for_what_was_committed_before(tmp_path: Path, spark: Any) -> None:
    chance, version = random.Random(SEED), "3.7.0.Final"
    records = history(chance, version)
    cuts = {chance.randrange(1, len(records)) for _ in range(2)}
    syncer = sync_small_files(tmp_path, records, cuts, spark, ", order: commit")
    done, flying, _ = expected(records, version)
    ends: dict[str, int] = {}
    for seqno, record in enumerate(records, start=1):
        if record["value"].get("status") == "END":
            ends.setdefault(record["value"]["id"].split(":")[0], seqno)
    first_open = min(ends[txn] for txn in flying if txn in ends)
    whole = {txn.partition("@")[0]: mine for txn, (_, mine) in done.items()}
    staging = rows(tmp_path / "staging")
    sent = {row["txn"]: (row["seqno"], members(row)) for row in staging if row["kind"] in ("done", "quarantined")}
    assert sent == {txn: (ends[txn], mine) for txn, mine in whole.items() if ends[txn] < first_open}
    assert syncer.known is not None
    in_flight = {one["txn"]: members(one) for one in syncer.known.in_flight.to_pylist()}
    held = {txn: mine for txn, mine in whole.items() if txn not in sent}
    assert in_flight.keys() == flying.keys() | held.keys()
    assert all(is_of(in_flight[txn], one) for txn, one in flying.items())
    assert {txn: in_flight[txn] for txn in held} == held
    out = sorted((row["kafka"]["offset"], row["seqno"]) for row in staging if row["kind"] == "output")
    assert [seqno for _, seqno in out] == sorted(seqno for _, seqno in out)
    assert violations(tmp_path, ", order: commit") == []
    decide(str(tmp_path / "raw"), [txn for txn in flying if txn in ends], "discard", "so that the others go on")
    outcome = syncer.sync()
    assert outcome.transactions + outcome.set_aside["quarantined"] == len(whole) - len(sent)
    out = sorted(
        (row["kafka"]["offset"], row["seqno"]) for row in rows(tmp_path / "staging") if row["kind"] == "output"
    )
    assert [seqno for _, seqno in out] == sorted(seqno for _, seqno in out)
    assert violations(tmp_path, ", order: commit") == []


def by_itself(x: int) -> dict[str, Any]:
    """A row that is in no transaction, as those of a snapshot are."""
    found = row(0, "A", 1, "t", x)
    del found["value"]["transaction"]
    return found


def test_in_order_of_commit_rows_come_out_the_same_in_any_cuts(tmp_path: Path, spark: Any) -> None:
    chance = random.Random(SEED)
    lanes: list[list[dict[str, Any]]] = [[], [], []]
    for txn in range(1, 41):
        lanes[0] += [row(txn, "A", 1, "t", txn), *(by_itself(100 + txn) for _ in range(chance.randrange(3)))]
        lanes[1].append(row(txn, "A", 2, "u", txn))
        lanes[2].append(end(txn, t=1, u=1))
    lane_of = [number for number, lane in enumerate(lanes) for _ in lane]
    chance.shuffle(lane_of)
    records = [lanes[number].pop(0) for number in lane_of]
    found = []
    for name, cuts in (("once", set()), ("cut", {chance.randrange(1, len(records)) for _ in range(3)})):
        (tmp_path / name).mkdir()
        sync_small_files(tmp_path / name, records, cuts, spark, ", order: commit")
        staging = [one for one in rows(tmp_path / name / "staging") if one["kind"] == "output"]
        found.append(sorted((one["kafka"]["offset"], one["seqno"], one["head"], one["value"]) for one in staging))
        assert violations(tmp_path / name, ", order: commit") == []
    assert found[0] == found[1]
    assert any(turn for _, _, turn, _ in found[0])
    seqnos = [seqno for _, seqno, _, _ in found[0]]
    assert seqnos != sorted(seqnos)  # some of those by themselves come before what was committed before them


def test_a_row_comes_before_a_later_one_of_its_partition_in_the_order_of_commit_too(tmp_path: Path, spark: Any) -> None:
    records = [end(1, t=1), by_itself(5), row(1, "A", 1, "t", 6)]  # END was taken before the two rows
    sync_small_files(tmp_path, records, set(), spark, ", order: commit")
    found = [one for one in rows(tmp_path / "staging") if one["kind"] == "output"]
    assert sorted((one["kafka"]["offset"], one["seqno"]) for one in found) == [(0, 2), (1, 1)]


def test_what_waits_for_its_turn_is_written_once_though_it_is_read_again(tmp_path: Path, spark: Any) -> None:
    config = pipeline(tmp_path, "p", said=", order: commit")
    syncer = Syncer(config, str(tmp_path / "raw"), str(tmp_path / "staging"), spark)

    def sync(*records: dict[str, Any]) -> int:
        (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        load(str(tmp_path / "raw"), [str(tmp_path / "in.jsonl")])
        return syncer.sync().transactions

    stuck, later, third = row(1, "A", 1, "t", 1), row(2, "A", 1, "t", 1), row(3, "A", 1, "t", 1)
    assert [sync(end(1, t=1), later, third), sync(end(2, t=1)), sync(by_itself(1)), sync(by_itself(2))] == [0, 0, 1, 1]
    decide(str(tmp_path / "raw"), ["3"], "release", "its END is lost")
    assert [sync(by_itself(3)), sync(by_itself(4)), sync(stuck)] == [1, 1, 3]
    pending = [(one["txn"], one["sync"]) for one in rows(tmp_path / "staging") if one["kind"] == "pending"]
    assert sorted(pending) == [("1", 1), ("2", 1), ("2", 2), ("3", 1), ("3", 5)]


@pytest.mark.parametrize("recent", [gather.RECENT, 0], ids=["read again", "known"])
def test_what_was_released_waits_for_its_turn_too(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, recent: int
) -> None:
    monkeypatch.setattr(gather, "RECENT", recent)
    records = [row(2, "A", 1, "t", 1), end(1, t=1), end(2, t=2), end(3, t=1), row(3, "A", 1, "t", 3), by_itself(9)]
    syncer = sync_small_files(tmp_path, records, set(), spark, ", order: commit")
    raw, staging = str(tmp_path / "raw"), str(tmp_path / "staging")
    (third,) = [one for one in transactions(raw, staging) if one.id == "3"]
    assert (third.state, third.count) == ("in-flight", 2)
    config = pipeline(tmp_path, "p", said=", order: commit")
    assert "committed before" in show(raw, staging, "3", config)["missing"][0]
    with pytest.raises(UsageError, match="'3' is whole, and waits for its turn"):
        undecided(raw, staging, ["3"], None)
    decide(raw, ["2"], "release", "one row is lost", who="ann")
    assert syncer.sync().transactions == 0
    assert violations(tmp_path, ", order: commit") == []
    (tmp_path / "in.jsonl").write_text(json.dumps(row(1, "A", 1, "t", 1)) + "\n")
    load(raw, [str(tmp_path / "in.jsonl")])
    outcome = syncer.sync()
    assert (outcome.transactions, outcome.in_flight, outcome.cursor) == (3, 0, outcome.head)
    found = rows(tmp_path / "staging")
    settled = [(one["kind"], one["seqno"], one["txn"], one["reason"]) for one in found if one["txn"] and one["count"]]
    assert sorted(one for one in settled if one[0] in ("done", "released")) == [
        ("done", 2, "1", None),
        ("done", 4, "3", None),
        ("released", 3, "2", "ann: one row is lost"),
    ]
    released = next(one for one in found if one["kind"] == "released")
    assert (members(released), released["count"]) == ([1, 3, 7], 2)
    out = sorted((one["kafka"]["offset"], one["seqno"]) for one in found if one["kind"] == "output")
    assert out == [(0, 6), (1, 2), (2, 3), (3, 4)]
    assert violations(tmp_path, ", order: commit") == []


def test_without_an_end_the_last_row_says_where_a_transaction_is_in_the_source(tmp_path: Path, spark: Any) -> None:
    """Released before it came, or late; where END says it, that is so, and comes before its rows as well."""

    def at(lsn: int, one: dict[str, Any]) -> dict[str, Any]:
        return {**one, "value": {**one["value"], "source": {**one["value"]["source"], "lsn": lsn}}}

    records = [at(30, row(1, "A", 1, "t", 1)), at(40, row(1, "A", 2, "t", 2)), end(2, t=1)]
    syncer = sync_small_files(tmp_path, records, {1, 2}, spark)
    raw, staging = str(tmp_path / "raw"), str(tmp_path / "staging")
    decide(raw, ["1"], "release", "its END is lost")
    syncer.sync()
    later = [at(5, row(2, "A", 1, "t", 3)), at(35, row(1, "A", 3, "t", 4))]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in later))
    load(raw, [str(tmp_path / "in.jsonl")])
    assert syncer.sync().set_aside == {"late": 1}
    decide(raw, undecided(raw, staging, ["1"], None, among=SET_ASIDE).chosen, "redrive", "it is wanted")
    syncer.sync()
    out = [one for one in rows(tmp_path / "staging") if one["kind"] == "output"]
    assert sorted((one["kafka"]["offset"], one["position"]) for one in out) == [(0, 40), (1, 40), (2, 9), (3, 35)]


@pytest.mark.parametrize("cut", [True, False], ids=["later", "at once"])
@pytest.mark.parametrize("told", [None, "source", "transaction"], ids=str)
def test_an_end_that_comes_after_a_release_is_told_of_and_rows_may_say_where_the_commit_is(
    tmp_path: Path, spark: Any, told: str | None, *, cut: bool
) -> None:
    first = row(1, "A", 1, "t", 1)
    if told:
        first["value"][told]["commit_lsn"] = 8
    syncer = sync_small_files(tmp_path, [first], {1}, spark)
    raw, staging = str(tmp_path / "raw"), str(tmp_path / "staging")
    decide(raw, ["1"], "release", "its END is lost")
    if cut:
        syncer.sync()
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (end(1, t=1), end(2))))
    load(raw, [str(tmp_path / "in.jsonl")])
    assert syncer.sync().set_aside == {"late": 1}
    found = rows(Path(staging))
    (late,) = [one for one in found if one["kind"] == "late"]
    assert (late["seqno"], late["txn"]) == (3, "1")
    assert "before this END came" in late["reason"]
    assert [one["position"] for one in found if one["kind"] == "output"] == [8 if told else 1]
    decide(raw, undecided(raw, staging, ["1"], None, among=SET_ASIDE).chosen, "drop", "known")
    assert syncer.sync().outputs == {}
    assert violations(tmp_path, "") == []


def test_an_end_may_say_where_the_commit_is_by_itself(tmp_path: Path, spark: Any) -> None:
    last = end(1, t=1)
    last["value"]["commit_lsn"] = 7
    sync_small_files(tmp_path, [row(1, "A", 1, "t", 1), last], set(), spark)
    assert [one["position"] for one in rows(tmp_path / "staging") if one["kind"] == "output"] == [7]


def test_what_is_redriven_waits_for_nobody(tmp_path: Path, spark: Any) -> None:
    (rule, mended) = (
        f"SELECT seqno, {cast}(value:op::string AS INT) AS x FROM records WHERE op IS NOT NULL"
        for cast in ("CAST", "TRY_CAST")
    )
    raw, staging, said = str(tmp_path / "raw"), str(tmp_path / "staging"), ", order: commit"
    records = [end(1, t=1), row(1, "A", 1, "t", 1), end(2, t=1)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    load(raw, [str(tmp_path / "in.jsonl")])
    outcome = Syncer(pipeline(tmp_path, "p", rule, said=said), raw, staging, spark).sync()
    assert (outcome.set_aside, outcome.in_flight) == ({"quarantined": 1}, 1)
    decide(raw, ["1"], "redrive", "mended")
    outcome = Syncer(pipeline(tmp_path, "p", mended, said=said), raw, staging, spark).sync()
    assert (outcome.transactions, outcome.outputs, outcome.in_flight) == (1, {"rows": 1}, 1)
    assert violations(tmp_path, said) == []


def test_the_order_of_commit_needs_one_partition_that_says_it(tmp_path: Path, spark: Any) -> None:
    with pytest.raises(UsageError, match=r"p\.transaction to have one partition.* 2: "):
        sync_small_files(tmp_path, [end(1, t=1), end(2, t=1) | {"partition": 1}], set(), spark, ", order: commit")


@pytest.mark.parametrize(
    ("schema", "said"),
    [("a INT, b INTT", "'a INT, b INTT' is not a schema in DDL"), ("a INT, A INT", "'a INT, A INT' has 'a' twice")],
)
def test_a_schema_that_is_none_is_shown_as_the_config_has_it(
    tmp_path: Path, spark: Any, schema: str, said: str
) -> None:
    config = pipeline(tmp_path, "p", more=f'topics: {{p.t: {{schema: "{schema}"}}}}\n')
    with pytest.raises(UsageError, match=rf"^topics.p.t.schema: {said}"):
        explain(spark, config)


def test_states_that_do_not_add_up_are_warned_of(tmp_path: Path, spark: Any) -> None:
    def warnings(said: str, deliver: str) -> list[str]:
        pipeline(tmp_path, "p", said=said)
        text = (tmp_path / "zync.yaml").read_text().replace("sql: rows.sql}", "sql: rows.sql, key: [txn]}")
        (tmp_path / "zync.yaml").write_text(f"{text}deliver: {deliver}\n")
        return explain(spark, read_config(tmp_path / "zync.yaml")).warnings

    (warning,) = warnings("", "{tables: {}}")
    assert "(rows)" in warning
    assert "transactions.order: commit" in warning
    assert warnings(", order: commit", "{tables: {}}") == []
    assert warnings("", "{tables: {rows: {apply: append}}}") == []
    assert warnings("", "{kafka: {}}") == []


def violations(folder: Path, said: str) -> list[str]:
    config = pipeline(folder, "p", said=said)
    claims = verify(str(folder / "raw"), str(folder / "staging"), config, every_version=True, kafka=False)
    return [text for claim in claims for text in claim.violations]
