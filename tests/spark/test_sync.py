"""What a sync makes of raw: whole transactions, once, and everything else accounted for."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.conftest import rows
from tests.sizes import as_large
from tests.spark.conftest import COUNTED, Pipeline
from zync.config.model import Limits, Lookup, OutputRule, Topic, Transactions
from zync.errors import DataError, UsageError, ZyncError
from zync.lake.table import ensure_table
from zync.operate.query import query, rows_of, table_of
from zync.operate.verify import verify
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.rules import bisect
from zync.spark import sizing
from zync.spark.errors import message_of, spark_errors
from zync.spark.frames import Keeper
from zync.staging import commit
from zync.staging import conclude as cursor_stage
from zync.staging.bookkeeping import Known
from zync.staging.table import STAGING_SCHEMA
from zync.sync import apply_rules
from zync.sync import judge as judging
from zync.sync.metrics import SyncMetrics
from zync.sync.syncer import Syncer
from zync.transactions import gather as gathering

EDGES = (2**63 - 1, -(2**63), 2**63, 10**38 - 1, -(10**38) + 1)
_PARTITIONS = "spark.sql.shuffle.partitions"


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


@pytest.fixture
def many_partitions(spark: Any) -> Iterator[None]:
    """As many as Spark's own default, which a session that is not zync's has."""
    few = spark.conf.get(_PARTITIONS)
    spark.conf.set(_PARTITIONS, "200")
    yield
    spark.conf.set(_PARTITIONS, few)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sync is done as a large one is."""
    as_large(monkeypatch)


