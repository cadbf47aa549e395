"""What each record brings to `done`, and how that is merged, by the text of its aggregates.

(Spark's lexer is not here: tests/spark/test_done.py has the rest.)
"""

import re

import pytest

from zync.spark.expressions import Token
from zync.transactions.done import Aggregate, Call, Done, aggregate


def call(text: str, *, distinct: bool = False) -> Call:
    """The call, by words and signs, which is what Spark's lexer makes of texts as simple as these."""
    words = [Token(found[0], *found.span()) for found in re.finditer(r"'[^']*'|\w+|\S", text)]
    return Call.of(text, words, distinct=distinct)


@pytest.mark.parametrize(
    ("text", "argument", "condition"),
    [
        ("count(*)", "*", None),
        ("max( value:n )", "value:n", None),
        ("sum((a + b) * (c))", "(a + b) * (c)", None),
        ("count_if(a in (1, 2))", "a in (1, 2)", None),
        ("max(')')", "')'", None),
        ("count(ALL x)", "x", None),
        ("count(all)", "all", None),
        ("max(x) FILTER (WHERE (a) AND b IN (1))", "x", "(a) AND b IN (1)"),
        ("max(x)filter(where ')' = a)", "x", "')' = a"),
    ],
)
def test_a_call_has_an_argument_and_maybe_a_condition(text: str, argument: str, condition: str | None) -> None:
    assert call(text) == Call(text, argument, condition)


def test_distinct_is_no_part_of_the_argument() -> None:
    assert call("count(DISTINCT (a))", distinct=True) == Call("count(DISTINCT (a))", "(a)", distinct=True)


@pytest.mark.parametrize(
    "text",
    [
        "count(*) OVER (PARTITION BY a)",
        "count(*) OVER w",
        "first(x) IGNORE NULLS",
        "first(x IGNORE NULLS)",
        "last(x respect nulls)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
        "max(x) FILTER (WHERE a) OVER w",
    ],
)
def test_what_a_call_has_beside_that_is_noticed(text: str) -> None:
    assert call(text).more


@pytest.mark.parametrize(
    ("text", "part", "merged"),
    [
        ("count(*)", "1L", "sum(p)"),
        ("count(*) FILTER (WHERE a)", "CASE WHEN a THEN 1L END", "sum(p)"),
        ("count(x)", "CASE WHEN (x ) IS NOT NULL THEN 1L END", "sum(p)"),
        ("count(x) FILTER (WHERE a)", "CASE WHEN (a ) AND (x ) IS NOT NULL THEN 1L END", "sum(p)"),
        ("count_if(x)", "CASE WHEN (x ) THEN 1L END", "sum(p)"),
        ("max(x)", "(x )", "max(p)"),
        ("sum(x) FILTER (WHERE a)", "CASE WHEN a THEN (x ) END", "sum(p)"),
        ("any(x)", "(x )", "bool_or(p)"),
        ("every(x)", "(x )", "bool_and(p)"),
    ],
)
def test_what_a_record_brings_is_merged_without_the_record(text: str, part: str, merged: str) -> None:
    found = aggregate(call(text), text.partition("(")[0])
    assert " ".join(found.part.split()) == part
    assert found.over("p") == merged
    assert found.mergeable


@pytest.mark.parametrize("text", ["first(x)", "last(x)", "collect_set(x)", "avg(x)", "stddev(x)"])
def test_other_aggregates_need_the_records_again(text: str) -> None:
    function = text.partition("(")[0]
    found = aggregate(call(text), function)
    assert (found.over("p"), found.mergeable) == (f"{function}(p)", False)


def test_distinct_values_are_not_merged_and_are_counted_over_a_window_as_a_set() -> None:
    count = aggregate(call("count(DISTINCT x)", distinct=True), "count")
    assert (count.over("p", "so_far"), count.mergeable) == ("size(collect_set(p) OVER so_far)", False)
    total = aggregate(call("sum(DISTINCT x)", distinct=True), "sum")
    assert (total.over("p"), total.mergeable) == ("sum(DISTINCT p)", False)


def test_a_comment_at_the_end_of_an_expression_does_not_swallow_what_follows() -> None:
    text = "max(x -- up to\n)"
    found = aggregate(Call(text, "x -- up to"), "max")
    assert found.part == "(x -- up to\n)"


def test_a_state_can_be_kept_where_every_aggregate_can_be_merged() -> None:
    kept, read_again = Aggregate("", "", "sum({}){over}", mergeable=True), Aggregate("", "", "x({})", mergeable=False)
    assert Done("", "", (kept, kept)).mergeable
    assert not Done("", "", (kept, read_again)).mergeable
    assert Done("", "", (kept, kept)).state_now == (
        "named_struct('p0', max_by(a0, seqno) FILTER (WHERE member), 'p1', max_by(a1, seqno) FILTER (WHERE member))"
    )
    assert Done("true", "true").state_now == "named_struct('none', CAST(NULL AS STRING))"


def test_a_mergeable_aggregate_says_over_which_window() -> None:
    one = Aggregate("", "", "sum({}){over}", mergeable=True)
    assert (one.over("p0"), one.over("p0", "so_far")) == ("sum(p0)", "sum(p0) OVER so_far")
