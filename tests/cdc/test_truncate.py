"""TRUNCATE in the source, as Debezium sends it with `skipped.operations: none`: what was before it is gone."""

import json
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.conftest import rows
from tests.deliver.conftest import Seen, committed
from zync.deliver.kafka.delivery import Delivery, sync_to_kafka
from zync.deliver.kafka.truncations import LastTruncation, outgoing
from zync.deliver.tables.delivery import sync_to_tables
from zync.operate.verify import verify
from zync.project.load import load as load_config
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer

Record = dict[str, Any]


def record(txn: int, order: int, op: str, lsn: int, **images: Any) -> Record:
    source = {"version": "3.7.0.Final", "connector": "postgresql", "schema": "s", "lsn": lsn}
    value = {"op": op, "source": source, "transaction": {"id": f"{txn}:{lsn}", "total_order": order}, **images}
    return {"value": value, "headers": [["__debezium.context.runId", "A"]]}


def put(txn: int, order: int, lsn: int, key: int, x: int) -> Record:
    return record(txn, order, "c", lsn, before=None, after={"id": key, "x": x})


def delete(txn: int, order: int, lsn: int, key: int) -> Record:
    return record(txn, order, "d", lsn, before={"id": key, "x": 0}, after=None)


def truncate(txn: int, order: int, lsn: int) -> Record:
    """As https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-truncate-events."""
    return record(txn, order, "t", lsn)


def end(txn: int, lsn: int, count: int) -> Record:
    return {"value": {"status": "END", "id": f"{txn}:{lsn}", "event_count": count}}


def read(key: int, x: int) -> Record:
    """A row of an incremental snapshot, whose `lsn` is null."""
    found = record(9, 1, "r", 1, before=None, after={"id": key, "x": x})
    found["value"]["source"]["lsn"], found["value"]["transaction"] = None, None
    return found


def of_mysql() -> Record:
    """As MySQL's connector sends it: DDL is in no transaction."""
    alone = truncate(2, 1, 21)
    alone["value"]["source"] |= {"connector": "mysql", "file": "binlog.1", "pos": 4}
    alone["value"]["transaction"] = None
    return alone


LATE = [put(4, 1, 16, 4, 4), end(4, 17, 1)]
HISTORY = [
    *[put(1, 1, 10, 1, 1), put(1, 2, 11, 2, 1), end(1, 12, 2)],
    *[put(2, 1, 20, 3, 2), truncate(2, 2, 21), put(2, 3, 22, 2, 2), end(2, 23, 3)],
    *[put(3, 1, 30, 5, 3), end(3, 31, 1)],
    *LATE,
]
"""Transaction 2 truncates the table between two rows of its own; 4 was committed before it, and becomes whole late."""
ONLY = [truncate(5, 1, 40), end(5, 41, 1)]


def parts(cuts: Sequence[int]) -> list[list[Record]]:
    return [HISTORY[first:last] for first, last in pairwise([0, *cuts, len(HISTORY)])]


RULE = "SELECT seqno, _order, row:id::int AS id, row:x::int AS x, op = 'd' AS _delete FROM `p.s.{t}`"
JOINED = "SELECT t.seqno, t._order, t.row:id::int AS id FROM `p.s.{t}` t JOIN `p.s.{t}_u` u USING (seqno)"
WITHOUT_ORDER = "SELECT seqno, row:id::int AS id, row:x::int AS x FROM `p.s.{t}`"


@dataclass
class Case:
    """A table of the source, what comes of it before each sync, and the rule for each of its outputs.

    outputs: by name what a delivery does with it.
    """

    steps: list[list[Record]]
    rule: str = RULE
    outputs: tuple[tuple[str, str], ...] = (("newest", "upsert"),)


