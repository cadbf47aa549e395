"""What is set aside says why, in the words that docs/explanation/set-aside.md has, and is where the page says it is."""

from typing import Any

import pytest

from tests.docs.pages import page
from tests.spark.conftest import Pipeline
from zync.config.model import Topic, Transactions
from zync.operate.decide import decide
from zync.operate.dlq import describe, groups
from zync.operate.txn import transactions
from zync.operate.txn_show import describe as describe_transaction
from zync.operate.txn_show import show
from zync.raw.append import Appender
from zync.raw.jsonl import Line, as_batch
from zync.raw.table import DECISIONS
from zync.sync.outcome import Outcome

PAGE = "docs/explanation/set-aside.md"
NO_SUCH_TOPIC = "the config names no such topic"


def reasons(pipeline: Pipeline, kind: str) -> list[tuple[int, str]]:
    return [(row["seqno"], row["reason"]) for row in pipeline.of(kind)]


@pytest.fixture(scope="module")
def nobodys(tmp_path_factory: pytest.TempPathFactory, spark: Any, txn: Any) -> tuple[Pipeline, Outcome]:
    """A sync of a transaction, three records of topics that the config does not name, and decisions about nothing."""
    pipeline = Pipeline(tmp_path_factory.mktemp("nobodys"), spark)
    pipeline.load(("a", txn(1)), ("other", "x"), ("another", "y"), ("other", "z"))
    decide(pipeline.raw, ["7"], "release", "a slip", who="ann")
    decide(pipeline.raw, ["7"], "redrive", "a slip", who="ann")
    lines = [Line("test", DECISIONS, value=b'{"decision":"release"}')]
    Appender(pipeline.raw).append_planned(lambda table: as_batch(lines, table))
    return pipeline, pipeline.sync()


def test_what_the_config_does_not_name_is_counted_as_ignored(nobodys: tuple[Pipeline, Outcome]) -> None:
    pipeline, outcome = nobodys
    assert outcome.set_aside["ignored"] == 3 + 2
    ignored = [row for row in pipeline.of("ignored") if row["reason"] == NO_SUCH_TOPIC]
    assert {row["kafka"]["topic"]: (row["count"], row["records"]) for row in ignored} == {
        "other": (2, [{"first": 2, "last": 2}, {"first": 4, "last": 4}]),
        "another": (1, [{"first": 3, "last": 3}]),
    }
    (quarantined,) = groups(pipeline.raw, str(pipeline.staging))
    assert "not a decision of an operator" in describe(quarantined)


def test_a_decision_about_nothing_is_ignored_and_says_so(nobodys: tuple[Pipeline, Outcome]) -> None:
    pipeline, outcome = nobodys
    assert outcome.set_aside == {"quarantined": 1, "ignored": 3 + 2}
    assert [one for one in reasons(pipeline, "ignored") if one[1] != NO_SUCH_TOPIC] == [
        (5, "no such transaction was in flight when that was decided"),
        (6, "nothing of that was set aside when that was decided"),
    ]
    assert reasons(pipeline, "quarantined") == [(7, "not a decision of an operator")]


def test_a_repeat_is_put_on_record_as_a_duplicate(pipeline: Pipeline, txn: Any) -> None:
    pipeline.change(topics={"a": Topic("value:txn", record_id="value:r::string")})
    pipeline.load(("a", txn(1, 2, r="x", x=1)), ("a", txn(1, 2, r="x", x=2)), ("a", txn(1, 2, r="y", x=3)))
    assert pipeline.sync().set_aside == {"duplicate": 1}
    assert reasons(pipeline, "duplicate") == [(2, "its record id came before")]
    assert pipeline.values() == [{"x": 1}, {"x": 3}]


def test_what_is_wrong_with_a_record_is_told_while_its_transaction_is_in_flight(pipeline: Pipeline, txn: Any) -> None:
    pipeline.change(topics={"a": Topic("value:txn", schema="txn INT, n INT, x INT")})
    pipeline.load(("a", txn(1, 2, x="no number")))
    assert pipeline.sync().in_flight == 1
    (one,) = transactions(pipeline.raw, str(pipeline.staging))
    assert (one.state, one.reason) == ("in-flight", "value does not fit the schema")
    shown = describe_transaction(show(pipeline.raw, str(pipeline.staging), "1", pipeline.config))
    assert "because value does not fit the schema" in shown
    pipeline.load(("a", txn(1, 2, x=2)))
    assert pipeline.sync().set_aside == {"quarantined": 1}


def test_the_page_quotes_what_dlq_list_says(pipeline: Pipeline) -> None:
    pipeline.change(transactions=Transactions(done="count(*) = 1"), topics={"orders": Topic("value:txn")})
    pipeline.rules(orders="SELECT seqno, value:qty::int AS qty FROM orders")
    values: list[Any] = [{"txn": 15, "qty": 2}, {"txn": 16, "qty": "two"}, {"txn": 17, "qty": "many"}, "{broken"]
    pipeline.load(*(("orders", one) for one in values))
    pipeline.sync()
    lines = [describe(one) for one in groups(pipeline.raw, str(pipeline.staging))]
    (quoted,) = [one.text for one in page(PAGE).blocks if one.language == "text"]
    assert quoted.splitlines() == lines
