"""Columns that come, go, gain fields or get a wider type, and those that no table can have."""

import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.deliver.conftest import Row, row
from tests.deliver.tables.conftest import ACCOUNTS, Lake, account
from zync.deliver.tables import apply
from zync.errors import UsageError
from zync.operate.explain import explain
from zync.project.load import load
from zync.rules.type_changes import is_wider

OF_ACCOUNTS = "id INT, balance DECIMAL(10, 2), note STRING"


def test_a_column_that_a_sync_made_is_delivered_whether_the_rules_here_have_it_or_not(lake: Lake) -> None:
    """They may have been changed since this began to deliver, or before it did."""
    lake.staging.sync([[account(1, "1", "x")]], columns={"accounts": OF_ACCOUNTS})
    lake.deliver()
    _, key, value = account(2, "2", "y")
    more: Row = ("accounts", key, str(value).replace("}", ',"limit":7}'))
    lake.staging.sync([[more]], columns={"accounts": f"{OF_ACCOUNTS}, limit INT"})
    lake.deliver()
    found = [(one["id"], one["note"], one["limit"]) for one in lake.rows("accounts")]
    assert found == [(1, "x", None), (2, "y", 7)]


@pytest.mark.parametrize("made", ["id INT, balance DECIMAL(10, 4), note STRING", "id INT, Balance DECIMAL(10, 2)"])
def test_what_a_sync_made_of_another_type_is_refused_not_rounded(lake: Lake, made: str) -> None:
    lake.staging.sync([[account(1, "1.2345")]], columns={"accounts": made})
    with pytest.raises(UsageError, match=r"output accounts: sync 1 made '[bB]alance' as decimal.*zync replay"):
        lake.deliver()
    assert not (lake.folder / "accounts").exists()


def test_a_table_of_an_older_zync_gets_what_new_ones_are_made_with(lake: Lake) -> None:
    lake.staging.sync([[account(1, "1")]])
    lake.deliver()
    tag = "spark.databricks.delta.commitInfo.userMetadata"
    lake.spark.conf.set(tag, '{"zync": {"sync": 1}}')
    lake.spark.sql(f"ALTER TABLE delta.`{lake.folder}/accounts` UNSET TBLPROPERTIES ('zync.key', 'zync.apply')")
    lake.spark.conf.unset(tag)
    shutil.rmtree(lake.folder / "_deleted")
    lake.config("", ACCOUNTS.replace("value:id::int", "value:id::bigint"))  # which rewrites it
    for balance in ("2", "3"):
        lake.staging.sync([[account(1, balance)]])
        lake.deliver()
    assert [int(one["balance"]) for one in lake.rows("accounts")] == [3]
    assert DeltaTable(str(lake.folder / "accounts")).metadata().configuration["zync.key"] == "id"


def test_columns_may_come_and_go_and_types_may_not_change(lake: Lake) -> None:
    lake.staging.sync([[account(1, "1", "a")]])
    lake.deliver()
    more = ACCOUNTS + ", value:more::bigint AS more"
    lake.config("deliver: {tables: {accounts: {schema_changes: fail}}}\n", more)
    lake.staging.sync([[("accounts", '{"id":2}', '{"id":2,"balance":2,"note":null,"more":7}')]])
    with pytest.raises(UsageError, match="select 'more', which the table"):
        lake.deliver()
    lake.config("", more)
    lake.deliver()
    assert [(one["id"], one["more"]) for one in lake.rows("accounts")] == [(1, None), (2, 7)]
    lake.config("", more.replace("AS more", "AS More"))
    lake.staging.sync([[account(1, "4", "b"), account(4, "4")]])
    with pytest.raises(UsageError, match="select 'More', and the table at .* has 'more': call it that"):
        lake.deliver()
    lake.config("deliver: {tables: {accounts: {schema_changes: fail}}}\n")
    with pytest.raises(UsageError, match="do not select 'more' any more"):
        lake.deliver()
    lake.config("", "SELECT seqno, value:id::int AS id, value:note::string AS note")
    lake.deliver()
    found = [
        (one["id"], one["note"], one["balance"] and int(one["balance"]), one["more"]) for one in lake.rows("accounts")
    ]
    assert found == [(1, "b", None, None), (2, None, 2, 7), (4, None, None, None)]
    lake.config("deliver: {tables: {}}\n", ACCOUNTS.replace("value:id::int", "value:id::smallint"))
    with pytest.raises(UsageError, match=r"has it as int: cast it in the rule, before a sync makes it so"):
        explain(lake.spark, load(lake.staging.folder / "zync.yaml"))
    lake.staging.sync([[account(3, "3")]])
    with pytest.raises(UsageError, match=r"make 'id' a smallint, and the table at .* has it as int"):
        lake.deliver()


