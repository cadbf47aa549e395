"""Names of views, and texts of the config and of records, mean in statements what they should."""

from dataclasses import replace
from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import Lookup, Topic


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


@pytest.mark.parametrize("view", ["ORDERS", "`Orders`", "IDENTIFIER('or' || 'ders')"])
def test_a_view_is_there_however_a_rule_writes_its_name(pipeline: Pipeline, txn: Any, view: str) -> None:
    pipeline.change(topics={"orders": Topic("value:txn"), "unnamed": Topic("value:txn")})
    pipeline.rules(out=f"SELECT seqno, value:x::int AS x FROM {view}")  # noqa: S608
    pipeline.load(("orders", txn(1, 2, x=1)), ("unnamed", txn(1, 2)))
    pipeline.sync()
    assert pipeline.values() == [{"x": 1}]


def test_no_statement_reads_the_environment(pipeline: Pipeline, txn: Any) -> None:
    """What records say gets into statements, as part of reasons: Spark would put in a variable's value."""
    pipeline.rules(out="SELECT seqno, '${env:PATH}' AS x FROM records")
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    assert pipeline.values() == [{"x": "${env:PATH}"}]


@pytest.mark.parametrize("name", ["decided", "set_aside", "settling", "made", "settled", "identified", "assembled"])
def test_a_lookup_may_be_called_as_a_view_of_zyncs_own(pipeline: Pipeline, txn: Any, name: str) -> None:
    (pipeline.folder / "names.json").write_text('{"txn":"1","who":"me"}')
    pipeline.change(lookups={name: Lookup(json=pipeline.folder / "names.json")})
    pipeline.rules(out=f"SELECT a.seqno, who FROM a JOIN {name} ON {name}.txn = a.txn")  # noqa: S608 - ours
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    assert pipeline.values() == [{"who": "me"}]


def test_names_within_names_mean_in_rules_what_they_mean_in_spark(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(
        out="WITH one AS (SELECT seqno, 'outer' AS x FROM records), "
        "two AS (WITH one AS (SELECT seqno, 'inner' AS x FROM records) SELECT * FROM one) SELECT * FROM two"
    )
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    assert pipeline.values() == [{"x": "inner"}]
