"""With `order: commit` transactions go out as the source committed them; what is whole waits for what is not."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.histories import (
    by_itself,
    end,
    expected,
    history,
    is_of,
    members,
    row,
    sync_small_files,
    violations,
)
from tests.cdc.test_captures import SEED, pipeline
from tests.conftest import rows
from zync.errors import UsageError
from zync.operate.decide import decide, undecided
from zync.operate.explain import explain
from zync.operate.txn import transactions
from zync.operate.txn_show import show
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer
from zync.transactions import gather


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
    assert syncer.bookkeeping is not None
    in_flight = {one["txn"]: members(one) for one in syncer.bookkeeping.in_flight.to_pylist()}
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
