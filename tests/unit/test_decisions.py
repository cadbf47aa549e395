"""An operator decides about a transaction once: a second decision that nobody would act on is refused."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from zync.errors import UsageError
from zync.lake.ranges import SeqnoRanges
from zync.lake.table import commit_properties
from zync.operate.decide import IN_FLIGHT, decide, undecided
from zync.operate.txn import transactions
from zync.raw.decisions import decisions
from zync.raw.jsonl import load
from zync.raw.table import DECISIONS, existing_raw
from zync.staging.kinds import UNDECIDED_KINDS
from zync.staging.table import STAGING_SCHEMA, SYNC

Locations = tuple[str, str]


def bookkeeping(kind: str, txn: str, seqno: int, **more: Any) -> dict[str, Any]:
    ranges = [{"first": seqno, "last": seqno}]
    since = datetime(2026, 1, 31, 12, tzinfo=UTC)
    return {"kind": kind, "txn": txn, "seqno": seqno, "records": ranges, "count": 1, "since": since, **more}


@pytest.fixture
def lake(tmp_path: Path) -> Locations:
    """A raw of four records, and a staging of one sync that has seen them: two are in flight, two are set aside."""
    raw, staging = str(tmp_path / "raw"), str(tmp_path / "staging")
    lines = [{"topic": "t", "value": {"txn": txn}} for txn in ("open", "old", "bad", "late")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    load(raw, [str(tmp_path / "in.jsonl")])
    rows = [
        bookkeeping("pending", "open", 1),
        bookkeeping("expired", "old", 2),
        bookkeeping("quarantined", "bad", 3, reason="it does not fit"),
        bookkeeping("late", "late", 4),
        {"kind": "cursor", "seqno": 0, "head": 4, "full": 1, "raw": {"id": "x", "version": 1}},
    ]
    table = pa.Table.from_pylist([{**row, "sync": 1} for row in rows], STAGING_SCHEMA)
    write_deltalake(staging, table, commit_properties=commit_properties({SYNC: 1}))
    return raw, staging


def test_a_decision_is_on_record_in_raw_with_who_and_why(lake: Locations) -> None:
    raw, _ = lake
    assert decide(raw, ["open"], "release", "agreed", who="ann").first_seqno == 5
    assert decisions(existing_raw(raw)) == [(5, {"decision": "release", "txn": "open", "who": "ann", "why": "agreed"})]
    assert str(DECISIONS) == "__zync/0"


def test_a_decision_needs_a_reason(lake: Locations) -> None:
    with pytest.raises(UsageError, match="a decision needs a reason"):
        decide(lake[0], ["open"], "release", " ")


def test_a_second_decision_about_what_is_in_flight_is_refused_until_a_sync_has_met_the_first(lake: Locations) -> None:
    decide(lake[0], undecided(*lake, ["open"], None).chosen, "release", "agreed", who="ann")
    refused = r"of transaction 'open' there is a decision on record \(release by ann: agreed\) that no sync has met yet"
    with pytest.raises(UsageError, match=refused):
        undecided(*lake, ["old", "open"], None)
    assert [*undecided(*lake, ["old"], None).chosen] == ["old"]


def test_all_of_a_state_are_decided_about_but_those_that_are_already(lake: Locations) -> None:
    decide(lake[0], ["open"], "discard", "agreed", who="ann")
    found = undecided(*lake, [], "in-flight")
    assert (found.chosen, found.decided) == ({}, ["open"])
    assert [*undecided(*lake, [], "expired").chosen] == ["old"]


def test_a_second_decision_about_what_is_set_aside_is_refused_too(lake: Locations) -> None:
    decide(lake[0], undecided(*lake, ["bad"], None, among=UNDECIDED_KINDS).chosen, "redrive", "mended", who="ann")
    with pytest.raises(
        UsageError, match=r"decision on record \(redrive by ann: mended\).*a second one may come to nothing"
    ):
        undecided(*lake, ["bad"], None, among=UNDECIDED_KINDS)
    found = undecided(*lake, [], "quarantined", among=UNDECIDED_KINDS)
    assert (found.chosen, found.decided) == ({}, ["bad"])


def test_who_decides_about_what_came_late_says_which_records(lake: Locations) -> None:
    assert undecided(*lake, ["late"], None, among=UNDECIDED_KINDS).chosen == {"late": SeqnoRanges.of([(4, 4)])}


def test_a_decision_that_somebody_else_made_meanwhile_stops_this_one(lake: Locations) -> None:
    found = undecided(*lake, ["open"], None)
    decide(lake[0], ["open"], "discard", "first", who="bob")
    with pytest.raises(
        UsageError, match=r"of transaction 'open' there is a decision meanwhile \(discard by bob: first"
    ):
        decide(lake[0], found.chosen, "release", "second", who="ann", since=found.head)


def test_the_list_says_what_was_decided(lake: Locations) -> None:
    decide(lake[0], ["old"], "discard", "agreed", who="ann")
    assert {one.id: one.decided for one in transactions(*lake)} == {
        "open": None, "old": "discard by ann: agreed", "bad": None, "late": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("txns", "state", "among", "expected"),
    [
        (["open"], "in-flight", IN_FLIGHT, "by their ids, or all of a state: not both"),
        ([], None, IN_FLIGHT, "which transactions. Name their ids, or --state in-flight or expired"),
        ([], None, UNDECIDED_KINDS, r"which transactions. Name their ids, or --all \(or --late\)"),
        (["nobody"], None, IN_FLIGHT, "no transaction 'nobody' is in-flight or expired: `zync txn list` names"),
        (["bad"], None, IN_FLIGHT, "no transaction 'bad' is in-flight or expired"),
        (["open"], None, UNDECIDED_KINDS, "no transaction 'open' is quarantined or late"),
    ],
)
def test_it_is_said_which_transactions_and_they_are_in_that_state(
    lake: Locations, txns: list[str], state: str | None, among: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        undecided(*lake, txns, state, among=among)
