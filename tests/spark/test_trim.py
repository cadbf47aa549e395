"""`zync maintain raw --retain`: what is taken away nobody misses, and what may be asked for is there."""

import json
import random
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import Loader, rows, zync
from tests.spark.conftest import COUNTED, Pipeline, maintain_and_die
from zync.config.model import Topic, Transactions
from zync.errors import UsageError
from zync.lake.files import data_files
from zync.operate.decide import IN_FLIGHT, decide, undecided
from zync.operate.diff import diff
from zync.operate.maintain import Maintained, Trimming, maintain
from zync.operate.replay import replay
from zync.operate.status import describe, status
from zync.operate.txn import find, transactions
from zync.operate.verify import verify
from zync.raw.table import first_seqno
from zync.staging.kinds import UNDECIDED_KINDS

SOON = timedelta(0)


@pytest.fixture
def short(pipeline: Pipeline) -> Pipeline:
    """A pipeline that forgets an id after ten records."""
    pipeline.change(transactions=Transactions(done=COUNTED, remember=10))
    return pipeline


def trimmed(pipeline: Pipeline, retain: timedelta = SOON, *more: str, **options: Any) -> Maintained:
    trimming = Trimming(retain, more, pipeline.config.transactions.remember)
    return maintain(pipeline.raw, **{"compact": False, "vacuum": True, "trimming": trimming, **options})


def singles(pipeline: Pipeline, txns: Iterable[Any]) -> None:
    """As many files of raw, with a transaction of one record each."""
    loader = Loader(pipeline.raw)
    for txn in txns:
        loader.load([{"topic": "a", "value": {"txn": txn, "n": 1, "x": 1}}])


def seqnos(pipeline: Pipeline) -> list[int]:
    return [row["seqno"] for row in rows(Path(pipeline.raw))]


def outputs(staging: Path) -> list[Any]:
    found = [row for row in rows(staging) if row["kind"] == "output"]
    return sorted((row["kafka"]["topic"], row["kafka"]["offset"], row["seqno"], row["value"]) for row in found)


def values(staging: Path, start: int = 1) -> list[Any]:
    """The output rows from that seqno on, whatever their offsets are."""
    return [one[2:] for one in outputs(staging) if one[2] >= start]


def assert_sound(pipeline: Pipeline, staging: Path | None = None) -> None:
    claims = verify(
        pipeline.raw, str(staging or pipeline.staging), pipeline.config, every_version=staging is None, kafka=False
    )
    assert not [one for one in claims if one.violations]


def reach_over(pipeline: Pipeline, txn: Any) -> None:
    """18 records: C is 3 and 6, and what holds all from 5 on is open."""

    def make() -> None:
        singles(pipeline, "AB")
        pipeline.load(("a", txn("C", 2, x=2)))
        singles(pipeline, "D")
        pipeline.load(("a", txn("open", 2, x=2)))
        pipeline.load(("b", txn("C", 2, x=3)))
        singles(pipeline, range(12))
        pipeline.sync()

    pipeline.begin_with("reach-over", make)


def test_whole_transactions_go_and_those_that_reach_over_the_start_stay_whole(short: Pipeline, txn: Any) -> None:
    reach_over(short, txn)
    before = outputs(short.staging)
    planned = trimmed(short, dry_run=True)
    assert seqnos(short) == [*range(1, 19)]
    done = trimmed(short)
    assert (done.trimmed, done.start, done.files_after) == (planned.trimmed, planned.start, planned.files_after)
    assert (done.start, seqnos(short)) == (5, [3, *range(5, 19)])
    assert outputs(short.staging) == before
    assert_sound(short)
    short.load(("b", txn("open", 2, x=3)))
    singles(short, range(20, 30))
    assert short.sync().transactions == 11
    again = trimmed(short, compact=True)
    assert (again.start, seqnos(short)) == (20, [*range(20, 30)])
    assert_sound(short)


