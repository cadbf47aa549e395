"""Records that do not decode, have no id, or do not fit the schema: set aside with their reason, up to a limit."""

from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import Limits, Topic
from zync.errors import DataError

EDGES = (2**63 - 1, -(2**63), 2**63, 10**38 - 1, -(10**38) + 1)


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
