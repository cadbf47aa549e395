"""TRUNCATE in the source, as Debezium sends it with `skipped.operations: none`: what was before it is gone."""

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.conftest import rows
from zync.deliver.tables import delivery
from zync.lake.table import open_table
from zync.operate.verify import verify
from zync.project.load import load as load_config
from zync.raw.jsonl import load
from zync.staging.outputs import Place, staged, with_tombstones
from zync.sync.syncer import Syncer

RULE = "SELECT seqno, _order, row:id::int AS id, row:x::int AS x, op = 'd' AS _delete FROM `p.s.t`"
PRESET = "transactions: {preset: debezium, topic: p.transaction}\n"
CONFIG = f"""\
{PRESET}outputs:
  - {{topic: newest, sql: rule.sql, key: [id]}}
  - {{topic: versions, sql: rule.sql, key: [id]}}
  - {{topic: every, sql: rule.sql, key: [id]}}
deliver: {{tables: {{versions: {{apply: history}}, every: {{apply: append}}}}}}
"""
Record = dict[str, Any]


def record(txn: int, order: int, op: str, lsn: int, **images: Any) -> Record:
    source = {"version": "3.7.0.Final", "connector": "postgresql", "schema": "s", "table": "t", "lsn": lsn}
    value = {"op": op, "source": source, "transaction": {"id": f"{txn}:{lsn}", "total_order": order}, **images}
    return {"topic": "p.s.t", "value": value, "headers": [["__debezium.context.runId", "A"]]}


def put(txn: int, order: int, lsn: int, key: int, x: int) -> Record:
    return record(txn, order, "c", lsn, before=None, after={"id": key, "x": x})


def truncate(txn: int, order: int, lsn: int) -> Record:
    """As https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-truncate-events."""
    return record(txn, order, "t", lsn)


def end(txn: int, lsn: int, count: int, table: str = "t") -> Record:
    said = [{"data_collection": f"s.{table}", "event_count": count}]
    value = {"status": "END", "id": f"{txn}:{lsn}", "event_count": count, "data_collections": said}
    return {"topic": "p.transaction", "value": value}


LATE = [put(4, 1, 16, 4, 4), end(4, 17, 1)]
HISTORY = [
    *[put(1, 1, 10, 1, 1), put(1, 2, 11, 2, 1), end(1, 12, 2)],
    *[put(2, 1, 20, 3, 2), truncate(2, 2, 21), put(2, 3, 22, 2, 2), end(2, 23, 3)],
    *[put(3, 1, 30, 5, 3), end(3, 31, 1)],
    *LATE,
]
"""Transaction 2 truncates the table between two rows of its own; 4 was committed before it, and becomes whole late."""