def test_what_is_kept_stays_apart_when_files_are_compacted(short: Pipeline, txn: Any) -> None:
    reach_over(short, txn)
    trimmed(short, compact=True)
    assert [(one.lowest, one.highest) for one in data_files(DeltaTable(short.raw), "seqno")] == [(3, 3), (5, 18)]
    assert_sound(short)
    short.load(("b", txn("open", 2, x=3)))
    singles(short, range(20, 24))
    short.sync()
    planned, done = trimmed(short, dry_run=True), trimmed(short)
    assert (done.start, done.trimmed, seqnos(short)) == (5, 0, [3, *range(5, 24)])
    singles(short, range(30, 38))
    short.sync()
    planned, done = trimmed(short, dry_run=True), trimmed(short)  # from the middle of the large file on
    assert (done.start, done.trimmed, done.files_after) == (planned.start, planned.trimmed, planned.files_after)
    assert (done.start, seqnos(short)) == (22, [*range(22, 32)])
    assert_sound(short)


def test_a_staging_made_anew_has_the_same_from_the_start_on(short: Pipeline, txn: Any, spark: Any) -> None:
    reach_over(short, txn)
    start = trimmed(short).start
    other = short.folder / "lake" / "other"
    done = replay(spark, short.config, short.raw, str(other), None, str(short.staging), lambda _: None)
    assert (done.start, done.transactions, done.head) == (start, 13, 18)
    assert values(other) == values(short.staging, start)
    assert diff(spark, str(short.staging), str(other), 5) == {}
    assert_sound(short, other)
    assert [row["count"] for row in rows(other) if row["kind"] == "trimmed"] == [3]


def test_what_was_settled_before_the_start_and_is_spoken_of_after_it_is_whole_in_a_replay(
    short: Pipeline, txn: Any, spark: Any
) -> None:
    """A record that came late, and what was decided, of transactions from before."""
    short.rules(out="SELECT seqno, 10 DIV value:x::int AS x FROM records")
    singles(short, ["first"])
    short.load(("a", txn("late", 1, x=2)), ("a", txn("fails", 1, x=0)))
    singles(short, ["gone", "gone too"])
    short.load(("a", txn("open", 2, x=2)))
    short.sync()
    short.load(("b", txn("late", 1, x=4)))
    decide(short.raw, ["fails"], "drop", "a probe")
    short.sync()
    singles(short, range(10))
    short.sync()
    assert [len(short.of(kind)) for kind in ("late", "quarantined", "discarded")] == [1, 1, 1]
    assert trimmed(short).start == 6
    assert seqnos(short) == [2, 3, *range(6, 19)]
    other = short.folder / "lake" / "other"
    replay(spark, short.config, short.raw, str(other), None, str(short.staging), lambda _: None)
    assert values(other, 6) == values(short.staging, 6)
    assert diff(spark, str(short.staging), str(other), 5) == {}
    kinds = [[row["kind"] for row in rows(one) if row["seqno"] >= 6] for one in (short.staging, other)]
    assert [(one.count("late"), one.count("discarded")) for one in kinds] == [(1, 1), (1, 1)]
    assert_sound(short, other)


