"""Output rows: their order, their keys, and columns with a meaning of their own."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import OutputRule
from zync.errors import UsageError
from zync.operate.query import query, rows_of, table_of


def test_columns_called_alike_are_shown_and_are_no_json(pipeline: Pipeline) -> None:
    found = query(pipeline.spark, pipeline.config, "SELECT 1 AS a, 2 AS A")
    assert table_of(found).splitlines() == ["a  A", "-  -", "1  2"]
    with pytest.raises(UsageError, match="'a' is the name of several columns"):
        rows_of(found)


def test_reserved_columns_may_be_written_in_capitals(pipeline: Pipeline, txn: Any) -> None:
    pipeline.rules(out="SELECT SEQNO, value:x::int AS x, value:x::int AS _ORDER, value:gone::boolean AS _Delete FROM a")
    pipeline.load(("a", txn(1, 3, x=2)), ("a", txn(1, 3, x=1)), ("a", txn(1, 3, x=3, gone=True)))
    pipeline.sync()
    assert [row["value"] for row in pipeline.of("output")] == ['{"x":1}', '{"x":2}', None]


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