class Lake:
    """All cases in one pipeline. Their transactions' ids begin with the number of the case."""

    def __init__(self, folder: Path, spark: Any, cases: dict[str, Case], *, topics: str = "", more: str = "") -> None:
        self.folder, self.spark, self.cases = folder, spark, cases
        self.numbers = {name: number for number, name in enumerate(cases, start=1)}
        outputs, applied = [], []
        for name, case in cases.items():
            (folder / f"{name}.sql").write_text(case.rule.replace("{t}", name))
            for output, apply in case.outputs:
                outputs.append(f"{{topic: {output}_{name}, sql: {name}.sql, key: [id]}}")
                applied.append(f"{output}_{name}: {{apply: {apply}}}")
        (folder / "zync.yaml").write_text(
            f"transactions: {{preset: debezium, topic: p.transaction}}\noutputs: [{', '.join(outputs)}{more}]\n{topics}"
            f"deliver: {{tables: {{{', '.join(applied)}}}}}\n"
        )
        self.config = load_config(folder / "zync.yaml")
        self.raw, self.staging = str(folder / "raw"), str(folder / "staging")
        self.syncer = Syncer(self.config, self.raw, self.staging, spark)
        self.delivered: list[dict[str, list[Record]]] = []

    def sync(self, step: int) -> None:
        """Syncs the step of that number of each case that has one."""
        steps = {name: case.steps[step] for name, case in self.cases.items() if step < len(case.steps)}
        records = [self._of(name, one) for name, step in steps.items() for one in step]
        (self.folder / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
        load(self.raw, [str(self.folder / "in.jsonl")])
        self.syncer.sync()

    def _of(self, name: str, one: Record) -> Record:
        made: Record = json.loads(json.dumps(one))
        value = made["value"]
        for place in (value, value.get("transaction") or {}):
            if "id" in place:
                place["id"] = f"{self.numbers[name]}{place['id']}"
        if "status" in value:
            value["data_collections"] = [{"data_collection": f"s.{name}", "event_count": value["event_count"]}]
            return {"topic": "p.transaction", **made}
        value["source"]["table"] = name
        return {"topic": f"p.s.{name}", **made}

    def deliver(self) -> None:
        """Delivers what was synced, and keeps what the tables are then."""
        folder = self.folder / "tables"
        sync_to_tables(self.spark, self.config, self.staging, str(folder), threading.Event(), until_caught_up=True)
        found = {rule.topic: folder / rule.topic for rule in self.config.outputs}
        self.delivered.append(
            {name: DeltaTable(str(one)).to_pyarrow_table().to_pylist() for name, one in found.items()}
        )

    def table(self, output: str, *columns: str, step: int = -1) -> list[Any]:
        """Those columns of the rows of an output after the delivery of that step."""
        return sorted((tuple(one[column] for column in columns) for one in self.delivered[step][output]), key=repr)

    def set_aside(self, name: str) -> Record:
        """The only transaction of that case that is set aside, with its id in the case."""
        aside = [one for one in rows(Path(self.staging)) if one["kind"] == "quarantined"]
        (found,) = [one for one in aside if one["reason"].startswith(f"TRUNCATE of p.s.{name}: ")]
        return found | {"txn": (found["txn"] or "").removeprefix(str(self.numbers[name]))}

    def violations(self) -> list[str]:
        claims = verify(
            self.raw, self.staging, self.config, every_version=True, kafka=False, tables=str(self.folder / "tables")
        )
        return [text for claim in claims for text in claim.violations]


ALL_OF_THEM = (("newest", "upsert"), ("versions", "history"), ("every", "append"))
SNAPSHOT = [
    HISTORY[:3],
    [read(1, 7), read(6, 7)],
    [*HISTORY[7:9], put(6, 1, 50, 1, 8), end(6, 51, 1), read(5, 9), put(7, 1, 5, 1, 0), end(7, 6, 1)],
    [truncate(8, 1, 60), end(8, 61, 1), read(1, 10)],
]
DELIVERED = {
    "once": Case([*parts([]), ONLY], outputs=ALL_OF_THEM),
    "cut_3_7_9": Case(parts([3, 7, 9]), outputs=ALL_OF_THEM),
    "cut_4_5_8": Case(parts([4, 5, 8]), outputs=ALL_OF_THEM),
    "alone": Case([[*HISTORY[:3], truncate(2, 1, 21), end(2, 23, 1)]], f"{WITHOUT_ORDER} WHERE row:x::int > 0"),
    "read": Case(SNAPSHOT, outputs=ALL_OF_THEM[:2]),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Lake:
    """What was delivered of DELIVERED after each step."""
    made = Lake(tmp_path_factory.mktemp("delivered"), spark, DELIVERED)
    for step in range(4):
        made.sync(step)
        made.deliver()
    return made


def test_of_all_that_was_delivered_nothing_is_wrong(lake: Lake) -> None:
    assert lake.violations() == []


@pytest.mark.parametrize(("case", "step"), [("once", 0), ("cut_3_7_9", -1), ("cut_4_5_8", -1)])
def test_what_was_before_it_is_gone_also_when_it_comes_later(lake: Lake, case: str, step: int) -> None:
    assert lake.table(f"newest_{case}", "id", "x", step=step) == [(2, 2), (5, 3)]
    assert lake.table(f"versions_{case}", "id", "x", "valid_from", "valid_to", "current", step=step) == [
        (1, 1, 12, 23, False),
        (2, 1, 12, 23, False),
        (2, 2, 23, None, True),
        (4, 4, 17, 23, False),
        (5, 3, 31, None, True),
    ]
    every = lake.table(f"every_{case}", "id", "x", "_deleted", step=step)
    assert every.count((None, None, True)) == 1
    assert len(every) == 7


def test_a_table_that_only_a_truncation_arrives_for_is_emptied(lake: Lake) -> None:
    assert lake.table("newest_once", "id", step=1) == []
    ended = [(1, 23), (2, 23), (2, 41), (4, 23), (5, 41)]
    assert lake.table("versions_once", "id", "valid_to", "current", step=1) == [(*one, False) for one in ended]


def test_without_order_a_truncation_by_itself_is_known(lake: Lake) -> None:
    assert lake.table("newest_alone", "id") == []


def test_a_snapshots_row_without_lsn_repairs_what_went_out_before_it(lake: Lake) -> None:
    """Incremental snapshots: `lsn` is null. What is committed later has a later position."""
    assert lake.table("newest_read", "id", "x", step=1) == [(1, 7), (2, 1), (6, 7)]
    columns = ("id", "x", "_position")
    assert lake.table("newest_read", *columns, step=2) == [(1, 8, 51), (2, 1, 12), (5, 9, 31), (6, 7, 0)]
    assert lake.table("versions_read", "id", "x", "valid_from", "valid_to", step=2) == [
        (1, 0, 6, 12),
        (1, 1, 12, 12),
        (1, 7, 12, 51),
        (1, 8, 51, None),
        (2, 1, 12, None),
        (5, 3, 31, 31),
        (5, 9, 31, None),
        (6, 7, 0, None),
    ]
    assert lake.table("newest_read", *columns, step=3) == [(1, 10, 61)]


TRUNCATING = [*HISTORY[3:7], *HISTORY[7:9]]
UNKNOWN = {
    "joined": (JOINED, "its rules read more than that table (p.s.joined, p.s.joined_u)"),
    "in_with": (f"WITH u AS ({JOINED}) SELECT * FROM u", "its rules read more than that table"),
    "exists": (f"{RULE} WHERE EXISTS (SELECT 1 FROM records)", "its rules read more than that table"),
    "no_order": (WITHOUT_ORDER, "its rules do not select _order"),
}
STAGED = {
    **{name: Case([TRUNCATING], rule) for name, (rule, _) in UNKNOWN.items()},
    "several": Case([HISTORY[3:7]], "SELECT seqno, _order, row:id::int AS id FROM tables"),
    "mysql": Case([[*HISTORY[:3], of_mysql()]]),
    "recorded": Case([HISTORY[:3], [*HISTORY[3:7], *ONLY]]),
}
SEEN = "SELECT seqno, op, topic, row IS NULL AS nothing FROM records"


@pytest.fixture(scope="module")
def staged_lake(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Lake:
    """Staging after two syncs of STAGED, with an output of all records beside those of the cases."""
    folder = tmp_path_factory.mktemp("staged")
    (folder / "seen.sql").write_text(SEEN)
    topics = "topics: {'^p\\.s\\.several': {as: tables}}\n"
    made = Lake(folder, spark, STAGED, topics=topics, more=", {topic: seen, sql: seen.sql}")
    for step in range(2):
        made.sync(step)
    return made


def test_of_all_that_was_staged_nothing_is_wrong_and_nothing_else_was_set_aside(staged_lake: Lake) -> None:
    assert staged_lake.violations() == []
    kinds = Counter(one["kind"] for one in rows(Path(staged_lake.staging)))
    aside = {kind: kinds[kind] for kind in kinds.keys() & {"quarantined", "late", "duplicate", "ignored"}}
    assert aside == {"quarantined": len(UNKNOWN) + 2}


SENT = [
    HISTORY[:3],
    [*HISTORY[3:7], *ONLY],
    [*LATE, put(6, 1, 18, 2, 6), end(6, 19, 1)],
    [read(1, 7), put(7, 1, 50, 5, 7), end(7, 51, 1)],
    [put(9, 1, 42, 5, 9), end(9, 43, 1), truncate(8, 1, 45), end(8, 46, 1), put(10, 1, 30, 5, 1), end(10, 31, 1)],
    [truncate(11, 1, 60), end(11, 61, 1)],
    [delete(12, 1, 72, 6), end(12, 73, 1), put(13, 1, 70, 6, 13), end(13, 71, 1), delete(14, 1, 74, 7), end(14, 75, 1)],
    [truncate(15, 1, 80), end(15, 81, 1)],
]
"""By syncs. Transactions 4 and 6 were committed before 2 and 5 truncated the table, and become whole after them. 8
truncates it before 7 writes, and goes out after it; so do 9 and 10, before that. 13 writes before 12 deletes, and goes
out after it."""


def test_kafka_gets_what_the_source_has_whenever_a_truncation_goes_out(
    tmp_path: Path, spark: Any, broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"sent{os.getpid()}"
    made = Lake(tmp_path, spark, {name: Case(SENT)}, more=f", {{topic: keyless_{name}, sql: {name}.sql}}")
    delivery = Delivery(made.staging, {"bootstrap.servers": broker}, made.config, until_caught_up=True)
    sent = list[list[tuple[int, int | None]]]()
    for step in range(len(SENT)):
        made.sync(step)
        sync_to_kafka(delivery)
        messages = [(json.loads(one.key or b"{}")["id"], x_of(one)) for one in committed(broker, f"newest_{name}")]
        sent.append(messages[sum(map(len, sent)) :])
    assert sent == [
        [(1, 1), (2, 1)],
        [(3, 2), (1, None), (2, None), (3, None), (2, 2), (2, None)],
        [],
        [(1, 7), (5, 7)],
        [(5, 9), (1, None)],  # the row without position is deleted by what goes out after it, 5 was written after 8
        [(5, None)],
        [(6, None), (6, 13), (7, None)],
        [(6, None)],  # who takes messages as they come has 6; none has 7
    ]
    without_keys = [x_of(one) for one in committed(broker, f"keyless_{name}")]
    assert without_keys == [1, 1, 2, None, 2, None, 4, 6, 7, 7, 9, None, 1, None, None, 13, None, None]
    events = [one.values for one in caplog.records if hasattr(one, "values")]
    kept_back = [one for one in events if one["event"] == "truncated_rows" and one["topic"] == f"newest_{name}"]
    assert [(one["rows"], one["position"]) for one in kept_back] == [(2, 41), (1, 46)]


def test_a_truncation_keeps_nothing_back_after_as_many_records_as_ids_are_remembered() -> None:
    """Its database may have been made anew, and positions begun again."""
    rows = pa.table(
        {
            "topic": ["t", "t", "t", "u"],
            "key": ["1", "2", "3", "4"],
            "value": ["{}"] * 4,
            "reason": pa.nulls(4, pa.string()),
            "position": [5, 30, 5, 5],
            "seqno": [110, 111, 121, 122],
            "turn": [110, 111, 121, 122],
        }
    )
    out = outgoing(None, rows, {"t": LastTruncation(20, 99, 100)}, remember=20)  # type: ignore[arg-type]
    assert out.rows["key"].to_pylist() == ["2", "3", "4"]
    assert out.kept_back == {"t": 1}


def x_of(message: Seen) -> int | None:
    return json.loads(message.value)["x"] if message.value is not None else None


def test_a_rule_sees_it_in_the_view_of_all_records(staged_lake: Lake) -> None:
    out = [one for one in rows(Path(staged_lake.staging)) if one["kind"] == "output"]
    seen = [json.loads(one["value"]) for one in out if one["kafka"]["topic"] == "seen"]
    mine = [one for one in seen if one["topic"] == "p.s.recorded" and one["op"] == "t"]
    assert mine == [{"op": "t", "topic": "p.s.recorded", "nothing": True}] * 2


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_transaction_is_set_aside_where_it_is_not_known_which_rows_are_gone(staged_lake: Lake, case: str) -> None:
    found = staged_lake.set_aside(case)
    assert (found["txn"], found["rule"]) == ("2", f"{case}.sql")
    expected = f"TRUNCATE of p.s.{case}: which rows of output newest_{case} are gone is not known: "
    assert found["reason"].startswith(expected)
    assert UNKNOWN[case][1] in found["reason"]


def test_of_a_view_of_several_tables_it_is_not_known_whose_rows_are_gone(staged_lake: Lake) -> None:
    found = staged_lake.set_aside("several")
    assert "its rules read several tables as ^p\\.s\\.several: give the topic an entry of its own" in found["reason"]


def test_a_truncation_that_has_no_place_in_the_source_is_set_aside(staged_lake: Lake) -> None:
    """As MySQL's connector sends it: DDL is in no transaction."""
    assert staged_lake.set_aside("mysql")["reason"].endswith("where it is in the source's order is not known")
