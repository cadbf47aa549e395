"""Values that Debezium leaves out, as they had not changed, stay what they were."""

import json
from base64 import b64encode
from typing import Any

import pytest

from tests.deliver.tables.conftest import Lake, account

PRESET = "transactions: {preset: debezium, topic: records.transaction}\n"
LEFT_OUT = "__debezium_unavailable_value"


def test_a_column_that_had_not_changed_keeps_its_value(lake: Lake) -> None:
    """Debezium leaves out large values that an update did not touch (TOAST)."""
    lake.config(PRESET)
    lake.staging.sync([[account(1, "1", "long")], [account(2, "2", "text")], [account(2, "3", LEFT_OUT)]])
    lake.deliver()
    assert [(one["id"], one["note"]) for one in lake.rows("accounts")] == [(1, "long"), (2, "text")]
    lake.staging.sync([[account(1, "5", LEFT_OUT)], [account(3, "6", LEFT_OUT)]])
    lake.deliver()
    found = [(one["id"], str(one["balance"]), one["note"]) for one in lake.rows("accounts")]
    assert found == [(1, "5.00", "long"), (2, "3.00", "text"), (3, "6.00", None)]


@pytest.mark.parametrize("apply", ["upsert", "history"])
def test_a_column_that_had_not_changed_has_the_value_before_it_that_arrives_later(lake: Lake, apply: str) -> None:
    lake.config(f"{PRESET}deliver: {{tables: {{accounts: {{apply: {apply}}}}}}}")
    for position, note in ((50, "a"), (100, LEFT_OUT), (200, LEFT_OUT), (80, "b"), (150, LEFT_OUT), (70, "no")):
        lake.staging.sync([[account(1, f"{position}", note)]], positions=iter([position]))
        lake.deliver()
    by_place = sorted((one["_position"], str(one["balance"]), one["note"]) for one in lake.rows("accounts"))
    assert by_place[-1] == (200, "200.00", "b")
    if apply == "history":
        assert [(one[0], one[2]) for one in by_place[:-1]] == [(50, "a"), (70, "no"), (80, "b"), (100, "b"), (150, "b")]


def test_a_placeholder_is_one_in_any_type_that_it_comes_in(lake: Lake) -> None:
    """As PostgreSQL's text, bytea, json, arrays and hstore come."""
    code = [*LEFT_OUT.encode()]
    base64 = b64encode(LEFT_OUT.encode()).decode()
    columns: dict[str, tuple[str, list[Any], Any]] = {
        "texts": ("array<string>", [[LEFT_OUT], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]], ["x"]),
        "blobs": ("array<binary>", [[base64]], ["aGk="]),
        "numbers": ("array<int>", [code], [1]),
        "longs": ("array<bigint>", [code], [2]),
        "pairs": ("map<string, string>", [{LEFT_OUT: LEFT_OUT}], {"a": "b"}),
        "bytes": ("binary", [base64], "aGk="),
        "base64": ("string", [base64, LEFT_OUT.encode().hex(), LEFT_OUT], "aGk="),
        "json": ("variant", [LEFT_OUT, base64, [LEFT_OUT], code, {LEFT_OUT: LEFT_OUT}], {"a": LEFT_OUT}),
    }
    selected = ", ".join(
        (f"value:{one}" if kind == "variant" else f"from_json(to_json(value), '{one} {kind}').{one}") + f" AS {one}"
        for one, (kind, _, _) in columns.items()
    )
    lake.config(PRESET, f"SELECT seqno, value:id::int AS id, {selected}")

    def deliver(values: dict[str, Any]) -> dict[str, Any]:
        lake.staging.sync([[("accounts", '{"id":1}', json.dumps({"id": 1, **values}))]])
        lake.deliver()
        rows = lake.spark.read.format("delta").load(str(lake.folder / "accounts"))
        (found,) = rows.selectExpr("to_json(struct(*)) AS one").collect()
        return {one: value for one, value in json.loads(found.one).items() if one in columns}

    values = {one: value for one, (_, _, value) in columns.items()}
    assert deliver(values) == values
    for number in range(max(len(its) for _, its, _ in columns.values())):
        assert deliver({one: its[number % len(its)] for one, (_, its, _) in columns.items()}) == values
