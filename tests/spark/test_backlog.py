"""A large backlog is taken in several syncs, whose output is that of a single one."""

import threading
from dataclasses import replace
from typing import Any

from tests.conftest import rows
from tests.spark.conftest import Pipeline
from zync.config.model import Limits
from zync.operate.check import compare_cuts
from zync.operate.replay import replay
from zync.raw.jsonl import load
from zync.sync.outcome import Outcome
from zync.sync.process import follow, sync_once
from zync.sync.syncer import Syncer

RECORDS = 30


def history() -> list[tuple[str, Any]]:
    """Records of ten transactions of three, whose records are ten apart: each part of seven leaves some in flight."""
    return [("ab"[number % 2], {"txn": number % 10, "n": 3, "x": number}) for number in range(RECORDS)]


def of_all(pipeline: Pipeline, staging: str) -> dict[str, list[Any]]:
    """What staging says of records: all of it but which sync wrote it, and when."""
    table = rows(pipeline.folder / "lake" / staging)
    return {
        kind: [
            (row["seqno"], row["txn"], row["records"], row["kafka"], row["value"])
            for row in table
            if row["kind"] == kind
        ]
        for kind in ("done", "output", "late", "duplicate", "quarantined")
    }


def in_parts_of(records: int, pipeline: Pipeline) -> None:
    pipeline.load(*history())
    pipeline.change(limits=Limits(records_per_sync=records))


def test_several_syncs_take_a_backlog_and_the_output_is_that_of_one(pipeline: Pipeline) -> None:
    in_parts_of(7, pipeline)
    seen: list[Outcome] = []
    total = sync_once(pipeline.config, pipeline.raw, str(pipeline.staging), on_sync=seen.append)
    assert [(one.head, one.behind) for one in seen] == [(7, 23), (14, 16), (21, 9), (28, 2), (30, 0)]
    assert (total.records, total.transactions, total.syncs, total.sync) == (RECORDS, 10, 5, 5)
    assert (total.head, total.cursor, total.behind, total.outputs) == (RECORDS, RECORDS, 0, {"out": RECORDS})
    pipeline.change(limits=Limits())
    at_once = Syncer(pipeline.config, pipeline.raw, f"{pipeline.folder}/lake/whole", pipeline.spark).sync()
    assert (at_once.syncs, at_once.behind) == (1, 0)
    assert of_all(pipeline, "staging") == of_all(pipeline, "whole")
    assert len(of_all(pipeline, "whole")["output"]) == RECORDS


def test_one_that_follows_takes_the_rest_at_once(pipeline: Pipeline) -> None:
    in_parts_of(20, pipeline)
    stop, seen = threading.Event(), list[Outcome]()

    def look(outcome: Outcome) -> None:
        seen.append(outcome)
        if outcome.head == RECORDS:
            stop.set()

    threading.Timer(120, stop.set).start()
    follow(pipeline.config, pipeline.raw, str(pipeline.staging), stop, look)
    assert [one.head for one in seen] == [20, RECORDS]
    assert len(pipeline.values()) == RECORDS


def test_what_comes_in_the_meantime_is_for_the_next(pipeline: Pipeline) -> None:
    in_parts_of(20, pipeline)
    more = pipeline.folder / "more.jsonl"
    more.write_text('{"topic": "a", "value": {"txn": "more", "n": 1, "x": 1}}\n')
    total = sync_once(
        pipeline.config, pipeline.raw, str(pipeline.staging), on_sync=lambda _: load(pipeline.raw, [str(more)])
    )
    assert (total.head, total.syncs) == (RECORDS + 1, 2), "the second sync reads it, and no third follows for its sake"


def test_a_replay_takes_as_many_at_once(pipeline: Pipeline) -> None:
    in_parts_of(12, pipeline)
    heads: list[int] = []
    again = f"{pipeline.folder}/lake/again"
    replay(
        pipeline.spark, pipeline.config, pipeline.raw, again, None, str(pipeline.staging),
        on_sync=lambda outcome: heads.append(outcome.head),
    )  # fmt: skip
    assert heads == [12, 24, RECORDS]


def test_all_that_is_in_flight_is_written_anew_as_it_was(pipeline: Pipeline, monkeypatch: Any) -> None:
    monkeypatch.setattr("zync.staging.conclude.FULL_EVERY", 2)
    in_parts_of(5, pipeline)
    pipeline.config = replace(pipeline.config, transactions=replace(pipeline.config.transactions, done="count(*) = 9"))
    syncer = Syncer(pipeline.config, pipeline.raw, str(pipeline.staging), pipeline.spark)
    while syncer.sync().behind:
        pass
    assert syncer.bookkeeping is not None
    known = {
        row["txn"]: (row["seqno"], row["count"], row["records"]) for row in syncer.bookkeeping.in_flight.to_pylist()
    }
    assert {txn: count for txn, (_, count, _) in known.items()} == {str(txn): 3 for txn in range(10)}
    newest = max(row["full"] for row in pipeline.of("cursor"))
    assert newest > 1
    by_sync = sorted(pipeline.of("pending"), key=lambda row: row["sync"])
    stored = {row["txn"]: row for row in by_sync if row["sync"] >= newest}
    assert {txn: (row["seqno"], row["count"], row["records"]) for txn, row in stored.items()} == known
    assert {row["txn"] for row in by_sync if row["sync"] == newest} == {str(txn) for txn in range(10)}


def test_a_comparison_of_cuts_reads_all_of_raw_whatever_the_limit(pipeline: Pipeline) -> None:
    in_parts_of(1, pipeline)
    assert compare_cuts(pipeline.spark, pipeline.config, pipeline.raw) is None
