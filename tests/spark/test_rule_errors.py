"""What an expression fails on, whatever it fails with, sets one transaction aside; what fails around it sets none."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cdc.test_captures import pipeline as debezium
from tests.cdc.test_hostile import row as envelope
from tests.conftest import rows
from tests.sizes import as_large
from tests.spark.conftest import COUNTED, Pipeline
from zync.config.model import Limits, Lookup, OutputRule, Topic, Transactions
from zync.errors import DataError, UsageError, ZyncError
from zync.operate.decide import decide
from zync.raw.jsonl import load
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer

EXPRESSIONS: dict[str, tuple[str, Any, Any, str]] = {
    "parse_json": ("parse_json(value:x::string)", '{"a":1}', "no JSON", "MALFORMED_RECORD_IN_PARSING"),
    "schema_of_variant": ("schema_of_variant(parse_json(value:x::string))", "1", "no JSON", "MALFORMED_RECORD"),
    "from_json": ("from_json(value:x::string, 'a INT', map('mode', 'FAILFAST'))", '{"a":1}', "no JSON", "MALFORMED"),
    "from_csv": ("from_csv(value:x::string, 'a INT, b INT', map('mode', 'FAILFAST'))", "1,2", "x,y", "MALFORMED"),
    "from_xml": (
        "from_xml(value:x::string, 'a INT', map('mode', 'FAILFAST'))",
        "<r><a>1</a></r>",
        "<r><a>",
        "MALFORMED",
    ),
    "to_number": ("to_number(value:x::string, '999')", "12", "twelve", "INVALID_FORMAT|twelve"),
    "rlike": ("'abc' RLIKE value:x::string", "b", "(", "INVALID_PARAMETER_VALUE|PATTERN|Unclosed"),
    "split": ("split('abc', value:x::string)", "b", "[", "INVALID_PARAMETER_VALUE|PATTERN|Unclosed"),
    "sequence": ("size(sequence(0L, value:x::bigint))", 3, 4_000_000_000, "COLLECTION_SIZE_LIMIT_EXCEEDED"),
    "sequence by a step": ("size(sequence(0, value:x::int, 1))", 3, -1, "sequence|boundaries"),
    "repeat": ("length(repeat('abcdefgh', value:x::int))", 2, 2_000_000_000, "."),
    "timestamp_millis": ("timestamp_millis(value:x::bigint)", 0, 2**63 - 1, "overflow"),
    "timestamp_seconds": ("timestamp_seconds(value:x::bigint)", 0, 2**63 - 1, "overflow"),
    "xpath_string": ("xpath_string(value:x::string, 'a/b')", "<a><b>1</b></a>", "no XML", "."),
    "format_string": ("format_string(value:x::string, 1)", "%d", "%s %s", "Format"),
    "element_at": ("element_at(array(1, 2), value:x::int)", 1, 5, "INVALID_ARRAY_INDEX"),
    "a time zone": ("from_utc_timestamp(timestamp_millis(0), value:x::string)", "UTC", "Mars/Base", "Mars"),
    "a charset": ("encode('a', value:x::string)", "UTF-8", "UTF-9", "UTF-9"),
    "reflect": ("reflect('java.util.UUID', 'fromString', value:x::string)", "0-0-0-0-0", "no UUID", "."),
}
"""An expression, a value that it takes, one that it fails on, and what is said of that."""


STACK = ("value:x::string RLIKE '^(a|b)*$'", "ab", "ab" * 200_000, "^StackOverflowError$")
"""The same of an error that would end a JVM."""
IN_RULES = {**EXPRESSIONS, "a stack": STACK}


@pytest.fixture(scope="module", params=["few", "many"])
def size(request: pytest.FixtureRequest) -> Iterator[str]:
    """How Spark is to work: interpreting, as in small syncs, or compiling, as in large ones."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many":
            as_large(patch)
        yield str(request.param)


def quarantined(pipeline: Pipeline) -> dict[str, str]:
    """The reason of each transaction in quarantine."""
    return {row["txn"]: row["reason"] for row in pipeline.of("quarantined")}


def assert_nothing_is_set_aside(pipeline: Pipeline) -> None:
    assert not (pipeline.staging / "_delta_log").exists() or not rows(pipeline.staging)


