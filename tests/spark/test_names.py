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


VIEWS = {"capitals": "ORDERS", "quoted": "`Orders`", "put_together": "IDENTIFIER('or' || 'ders')"}
ZYNCS_OWN = ("decided", "set_aside", "settling", "made", "settled", "identified", "assembled")
WITHIN = (
    "WITH one AS (SELECT seqno, 'outer' AS x FROM a), "
    "two AS (WITH one AS (SELECT seqno, 'inner' AS x FROM a) SELECT * FROM one) SELECT * FROM two"
)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory, spark: Any, txn: Any) -> Pipeline:
    """A sync with a rule for each of those names, and for what they mean elsewhere."""
    pipeline = Pipeline(tmp_path_factory.mktemp("named"), spark)
    (pipeline.folder / "names.json").write_text('{"txn":"2","who":"me"}')
    pipeline.change(
        topics={name: Topic("value:txn") for name in ("orders", "unnamed", "a")},
        lookups={name: Lookup(json=pipeline.folder / "names.json") for name in ZYNCS_OWN},
    )
    pipeline.rules(
        **{name: f"SELECT seqno, value:x::int AS x FROM {view}" for name, view in VIEWS.items()},  # noqa: S608
        **{f"by_{name}": f"SELECT a.seqno, who FROM a JOIN {name} ON {name}.txn = a.txn" for name in ZYNCS_OWN},  # noqa: S608
        environment="SELECT seqno, '${env:PATH}' AS x FROM a",
        within=WITHIN,
    )
    pipeline.load(("orders", txn(1, 2, x=1)), ("unnamed", txn(1, 2)), ("a", txn(2)))
    assert pipeline.sync().transactions == 2
    return pipeline


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_there_however_a_rule_writes_its_name(named: Pipeline, view: str) -> None:
    assert named.values(view) == [{"x": 1}]


def test_no_statement_reads_the_environment(named: Pipeline) -> None:
    """What records say gets into statements, as part of reasons: Spark would put in a variable's value."""
    assert named.values("environment") == [{"x": "${env:PATH}"}]


@pytest.mark.parametrize("name", ZYNCS_OWN)
def test_a_lookup_may_be_called_as_a_view_of_zyncs_own(named: Pipeline, name: str) -> None:
    assert named.values(f"by_{name}") == [{"who": "me"}]


def test_names_within_names_mean_in_rules_what_they_mean_in_spark(named: Pipeline) -> None:
    assert named.values("within") == [{"x": "inner"}]
