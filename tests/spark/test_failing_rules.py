"""Transactions that a rule fails on are found and set aside whole, and others go on."""

from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import Limits, Lookup, Topic
from zync.errors import DataError, UsageError
from zync.rules import probe
from zync.spark import sizing


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
        probe, "tune", lambda spark, given, size: tries.append(size.records) or sizing.tune(spark, given, size)
    )
    pipeline.sync()
    aside = {int(row["txn"]): row["rule"] for row in pipeline.of("quarantined")}
    assert aside == dict.fromkeys(by_second - by_first, "second.sql") | dict.fromkeys(by_first, "first.sql")
    assert [len(pipeline.values(rule)) for rule in ("first", "second")] == [count - len(aside)] * 2
    assert len(tries) <= 12  # for each rule all at once, nothing, and parts, until a task has not left any out


def test_many_that_a_rule_fails_on_are_all_found(pipeline: Pipeline, txn: Any) -> None:
    """Though a task leaves parts out after some failures, to be looked at by the next job."""
    failing = {t for t in range(400) if t % 3}
    pipeline.change(limits=Limits(max_quarantined=1.0))
    pipeline.rules(out="SELECT seqno, sum(value:x::int) AS x FROM records GROUP BY seqno")
    pipeline.load(*[("a", txn(t, 1, x="a" if t in failing else 1)) for t in range(400)])
    pipeline.sync()
    assert {int(row["txn"]) for row in pipeline.of("quarantined")} == failing
    assert len(pipeline.values("out")) == 400 - len(failing)


def test_those_that_a_rule_with_a_subquery_over_all_fails_on_are_found(pipeline: Pipeline, txn: Any) -> None:
    """Which cannot run on parts of the records."""
    pipeline.rules(out="SELECT seqno, 1 DIV value:x::int + (SELECT count(*) FROM b) * 0 AS x FROM a")
    pipeline.load(*[(topic, txn(t, 2, x=t)) for t in range(30) for topic in ("a", "b")])
    pipeline.sync()
    (aside,) = pipeline.of("quarantined")
    assert (aside["txn"], aside["rule"]) == ("0", "out.sql")
    assert "Division by zero" in aside["reason"]


IN_A_CLASS_OF_ITS_OWN = {
    "a key twice": "to_json(str_to_map(if(value:x::int = 0, 'a:1,a:2', 'a:1')))",
    "too much for an array": "size(sequence(1L, if(value:x::int = 0, 4000000000L, 1L)))",
    "more rows than one for a subquery": (
        "(SELECT max(v) FROM (SELECT seqno s, explode(if(value:x::int = 0, array(1, 2), array(1))) v FROM {a}) b "
        "WHERE b.s = {a}.seqno GROUP BY v)"
    ),
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, spark: Any, txn: Any) -> dict[str, list[str]]:
    """The transactions that each rule failed on, by the error."""
    pipeline = Pipeline(tmp_path_factory.mktemp("failed"), spark)
    topics = {what: f"t{number}" for number, what in enumerate(IN_A_CLASS_OF_ITS_OWN)}
    pipeline.change(topics={topic: Topic("value:txn") for topic in topics.values()})
    pipeline.rules(
        **{
            topic: f"SELECT seqno, {IN_A_CLASS_OF_ITS_OWN[what].replace('{a}', topic)} AS x FROM {topic}"  # noqa: S608
            for what, topic in topics.items()
        }
    )
    pipeline.load(*[(topic, txn(f"{topic}-{x}", x=x)) for x in range(3) for topic in topics.values()])
    assert pipeline.sync().transactions == 2 * len(topics)
    rules = [(row["rule"], row["txn"]) for row in pipeline.of("quarantined")]
    return {
        what: [txn.removeprefix(topic) for rule, txn in rules if rule == f"{topic}.sql"]
        for what, topic in topics.items()
    }


@pytest.mark.parametrize("what", IN_A_CLASS_OF_ITS_OWN)
def test_so_is_one_whose_error_sql_has_in_a_class_of_its_own(failed: dict[str, list[str]], what: str) -> None:
    assert failed[what] == ["-0"]


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


def test_a_row_of_no_transaction_is_refused(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    for rule in ("SELECT seqno + 1 AS seqno FROM a", "SELECT 1 AS seqno"):
        pipeline.rules(out=rule)
        pipeline.load(("a", txn(2)))
        with pytest.raises(UsageError, match=r"a rule makes a row of seqno \d, and no such transaction goes out now"):
            pipeline.sync()
        assert not list(pipeline.staging.glob("sync-00000002-*"))


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