@pytest.mark.parametrize("layout", ["cluster_by", "partition_by"])
def test_a_wider_type_rewrites_the_table_once_as_if_made_anew(
    lake: Lake, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = ACCOUNTS.replace("id::int", "id::bigint").replace("decimal(10, 2)", "decimal(12, 3)")
    laid_out = f"deliver: {{tables: {{accounts: {{{layout}: [id]CHANGES}}}}}}\n"
    lake.config(laid_out.replace("CHANGES", ""))
    lake.staging.sync([[account(1, "1.25", "a"), account(2, "2"), account(3, "3")], [account(2, None)]])
    before = lake.deliver()
    old = lake.rows("accounts")
    lake.staging.sync([[account(3, "3.5"), account(4_000_000_000, "4.125")]])
    lake.config(laid_out.replace("CHANGES", ", schema_changes: fail"), wider)
    with pytest.raises(UsageError, match=r"make 'id' a bigint, .* has it as int: schema_changes is fail"):
        lake.deliver()
    lake.config(laid_out.replace("CHANGES", ""), wider)
    with monkeypatch.context() as cut:
        cut.setattr(apply._Apply, "upsert", _interrupt)  # noqa: SLF001
        with pytest.raises(KeyboardInterrupt):
            lake.deliver()
    table = DeltaTable(str(lake.folder / "accounts"))
    assert table.transaction_version(f"zync/delivered/{before.staging}") == before.sync
    lake.deliver()
    table.update_incremental()
    replaced = "CREATE OR REPLACE TABLE AS SELECT"
    assert [one["operation"] for one in table.history(3)] == ["MERGE", replaced, "WRITE"]
    found = [(one["id"], str(one["balance"]), one["note"]) for one in lake.rows("accounts")]
    assert found == [(1, "1.250", "a"), (3, "3.500", None), (4_000_000_000, "4.125", None)]
    assert lake.rows("accounts", before.versions["accounts"]) == old
    detail = lake.spark.sql(f"DESCRIBE DETAIL delta.`{lake.folder / 'accounts'}`").collect()[0]
    assert [detail["clusteringColumns"], detail["partitionColumns"]][layout == "partition_by"] == ["id"]

    lake.staging.sync([[account(2, "5"), account(1, None)]])
    lake.deliver()
    table.update_incremental()
    assert [one["operation"] for one in table.history(2)] == ["MERGE", "MERGE"]
    assert table.version() == before.versions["accounts"] + 3
    widened, known = lake.rows("accounts"), DeltaTable(str(lake.folder / "accounts")).schema()
    lake.folder.rename(lake.folder.with_name("widened"))
    lake.deliver()
    assert lake.rows("accounts") == widened
    assert DeltaTable(str(lake.folder / "accounts")).schema() == known


def _interrupt(_: object) -> None:
    raise KeyboardInterrupt


def test_what_is_nested_is_the_same_the_next_time(lake: Lake) -> None:
    """Rules make lists and structs whose parts are never null, and no table says so of its own."""
    note = "split(value:note::string, ',') AS note, named_struct('x', 1, 'of', array(seqno)) AS nested"
    lake.config(accounts=f"SELECT seqno, value:id::int AS id, {note}")
    for number in (1, 2, 3):
        key, value = json.dumps({"id": number}), f'{{"id":{number},"note":["a","b"],"nested":{{"x":1,"of":[7]}}}}'
        lake.staging.sync([[("accounts", key, value)]])
        lake.deliver()
    assert [(one["id"], one["note"], one["nested"]) for one in lake.rows("accounts")] == [
        (number, ["a", "b"], {"x": 1, "of": [7]}) for number in (1, 2, 3)
    ]


def test_which_types_are_wider() -> None:
    from pyspark.sql.types import _parse_datatype_string  # noqa: PLC0415

    def wider(was: str, to: str, *, is_key: bool = False) -> bool:
        return is_wider(_kind(to), _kind(was), is_key=is_key)

    def _kind(text: str) -> Any:
        return _parse_datatype_string(text)

    for was, to in (
        ("tinyint", "smallint"),
        ("int", "bigint"),
        ("int", "decimal(10, 0)"),
        ("bigint", "decimal(21, 2)"),
    ):
        assert wider(was, to)
        assert not wider(to, was)
    assert wider("int", "double")
    assert not wider("int", "double", is_key=True)
    assert wider("decimal(10, 2)", "decimal(12, 3)")
    assert not wider("decimal(10, 2)", "decimal(12, 3)", is_key=True)
    assert wider("decimal(10, 2)", "decimal(12, 2)", is_key=True)
    for was, to in (("bigint", "double"), ("float", "double"), ("decimal(10, 2)", "decimal(10, 3)"), ("string", "int")):
        assert not wider(was, to)
    assert wider("int", "string")
    assert wider("array<int>", "array<string>")
    assert not wider("int", "string", is_key=True)


def test_rules_that_make_no_table_are_the_users_mistake(lake: Lake) -> None:
    lake.staging.sync([[row("accounts", 1)]])
    for column, says in (
        ("1 AS _seqno", "selects '_seqno', which is a column of zync's own"),
        ("1 AS _LEFT_out", "selects '_LEFT_out', which is a column of zync's own"),
        ("1 AS _deleted", "selects '_deleted', which is a column of zync's own"),
        ("1 AS _known_note", "selects '_known_note', which is a column of zync's own"),
        ("1 AS `a b`", "selects 'a b', and tables have no ' ' in the name of a column"),
        ("map(1, 2) AS pairs", "column 'pairs' is map<int,int>: cast its keys to string"),
    ):
        lake.config("", f"{ACCOUNTS}, {column}")
        with pytest.raises(UsageError, match=says):
            lake.deliver()
    lake.config("", "SELECT seqno, value:id AS id")
    with pytest.raises(UsageError, match="column 'id' is variant, by which no row is found: cast it"):
        lake.deliver()
    lake.config("deliver: {tables: {history: {cluster_by: [iid]}}}\n")
    with pytest.raises(
        UsageError, match=r"deliver.tables.history.cluster_by: 'iid' is no column of it: \['_deleted', "
    ):
        lake.deliver()
    lake.config()
    config = lake.staging.folder / "zync.yaml"
    config.write_text(config.read_text().replace("topic: history", "topic: Accounts"))
    with pytest.raises(UsageError, match="outputs 'accounts' and 'Accounts' are alike but for case"):
        lake.deliver()
    lake.config("deliver: {tables: {history: {apply: upsert}}}\n")
    with pytest.raises(UsageError, match="has no key, which apply: upsert needs"):
        lake.deliver()


@pytest.mark.parametrize("kind", ["upsert", "history"])
def test_what_is_nested_may_gain_fields(lake: Lake, kind: str) -> None:
    """As databases' JSON does; and the rule of before may be put back until a sync has made it so."""

    def rule(more: str) -> str:
        one = f"struct(value:p::bigint AS p, value:at::timestamp AS at{more})"
        return f"SELECT seqno, value:id::int AS id, {one} AS one, array({one}) AS many, value:s::string AS s"

    def made(key: int, **fields: Any) -> Row:
        one = json.dumps({"at": "2026-01-02T03:04:05.000006Z", **fields})
        return "accounts", f'{{"id":{key}}}', f'{{"id":{key},"one":{one},"many":[{one}],"s":"x"}}'

    said = f"deliver: {{tables: {{accounts: {{apply: {kind}}}}}}}\n"
    lake.config(said, rule(""))
    lake.staging.sync([[made(1, p=2**60 + 1)], [made(2, p=2)]])
    lake.deliver()
    lake.config(said, rule(", value:q::decimal(10, 2) AS q"))
    lake.staging.sync([[made(2, p=3, q=1.5)], [made(3, p=4, q=2.25)]])
    lake.deliver()
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    found = [(row["id"], row["one"], row["many"]) for row in lake.rows("accounts")]
    ones = [(1, 2**60 + 1, None), (2, 2, None), (2, 3, Decimal("1.50")), (3, 4, Decimal("2.25"))]
    wanted = [(key, {"p": p, "at": at, "q": q}, [{"p": p, "at": at, "q": q}]) for key, p, q in ones]
    assert found == [one for one in wanted if kind == "history" or one[1]["p"] != 2]
    lake.config(said, rule(""))
    with pytest.raises(UsageError, match="'one' a struct<p:bigint,at:timestamp>, and the table at .* has it as struct"):
        explain(lake.spark, load(lake.staging.folder / "zync.yaml"))