@pytest.mark.parametrize("seed", [1])
def test_trimming_changes_nothing_whatever_came_late_or_was_decided(short: Pipeline, spark: Any, seed: int) -> None:
    """Histories with records that come late, twice, or never, and that fail; decided about; beside one untrimmed."""
    chance = random.Random(seed)
    short.rules(out="SELECT seqno, record_seqno AS _order, 10 DIV value:x::int AS x FROM records")
    same = Topic("value:txn", record_id="value:r::string")
    remember = Transactions(done=COUNTED, remember=15)
    short.change(topics={"a": same, "b": same}, transactions=remember)
    (short.folder / "whole").mkdir()
    whole = Pipeline(short.folder / "whole", spark)
    whole.config = replace(short.config, lake=str(whole.folder / "lake"))
    waiting: list[tuple[str, Any]] = []
    starts = []
    for step in range(6):
        for number in range(12):
            size, name = chance.choice([1, 2, 3]), f"{step}-{number}"
            come = [
                {"txn": name, "n": size, "r": f"{name}-{at}", "x": 0 if number == step else 1} for at in range(size)
            ]
            if chance.random() < 0.2:
                come.append(chance.choice(come) if chance.random() < 0.5 else {**come[0], "r": f"{name}-late"})
            waiting += [(chance.choice("ab"), one) for one in come if chance.random() > 0.03]
        waiting.append(("a", "{broken"))
        chance.shuffle(waiting)
        for _ in range(4):
            part, waiting = waiting[: len(waiting) // 3], waiting[len(waiting) // 3 :]
            for pipeline in (short, whole):
                pipeline.load(*part)
        short.sync()
        for among, actions in (UNDECIDED_KINDS, ("redrive", "drop")), (IN_FLIGHT, ("release", "discard")):
            flying = {one.id for one in find(str(short.staging), IN_FLIGHT)} if among is UNDECIDED_KINDS else set()
            ids = sorted({one.id for one in find(str(short.staging), among)} - flying) if step % 2 else []
            found = undecided(short.raw, str(short.staging), ids, None, among=among).chosen if ids else {}
            for action in actions if step < 3 else actions[1:]:
                chosen = {one: late for one, late in found.items() if step > 2 or chance.random() < 0.6}
                found = {one: late for one, late in found.items() if one not in chosen}
                for pipeline in (short, whole) if chosen else ():
                    decide(pipeline.raw, chosen, action, "so be it", who="ann")
        if step % 2:
            short.sync()
        starts.append(trimmed(short).start)
        assert_sound(short)
    assert starts[-1] > 20, starts
    replay(spark, whole.config, whole.raw, str(whole.staging), None, str(short.staging), lambda _: None)
    assert outputs(short.staging) == outputs(whole.staging)
    other = short.folder / "lake" / "other"
    start = replay(spark, short.config, short.raw, str(other), None, str(short.staging), lambda _: None).start
    assert start == starts[-1]
    assert values(short.staging, start) == values(other, start)
    assert diff(spark, str(short.staging), str(other), 5) == {}
    assert_sound(short, other)


def test_what_is_undecided_is_kept_until_it_is_decided(short: Pipeline, txn: Any) -> None:
    short.rules(out="SELECT seqno, 10 DIV value:x::int AS x FROM records")
    singles(short, ["first"])
    short.load(("a", txn("fails", 1, x=0)))
    short.load(("a", txn("open", 2, x=1)))
    singles(short, range(14))
    short.sync()
    assert trimmed(short).start == 2
    decide(short.raw, ["fails"], "drop", "a probe")
    short.sync()
    assert trimmed(short).start == 3
    decide(short.raw, ["open"], "discard", "never")
    short.sync()
    assert trimmed(short).start == 3
    singles(short, range(20, 32))
    short.sync()
    assert trimmed(short).start == seqnos(short)[0] == 22
    assert_sound(short)
    gone = transactions(short.raw, str(short.staging), state="discarded")
    assert [(one.id, one.topics) for one in gone] == [("fails", {}), ("open", {})]


def test_what_expired_is_kept_while_it_may_be_completed(short: Pipeline, txn: Any) -> None:
    short.change(transactions=replace(short.config.transactions, expire_after=timedelta(milliseconds=1)))
    singles(short, ["first"])
    short.load(("a", txn("open", 2, x=1)))
    time.sleep(0.01)
    singles(short, range(14))
    outcome = short.sync()
    assert (outcome.expired, outcome.cursor) == (1, 16)
    assert trimmed(short).start == 2
    short.load(("a", txn("open", 2, x=2)))
    assert short.sync().transactions == 1
    assert [row["value"] for row in short.of("output")].count('{"x":1}') >= 1
    singles(short, range(20, 32))
    short.sync()
    assert trimmed(short).start > 2
    assert_sound(short)


def test_what_is_young_is_kept_and_what_no_staging_has_read(short: Pipeline) -> None:
    singles(short, range(14))
    assert "no staging" in str(trimmed(short).untrimmed)
    short.sync()
    assert trimmed(short, timedelta(hours=1)).trimmed == 0
    singles(short, range(20, 24))
    done = trimmed(short)
    assert (done.start, done.trimmed) == (5, 4)


def test_all_stagings_count_and_one_that_was_left_out_is_not_synced_on(short: Pipeline, spark: Any) -> None:
    from zync.sync.syncer import Syncer

    def sync(staging: Path) -> Any:
        return Syncer(short.config, short.raw, str(staging), spark).sync()

    singles(short, range(6))
    beside, elsewhere = short.folder / "lake" / "beside", short.folder / "far" / "staging"
    sync(beside)
    sync(elsewhere)
    singles(short, range(6, 20))
    short.sync()
    assert trimmed(short).start == 1
    sync(beside)
    assert trimmed(short, SOON, str(elsewhere)).start == 1
    assert trimmed(short).start == 11
    with pytest.raises(UsageError, match="from seqno 11 on, and .*far/staging/ needs those from 7 on"):
        sync(elsewhere)
    singles(short, range(30, 32))
    assert short.sync().transactions == 2
    assert sync(beside).transactions == 2
    with pytest.raises(UsageError, match="is no staging"):
        trimmed(short, SOON, short.raw)
    with pytest.raises(UsageError, match="is a staging"):
        maintain(str(beside), compact=False, vacuum=True, trimming=Trimming(SOON, (str(elsewhere),)))
    done = zync("maintain", "raw", "--staging", str(elsewhere), cwd=short.folder, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_raw_without_any_records_left_goes_on(short: Pipeline, spark: Any) -> None:
    short.change(transactions=Transactions(done=COUNTED, remember=0))
    singles(short, range(3))
    short.sync()
    assert trimmed(short).start == 4
    assert seqnos(short) == []
    other = short.folder / "lake" / "other"
    done = replay(spark, short.config, short.raw, str(other), None, str(short.staging), lambda _: None)
    assert (done.head, done.cursor, done.transactions) == (3, 3, 0)
    singles(short, [9])
    assert short.sync().transactions == 1
    assert seqnos(short) == [4]
    assert_sound(short)
    assert_sound(short, other)
    found = status(short.raw, str(short.staging), short.config)
    assert found.raw
    assert (found.raw["start"], found.raw["head"]) == (4, 4)
    assert "head 4, version 5, from seqno 4 on" in describe(found)


def test_appends_meanwhile_all_land(short: Pipeline) -> None:
    singles(short, range(30))
    short.sync()
    loaded, stop = [], threading.Event()

    def load() -> None:
        while not stop.is_set():
            singles(short, [f"more {len(loaded)}"])
            loaded.append(1)

    writer = threading.Thread(target=load)
    writer.start()
    try:
        while len(loaded) < 20 or first_seqno(DeltaTable(short.raw)) == 1:
            trimmed(short)
    finally:
        stop.set()
        writer.join()
    assert seqnos(short) == [*range(21, 31 + len(loaded))]
    assert short.sync().transactions == len(loaded)
    assert_sound(short)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_its_commit_all_or_nothing_is_gone(short: Pipeline, txn: Any, when: str) -> None:
    reach_over(short, txn)
    maintain_and_die(short.raw, when, "trim")
    assert seqnos(short) == ([*range(1, 19)] if when == "before" else [3, *range(5, 19)])
    assert_sound(short)
    assert trimmed(short).start == 5
    assert seqnos(short) == [3, *range(5, 19)]
    assert_sound(short)


def test_the_command_takes_records_away_only_if_it_is_said_how_long_they_stay(short: Pipeline) -> None:
    (short.folder / "zync.yaml").write_text(
        f"topics: {{a: {{id: value:txn}}}}\ntransactions: {{done: {COUNTED}, remember: 10}}\n"
    )
    singles(short, range(20))
    short.sync()
    assert json.loads(zync("maintain", "raw", "--json", cwd=short.folder).stdout)["trimmed"] == 0
    refused = zync("maintain", "raw", "--compact", "--retain", "1h", cwd=short.folder, check=False)
    assert (refused.returncode, "add --vacuum" in refused.stderr) == (2, True)
    done = zync("maintain", "raw", "--retain", "1h", cwd=short.folder)
    said = (
        f"no records taken away: file://{short.staging} may need those from seqno 11 on again (within the last 10 "
        "records: transactions.remember), and those from 1 on are younger than --retain"
    )
    assert said in done.stdout
    done = zync("maintain", "raw", "--vacuum", "--retain", "0s", cwd=short.folder)
    assert "10 records before seqno 11 taken away" in done.stdout
    assert "seqno rises by one from 11 on, where raw was trimmed: 10" in zync("verify", cwd=short.folder).stdout
