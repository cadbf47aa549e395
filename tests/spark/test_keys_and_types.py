"""Keys without nulls, and types of columns that change: what is refused, and when, and what tables make of the rest."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import rows
from tests.spark.conftest import Pipeline
from zync.config.model import Deliver, DeliveredTable, Transactions
from zync.deliver.tables.delivery import sync_to_tables
from zync.errors import UsageError
from zync.operate.explain import explain
from zync.operate.replay import replay


def new_shop(folder: Path, spark: Any) -> Pipeline:
    shop = Pipeline(folder, spark)
    shop.change(transactions=Transactions(done="count(*) = 1"))
    return shop


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Pipeline:
    """A pipeline in which each record is a transaction, and whose output has the key `id`."""
    return new_shop(tmp_path, spark)


@pytest.fixture(scope="module")
def delivered_lake(tmp_path_factory: pytest.TempPathFactory, spark: Any, txn: Any) -> str:
    """A lake with the table `out` of ids 1 and 2, to copy: columns `id INT`, `note STRING`, `n INT`."""
    shop = new_shop(tmp_path_factory.mktemp("delivered"), spark)
    rule(shop, "value:id::int AS id", "value:note::string AS note", "value:n::int AS n")
    shop.load(("a", txn(1, id=1, note="a")), ("a", txn(2, id=2, note="b")))
    shop.sync()
    deliver(shop)
    return shop.config.lake


def rule(shop: Pipeline, *columns: str, key: tuple[str, ...] = ("id",), **more: Any) -> None:
    shop.rules(out=f"SELECT seqno, {', '.join(columns)} FROM a")  # noqa: S608
    shop.change(outputs=tuple(replace(one, key=key, **more) for one in shop.config.outputs))


def deliver(shop: Pipeline) -> list[dict[str, Any]]:
    """Brings staging into the tables; the table of `out`, in order of id."""
    folder = f"{shop.config.lake}/tables"
    sync_to_tables(shop.spark, shop.config, str(shop.staging), folder, threading.Event(), until_caught_up=True)
    return table(shop, "out")


def table(shop: Pipeline, name: str) -> list[dict[str, Any]]:
    """The rows of that table, in order of id."""
    found = shop.spark.read.format("delta").load(f"{shop.config.lake}/tables/{name}")
    return [row.asDict(recursive=True) for row in found.orderBy("id").drop("_position", "_seqno").collect()]


def reasons(shop: Pipeline) -> list[str]:
    return [row["reason"] for row in shop.of("quarantined")]


def test_a_null_in_a_key_sets_its_transaction_aside_or_is_allowed_by_name(shop: Pipeline, txn: Any) -> None:
    shop.change(transactions=Transactions(done="count(*) = max(value:n::int)"))
    columns = ("value:id::int AS id", "value:part::string AS part", "value:id::int = 3 AS _delete")
    rule(shop, *columns, key=("id", "part"))
    shop.load(
        *[("a", txn(1, 2, id=1, part="x")), ("a", txn(1, 2, part="y"))],  # the second one has no id
        *[("a", txn(2, id=2)), ("a", txn(3, id=3)), ("a", txn(4, id=3, part="z")), ("a", txn(5, id=5, part="w"))],
    )
    shop.sync()
    assert sorted(row["key"] for row in shop.of("output")) == ['{"id":3,"part":"z"}', '{"id":5,"part":"w"}']
    first, *others = reasons(shop)
    assert "rule out.sql: column 'id' of the key is null" in first
    assert "say null_keys: allow for output out" in first
    assert len(others) == 2
    assert all("column 'part' of the key is null" in one for one in others)
    assert {row["rule"] for row in shop.of("quarantined")} == {"out.sql"}

    rule(shop, *columns, key=("id", "part"), null_keys="allow")
    shop.load(("a", txn(6, id=6)))
    shop.sync()
    assert '{"id":6,"part":null}' in {row["key"] for row in shop.of("output")}


def test_json_has_nulls_too(shop: Pipeline, txn: Any) -> None:
    rule(shop, "value:id AS id")
    shop.load(("a", txn(1, id=None)), ("a", txn(2)), ("a", txn(3, id="x")))
    shop.sync()
    assert [row["key"] for row in shop.of("output")] == ['{"id":"x"}']
    assert len(reasons(shop)) == 2


@pytest.mark.parametrize("column", ["NULL AS x", "array() AS x", "named_struct('y', NULL) AS x"])
def test_a_null_without_type_is_refused(shop: Pipeline, txn: Any, column: str) -> None:
    rule(shop, "value:id::int AS id", column)
    with pytest.raises(UsageError, match=r"column 'x' as .*void.*CAST\(NULL AS STRING\)"):
        explain(shop.spark, shop.config)
    shop.load(("a", txn(1, id=1)))
    with pytest.raises(UsageError, match="void"):
        shop.sync()
    assert not shop.staging.exists() or not rows(shop.staging)


def test_check_warns_of_outputs_whose_rules_give_a_column_two_types(shop: Pipeline) -> None:
    shop.rules(out="SELECT seqno, 1 AS x FROM a", more="SELECT seqno, 'x' AS x FROM a")
    shop.change(outputs=tuple(replace(one, topic="out") for one in shop.config.outputs))
    (warning,) = explain(shop.spark, shop.config).warnings
    assert "has column 'x' as int and another string" in warning


def test_check_warns_of_deletions_that_do_not_say_of_what(shop: Pipeline) -> None:
    for key, told in ((("id",), []), ((), ["rule out.sql (output out) selects _delete, and the output has no key"])):
        rule(shop, "value:id::int AS id", "value:gone::boolean AS _delete", key=key)
        assert [one.partition(":")[0] for one in explain(shop.spark, shop.config).warnings] == told


@pytest.mark.parametrize("named", [True, False])
def test_a_type_that_a_delivered_table_cannot_take_is_refused_before_it_is_in_staging(
    shop: Pipeline, txn: Any, delivered_lake: str, named: bool
) -> None:
    """Whether the config names tables, or there is one that was made of this staging."""
    shutil.copytree(delivered_lake, shop.config.lake)
    if named:
        shop.change(deliver=Deliver(tables={}))
    before = DeltaTable(str(shop.staging)).version()
    shop.load(("a", txn(3, id=3, note="5")))
    changed = ("value:id::int AS id", "value:note::int AS note", "value:n::int AS n")
    rule(shop, *changed)
    refused = (
        r"rule out.sql: column 'note' is int now, and .* as string. Nothing was committed. "
        r"Cast it to string, or give it another name"
    )
    with pytest.raises(UsageError, match=refused):
        shop.sync()
    if named:
        with pytest.raises(UsageError, match="make 'note' a int, and the table at .* has it as string"):
            explain(shop.spark, shop.config)
    rule(shop, "value:id::string AS id", "value:note::string AS note", "value:n::int AS n")
    with pytest.raises(UsageError, match="column 'id' is string now, and .* as int"):
        shop.sync()
    assert DeltaTable(str(shop.staging)).version() == before
    rule(shop, "value:id::bigint AS id", "value:note::string AS note", "value:n::string AS n")  # wider
    shop.sync()
    assert deliver(shop) == [
        {"id": 1, "note": "a", "n": "1"},
        {"id": 2, "note": "b", "n": "1"},
        {"id": 3, "note": "5", "n": "1"},
    ]


@pytest.fixture(scope="module")
def changed_types(tmp_path_factory: pytest.TempPathFactory, spark: Any, txn: Any) -> Pipeline:
    """A shop without tables, after a sync for each of the types that the column `x` was of in turn."""
    shop = new_shop(tmp_path_factory.mktemp("changed"), spark)
    kinds = ("value:x::string", "value:x::int", "value:x::double", "timestamp_millis(value:x::bigint)", "array(1, 2)")
    for number, kind in enumerate(kinds):
        rule(shop, "value:id::int AS id", f"{kind} AS x")
        shop.load(("a", txn(number, id=number, x="7")))
        shop.sync()
    return shop


def test_types_may_change_as_long_as_there_is_no_table(changed_types: Pipeline) -> None:
    assert changed_types.values()[:3] == [{"id": 0, "x": "7"}, {"id": 1, "x": 7}, {"id": 2, "x": 7.0}]
    assert len(changed_types.values()) == 5


def test_where_a_type_did_change_a_string_holds_what_there_is_of_each(
    changed_types: Pipeline, shop: Pipeline, txn: Any
) -> None:
    """As syncs of zync 0.8 made it, or those before there were tables."""
    shutil.copytree(changed_types.config.lake, shop.config.lake)
    shop.change(outputs=changed_types.config.outputs)
    with pytest.raises(UsageError, match="or to string, which holds what there is as text"):
        deliver(shop)
    rule(shop, "value:id::int AS id", "value:x::string AS x")
    texts = ["7", "7", "7.0", "1970-01-01T00:00:00.007000Z", "[1,2]"]
    assert [row["x"] for row in deliver(shop)] == texts
    shop.load(("a", txn(9, id=9, x="8")))
    shop.sync()
    assert [row["x"] for row in deliver(shop)] == [*texts, "8"]


@pytest.mark.parametrize("delivered", [True, False])
def test_where_a_keys_type_did_change_a_replay_makes_all_anew_and_loses_nothing(
    shop: Pipeline, txn: Any, delivered_lake: str, delivered: bool
) -> None:
    """Whether there was a table when it changed (which `sync` refuses, but not where it does not see the table)."""
    lake = Path(shop.config.lake)
    shutil.copytree(delivered_lake, lake)
    if delivered:
        (lake / "tables").rename(lake / "elsewhere")
    else:
        shutil.rmtree(lake / "tables")
    rule(shop, "value:id::string AS id", "value:note::string AS note")
    shop.load(("a", txn(3, id="3", note="c")), ("a", txn(4, id="1", note="d")))
    shop.sync()
    if delivered:
        (lake / "elsewhere").rename(lake / "tables")
    with pytest.raises(
        UsageError, match=r"'id'.* string.*zync replay raw --into staging2.*zync sync-to tables staging2"
    ):
        deliver(shop)

    replay(shop.spark, shop.config, shop.raw, str(lake / "staging2"), None, str(shop.staging), lambda _: None)
    shop.staging.rename(lake / "staging-before")
    (lake / "staging2").rename(shop.staging)
    if delivered:
        (lake / "tables").rename(lake / "tables-before")
    assert deliver(shop) == [{"id": "1", "note": "d"}, {"id": "2", "note": "b"}, {"id": "3", "note": "c"}]
    shop.load(("a", txn(5, id="2", note="e")))
    shop.sync()
    assert [row["note"] for row in deliver(shop)] == ["d", "e", "c"]


APPLY: tuple[Any, ...] = ("upsert", "history", "append")


@pytest.fixture(scope="module")
def widened(tmp_path_factory: pytest.TempPathFactory, spark: Any, txn: Any) -> Pipeline:
    """A shop with a table of each way to apply, which was delivered to before its rule got columns, and twice after."""
    shop = new_shop(tmp_path_factory.mktemp("widened"), spark)
    shop.change(deliver=Deliver(tables={apply: DeliveredTable(apply=apply) for apply in APPLY}))
    folder = f"{shop.config.lake}/tables"
    at = "timestamp_micros(value:at::bigint)::timestamp_ntz"
    more = f", {at} AS at, value:more AS more, named_struct('x', array({at})) AS nested"
    for number, columns in ((1, ""), (2, more), (3, more)):
        shop.rules(**dict.fromkeys(APPLY, f"SELECT seqno, value:id::int AS id{columns} FROM a"))  # noqa: S608
        shop.change(outputs=tuple(replace(one, key=("id",)) for one in shop.config.outputs))
        shop.load(("a", txn(number, id=number, at=1767323045678901, more={"a": [1]})))
        shop.sync()
        sync_to_tables(spark, shop.config, str(shop.staging), folder, threading.Event(), until_caught_up=True)
    return shop


@pytest.mark.parametrize("apply", APPLY)
def test_a_column_that_needs_a_feature_of_delta_gets_it_with_the_column(widened: Pipeline, apply: str) -> None:
    found = table(widened, apply)
    assert [row["id"] for row in found] == [1, 2, 3]
    assert found[0]["at"] is None
    assert str(found[2]["at"]) == "2026-01-02 03:04:05.678901" == str(found[2]["nested"]["x"][0])
    assert found[2]["more"].toPython() == {"a": [1]}
    protocol = DeltaTable(f"{widened.config.lake}/tables/{apply}").protocol()
    assert {"timestampNtz", "variantType"} <= {*(protocol.writer_features or ())}


def test_a_type_that_no_table_can_have_is_refused(shop: Pipeline, txn: Any) -> None:
    shop.change(deliver=Deliver(tables={}))
    rule(shop, "value:id::int AS id", "INTERVAL '1' DAY AS x")
    refused = "column 'x' is interval day, and no Delta table has interval day: cast it"
    with pytest.raises(UsageError, match=refused):
        explain(shop.spark, shop.config)
    shop.load(("a", txn(1, id=1)))
    with pytest.raises(UsageError, match=refused):
        shop.sync()
