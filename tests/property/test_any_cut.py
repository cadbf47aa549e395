"""For any interleaving, any cuts and any restarts, staging is what one pass over raw says it is."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests import model
from tests.conftest import rows
from zync.config.model import Config, Limits, OutputRule, Topic, Transactions
from zync.raw.jsonl import load
from zync.rules import transform
from zync.spark import sizing
from zync.sync import recall
from zync.sync.syncer import Syncer
from zync.transactions import gather

EXAMPLES = int(os.environ.get("ZYNC_TEST_HISTORIES", "3"))
REMEMBER = 5

RULES = {
    "each": "SELECT seqno, record_seqno AS _order, txn, value:x::int AS x FROM records",
    "total": "SELECT seqno, count(*) AS n, sum(100 DIV value:x::int) AS parts FROM records GROUP BY seqno",
}

VALUES = st.one_of(
    st.fixed_dictionaries(
        {
            "txn": st.integers(1, 6),
            "n": st.integers(1, 4),
            "x": st.sampled_from([1, 1, 2, 5, 0]),
            "m": st.integers(1, 3),
        }
    ),
    st.fixed_dictionaries({"txn": st.none(), "x": st.integers(1, 3)}),
    st.sampled_from(["{broken", '{"txn":1}{"txn":2}', "", "1e400", '{"txn":7,"txn":7}', "[1]]", "1],[2"]),
)
DECISIONS = st.fixed_dictionaries(
    {
        "decision": st.sampled_from(["release", "discard"]),
        "txn": st.integers(1, 7).map(str),
        "who": st.just("me"),
        "why": st.just("so"),
    }
)
RECORD = st.tuples(st.sampled_from(["a", "b", "single", "other"]), VALUES)
RECORDS = st.lists(st.one_of(RECORD, RECORD, RECORD, st.tuples(st.just("__zync"), DECISIONS)), min_size=30, max_size=90)


def config(folder: Path, *, done: str, record_id: bool) -> Config:
    for name, text in RULES.items():
        (folder / f"{name}.sql").write_text(text)
    mark = "value:m" if record_id else None
    return Config(
        lake=str(folder),
        topics={
            "a": Topic("value:txn", record_id=mark),
            "b": Topic("value:txn", record_id=mark),
            "single": Topic("value:txn", null_id="single"),
        },
        transactions=Transactions(done=done, remember=REMEMBER),
        outputs=tuple(OutputRule(name, folder / f"{name}.sql") for name in RULES),
        limits=Limits(max_quarantined=100),
    )


def rule(seqno: int, records: list[model.Record]) -> list[tuple[str, str | None, str]]:
    values = [one.value for one in records]
    txn = values[0]["txn"]
    total = sum(100 // value["x"] for value in values)
    name = str(txn) if txn is not None else f"{records[0].topic}/0/{records[0].offset}"
    each = [("each", None, json.dumps({"txn": name, "x": value["x"]}, separators=(",", ":"))) for value in values]
    return [*each, ("total", None, json.dumps({"n": len(values), "parts": total}, separators=(",", ":")))]


def as_model(given_: list[tuple[str, Any]]) -> list[model.Record]:
    offsets: dict[str, int] = {}
    found = []
    for seqno, (topic, value) in enumerate(given_, start=1):
        offset = offsets.get(topic, 0)
        offsets[topic] = offset + 1
        bad = "bad" if isinstance(value, str) else None
        found.append(model.Record(seqno, topic, offset, None if bad else value, bad))
    return found


def write(path: Path, part: list[tuple[str, Any]]) -> Path:
    path.write_text("".join(json.dumps({"topic": topic, "value": value}) + "\n" for topic, value in part))
    return path


def expected(state: model.State) -> dict[str, Any]:
    def ranges(seqnos: list[int]) -> list[int]:
        return sorted(seqnos)

    return {
        "output": sorted(state.outputs),
        "done": {seqno: (txn, ranges(members)) for seqno, (txn, members) in state.done.items()},
        "quarantined": {seqno: ranges(members) for seqno, members in state.quarantined.items()},
        "released": {seqno for seqno in state.released if seqno in state.done},
        "discarded": {seqno: ranges(members) for seqno, members in state.discarded.items()},
        "late": sorted(state.late),
        "duplicate": sorted(state.duplicate),
        "ignored": sorted(state.ignored),
    }


def members(row: dict[str, Any]) -> list[int]:
    return [seqno for one in row["records"] for seqno in range(one["first"], one["last"] + 1)]


def found(staging: list[dict[str, Any]]) -> dict[str, Any]:
    def of(kind: str) -> list[dict[str, Any]]:
        return [row for row in staging if row["kind"] == kind]

    outputs = [(r["seqno"], r["kafka"]["topic"], r["kafka"]["offset"], r["key"], r["value"]) for r in of("output")]
    return {
        "output": sorted(outputs),
        "done": {row["seqno"]: (row["txn"], members(row)) for row in [*of("done"), *of("released")]},
        "released": {row["seqno"] for row in of("released")},
        "discarded": {row["seqno"]: members(row) for row in of("discarded")},
        "quarantined": {row["seqno"]: members(row) for row in of("quarantined")},
        "late": sorted(seqno for row in of("late") for seqno in members(row)),
        "duplicate": sorted(seqno for row in of("duplicate") for seqno in members(row)),
        "ignored": sorted(seqno for row in of("ignored") for seqno in members(row)),
    }


_NOT_COMPILED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

DONES = {
    "mergeable": ("count(*) = max(value:n::int)", lambda rs: len(rs) == max(r.value["n"] for r in rs)),
    "read again": (
        "count(DISTINCT value:x::int) >= max(value:n::int)",
        lambda rs: len({r.value["x"] for r in rs}) >= max(r.value["n"] for r in rs),
    ),
}


@pytest.mark.parametrize("record_id", [False, True], ids=["", "record_id"])
@pytest.mark.parametrize("name", DONES)
def test_staging_is_what_one_pass_over_raw_says(
    spark: Any, name: str, record_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, holds = DONES[name]
    monkeypatch.setattr(transform, "_BUCKET", 16)
    if (name, record_id) != ("mergeable", False):  # compiling takes most of the time, and one of the four shows that
        monkeypatch.setattr("zync.spark.sizing._LARGE", _NOT_COMPILED)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize="ZYNC_TEST_HISTORIES" not in os.environ,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],  # shrinking would run hundreds of syncs
    )
    @given(
        given_=RECORDS,
        cuts=st.sets(st.integers(1, 80), min_size=1, max_size=3),
        restart=st.booleans(),
        sizes=st.lists(st.sampled_from(["one task", "small", "large"]), min_size=4, max_size=4),
        recent=st.lists(st.sampled_from([0, 5, 20, 1000]), min_size=4, max_size=4),
    )
    def check(
        given_: list[tuple[str, Any]], cuts: set[int], restart: bool, sizes: list[str], recent: list[int]
    ) -> None:
        records = as_model(given_)
        pipeline = model.Pipeline(
            topics={"a": 1, "b": 1, "single": "single"},
            id_of=lambda r: None if r.value["txn"] is None else str(r.value["txn"]),
            done=holds,
            rule=rule,
            remember=REMEMBER,
            record_id=(lambda r: r.value.get("m") if r.topic in "ab" else None) if record_id else lambda _: None,
        )
        with tempfile.TemporaryDirectory() as name_:
            folder = Path(name_)
            conf = config(folder, done=done, record_id=record_id)
            syncer = Syncer(conf, str(folder / "raw"), str(folder / "staging"), spark)
            bounds = [0, *sorted(cut for cut in cuts if cut < len(given_)), len(given_)]
            state = model.State()
            for start, end, size, reread in zip(bounds, bounds[1:], sizes, recent, strict=False):
                monkeypatch.setattr(gather, "RECENT", reread)
                monkeypatch.setattr(sizing, "SMALL", 0 if size == "large" else len(given_))
                monkeypatch.setattr(sizing, "SINGLE_TASK", len(given_) if size == "one task" else 0)
                monkeypatch.setattr(sizing, "TINY", 0 if size == "large" else len(given_))
                monkeypatch.setattr(recall, "MOST_SENT", 0 if reread else 1000)  # of a large sync only
                load(str(folder / "raw"), [str(write(folder / "in.jsonl", given_[start:end]))])
                if restart:
                    syncer = Syncer(conf, str(folder / "raw"), str(folder / "staging"), spark)
                outcome = syncer.sync()
                for record in records[start:end]:
                    model.take(pipeline, state, record)
                assert outcome.head == end
                assert outcome.cursor == model.cursor(pipeline, state)
                assert outcome.in_flight == len(state.in_flight)
                staging = rows(folder / "staging")
                assert found(staging) == expected(state)
                flying = {one["txn"]: one["seqno"] for one in syncer.bookkeeping.in_flight.to_pylist()}
                assert flying == {txn: one.records[0].seqno for txn, one in state.in_flight.items()}

    check()
