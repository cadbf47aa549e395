"""What a sync makes of raw: whole transactions, once, whatever is in flight meanwhile."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from tests.conftest import rows
from tests.spark.conftest import Pipeline
from zync.config.model import OutputRule, Topic, Transactions
from zync.lake.table import ensure_table
from zync.operate.query import query
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.staging import conclude as cursor_stage
from zync.staging.bookkeeping import Bookkeeping
from zync.staging.table import STAGING_SCHEMA
from zync.sync import judge as judging
from zync.sync.metrics import SyncMetrics
from zync.sync.syncer import Syncer
from zync.transactions import gather as gathering


def test_the_demo_gives_the_worked_example(demo: Path, spark: Any) -> None:
    config = read_config(demo / "zync.yaml")
    raw, staging = str(demo / "lake" / "raw"), demo / "lake" / "staging"
    syncer = Syncer(config, raw, str(staging), spark)

    load(raw, [str(demo / "consume-1.jsonl")])
    first = syncer.sync()
    assert (first.cursor, first.head, first.in_flight, first.outputs) == (1, 3, 1, {"order": 1})
    pending = [row for row in rows(staging) if row["kind"] == "pending"]
    assert [(row["seqno"], row["txn"], row["records"]) for row in pending] == [(2, "10001", [{"first": 2, "last": 2}])]

    load(raw, [str(demo / "consume-2.jsonl")])
    second = syncer.sync()
    assert (second.cursor, second.head, second.in_flight, second.outputs) == (4, 4, 0, {"order": 1})
    assert [
        (row["seqno"], row["kafka"], row["key"], row["value"]) for row in rows(staging) if row["kind"] == "output"
    ] == [
        (
            3,
            {"topic": "order", "partition": 0, "offset": 0},
            '{"customerID":1}',
            '{"customerID":1,"menuID":200,"qty":2,"total":3.98}',
        ),
        (
            4,
            {"topic": "order", "partition": 0, "offset": 1},
            '{"customerID":2}',
            '{"customerID":2,"menuID":100,"qty":1,"total":5.99}',
        ),
    ]


@pytest.mark.parametrize("made_before", [False, True])
def test_other_readers_find_rows_by_any_column(pipeline: Pipeline, txn: Any, made_before: bool) -> None:
    """delta-rs takes statistics that are not there for null, and what is compared with null is no row."""
    if made_before:
        ensure_table(str(pipeline.staging), STAGING_SCHEMA, "as zync made it once")
    pipeline.load(("a", txn(1)))
    for version in (1 + made_before, 2 + made_before):
        pipeline.sync()
        assert DeltaTable(str(pipeline.staging)).version() == version
        pipeline.load(("a", txn(2, 2)))
    found = DeltaTable(str(pipeline.staging)).to_pyarrow_dataset()
    assert found.to_table(filter=ds.field("kind") == "cursor").num_rows == 2
    assert found.to_table(filter=ds.field("kafka", "topic") == "out").num_rows == 1
    assert found.to_table(filter=ds.field("seqno") == 1).num_rows > 0


def test_a_sync_with_nothing_new_writes_nothing(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    version = DeltaTable(str(pipeline.staging)).version()
    outcome = pipeline.sync()
    assert (outcome.records, outcome.cursor, outcome.head) == (0, 1, 1)
    assert DeltaTable(str(pipeline.staging)).version() == version


def test_what_syncs_did_is_measured(pipeline: Pipeline, txn: Any) -> None:
    metrics = SyncMetrics()
    began = time.time()
    pipeline.load(("a", txn(1, x=1)), ("a", txn(2, n=2)), ("a", "{"), ("a", txn(3, x=3)))
    metrics.synced(pipeline.sync())
    metrics.synced(pipeline.sync())
    value = metrics.registry.get_sample_value
    assert [value(f"zync_sync_{name}") for name in ("commits_total", "records_total", "transactions_total")] == [
        1,
        4,
        2,
    ]
    assert value("zync_sync_output_rows_total", {"topic": "out"}) == 2
    assert value("zync_sync_set_aside_total", {"kind": "quarantined"}) == 1
    assert [value(f"zync_staging_{name}_seqno") for name in ("cursor", "head")] == [1, 4]
    assert value("zync_sync_in_flight") == 1
    assert 0 < (value("zync_sync_oldest_in_flight_age_seconds") or 0) <= time.time() - began
    assert value("zync_sync_stage_seconds_count", {"stage": "judge"}) == 1
    pipeline.load(("b", txn(2, n=2, x=2)))
    metrics.synced(pipeline.sync())
    assert value("zync_sync_oldest_in_flight_age_seconds") == 0


def test_at_no_version_of_staging_is_a_transaction_partly_there(pipeline: Pipeline, txn: Any) -> None:
    syncer = Syncer(pipeline.config, pipeline.raw, str(pipeline.staging), pipeline.spark)
    for part in range(4):
        pipeline.load(*[("ab"[part % 2], txn(t, 4, x=part)) for t in range(part + 1)])
        syncer.sync()
    for version in range(DeltaTable(str(pipeline.staging)).version() + 1):
        there = [row for row in rows(pipeline.staging, version) if row["kind"] == "output"]
        for seqno in {row["seqno"] for row in there}:
            assert len([row for row in there if row["seqno"] == seqno]) == 4


def test_pairs_of_two_topics_by_ids_from_different_fields_with_updates_alone(pipeline: Pipeline) -> None:
    pipeline.change(
        topics={
            "left": Topic("value:pair.id", null_id="single"),
            "right": Topic("value:ref", null_id="single"),
        },
        transactions=Transactions(done="bool_or(topic = 'left') and bool_or(topic = 'right')"),
    )
    for name, text in {
        "pairs": "SELECT seqno, l.value:x::int AS l, r.value:y::int AS r FROM `left` l JOIN `right` r USING (seqno)",
        "updates": "SELECT seqno, value:update::int AS l, CAST(NULL AS INT) AS r FROM records "
        "WHERE value:update IS NOT NULL",
    }.items():
        (pipeline.folder / f"{name}.sql").write_text(text)
    pipeline.change(outputs=tuple(OutputRule("out", pipeline.folder / f"{name}.sql") for name in ("pairs", "updates")))
    pipeline.load(
        ("left", {"pair": {"id": 7}, "x": 1}),
        ("left", {"update": 5}),
        ("right", {"ref": "7", "y": 2}),
        ("right", {"ref": 8, "y": 3}),
        ("right", {"update": 6}),
    )
    outcome = pipeline.sync()
    assert pipeline.values() == [{"l": 5, "r": None}, {"l": 1, "r": 2}, {"l": 6, "r": None}]
    assert (outcome.cursor, outcome.in_flight, outcome.transactions) == (3, 1, 3)


@pytest.mark.parametrize("cut", [False, True], ids=["in one sync", "over two syncs"])
def test_an_id_is_remembered_for_exactly_so_many_records(pipeline: Pipeline, txn: Any, cut: bool) -> None:
    pipeline.change(transactions=Transactions(done="count(*) = max(value:n::int)", remember=3))
    pipeline.load(("a", txn(1)))
    if cut:
        pipeline.sync()
    pipeline.load(("a", txn(2)), ("a", txn(3)), ("a", txn(1, x=9)), ("a", txn(1, x=7)))
    pipeline.sync()
    assert [row["seqno"] for row in pipeline.of("late")] == [4]
    assert [(row["seqno"], row["txn"]) for row in pipeline.of("done")] == [(1, "1"), (2, "2"), (3, "3"), (5, "1")]


def test_a_large_value_and_odd_ids_go_through_whole(pipeline: Pipeline, txn: Any) -> None:
    ids = ["plain", "with 'quote\"", "ünï/0/1", "dots.and`ticks", " ", "a/0/1"]
    pipeline.load(*[("a", txn(one, 1, x=1, big="y" * (5_000_000 if one == "plain" else 1))) for one in ids])
    pipeline.sync()
    assert [row["txn"] for row in pipeline.of("done")] == ids


def test_a_folder_may_have_an_odd_name(tmp_path: Path, spark: Any, txn: Any) -> None:
    (tmp_path / "my lake #1, ü").mkdir()
    pipeline = Pipeline(tmp_path / "my lake #1, ü", spark)
    pipeline.load(("a", txn(1)), ("a", txn(2, 2)))
    pipeline.sync()
    pipeline.load(("a", txn(2, 2)))
    assert pipeline.sync().transactions == 1
    assert [row["txn"] for row in pipeline.of("done")] == ["1", "2"]
    assert query(spark, pipeline.config, "SELECT count(*) FROM raw").collect()[0][0] == 3


def test_what_a_killed_sync_left_behind_is_taken_away(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    left = pipeline.staging / "sync-00000002-deadbeef"
    left.mkdir()
    (left / "part.parquet").write_text("")
    pipeline.load(("a", txn(2)))
    pipeline.sync()
    assert not left.exists()
    assert len(pipeline.of("done")) == 2


def test_what_expired_no_longer_holds_the_cursor_and_completes_after_all(pipeline: Pipeline, txn: Any) -> None:
    pipeline.change(
        transactions=Transactions(done="count(*) = max(value:n::int)", expire_after=timedelta(milliseconds=1))
    )
    pipeline.load(("a", txn(1, 2, x=1)))
    assert pipeline.sync().cursor == 0
    pipeline.load(("a", txn(2, 1, x=2)))
    outcome = pipeline.sync()
    assert (outcome.cursor, outcome.in_flight, outcome.expired) == (2, 0, 1)
    pipeline.load(("b", txn(1, 2, x=3)))
    outcome = pipeline.sync()
    assert (outcome.cursor, outcome.expired) == (3, 0)
    assert pipeline.values() == [{"x": 2}, {"x": 1}, {"x": 3}]


def test_what_is_in_flight_survives_full_sets_and_restarts(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_stage, "FULL_EVERY", 2)
    pipeline.load(("a", txn("stuck", 2, x=0)))
    for number in range(4):
        pipeline.load(("a", txn(number, 1, x=number + 1)))
        outcome = pipeline.sync()
        assert (outcome.cursor, outcome.in_flight) == (0, 1)
    pipeline.load(("a", txn("stuck", 2, x=9)))
    assert pipeline.sync().cursor == 6
    assert pipeline.values() == [{"x": one} for one in (1, 2, 3, 4, 0, 9)]


def test_what_is_in_flight_is_found_wherever_in_a_file_it_is(pipeline: Pipeline, txn: Any) -> None:
    """Its file has several row groups, most of them without any of it."""
    pipeline.load(*[("a", txn(one, 2 if one > 8900 else 1, x=one)) for one in range(1, 9001)])
    new = gathering.read_with(pipeline.spark, DeltaTable(pipeline.raw), Bookkeeping().in_flight, 0, 9000)
    assert new.selectExpr("spark_partition_id()").distinct().count() == 2  # each core has some
    assert pipeline.sync().in_flight == 100
    pipeline.load(*[("b", txn(one, 2, x=one + 100)) for one in range(8901, 9001)])
    assert pipeline.sync().outputs == {"out": 200}
    assert sorted(row["x"] for row in pipeline.values()) == list(range(1, 9101))


def test_what_began_lately_is_read_with_the_new_records_and_what_is_not_whole_stays_as_staging_has_it(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(*_: Any) -> None:
        pytest.fail("its records were read by themselves")

    monkeypatch.setattr(judging, "gather", gather)
    pipeline.load(("a", txn(1, 3, x=1)), ("b", txn(2, 2, x=2)))
    pipeline.sync()
    pipeline.load(("a", txn(1, 3, x=3)))
    pipeline.sync()
    pending = sorted((row["sync"], row["txn"], row["count"]) for row in pipeline.of("pending"))
    assert pending == [(1, "1", 1), (1, "2", 1), (2, "1", 2)]
    pipeline.load(("a", txn(2, 2, x=4)))
    assert pipeline.sync().transactions == 1
    assert pipeline.values() == [{"x": 2}, {"x": 4}]