class Lake:
    def __init__(self, folder: Path, spark: Any, rule: str = RULE, config: str = CONFIG) -> None:
        self.folder, self.spark = folder, spark
        (folder / "rule.sql").write_text(rule)
        (folder / "zync.yaml").write_text(config)
        self.config = load_config(folder / "zync.yaml")
        self.raw, self.staging = str(folder / "raw"), str(folder / "staging")
        self.syncer = Syncer(self.config, self.raw, self.staging, spark)

    def sync(self, records: list[Record]) -> Any:
        (self.folder / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
        load(self.raw, [str(self.folder / "in.jsonl")])
        return self.syncer.sync()

    def deliver(self) -> None:
        folder = str(self.folder / "tables")
        delivery.sync_to_tables(self.spark, self.config, self.staging, folder, threading.Event(), until_caught_up=True)

    def table(self, name: str, *columns: str) -> list[Any]:
        found = DeltaTable(str(self.folder / "tables" / name)).to_pyarrow_table().to_pylist()
        return sorted((tuple(one[column] for column in columns) for one in found), key=repr)

    def violations(self) -> list[str]:
        claims = verify(self.raw, self.staging, self.config, every_version=True, kafka=False)
        return [text for claim in claims for text in claim.violations]


@pytest.mark.parametrize("cuts", [[], [3, 7, 9], [4, 5, 8]], ids=str)
def test_what_was_before_it_is_gone_also_when_it_comes_later(tmp_path: Path, spark: Any, cuts: list[int]) -> None:
    lake = Lake(tmp_path, spark)
    for first, last in zip([0, *cuts], [*cuts, len(HISTORY)], strict=True):
        lake.sync(HISTORY[first:last])
        lake.deliver()
    assert lake.table("newest", "id", "x") == [(2, 2), (5, 3)]
    assert lake.table("versions", "id", "x", "valid_from", "valid_to", "current") == [
        (1, 1, 12, 23, False),
        (2, 1, 12, 23, False),
        (2, 2, 23, None, True),
        (4, 4, 17, 23, False),
        (5, 3, 31, None, True),
    ]
    every = lake.table("every", "id", "x", "_deleted")
    assert every.count((None, None, True)) == 1
    assert len(every) == 7
    assert lake.violations() == []


def test_a_table_that_only_a_truncation_arrives_for_is_emptied(tmp_path: Path, spark: Any) -> None:
    lake = Lake(tmp_path, spark)
    lake.sync(HISTORY[:3])
    lake.deliver()
    lake.sync([truncate(2, 1, 21), end(2, 23, 1)])
    lake.deliver()
    assert lake.table("newest", "id") == []
    assert lake.table("versions", "id", "valid_to", "current") == [(1, 23, False), (2, 23, False)]


def test_to_kafka_go_tombstones_for_the_keys_that_staging_has(tmp_path: Path, spark: Any) -> None:
    lake = Lake(tmp_path, spark)
    lake.sync(HISTORY[:3])
    lake.sync([*HISTORY[3:7], truncate(5, 1, 40), end(5, 41, 1)])
    table = open_table(lake.staging)
    assert table
    sent = pa.concat_tables([with_tombstones(table, window) for window in staged(table, Place())])
    newest = [one for one in sent.to_pylist() if one["topic"] == "newest"]
    assert [(one["seqno"], one["key"], one["value"] is None) for one in newest] == [
        (3, '{"id":1}', False),
        (3, '{"id":2}', False),
        (7, '{"id":3}', False),
        (7, '{"id":1}', True),
        (7, '{"id":2}', True),
        (7, '{"id":3}', True),
        (7, '{"id":2}', False),
        (9, '{"id":2}', True),
    ]


def test_a_rule_sees_it_in_the_view_of_all_records(tmp_path: Path, spark: Any) -> None:
    outputs = "outputs: [{topic: seen, sql: rule.sql}]\n"
    lake = Lake(tmp_path, spark, "SELECT seqno, op, topic, row IS NULL AS nothing FROM records", PRESET + outputs)
    lake.sync([truncate(2, 1, 21), end(2, 23, 1)])
    out = [json.loads(one["value"]) for one in rows(Path(lake.staging)) if one["kind"] == "output"]
    assert [one for one in out if one["op"]] == [{"op": "t", "topic": "p.s.t", "nothing": True}]


JOINED = "SELECT t.seqno, t._order, t.row:id::int AS id FROM `p.s.t` t JOIN `p.s.u` u USING (seqno)"
WITHOUT_ORDER = "SELECT seqno, row:id::int AS id, row:x::int AS x FROM `p.s.t`"


@pytest.mark.parametrize(
    ("rule", "records", "why"),
    [
        (JOINED, HISTORY[3:7], r"its rules read more than that table \(p\.s\.t, p\.s\.u\)"),
        (f"WITH u AS ({JOINED}) SELECT * FROM u", HISTORY[3:7], "its rules read more than that table"),
        (f"{RULE} WHERE EXISTS (SELECT 1 FROM records)", HISTORY[3:7], "its rules read more than that table"),
        (WITHOUT_ORDER, HISTORY[3:7], "its rules do not select _order"),
    ],
)
def test_a_transaction_is_set_aside_where_it_is_not_known_which_rows_are_gone(
    tmp_path: Path, spark: Any, rule: str, records: list[Record], why: str
) -> None:
    lake = Lake(tmp_path, spark, rule)
    outcome = lake.sync([*records, *HISTORY[7:9]])
    assert outcome.set_aside == {"quarantined": 1}
    (found,) = [one for one in rows(Path(lake.staging)) if one["kind"] == "quarantined"]
    assert (found["txn"], found["rule"]) == ("2", "rule.sql")
    assert found["reason"].startswith("TRUNCATE of p.s.t: which rows of output newest are gone is not known: ")
    assert why.replace("\\", "") in found["reason"]
    assert lake.violations() == []


def test_of_a_view_of_several_tables_it_is_not_known_whose_rows_are_gone(tmp_path: Path, spark: Any) -> None:
    tables = "topics: {'^p\\.s\\.': {as: tables}}\noutputs: [{topic: newest, sql: rule.sql, key: [id]}]\n"
    lake = Lake(tmp_path, spark, "SELECT seqno, _order, row:id::int AS id FROM tables", PRESET + tables)
    assert lake.sync(HISTORY[3:7]).set_aside == {"quarantined": 1}
    (found,) = [one for one in rows(Path(lake.staging)) if one["kind"] == "quarantined"]
    assert "its rules read several tables as ^p\\.s\\.: give the topic an entry of its own" in found["reason"]


def test_without_order_a_truncation_by_itself_is_known(tmp_path: Path, spark: Any) -> None:
    lake = Lake(tmp_path, spark, f"{WITHOUT_ORDER} WHERE row:x::int > 0")
    lake.sync([*HISTORY[:3], truncate(2, 1, 21), end(2, 23, 1)])
    lake.deliver()
    assert lake.table("newest", "id") == []


def test_a_truncation_that_has_no_place_in_the_source_is_set_aside(tmp_path: Path, spark: Any) -> None:
    """As MySQL's connector sends it: DDL is in no transaction."""
    alone = truncate(2, 1, 21)
    alone["value"]["source"] |= {"connector": "mysql", "file": "binlog.1", "pos": 4}
    alone["value"]["transaction"] = None
    lake = Lake(tmp_path, spark)
    outcome = lake.sync([*HISTORY[:3], alone])
    assert outcome.set_aside == {"quarantined": 1}
    (found,) = [one for one in rows(Path(lake.staging)) if one["kind"] == "quarantined"]
    assert found["reason"].endswith("where it is in the source's order is not known")


def test_a_snapshots_row_without_lsn_repairs_what_went_out_before_it(tmp_path: Path, spark: Any) -> None:
    """Incremental snapshots: `lsn` is null. What is committed later has a later position."""

    def read(key: int, x: int) -> Record:
        found = record(9, 1, "r", 1, before=None, after={"id": key, "x": x})
        found["value"]["source"]["lsn"], found["value"]["transaction"] = None, None
        return found

    lake = Lake(tmp_path, spark)
    lake.sync(HISTORY[:3])
    lake.deliver()
    lake.sync([read(1, 7), read(6, 7)])
    lake.deliver()
    assert lake.table("newest", "id", "x") == [(1, 7), (2, 1), (6, 7)]
    lake.sync([*HISTORY[7:9], put(6, 1, 50, 1, 8), end(6, 51, 1), read(5, 9), put(7, 1, 5, 1, 0), end(7, 6, 1)])
    lake.deliver()
    assert lake.table("newest", "id", "x", "_position") == [(1, 8, 51), (2, 1, 12), (5, 9, 31), (6, 7, 0)]
    assert lake.table("versions", "id", "x", "valid_from", "valid_to") == [
        (1, 0, 6, 12),
        (1, 1, 12, 12),
        (1, 7, 12, 51),
        (1, 8, 51, None),
        (2, 1, 12, None),
        (5, 3, 31, 31),
        (5, 9, 31, None),
        (6, 7, 0, None),
    ]
    lake.sync([truncate(8, 1, 60), end(8, 61, 1), read(1, 10)])
    lake.deliver()
    assert lake.table("newest", "id", "x", "_position") == [(1, 10, 61)]
