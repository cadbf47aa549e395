"""`done`: taken apart as Spark's own parser reads it, and another one judges anew what is in flight."""

from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import Transactions
from zync.errors import UsageError
from zync.operate.verify import verify
from zync.transactions.done import take_apart

ROWS = [("a\\", 1, "x"), ("a\\", 2, None), ("b", None, "(y)"), ("c", 4, ",")]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("count(*) = 4", 1),
        ("count ( * ) = max(n)", 2),
        (r"count_if(topic = r'a\') = 2", 1),
        (r"count_if(topic = 'a\\') = 2", 1),
        ('count_if(topic = "a\\\\") = 2', 1),
        ("max(n -- up to )\n) = 4", 1),
        ("max(n /* ( , */) = 4", 1),
        ("max(/* a ' */ n) = 4", 1),
        ("max(text) = 'x' AND min(text) = '(y)'", 2),
        ("count_if(text = '(y)') = 1 AND count_if(text = ',') = 1", 2),
        ("count_if(text IS NULL) = 1", 1),
        ("count_if((text) IS NULL) = 1", 1),
        ("count_if((n + 1) BETWEEN 2 AND 3) = 2", 1),
        ("count_if((n) IN (1, 4)) = 2", 1),
        ("count_if(text LIKE '(%' ESCAPE '!') = 1", 1),
        ("max(coalesce(n, 3)) = 4", 1),
        ("sum((n + 1) * (2)) = 20", 1),
        ("count(ALL n) = 3", 1),
        ("count(1) = 4", 1),
        ("count(DISTINCT topic) = 3", 1),
        ("count(DISTINCT (topic)) = 3", 1),
        ("sum(DISTINCT n) = 7", 1),
        ("max(n) FILTER (WHERE topic = ')' OR topic <> 'c') = 2", 1),
        (r"count(*) filter(where topic = r'a\') = 2", 1),
        ("`count`(*) = 4", 1),
        ("any(n = 4) AND every(topic <> 'd')", 2),
        ("max(exists(array(n, 1), y -> y > 3)) AND max(array(n, 1)[0]) = 4", 2),
        ("max('\U0001f600') = '\U0001f600' AND count(*) = 4", 2),
        ("max(CASE WHEN topic = 'c' THEN n END) = 4", 1),
        ("max(n)::string || 'x' = '4x'", 1),
        ("4 = 4", 0),
    ],
)
def test_the_parts_say_what_the_whole_says(spark: Any, text: str, arguments: int) -> None:
    from pyspark.sql import functions as sf

    rows = spark.createDataFrame(ROWS, "topic string, n int, text string")
    done = take_apart(spark, text)
    assert len(done.aggregates) == arguments
    if not arguments:
        assert done.condition == text
        return
    assert rows.groupBy().agg(sf.expr(text)).collect() == [(True,)]
    parts = rows.selectExpr(*(f"{one.part} AS p{n}" for n, one in enumerate(done.aggregates)))
    merged = parts.selectExpr(*(f"{one.over(f'p{n}')} AS a{n}" for n, one in enumerate(done.aggregates)))
    assert merged.selectExpr(done.condition).collect() == [(True,)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count(topic, n) = 1", r"'count\(topic, n\)' has 2 arguments: only aggregates of one can stand there"),
        ("count() = 1", r"'count\(\)' has 0 arguments"),
        ("listagg(text, ',') = ''", "has 2 arguments"),
        ("count(*) OVER (PARTITION BY topic) = 1", "is more than an aggregate with a FILTER"),
        ("count(*) OVER w = 1", "is more than an aggregate with a FILTER"),
        ("first(n IGNORE NULLS) = 1", "is more than an aggregate with a FILTER"),
        ("last(n) IGNORE NULLS = 1", "is more than an aggregate with a FILTER"),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY n) = 1", "is more than an aggregate with a FILTER"),
        ("max(*) = 1", "its argument must be one value"),
        ("count(DISTINCT *) = 1", "its argument must be one value"),
        ("count(kafka.*) = 1", "its argument must be one value"),
        ("sum(expr => n) = 1", "its argument must be one value"),
        ("count(* = 1", "is not a SQL expression"),
    ],
)
def test_what_is_no_aggregate_of_one_value_is_refused_with_the_reason(spark: Any, text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=f"transactions.done: .*{expected}"):
        take_apart(spark, text)


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


@pytest.mark.parametrize("function", ["first", "any_value", "last"])
def test_done_may_use_aggregates_that_have_a_grammar_of_their_own(pipeline: Pipeline, txn: Any, function: str) -> None:
    pipeline.change(transactions=Transactions(done=f"count(*) = {function}(value:n::int)"))
    pipeline.load(("a", txn(1, 2)), ("a", txn(2)))
    assert pipeline.sync().transactions == 1
    pipeline.load(("a", txn(1, 2)))
    assert pipeline.sync().transactions == 1


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