def of_record(expressions: dict[str, tuple[str, Any, Any, str]]) -> str:
    """SQL that is the expression of those that the record names (`e`), as JSON text."""
    cases = (f"WHEN '{name}' THEN to_json(struct({one[0]} AS e))" for name, one in expressions.items())
    return f"CASE value:e::string {' '.join(cases)} END"


def bad_and_good(expressions: dict[str, tuple[str, Any, Any, str]], txn: Any) -> list[dict[str, Any]]:
    """Of each expression a record that it fails on, and one that it takes: transactions `<name>` and `<name> good`.

    First all that fail: they are found sooner than among others.
    """
    bad = [txn(name, e=name, x=one[2]) for name, one in expressions.items()]
    return bad + [txn(f"{name} good", e=name, x=one[1]) for name, one in expressions.items()]


@pytest.fixture(scope="module")
def failing(
    size: str,  # noqa: ARG001 - it is set, then
    tmp_path_factory: pytest.TempPathFactory,
    txn: Any,
    spark: Any,
) -> tuple[Pipeline, Outcome]:
    """A sync by a rule that fails on a record of each expression in turn."""
    pipeline = Pipeline(tmp_path_factory.mktemp("failing"), spark)
    pipeline.rules(out=f"SELECT seqno, txn, {of_record(IN_RULES)} AS x FROM records")  # noqa: S608
    partner = txn("rlike", 2, e="rlike", x="b")  # goes with the one that fails
    records = [{**one, "n": 2} if one["txn"] == "rlike" else one for one in bad_and_good(IN_RULES, txn)]
    pipeline.load(*[("a", one) for one in (partner, *records)])
    return pipeline, pipeline.sync()


def test_a_rule_that_fails_on_one_record_sets_its_transaction_aside(failing: tuple[Pipeline, Outcome]) -> None:
    pipeline, outcome = failing
    assert (outcome.transactions, outcome.set_aside) == (len(IN_RULES), {"quarantined": len(IN_RULES)})
    assert {row["txn"] for row in pipeline.values()} == {f"{name} good" for name in IN_RULES}
    reasons = quarantined(pipeline)
    assert reasons.keys() == set(IN_RULES)
    assert not [name for name in IN_RULES if not re.search(IN_RULES[name][3], reasons[name])], reasons
    assert not [reason for reason in reasons.values() if "\n" in reason or "Job aborted" in reason]


def test_a_pattern_that_takes_more_stack_than_there_is_ends_no_process(failing: tuple[Pipeline, Outcome]) -> None:
    pipeline, _ = failing
    assert quarantined(pipeline)["a stack"] == "StackOverflowError"
    assert "a stack good" in {row["txn"] for row in pipeline.values()}


IN_CONFIG = {name: one for name, one in EXPRESSIONS.items() if name != "reflect"}  # which no aggregate takes
NOTHING = f"left({of_record(IN_CONFIG)}, 0)"


@pytest.fixture(scope="module")
def by_topic(
    size: str,  # noqa: ARG001 - it is set, then
    tmp_path_factory: pytest.TempPathFactory,
    txn: Any,
    spark: Any,
) -> Pipeline:
    """A sync of topics `id` and `record_id`, of which that expression fails on a record of each of `IN_CONFIG`."""
    pipeline = Pipeline(tmp_path_factory.mktemp("by-topic"), spark)
    topics = {
        "id": Topic(f"concat('id ', value:txn::string, {NOTHING})"),
        "record_id": Topic("concat('record_id ', value:txn::string)", record_id=f"concat(offset, {NOTHING})"),
    }
    pipeline.change(topics=topics)
    pipeline.rules(out="SELECT seqno, txn FROM records")
    pipeline.load(*[(topic, one) for topic in topics for one in bad_and_good(IN_CONFIG, txn)])
    pipeline.sync()
    return pipeline


@pytest.fixture(scope="module")
def by_done(
    size: str,  # noqa: ARG001 - it is set, then
    tmp_path_factory: pytest.TempPathFactory,
    txn: Any,
    spark: Any,
) -> Pipeline:
    """A sync of the topic `done` with a done condition that fails on a record of each of `IN_CONFIG`."""
    pipeline = Pipeline(tmp_path_factory.mktemp("by-done"), spark)
    pipeline.change(topics={"done": Topic("concat('done ', value:txn::string)")})
    pipeline.change(transactions=Transactions(done=f"{COUNTED} AND max({NOTHING}) IS NOT NULL"))
    pipeline.rules(out="SELECT seqno, txn FROM records")
    pipeline.load(*[("done", one) for one in bad_and_good(IN_CONFIG, txn)])
    pipeline.sync()
    return pipeline


