"""`done` is taken apart as Spark's own parser reads it: the parts say what the whole says."""

from typing import Any

import pytest

from zync.errors import UsageError
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