@pytest.mark.usefixtures("many_partitions", "large")
def test_a_large_sync_writes_few_files_however_many_partitions_the_session_has(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(*((topic, txn(n, 2, x=n)) for topic in ("a", "b") for n in range(1000)))
    outcome = pipeline.sync()
    assert (outcome.transactions, outcome.outputs) == (1000, {"out": 2000})
    assert [value["x"] for value in pipeline.values()] == [n // 2 for n in range(2000)]
    assert len(DeltaTable(str(pipeline.staging)).file_uris()) <= 4


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


def test_a_record_that_does_not_decode_is_set_aside_with_its_reason(pipeline: Pipeline, txn: Any) -> None:
    bad = {
        "not JSON": "value is not one JSON value",
        '{"txn":1}{"txn":2}': "value is not one JSON value",
        '{"txn":1},{"txn":2}': "value is not one JSON value",
        '{"txn":1}, 2': "value is not one JSON value",
        '{"txn":1},"x":5': "value is not one JSON value",
        '{"txn":1} x': "value is not one JSON value",
        '{"txn":1,"txn":1}': "value is not one JSON value",
        "1],[2": "value is not one JSON value",
        "": "value is not one JSON value",
        '{"txn":"b1","n":1,"x":1e400}': "value has a number that cannot be kept exactly",
        '{"txn":"b2","n":1,"x":1e-400}': "value has a number that cannot be kept exactly",
        '{"txn":"b3","n":1,"x":' + "1" * 39 + "}": "value has a number that cannot be kept exactly",
        '{"txn":"b4","n":1,"x":1.' + "1" * 39 + "}": "value has a number that cannot be kept exactly",
        '{"txn":"b5","n":1,"x":NaN}': "value is not one JSON value",
        '{"txn":"b6","n":1,"x":' + "[" * 10_000 + "]" * 10_000 + "}": "value is not one JSON value",
        '{"txt":1}': "no transaction id",
        '{"txn":null}': "no transaction id",
    }
    good = [
        '{"txn":1,"n":1,"x":5,"e":1.5e3}',
        '{"txn":2,"n":1,"x":6,"s":"1e400 ] [ \\" 1e999"}',
        '{"txn":3,"n":1,"x":7,"l":[1,[2]]}',
        *(f'{{"txn":{edge},"n":1,"x":{edge}}}' for edge in EDGES),
    ]
    pipeline.rules(out="SELECT seqno, value:x::decimal(38, 0) AS x FROM records")
    pipeline.load(
        *[("a", text) for text in bad], ("a", {"base64": "/w=="}), ("a", None), *[("a", text) for text in good]
    )
    outcome = pipeline.sync()
    reasons = {row["seqno"]: row["reason"] for row in pipeline.of("quarantined")}
    assert reasons == dict(enumerate([*bad.values(), "value is not UTF-8", "no transaction id"], start=1))
    assert [row["x"] for row in pipeline.values()] == [5, 6, 7, *EDGES]
    assert {row["txn"] for row in pipeline.of("done")} == {str(n) for n in (1, 2, 3, *EDGES)}
    assert outcome.set_aside == {"quarantined": len(bad) + 2}
    alone = [row for row in pipeline.of("quarantined") if row["txn"] is None]
    assert len(alone) == len(bad) + 2 - 4
    assert all(row["kafka"]["topic"] == "a" for row in alone)


@pytest.mark.usefixtures("large")
def test_what_an_expression_has_several_times_may_fail_on_one_record(pipeline: Pipeline, txn: Any) -> None:
    """In large syncs Spark evaluates that beforehand, once, unless it stands behind a condition."""
    twice = "1 DIV sum(value:y::int) = 1 OR 1 DIV sum(value:y::int) < 0"
    pipeline.change(transactions=Transactions(done=f"{COUNTED} AND min(value:n::int) > 0 AND ({twice})"))
    pipeline.load(("a", txn(1, y=1, x=1)), ("a", txn(2, "one", y=1)), ("a", txn(3, y=0)), ("a", txn(4, y=1, x=4)))
    outcome = pipeline.sync()
    assert (outcome.transactions, outcome.in_flight) == (2, 2)
    reasons = {row["txn"]: row["reason"] for row in pipeline.of("pending")}
    assert reasons == {"2": "the done condition fails on it", "3": None}


def test_a_sum_that_is_too_large_says_what_to_do(pipeline: Pipeline, txn: Any) -> None:
    most = 2**63 - 1
    pipeline.change(transactions=Transactions(done="sum(value:n::bigint) = 3"))
    pipeline.load(("a", txn(1, most)), ("b", txn(1, most)), ("a", txn(2, 1, x=1)), ("a", txn(2, 2, x=2)))
    with pytest.raises(UsageError, match=r"^transactions.done: 'sum.* together: .*OVERFLOW.*try_sum for sum"):
        pipeline.sync()
    pipeline.change(transactions=Transactions(done="try_sum(value:n::bigint) = 3"))
    outcome = pipeline.sync()
    assert (outcome.transactions, outcome.in_flight) == (1, 1)
    pipeline.load(("a", txn(1, 3)))
    assert pipeline.sync().in_flight == 1


def test_a_large_value_and_odd_ids_go_through_whole(pipeline: Pipeline, txn: Any) -> None:
    ids = ["plain", "with 'quote\"", "ünï/0/1", "dots.and`ticks", " ", "a/0/1"]
    pipeline.load(*[("a", txn(one, 1, x=1, big="y" * (5_000_000 if one == "plain" else 1))) for one in ids])
    pipeline.sync()
    assert [row["txn"] for row in pipeline.of("done")] == ids


def test_a_rule_that_spark_cannot_plan_is_named(pipeline: Pipeline, txn: Any) -> None:
    """As Spark 4.2 takes, and then fails on, an aggregate in a LATERAL whose condition has a value's field."""
    (pipeline.folder / "names.csv").write_text("x,name\n1,one\n")
    pipeline.change(lookups={"names": Lookup(csv=pipeline.folder / "names.csv")})
    lateral = "SELECT seqno, l.* FROM records, LATERAL (SELECT max(name) AS n FROM names WHERE x = value:x::int) l"
    pipeline.rules(good="SELECT seqno, value:x::int AS x FROM records", odd=lateral)
    pipeline.load(("a", txn(1, x=1)))
    with pytest.raises(UsageError, match=r"^rule odd.sql \(output odd\): Spark cannot plan it: .*PLAN_VALIDATION"):
        pipeline.sync()
    pipeline.rules(good="SELECT seqno, value:x::int AS x FROM records")
    assert pipeline.sync().transactions == 1


def test_names_and_expressions_of_the_config_stay_in_their_place(pipeline: Pipeline, txn: Any) -> None:
    """As SQL they would end a string or a name, and begin what is not theirs; zync's templates would be filled."""
    odd = [f"{quote}) OR true; DROP VIEW records; -- \\ {{{{fault}}}} ${{x}}" for quote in "'`\""]
    (pipeline.folder / "names.csv").write_text("x,name\n1,one\n")
    pipeline.change(
        topics={
            odd[0]: Topic("concat('{{txn}}', value:txn::string)", as_=odd[1]),
            "a": Topic("concat('{{txn}}', value:txn::string)"),
        },
        lookups={odd[2]: Lookup(csv=pipeline.folder / "names.csv")},
    )
    pipeline.rules(out="SELECT 1")
    view, lookup = ("`" + one.replace("`", "``") + "`" for one in odd[1:])
    (pipeline.folder / "out.sql").write_text(
        f"SELECT seqno, v.value:x::int AS x, l.name FROM {view} v JOIN {lookup} l ON l.x = v.value:x::int"  # noqa: S608
    )
    pipeline.change(outputs=(replace(pipeline.config.outputs[0], topic=odd[0]),))
    pipeline.load((odd[0], txn(1, 2, x=1)), ("a", txn(1, 2)), ("other", txn(2)))
    outcome = pipeline.sync()
    assert (outcome.transactions, outcome.outputs) == (1, {odd[0]: 1})
    assert [(row["txn"], row["kind"]) for row in pipeline.of("done")] == [("{{txn}}1", "done")]
    assert pipeline.values(odd[0]) == [{"x": 1, "name": "one"}]
    assert outcome.set_aside == {"ignored": 1}  # of a topic that the config does not name


def test_a_transaction_that_a_rule_fails_on_is_set_aside_whole_and_others_go_on(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(
        out="SELECT seqno, record_seqno AS _order, 100 DIV value:x::int AS x FROM records",
        other="SELECT seqno, count(*) AS n FROM records GROUP BY seqno",
    )
    pipeline.load(
        *[("a", txn(t, 2, x=x)) for x in (1, 2) for t in range(20)], ("a", txn(99, 2, x=0)), ("a", txn(99, 2, x=5))
    )
    pipeline.load(("b", txn(100, 1, x="word")), ("b", txn(101, 1, x=10)))
    outcome = pipeline.sync()
    aside = {row["txn"]: (row["reason"], row["rule"], len(row["records"])) for row in pipeline.of("quarantined")}
    assert aside.keys() == {"99", "100"}
    assert "Division by zero" in aside["99"][0]
    assert aside["99"][1] == "out.sql"
    assert len(pipeline.values("out")) == 41
    assert len(pipeline.values("other")) == 21
    assert outcome.transactions == 21
    assert outcome.cursor == outcome.head


def test_those_that_rules_fail_on_are_found_wherever_they_are_in_few_tries(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one Spark job for each try: with a job for each transaction a bad deploy would keep a sync for hours."""
    by_first, by_second, count = {0, 1, 2, 90, 299}, {2, 91, 170}, 300
    pipeline.rules(
        first="SELECT seqno, value:x::int AS x FROM records",
        second="SELECT seqno, 1 DIV sum(value:y::int) AS y FROM records GROUP BY seqno",
    )
    pipeline.load(
        *[("a", txn(t, 1, x="a" if t in by_first else 1, y=0 if t in by_second else 1)) for t in range(count)]
    )
    tries: list[int] = []
    monkeypatch.setattr(
        bisect, "tune", lambda spark, given, size: tries.append(size.records) or sizing.tune(spark, given, size)
    )
    pipeline.sync()
    aside = {int(row["txn"]): row["rule"] for row in pipeline.of("quarantined")}
    assert aside == dict.fromkeys(by_second - by_first, "second.sql") | dict.fromkeys(by_first, "first.sql")
    assert [len(pipeline.values(rule)) for rule in ("first", "second")] == [count - len(aside)] * 2
    assert len(tries) <= 80  # seven of 300, and two groups or three on the way to each


@pytest.mark.parametrize(
    "expression",
    [
        "to_json(str_to_map(if(value:x::int = 0, 'a:1,a:2', 'a:1')))",
        "size(sequence(1L, if(value:x::int = 0, 4000000000L, 1L)))",
        "(SELECT max(v) FROM (SELECT seqno s, explode(if(value:x::int = 0, array(1, 2), array(1))) v FROM a) b "
        "WHERE b.s = a.seqno GROUP BY v)",
    ],
)
def test_so_is_one_whose_error_sql_has_in_a_class_of_its_own(pipeline: Pipeline, txn: Any, expression: str) -> None:
    """A key twice, too much for an array, more rows than one for a subquery."""
    pipeline.rules(out=f"SELECT seqno, {expression} AS x FROM a")  # noqa: S608
    pipeline.load(*[("a", txn(t, x=t)) for t in range(3)])
    assert pipeline.sync().transactions == 2
    assert [(row["txn"], row["rule"]) for row in pipeline.of("quarantined")] == [("0", "out.sql")]


def test_a_rule_that_fails_on_several_together_is_told_as_such(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(out="SELECT seqno, if(count(*) OVER () > 2, CAST('x' AS INT), 1) AS x FROM records")
    pipeline.load(*[("a", txn(t, x=1)) for t in range(300)])
    with pytest.raises(DataError, match=r"out.sql fails on transactions of seqno \d+ to \d+ together, and not"):
        pipeline.sync()


def test_so_is_one_that_it_fails_on_in_rows_that_are_broadcast(pipeline: Pipeline, txn: Any) -> None:
    """There Spark wraps what was wrong in an exception of Java's."""
    pipeline.rules(
        out="SELECT seqno, n FROM (SELECT DISTINCT seqno FROM a) JOIN "
        "(SELECT /*+ BROADCAST(b) */ seqno, 100 DIV value:x::int AS n FROM b) USING (seqno)"
    )
    pipeline.load(*[(topic, txn(t, 2, x=t)) for t in range(3) for topic in ("a", "b")])
    outcome = pipeline.sync()
    (aside,) = pipeline.of("quarantined")
    assert (aside["txn"], aside["rule"]) == ("0", "out.sql")
    assert aside["reason"].startswith("[DIVIDE_BY_ZERO]")
    assert aside["reason"].count("DIVIDE_BY_ZERO") == 1
    assert "SQLSTATE" not in aside["reason"]
    assert pipeline.values("out") == [{"n": 100}, {"n": 50}]
    assert outcome.transactions == 2


@pytest.mark.parametrize("gone", [True, False])
def test_a_file_of_raw_that_cannot_be_read_is_named(pipeline: Pipeline, txn: Any, gone: bool) -> None:
    pipeline.load(("a", txn(1)))
    (file,) = Path(pipeline.raw).rglob("*.parquet")
    file.unlink() if gone else file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(ZyncError, match=f"{file.name} of .* cannot be read: .*. Nothing was committed"):
        pipeline.sync()


@pytest.mark.usefixtures("large")
def test_of_what_spark_could_not_do_the_innermost_cause_is_told(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    (file,) = Path(pipeline.raw).rglob("*.parquet")
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(spark_errors()) as caught:
        pipeline.sync()
    assert re.search(f"reading file .*{file.name}.*: .* is not a Parquet file", message_of(caught.value))


def test_a_folder_may_have_an_odd_name(tmp_path: Path, spark: Any, txn: Any) -> None:
    (tmp_path / "my lake #1, ü").mkdir()
    pipeline = Pipeline(tmp_path / "my lake #1, ü", spark)
    pipeline.load(("a", txn(1)), ("a", txn(2, 2)))
    pipeline.sync()
    pipeline.load(("a", txn(2, 2)))
    assert pipeline.sync().transactions == 1
    assert [row["txn"] for row in pipeline.of("done")] == ["1", "2"]
    assert query(spark, pipeline.config, "SELECT count(*) FROM raw").collect()[0][0] == 3


def test_columns_called_alike_are_shown_and_are_no_json(pipeline: Pipeline) -> None:
    found = query(pipeline.spark, pipeline.config, "SELECT 1 AS a, 2 AS A")
    assert table_of(found).splitlines() == ["a  A", "-  -", "1  2"]
    with pytest.raises(UsageError, match="'a' is the name of several columns"):
        rows_of(found)


def test_too_many_failures_stop_the_sync_and_nothing_is_committed(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(out="SELECT seqno, 1 DIV value:x::int AS x FROM records")
    pipeline.change(limits=Limits(max_quarantined=2))
    pipeline.load(*[("a", txn(t, x=0)) for t in range(3)])
    with pytest.raises(DataError, match=r"quarantine \(at least 3 transactions\), .* by rule out.sql: .*zero"):
        pipeline.sync()
    assert not pipeline.of("cursor") if (pipeline.staging / "_delta_log").exists() else True


def test_the_limit_may_be_a_share_of_the_sync(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(out="SELECT seqno, 1 DIV value:x::int AS x FROM records")
    pipeline.change(limits=Limits(max_quarantined=0.1))
    pipeline.load(*[("a", txn(t, x=min(t, 1))) for t in range(9)])
    with pytest.raises(DataError, match=r"more than 0 would"):
        pipeline.sync()
    pipeline.load(("a", txn(9, x=1)))
    outcome = pipeline.sync()
    assert (outcome.transactions, outcome.set_aside) == (9, {"quarantined": 1})


def test_an_id_that_finds_nothing_does_not_set_the_world_aside(pipeline: Pipeline, txn: Any) -> None:
    pipeline.change(topics={"a": Topic("value:tnx")})
    pipeline.load(*[("a", txn(t)) for t in range(101)])
    with pytest.raises(DataError, match=r"100 would go to quarantine .101 records.*; the first record, of seqno 1: "):
        pipeline.sync()
    pipeline.change(topics={"a": Topic("value:txn")})
    assert pipeline.sync().transactions == 101


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


def test_a_python_rule_works_and_its_exception_sets_only_that_transaction_aside(pipeline: Pipeline, txn: Any) -> None:
    (pipeline.folder / "rule.py").write_text(
        "from pyspark.sql import functions as sf\n"
        "from pyspark.sql.types import IntegerType\n\n"
        "@sf.udf(IntegerType())\n"
        "def halved(x):\n"
        "    if x == 13:\n"
        "        raise ValueError('thirteen')\n"
        "    return x // 2\n\n"
        "def rule(records):\n"
        "    return records.select('seqno', halved(sf.expr('value:x::int')).alias('half'))\n"
    )
    pipeline.change(outputs=(OutputRule("out", python=str(pipeline.folder / "rule.py")),))
    pipeline.load(("a", txn(1, x=4)), ("a", txn(2, x=13)), ("a", txn(3, x=8)))
    pipeline.sync()
    assert pipeline.values() == [{"half": 2}, {"half": 4}]
    (aside,) = pipeline.of("quarantined")
    assert "thirteen" in aside["reason"]


@pytest.mark.parametrize(
    "raised",
    [
        "ConnectionError('no host')",
        "ModuleNotFoundError('no such')",
        "MemoryError('of 1')",
        "urllib.error.URLError('no host')",
    ],
)
def test_what_a_python_rule_says_of_its_surroundings_stops_the_sync(pipeline: Pipeline, txn: Any, raised: str) -> None:
    text = (
        "import urllib.error\n"
        "from pyspark.sql import functions as sf\n"
        "from pyspark.sql.types import IntegerType\n\n"
        "@sf.udf(IntegerType())\n"
        "def halved(x):\n"
        f"    raise {raised}\n\n"
        "def rule(records):\n"
        "    return records.select('seqno', halved(sf.expr('value:x::int')).alias('half'))\n"
    )
    pipeline.load(("a", txn(1)))
    for rule in (text, f"import urllib.error\n\ndef rule(records):\n    raise {raised}\n"):
        (pipeline.folder / "rule.py").write_text(rule)
        pipeline.change(outputs=(OutputRule("out", python=str(pipeline.folder / "rule.py")),))
        with pytest.raises(Exception, match=raised.partition("(")[0].rpartition(".")[2]) as stopped:
            pipeline.sync()
        assert not isinstance(stopped.value, DataError | UsageError)
        assert not pipeline.staging.exists() or not pipeline.of("quarantined")


def test_so_does_what_the_rules_own_function_raises(pipeline: Pipeline, txn: Any) -> None:
    rule = pipeline.folder / "rule.py"
    rule.write_text(
        "def rule(records):\n"
        "    rows = records.selectExpr('value:x::int AS x').collect()\n"
        "    most = sum(100 // one.x for one in rows)\n"
        "    return records.selectExpr('seqno', f'{most * 0 + 1} AS x')\n"
    )
    pipeline.change(outputs=(OutputRule("out", python=str(rule)),))
    pipeline.load(("a", txn(1, x=4)), ("a", txn(2, x=0)), ("a", txn(3, x=8)))
    pipeline.sync()
    assert len(pipeline.values()) == 2
    (aside,) = pipeline.of("quarantined")
    assert (aside["txn"], aside["rule"]) == ("2", "rule.py")
    assert "raised ZeroDivisionError: " in aside["reason"]
    for text, said in (("raise KeyError('zap')", "raised KeyError: 'zap'"), ("return 7", "must return a DataFrame")):
        rule.write_text(f"def rule(records):\n    {text}\n")
        pipeline.change(outputs=(OutputRule("out", python=str(rule)),))
        pipeline.load(("a", txn(4, x=1)))
        with pytest.raises(UsageError, match=said):
            pipeline.sync()


@pytest.mark.parametrize("view", ["ORDERS", "`Orders`", "IDENTIFIER('or' || 'ders')"])
def test_a_view_is_there_however_a_rule_writes_its_name(pipeline: Pipeline, txn: Any, view: str) -> None:
    pipeline.change(topics={"orders": Topic("value:txn"), "unnamed": Topic("value:txn")})
    pipeline.rules(out=f"SELECT seqno, value:x::int AS x FROM {view}")  # noqa: S608
    pipeline.load(("orders", txn(1, 2, x=1)), ("unnamed", txn(1, 2)))
    pipeline.sync()
    assert pipeline.values() == [{"x": 1}]


def test_reserved_columns_may_be_written_in_capitals(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(out="SELECT SEQNO, value:x::int AS x, value:x::int AS _ORDER, value:gone::boolean AS _Delete FROM a")
    pipeline.load(("a", txn(1, 3, x=2)), ("a", txn(1, 3, x=1)), ("a", txn(1, 3, x=3, gone=True)))
    pipeline.sync()
    assert [row["value"] for row in pipeline.of("output")] == ['{"x":1}', '{"x":2}', None]


@pytest.mark.parametrize("function", ["first", "any_value", "last"])
def test_done_may_use_aggregates_that_have_a_grammar_of_their_own(pipeline: Pipeline, txn: Any, function: str) -> None:
    pipeline.change(transactions=Transactions(done=f"count(*) = {function}(value:n::int)"))
    pipeline.load(("a", txn(1, 2)), ("a", txn(2)))
    assert pipeline.sync().transactions == 1
    pipeline.load(("a", txn(1, 2)))
    assert pipeline.sync().transactions == 1


def test_a_row_of_no_transaction_is_refused(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    for rule in ("SELECT seqno + 1 AS seqno FROM a", "SELECT 1 AS seqno"):
        pipeline.rules(out=rule)
        pipeline.load(("a", txn(2)))
        with pytest.raises(UsageError, match=r"a rule makes a row of seqno \d, and no such transaction goes out now"):
            pipeline.sync()
        assert not list(pipeline.staging.glob("sync-00000002-*"))


def test_a_value_that_does_not_fit_the_schema_sets_its_whole_transaction_aside(pipeline: Pipeline) -> None:
    topics = {"a": Topic("value:txn", schema="txn INT, n INT, x INT", as_="first"), "b": Topic("value:txn")}
    pipeline.change(topics=topics)
    pipeline.rules(out="SELECT seqno, value.x + 1 AS x FROM first")
    pipeline.load(
        ("a", {"txn": 1, "n": 2, "x": 3_000_000_000}), ("b", {"txn": 1, "n": 2}), ("a", {"txn": 2, "n": 1, "x": 5})
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": 6}]
    (aside,) = pipeline.of("quarantined")
    assert (aside["txn"], aside["seqno"], aside["reason"]) == ("1", 2, "value does not fit the schema")


def test_a_rule_is_not_run_on_what_was_set_aside(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(out="SELECT seqno, 10 DIV value:x::int AS x FROM records WHERE 10 DIV value:x::int > 1")
    pipeline.load(("a", txn(1, x=2)), ("a", txn(2, x=0)), ("a", txn(3, x="no")), ("a", txn(4, x=5)))
    pipeline.sync()
    assert pipeline.values() == [{"x": 5}, {"x": 2}]
    assert [row["txn"] for row in pipeline.of("quarantined")] == ["2", "3"]


def test_a_row_without_seqno_sets_its_transaction_aside(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(out="SELECT nullif(seqno, 2) AS seqno, value:x::int AS x FROM records")
    pipeline.load(("a", txn(1, x=1)), ("a", txn(2, x=2)), ("a", txn(3, x=3)))
    pipeline.sync()
    assert pipeline.values() == [{"x": 1}, {"x": 3}]
    (aside,) = pipeline.of("quarantined")
    assert aside["txn"] == "2"
    assert "a row whose seqno is null" in aside["reason"]


def test_a_decimal_that_the_schema_would_round_sets_its_transaction_aside(pipeline: Pipeline, txn: Any) -> None:
    schema = "txn INT, n INT, x DECIMAL(10, 2), more ARRAY<STRUCT<d: DECIMAL(4, 1)>>"
    pipeline.change(topics={"a": Topic("value:txn", schema=schema)})
    pipeline.rules(out="SELECT seqno, value.x, value.more[0].d AS d FROM a")
    pipeline.load(
        ("a", txn(1, x=1.23, more=[{"d": 2.5}])),
        ("a", txn(2, x=1.239, more=[])),
        ("a", '{"txn":3,"n":1,"x":1.2300,"more":null}'),
        ("a", txn(4, x=1, more=[{"d": 2.25}])),
    )
    pipeline.sync()
    assert pipeline.values() == [{"x": 1.23, "d": 2.5}, {"x": 1.23, "d": None}]
    assert [row["txn"] for row in pipeline.of("quarantined")] == ["2", "4"]


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


def test_another_done_condition_judges_what_is_in_flight_anew(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1, 3, x=1)), ("b", txn(2, 3, x=2)), ("a", txn(1, 3, x=3)), ("a", txn(3, 9, x=4)))
    pipeline.sync()
    pipeline.change(transactions=Transactions(done="count(*) >= 2"))
    pipeline.load(("b", txn(2, 3, x=5)))
    outcome = pipeline.sync()
    assert [(row["seqno"], row["txn"]) for row in pipeline.of("done")] == [(3, "1"), (5, "2")]
    assert (outcome.in_flight, outcome.cursor) == (1, 3)
    pipeline.load(("b", txn(3, 9, x=6)))
    assert pipeline.sync().in_flight == 0
    assert pipeline.values() == [{"x": one} for one in (1, 3, 2, 5, 4, 6)]


def test_another_done_condition_needs_no_new_record_to_have_an_effect(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1, 3, x=1)), ("b", txn(2, 3, x=2)), ("a", txn(1, 3, x=3)))
    pipeline.sync()
    pipeline.change(transactions=Transactions(done="count(*) >= 2"))
    outcome = pipeline.sync()
    assert (outcome.sync, outcome.records, outcome.transactions, outcome.in_flight) == (2, 0, 1, 1)
    assert (outcome.cursor, outcome.head) == (1, 3)
    assert pipeline.sync().seconds == {}
    assert pipeline.values() == [{"x": 1}, {"x": 3}]
    claims = verify(pipeline.raw, str(pipeline.staging), pipeline.config, every_version=True, kafka=False)
    assert not [one for one in claims if one.violations]


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


def test_a_key_has_one_zero(pipeline: Pipeline, txn: Any) -> None:
    """Text tells 0.0 from -0.0, and the MERGE that brings rows into a table does not."""
    zero = "value:zero::string"
    pipeline.rules(out=f"SELECT seqno, CAST({zero} AS DOUBLE) AS id, CAST({zero} AS FLOAT) AS id2 FROM a")  # noqa: S608
    pipeline.change(outputs=tuple(replace(one, key=("id", "id2")) for one in pipeline.config.outputs))
    pipeline.load(("a", txn(1, zero="-0.0")), ("a", txn(2, zero="0.0")))
    pipeline.sync()
    assert {row["key"] for row in pipeline.of("output")} == {'{"id":0.0,"id2":0.0}'}


def test_order_and_delete_and_key_shape_the_output(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(
        out="SELECT seqno, -value:x::int AS _order, value:x::int AS k, value:x::int = 2 AS _delete, "
        "timestamp '2024-01-02 03:04:05.000006' AS at, 1.50 AS price, CAST(null AS INT) AS nothing FROM records"
    )
    (rule,) = pipeline.config.outputs
    pipeline.change(outputs=(OutputRule("out", rule.sql, key=("k",)),))
    pipeline.load(*[("a", txn(1, 3, x=x)) for x in (1, 3, 2)])
    pipeline.sync()
    found = [(row["key"], row["value"]) for row in pipeline.of("output")]
    assert sorted(found) == [
        ('{"k":1}', '{"k":1,"at":"2024-01-02T03:04:05.000006Z","price":1.50,"nothing":null}'),
        ('{"k":2}', None),
        ('{"k":3}', '{"k":3,"at":"2024-01-02T03:04:05.000006Z","price":1.50,"nothing":null}'),
    ]
    assert [
        json.loads(row["key"])["k"] for row in sorted(pipeline.of("output"), key=lambda r: r["kafka"]["offset"])
    ] == [3, 2, 1]


def test_outputs_may_be_ordered_by_columns_of_different_types(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(
        down="SELECT seqno, -value:x::int AS _order, value:x::int AS x FROM records",
        by_name="SELECT seqno, value:name::string AS _order, value:x::int AS x FROM records",
        also_down="SELECT seqno, -value:x::bigint AS _order, value:x::int AS x FROM records",
        by_json="SELECT seqno, value:x::int AS x FROM records",
    )
    pipeline.load(*[("a", txn(1, 3, x=x, name=name)) for x, name in ((2, "b"), (3, "a"), (1, "c"))])
    pipeline.sync()
    pipeline.load(("b", txn(2, 1, x=4, name="d")))
    pipeline.sync()
    found: dict[str, list[tuple[int, int]]] = {}
    for row in pipeline.of("output"):
        found.setdefault(row["kafka"]["topic"], []).append((row["kafka"]["offset"], json.loads(row["value"])["x"]))
    in_order = {topic: [x for _, x in sorted(its)] for topic, its in found.items()}
    assert in_order == {
        "down": [3, 2, 1, 4],
        "by_name": [3, 2, 1, 4],
        "also_down": [3, 2, 1, 4],
        "by_json": [1, 2, 3, 4],
    }
    assert all([offset for offset, _ in sorted(its)] == [0, 1, 2, 3] for its in found.values())


def test_no_statement_reads_the_environment(pipeline: Pipeline, txn: Any) -> None:
    """What records say gets into statements, as part of reasons: Spark would put in a variable's value."""
    pipeline.rules(out="SELECT seqno, '${env:PATH}' AS x FROM records")
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    assert pipeline.values() == [{"x": "${env:PATH}"}]


@pytest.fixture
def names(pipeline: Pipeline, txn: Any) -> Path:
    """The file of a lookup table that the rule joins; there was a sync with it."""
    file = pipeline.folder / "names.csv"
    file.write_text("x,name\n1,one\n2,two\n")
    pipeline.change(lookups={"names": Lookup(csv=file)})
    pipeline.rules(out="SELECT seqno, n.name FROM records r JOIN names n ON n.x = r.value:x::int")
    pipeline.load(("a", txn(1, x=2)))
    pipeline.sync()
    return file


def test_lookups_are_joined_and_a_missing_one_stops_the_sync(pipeline: Pipeline, txn: Any, names: Path) -> None:
    assert pipeline.values() == [{"name": "two"}]
    names.unlink()
    pipeline.load(("a", txn(2, x=1)))
    with pytest.raises(UsageError, match="lookup 'names' cannot be read"):
        pipeline.sync()
    assert len(pipeline.of("cursor")) == 1


def test_where_nothing_goes_out_no_rule_runs_and_what_is_on_record_stays(
    pipeline: Pipeline, txn: Any, names: Path
) -> None:
    names.rename(pipeline.folder / "away.csv")  # who asked for it would fail
    pipeline.load(("a", txn(2, 2, x=1)))
    assert pipeline.sync().in_flight == 1
    first, second = sorted(pipeline.of("cursor"), key=lambda row: row["sync"])
    assert first["digests"] == second["digests"]
    assert first["state"] == second["state"] != '{"columns":{}}'
    (pipeline.folder / "away.csv").rename(names)
    pipeline.load(("a", txn(2, 2, x=2)))
    pipeline.sync()
    assert sorted(one["name"] for one in pipeline.values()) == ["one", "two", "two"]
    pipeline.rules(out="SELECT seqno, no_such FROM records")
    pipeline.load(("a", txn(3, 2, x=1)))
    with pytest.raises(UsageError, match="no_such"):  # a changed rule is looked at all the same
        pipeline.sync()


def test_what_is_in_flight_is_found_wherever_in_a_file_it_is(pipeline: Pipeline, txn: Any) -> None:
    """Its file has several row groups, most of them without any of it."""
    pipeline.load(*[("a", txn(one, 2 if one > 8900 else 1, x=one)) for one in range(1, 9001)])
    new = gathering.read_with(pipeline.spark, DeltaTable(pipeline.raw), Known().in_flight, 0, 9000)
    assert new.selectExpr("spark_partition_id()").distinct().count() == 2  # each core has some
    assert pipeline.sync().in_flight == 100
    pipeline.load(*[("b", txn(one, 2, x=one + 100)) for one in range(8901, 9001)])
    assert pipeline.sync().outputs == {"out": 200}
    assert sorted(row["x"] for row in pipeline.values()) == list(range(1, 9101))


@contextmanager
def without_the_first(raw: str) -> Iterator[None]:
    """While its only file lacks a record that the log has."""
    (file,) = Path(raw).glob("*.parquet")
    there = pq.read_table(file)
    pq.write_table(there.slice(1), file)
    yield
    pq.write_table(there, file)


@pytest.mark.parametrize("count", [3, 6000])  # read by zync itself, and by Spark
def test_a_raw_that_lacks_a_record_stops_the_sync(pipeline: Pipeline, txn: Any, count: int) -> None:
    pipeline.load(*[("a", txn(one, x=one)) for one in range(count)])
    missing = f"{count - 1:,} records came of the {count:,} that .*zync verify"
    with without_the_first(pipeline.raw), pytest.raises(ZyncError, match=missing):
        pipeline.sync()
    assert not pipeline.of("cursor")
    assert pipeline.sync().transactions == count


def test_a_transaction_does_not_go_out_without_a_record_of_its_own(pipeline: Pipeline, txn: Any) -> None:
    """One that came so long ago that only its state is known: by that it is whole."""
    pipeline.load(("a", txn(1, 3, x=1)), ("a", txn(1, 3, x=2)), *[("a", txn(one)) for one in range(2, 1100)])
    assert pipeline.sync().in_flight == 1
    with without_the_first(pipeline.raw):
        pipeline.load(("b", txn(1, 3, x=3)))
        with pytest.raises(ZyncError, match="1 records came of the 2 that .*zync verify"):
            pipeline.sync()
    assert len(pipeline.of("cursor")) == 1
    assert pipeline.sync().transactions == 1


def test_a_sync_that_lost_the_race_says_that_it_did_not_land(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.load(("a", txn(1, x=1)))
    pipeline.sync()
    pipeline.load(("a", txn(2, x=2)))
    from zync.sync import commit as engine

    real = engine.commit_files

    def beaten(*args: Any, **more: Any) -> None:
        Syncer(pipeline.config, pipeline.raw, str(pipeline.staging), pipeline.spark).sync()
        real(*args, **more)

    calls = iter([beaten, real])

    def commit(*args: Any, **more: Any) -> None:
        next(calls)(*args, **more)

    monkeypatch.setattr(engine, "commit_files", commit)
    with pytest.raises(ZyncError, match="did not land"):
        pipeline.sync()
    assert pipeline.values() == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize("name", ["decided", "set_aside", "settling", "made", "settled", "identified", "assembled"])
def test_a_lookup_may_be_called_as_a_view_of_zyncs_own(pipeline: Pipeline, txn: Any, name: str) -> None:
    (pipeline.folder / "names.json").write_text('{"txn":"1","who":"me"}')
    pipeline.change(lookups={name: Lookup(json=pipeline.folder / "names.json")})
    pipeline.rules(out=f"SELECT a.seqno, who FROM a JOIN {name} ON {name}.txn = a.txn")  # noqa: S608 - ours
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    assert pipeline.values() == [{"who": "me"}]


def test_tables_that_were_mixed_up_are_refused_and_left_alone(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    raw, staging = pipeline.raw, str(pipeline.staging)
    versions = [DeltaTable(one).version() for one in (raw, staging)]
    for one, other in ((raw, raw), (staging, raw), (staging, staging)):
        with pytest.raises(UsageError, match=r"is no (raw|staging): it has no column"):
            Syncer(pipeline.config, one, other, pipeline.spark).sync()
    with pytest.raises(UsageError, match="is no raw"):
        load(staging, [str(pipeline.folder / "in.jsonl")])
    for one, other in ((raw, raw), (staging, staging)):
        with pytest.raises(UsageError, match="is no"):
            verify(one, other, pipeline.config, every_version=False, kafka=False)
    assert [DeltaTable(one).version() for one in (raw, staging)] == versions


def test_staging_of_another_raw_is_refused(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    other = str(pipeline.folder / "other")
    load(other, [str(pipeline.folder / "in.jsonl")])
    with pytest.raises(UsageError, match="another raw"):
        Syncer(pipeline.config, other, str(pipeline.staging), pipeline.spark).sync()


def test_a_session_keeps_nothing_of_the_syncs_it_made(pipeline: Pipeline, txn: Any) -> None:
    context = pipeline.spark.sparkContext._jsc  # noqa: SLF001

    def kept() -> set[int]:
        """All but what Delta itself keeps of tables."""
        return {
            n for n, one in context.getPersistentRDDs().items() if not str(one.name()).startswith("Delta Table State")
        }

    before = kept()
    pipeline.load(("a", txn(1, 2)), ("a", txn(2, 1)))
    pipeline.sync()
    pipeline.load(("b", txn(1, 2)))
    assert pipeline.sync().transactions == 1
    until, since = time.monotonic() + 60, kept() - before
    while since & kept():  # what other workers' syncs keep goes when they end
        assert time.monotonic() < until
        time.sleep(0.05)
    views = pipeline.spark.sql("SHOW VIEWS").collect()
    assert views == []  # a view holds the rows kept under it, and what is kept next comes with a copy of the views


@pytest.mark.usefixtures("large")
def test_a_large_sync_does_not_move_its_records_once_more_to_group_them(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[str] = []

    def write(rows: Any, *where: Any) -> None:
        plans.append(rows._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001
        commit.write(rows, *where)

    monkeypatch.setattr(apply_rules, "write", write)
    pipeline.load(*((topic, txn(n, 2, x=n)) for topic in ("a", "b") for n in range(10)))
    assert pipeline.sync().transactions == 10
    assert len(plans) == 2  # bookkeeping and output rows, side by side
    assert sum("collect_list" in plan for plan in plans) == 1
    assert not any("Exchange hashpartitioning" in plan for plan in plans)


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


def test_names_within_names_mean_in_rules_what_they_mean_in_spark(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(
        out="WITH one AS (SELECT seqno, 'outer' AS x FROM records), "
        "two AS (WITH one AS (SELECT seqno, 'inner' AS x FROM records) SELECT * FROM one) SELECT * FROM two"
    )
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    assert pipeline.values() == [{"x": "inner"}]


@pytest.mark.usefixtures("large")
def test_of_records_read_again_only_those_wanted_are_decoded(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[str] = []

    def gather(*given: Any) -> Any:
        rows = gathering.gather(*given)
        plans.append(rows._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001
        return rows

    monkeypatch.setattr(judging, "gather", gather)
    pipeline.load(("a", txn(1, 2)), ("a", txn(2, 2)))
    pipeline.sync()
    pipeline.load(("b", txn(1, 2)))
    assert pipeline.sync().transactions == 1
    (plan,) = plans
    decoded, read = plan.split("LeftSemi")
    assert "tryeval" in decoded
    assert "tryeval" not in read


def test_kept_rows_that_are_lost_are_made_anew(spark: Any) -> None:
    jvm = spark._jvm  # noqa: SLF001
    with Keeper(spark) as keeper:
        kept = keeper.keep(spark.range(10).selectExpr("id", "id % 3 AS three").repartition(2, "three"))
        before = sorted(kept.collect())
        (rows_kept,) = keeper._kept  # noqa: SLF001
        for part in range(2):  # as where the executor that had them is gone
            block = jvm.org.apache.spark.storage.RDDBlockId(rows_kept.id(), part)
            jvm.org.apache.spark.SparkEnv.get().blockManager().removeBlock(block, True)
        assert sorted(kept.collect()) == before