@pytest.mark.parametrize("where", ["id", "record_id", "done"])
def test_an_expression_of_the_config_that_fails_on_one_record_sets_that_aside(
    by_topic: Pipeline, by_done: Pipeline, where: str
) -> None:
    pipeline = by_done if where == "done" else by_topic
    good = {row["txn"] for row in pipeline.values() if row["txn"].startswith(f"{where} ")}
    assert good == {f"{where} {name} good" for name in IN_CONFIG}
    aside = [row for kind in ("quarantined", "pending") for row in pipeline.of(kind)]
    reasons = [row["reason"] for row in aside if where == "done" or row["kafka"]["topic"] == where]
    assert reasons == [f"the {'done condition' if where == 'done' else 'id expression'} fails on it"] * len(IN_CONFIG)


def test_a_rule_that_fails_on_everything_stops_at_the_limit(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(out="SELECT seqno, to_json(parse_json(value:x::string)) AS x FROM records")
    pipeline.change(limits=Limits(max_quarantined=3))
    pipeline.load(*[("a", txn(t, x="no JSON")) for t in range(200)])
    with pytest.raises(DataError, match=r"more than 3 would go to quarantine .* by rule out.sql: .*MALFORMED"):
        pipeline.sync()
    assert_nothing_is_set_aside(pipeline)


@pytest.mark.parametrize(
    "rule",
    [
        "SELECT coalesce(max(seqno), 1) AS seqno, CAST(raise_error('broken') AS INT) AS x FROM records",
        "SELECT max(seqno) AS seqno, to_json(parse_json(concat('no JSON', count(*)))) AS x FROM records",
    ],
)
def test_a_rule_that_fails_without_records_is_the_users_mistake(pipeline: Pipeline, txn: Any, rule: str) -> None:
    pipeline.rules(out=rule)
    pipeline.load(*[("a", txn(t)) for t in range(5)])
    with pytest.raises(UsageError, match=r"^rule out.sql \(output out\) fails whatever records there are: "):
        pipeline.sync()
    assert_nothing_is_set_aside(pipeline)


NO_RECORD = "^the rules could not run, and no record is at fault"
PYTHON = """
from pathlib import Path

from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType


@sf.udf(IntegerType())
def checked(x):
    {body}
    return x


def rule(records):
    return records.select("seqno", checked(sf.expr("value:x::int")).alias("x"))
"""


def python_rule(pipeline: Pipeline, text: str) -> None:
    path = pipeline.folder / "rule.py"
    path.write_text(text)
    pipeline.change(outputs=(OutputRule("out", python=str(path)),))


@pytest.mark.parametrize("body", ["raise MemoryError", "raise ConnectionError('no host')", "import no_such_module"])
def test_what_a_function_of_a_rule_says_of_its_environment_stops_the_sync(
    pipeline: Pipeline, txn: Any, body: str
) -> None:
    python_rule(pipeline, PYTHON.format(body=body))
    pipeline.load(("a", txn(1, x=1)), ("a", txn(2, x=2)))
    with pytest.raises(ZyncError, match=NO_RECORD):
        pipeline.sync()
    assert_nothing_is_set_aside(pipeline)


def test_an_environment_that_fails_while_it_is_tried_what_fails_set_nothing_aside(pipeline: Pipeline, txn: Any) -> None:
    """The first run fails on a value; from then on a host does not answer."""
    mark = pipeline.folder / "away"
    body = f"""if Path({str(mark)!r}).exists():
        raise ConnectionError("no host")
    if x == 13:
        Path({str(mark)!r}).touch()
        raise ValueError("thirteen")"""
    python_rule(pipeline, PYTHON.format(body=body))
    pipeline.load(*[("a", txn(t, x=t)) for t in range(20)])
    with pytest.raises(ZyncError, match=f"{NO_RECORD}: ConnectionError: no host. Nothing was committed"):
        pipeline.sync()
    assert_nothing_is_set_aside(pipeline)
    mark.unlink()
    python_rule(pipeline, PYTHON.format(body="if x == 13:\n        raise ValueError('thirteen')"))
    assert pipeline.sync().transactions == 19
    assert quarantined(pipeline) == {"13": "ValueError: thirteen"}


def test_a_lookup_that_lost_a_file_stops_the_sync(pipeline: Pipeline, txn: Any) -> None:
    names = pipeline.folder / "names"
    write_deltalake(str(names), pa.table({"x": [1, 2], "name": ["one", "two"]}))
    pipeline.change(lookups={"names": Lookup(delta=str(names))})
    pipeline.rules(out="SELECT seqno, name FROM records JOIN names ON x = value:x::int")
    pipeline.load(("a", txn(1, x=1)), ("a", txn(2, x=2)))
    (file,) = names.glob("*.parquet")
    aside = shutil.move(file, pipeline.folder / "aside")
    with pytest.raises(ZyncError, match=NO_RECORD):
        pipeline.sync()
    assert_nothing_is_set_aside(pipeline)
    shutil.move(aside, file)
    assert pipeline.sync().transactions == 2


def test_a_query_of_a_python_rule_that_fails_on_one_record_sets_its_transaction_aside(
    pipeline: Pipeline, txn: Any
) -> None:
    python_rule(
        pipeline,
        "def rule(records):\n"
        "    most = max([0, *(one.x for one in records.selectExpr('value:x::string::int AS x').collect())])\n"
        "    return records.selectExpr('seqno', f'{most * 0 + 1} AS x')\n",
    )
    pipeline.load(("a", txn(1, x="1")), ("a", txn(2, x="two")), ("a", txn(3, x="3")))
    assert pipeline.sync().transactions == 2
    ((failed, reason),) = quarantined(pipeline).items()
    assert failed == "2"
    assert "[CAST_INVALID_INPUT] The value 'two'" in reason


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("\n-- the rule\nSELECT seqno\nFRM records", 4, "PARSE_SYNTAX_ERROR"),
        ("SELECT seqno,\n  nope\nFROM records", 2, "UNRESOLVED_COLUMN"),
        ("-- of nothing\nSELECT seqno FROM nowhere", 2, "TABLE_OR_VIEW_NOT_FOUND"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told_with_its_line(
    pipeline: Pipeline, txn: Any, text: str, line: int, said: str
) -> None:
    pipeline.rules(out=text)
    pipeline.load(("a", txn(1)))
    with pytest.raises(UsageError, match=rf"^rule out.sql:{line} \(output out\): \[{said}"):
        pipeline.sync()


@pytest.mark.usefixtures("size")
def test_the_time_of_a_debezium_record_is_null_where_it_is_none(tmp_path: Path, spark: Any) -> None:
    times = [0, 1_700_000_000_123, 2**63 - 1, -(2**63), "soon", None]
    lines = [json.dumps({"topic": "p.public.t", "value": envelope(None, transaction=None, ts_ms=ts)}) for ts in times]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    load(str(tmp_path / "raw"), [str(tmp_path / "in.jsonl")])
    config = debezium(tmp_path, "p", "SELECT seqno, ts FROM `p.public.t`")
    outcome = Syncer(config, str(tmp_path / "raw"), str(tmp_path / "staging"), spark).sync()
    assert outcome.transactions == len(times)
    out = sorted((row["seqno"], json.loads(row["value"])["ts"]) for row in rows(tmp_path / "staging") if row["value"])
    assert [ts for _, ts in out] == [
        "1970-01-01T00:00:00.000000Z",
        "2023-11-14T22:13:20.123000Z",
        None,
        None,
        None,
        None,
    ]


def test_a_place_in_the_source_that_is_no_number_does_not_stop_a_release(tmp_path: Path, spark: Any) -> None:
    source = {"connector": "postgresql", "version": "3.7.0.Final", "schema": "public", "table": "t", "lsn": "five"}
    (tmp_path / "in.jsonl").write_text(json.dumps({"topic": "p.public.t", "value": envelope("7:1", source=source)}))
    load(str(tmp_path / "raw"), [str(tmp_path / "in.jsonl")])
    config = debezium(tmp_path, "p", "SELECT seqno, row:id::int AS id FROM `p.public.t`")
    syncer = Syncer(config, str(tmp_path / "raw"), str(tmp_path / "staging"), spark)
    assert syncer.sync().in_flight == 1
    decide(str(tmp_path / "raw"), ["7"], "release", "its END will not come", who="ann")
    outcome = syncer.sync()
    assert (outcome.transactions, outcome.in_flight) == (1, 0)
    assert [row["position"] for row in rows(tmp_path / "staging") if row["kind"] == "output"] == [None]
