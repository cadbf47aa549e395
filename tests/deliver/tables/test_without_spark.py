"""Batches that are applied without Spark give the tables that Spark's MERGE and append give."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from tests.deliver.conftest import Row, Staging
from tests.deliver.tables.conftest import Lake, account, history
from zync.deliver.tables import apply, delta_rs, without_spark, writer
from zync.deliver.tables.writer import Writer
from zync.errors import ZyncError
from zync.lake.commit import Commit
from zync.lake.delivered import APP
from zync.sql import literal

TYPES = {
    "customerID": "bigint",
    "name": "string",
    "größe": "decimal(15, 10)",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "flag": "boolean",
    "tiny": "tinyint",
    "data": "binary",
}
# What is between # is a number that a float would round.
VALUES: dict[str, list[Any]] = {
    "name": ["", "o'clock", 'a "b"', "\\", "größer", "x" * 5000, "\u0000", "🙂" * 40],
    "größe": ["#12345.0123456789#", "#-0.0000000001#", "#0.29#", 0],
    "day": ["2026-02-28", "0001-01-01", "9999-12-31"],
    "at": ["2026-03-29T01:30:00.000000Z", "1969-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.000001Z"],
    "local": ["2026-03-29T02:30:00.123456", "0001-01-01T00:00:00.000000", "9999-12-31T23:59:59.999999"],
    "flag": [True, False],
    "tiny": [-128, 127],
    "data": ["", "AP8="],
}
APPENDED_TYPES = {**TYPES, "ratio": "double"}
APPENDED_VALUES = {**VALUES, "ratio": [0.1, -1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 9007199254740993.5]}
"""With doubles, which delta-rs appends and does not merge."""


NOT_BY_DELTA_RS = ("größe", "flag", "data")
"""Columns by which delta-rs's own reader leaves out files that have a value: it rounds the statistics of decimals, and
takes for null what Spark writes no statistics of."""


def engines(lake: Lake, topic: str) -> list[str]:
    """What made the table's commits, the oldest first."""
    history = DeltaTable(str(lake.folder / topic)).history()
    return [str(commit.get("engineInfo", "")).partition(":")[0].partition("/")[0] for commit in reversed(history)]


def batches(key: list[str], values_by_name: dict[str, list[Any]]) -> Iterator[tuple[list[list[Row]], list[int]]]:
    """Inserts, updates and deletions at random, and their positions, out of order."""
    chance = random.Random(7)
    for _ in range(4):
        batch = []
        for _ in range(30):
            row = {"customerID": chance.choice([1, 2, 3, 4, 2**62, None])}
            row |= {name: chance.choice([*values, None]) for name, values in values_by_name.items()}
            value = None if chance.random() < 0.2 else as_json(row)
            batch.append([("accounts", as_json({name: row[name] for name in key}), value)])
        yield batch, chance.sample(range(1, 1000), 30)


def as_json(row: dict[str, Any]) -> str:
    return json.dumps(row).replace('"#', "").replace('#"', "")


APPENDED = "deliver: {tables: {accounts: {apply: append}}}\n"
WAYS = ("without Spark", "by delta-rs", "by Spark")
"""How a batch is applied: wholly without Spark, or typed by Spark and written by delta-rs, or wholly by Spark."""


@contextmanager
def applied(monkeypatch: pytest.MonkeyPatch, way: str) -> Iterator[None]:
    """Has batches applied in one of `WAYS`, by parts of a few rows where it is without Spark."""
    with monkeypatch.context() as patch:
        patch.setattr(delta_rs, "MAX_ROWS", 0 if way == "by Spark" else delta_rs.MAX_ROWS)
        if way == "without Spark":
            patch.setattr(apply, "_Apply", None)
            patch.setattr(without_spark, "_PARSED_ROWS", 7)
        else:
            patch.setattr(without_spark, "apply", lambda *_, **__: None)
        yield


@pytest.mark.parametrize("how", ["upsert", "append"])
@pytest.mark.parametrize("key", [["customerID"], ["name", "day"]])
def test_tables_are_as_spark_makes_them(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, key: list[str], how: str
) -> None:
    """Each type, nulls in keys, and rows that come late."""
    types, values = (APPENDED_TYPES, APPENDED_VALUES) if how == "append" else (TYPES, VALUES)
    columns = ", ".join(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in types.items())
    rows, deleted = {}, {}
    for way in WAYS:
        (tmp_path / way).mkdir()
        lake = Lake(Staging(tmp_path / way, "localhost:1"), spark)
        with applied(monkeypatch, way):
            more = f"deliver: {{tables: {{accounts: {{apply: {how}}}}}}}\n"
            lake.config(more, accounts=f"SELECT seqno, {columns}", key=", ".join(key))
            for batch, positions in batches(key, values):
                lake.staging.sync(batch, positions=iter(positions))
                lake.deliver()
        found = DeltaTable(str(lake.folder / "accounts")).to_pyarrow_table()
        rows[way] = sorted(found.to_pylist(), key=str)
        read_by_spark = spark.read.format("delta").load(str(lake.folder / "accounts")).toArrow()
        assert sorted(read_by_spark.select(found.column_names).to_pylist(), key=str) == rows[way]
        engine = "Apache-Spark" if way == "by Spark" else "delta-rs"
        assert {*engines(lake, "accounts")[2 if way == "by delta-rs" else 1 :]} == {engine}
        if how == "upsert":
            assert {*engines(lake, "_deleted/accounts")[1:]} == {engine}
            tombstones = DeltaTable(str(lake.folder / "_deleted" / "accounts")).to_pyarrow_table()
            deleted[way] = sorted(tombstones.to_pylist(), key=str)
    assert how == "append" or deleted["without Spark"] == deleted["by delta-rs"] == deleted["by Spark"] != []
    assert len(rows["by Spark"]) > 3
    assert rows["without Spark"] == rows["by delta-rs"] == rows["by Spark"]


def test_no_file_is_left_out_that_has_a_value(tmp_path: Path, spark: Any) -> None:
    """By the statistics in the log, which delta-rs writes: one row a file, that is looked for by each column."""
    lake = Lake(Staging(tmp_path, "localhost:1"), spark)
    columns = ", ".join(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in APPENDED_TYPES.items())
    lake.config(accounts=f"SELECT seqno, {columns}", key="customerID", more=APPENDED)
    for number in range(8):
        row = {"customerID": number, **{name: values[number % len(values)] for name, values in APPENDED_VALUES.items()}}
        lake.staging.sync([[("accounts", as_json({"customerID": number}), as_json(row))]])
        lake.deliver()
    assert engines(lake, "accounts")[2:] == ["delta-rs"] * 7
    location = str(lake.folder / "accounts")
    table = DeltaTable(location)
    rows, dataset = table.to_pyarrow_table(), table.to_pyarrow_dataset()
    by_spark = spark.read.format("delta").load(location)
    for name, kind in APPENDED_TYPES.items():
        counts = {one["values"]: one["counts"] for one in pc.value_counts(rows[name]).to_pylist()}
        for value, count in counts.items():
            text = f"X'{value.hex()}'" if isinstance(value, bytes) else f"CAST({literal(str(value))} AS {kind})"
            assert by_spark.where(f"`{name}` = {text}").count() == count, (name, value)
            if name not in NOT_BY_DELTA_RS:
                assert dataset.to_table(filter=ds.field(name) == pa.scalar(value, rows[name].type)).num_rows == count


def test_rows_are_appended_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.staging.sync([[history(1, "1.00")]])
    lake.deliver()
    lake.staging.sync([[history(2, "2.00")], [history(3, "3.00")]])
    lake.deliver()
    assert engines(lake, "history")[2:] == ["delta-rs"]
    lake.staging.sync([[history(number, "1.00")] for number in range(4, 10)])
    with applied(monkeypatch, "by Spark"):
        lake.deliver()
    assert engines(lake, "history")[3:] == ["Apache-Spark"]
    assert [row["id"] for row in lake.rows("history")] == [*range(1, 10)]


def test_of_a_transactions_rows_of_a_key_the_last_holds(lake: Lake) -> None:
    lake.staging.sync([[account(1, "0")]])
    lake.deliver()
    changes = [account(key, str(balance)) for balance in range(1, 20) for key in (1, 2, 3)]
    lake.staging.sync([[*changes, account(3, None)]], shuffled=random.Random(7), pieces=3)
    lake.deliver()
    assert engines(lake, "accounts")[-1] == "delta-rs"
    assert [(row["id"], int(row["balance"])) for row in lake.rows("accounts")] == [(1, 19), (2, 19)]


def test_a_batch_is_planned_anew_after_a_commit_of_another_process(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.staging.sync([[account(1, "1"), history(1, "1.00")]])
    lake.deliver()
    attempt, attempts = Commit.attempt, list[str]()

    def after_another(self: Commit, write: Any) -> Any:
        if "/tables/" in self.table.table_uri:
            attempts.append(self.table.table_uri)
            if len(attempts) < 3:
                DeltaTable(self.table.table_uri).alter.set_table_description(f"by another, {len(attempts)}")
        return attempt(self, write)

    monkeypatch.setattr(Commit, "attempt", after_another)
    lake.staging.sync([[account(1, "2"), account(2, "2"), history(2, "1.00")]])
    lake.deliver()
    assert [(row["id"], int(row["balance"])) for row in lake.rows("accounts")] == [(1, 2), (2, 2)]
    assert [row["id"] for row in lake.rows("history")] == [1, 2]


def test_two_rows_of_a_key_are_refused_as_by_spark(lake: Lake) -> None:
    lake.staging.sync([[account(1, "1")]])
    lake.deliver()
    lake.staging.sync([[("accounts", text, '{"id":1,"balance":2}')] for text in ('{"id":1}', '{"id": 1}')])
    with pytest.raises(ZyncError, match="output accounts could not be delivered .*MULTIPLE_SOURCE_ROW"):
        lake.deliver()


@pytest.mark.parametrize(
    "more", ["cluster_by: [note]", 'properties: {delta.compatibility.symlinkFormatManifest.enabled: "true"}']
)
def test_of_tables_with_more_to_them_spark_takes_care(lake: Lake, more: str) -> None:
    lake.config(f"deliver: {{tables: {{accounts: {{{more}}}}}}}\n")
    for number in range(2):
        lake.staging.sync([[account(number, "1", "a")]])
        lake.deliver()
    assert {*engines(lake, "accounts")} == {"Apache-Spark"}
    assert len(lake.rows("accounts")) == 2


def test_what_delta_rs_refuses_spark_writes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.staging.sync([[account(1, "1"), history(1, "1.00")]])
    lake.deliver()

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise DeltaError

    lake.staging.sync([[account(2, "2"), account(3, "3")]])
    lake.deliver()
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "merge", refuse)
        lake.staging.sync([[account(3, None)]])
        lake.deliver()
    assert engines(lake, "accounts")[-1] == "Apache-Spark"
    assert engines(lake, "_deleted/accounts")[-1] == "delta-rs"
    assert DeltaTable(str(lake.folder / "_deleted/accounts")).to_pyarrow_table().num_rows == 1
    monkeypatch.setattr(delta_rs, "write_deltalake", refuse)
    monkeypatch.setattr(DeltaTable, "merge", refuse)
    lake.staging.sync([[account(1, "2"), account(2, None), history(2, "1.00")]])
    lake.deliver()
    assert engines(lake, "_deleted/accounts")[-1] == "Apache-Spark"
    assert engines(lake, "accounts")[-1] == engines(lake, "history")[-1] == "Apache-Spark"
    assert [int(row["balance"]) for row in lake.rows("accounts")] == [2]


@pytest.mark.parametrize("name", [".id", "$id", "a.b", "a`b", "größe"])
def test_a_key_may_have_a_name_that_arrow_would_read_as_a_path(lake: Lake, name: str) -> None:
    column = f"`{name.replace('`', '``')}`"
    lake.config(accounts=f"SELECT seqno, value:id::int AS {column}, value:x::int AS x", key=json.dumps(name))
    for number in (1, 2, 3):
        rows = {1: number, 2: number if number < 3 else None}
        lake.staging.sync(
            [
                [("accounts", json.dumps({name: key}), None if x is None else json.dumps({name: key, "x": x}))]
                for key, x in rows.items()
            ]
        )
        lake.deliver()
    assert DeltaTable(str(lake.folder / "accounts")).to_pyarrow_table()["x"].to_pylist() == [3]
    assert engines(lake, "accounts")[2:] == ["delta-rs"] * 2


def test_texts_that_would_take_much_memory_are_sparks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.staging.sync([[account(1, "1", "a")]])
    lake.deliver()
    monkeypatch.setattr(without_spark, "_MOST_BYTES", 5000)
    applied, by_spark = list[Any](), apply._Apply  # noqa: SLF001
    monkeypatch.setattr(apply, "_Apply", lambda *args, **options: applied.append(args) or by_spark(*args, **options))
    for number, note in ((1, "b"), (2, "x" * 10_000)):
        lake.staging.sync([[account(1, str(number), note)]])
        lake.deliver()
        assert len(applied) == number - 1
    assert [row["note"] for row in lake.rows("accounts")] == ["x" * 10_000]


def test_what_is_not_as_zync_writes_it_is_sparks_and_in_the_table_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is met when rows before it are written already."""
    monkeypatch.setattr(without_spark, "_PARSED_ROWS", 1)
    single_quotes = ("history", None, "{'id':2,'delta':2.00}")
    for synced, ids in ((1, [1, 2, 3]), (2, [1, 1, 2, 2, 3, 3])):  # a new table, and one that is there
        lake.staging.sync([[history(1, "1.00"), single_quotes, history(3, "3.00")]])
        lake.deliver()
        assert engines(lake, "history")[synced] == "Apache-Spark"
        assert [row["id"] for row in lake.rows("history")] == ids


def test_a_table_that_another_process_makes_and_fills_meanwhile_is_looked_at_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Writer._create  # noqa: SLF001

    def after_another(writer: Writer, columns: Any) -> None:
        create(writer, columns)
        row = {"id": 1, "delta": Decimal("1.00"), "_position": 0, "_seqno": 1, "_deleted": False}
        schema = pa.schema(DeltaTable(writer.target.location).schema().to_arrow())
        rows = pa.Table.from_pylist([row] if writer.target.topic == "history" else [], schema)
        transaction = Transaction(f"{APP}{writer.staging}", writer.upto)
        properties = CommitProperties({"userMetadata": writer._tag}, app_transactions=[transaction])  # noqa: SLF001
        write_deltalake(writer.target.location, rows, mode="append", commit_properties=properties)

    monkeypatch.setattr(Writer, "_create", after_another)
    lake.staging.sync([[history(1, "1.00")]])
    lake.deliver()
    assert [len(engines(lake, topic)) for topic in ("accounts", "history")] == [2, 2]
    assert [row["id"] for row in lake.rows("history")] == [1]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_doubles_that_are_not_finite_are_sparks(lake: Lake, value: str) -> None:
    """Of whose files neither Spark nor delta-rs leaves out any."""
    lake.config(APPENDED, accounts="SELECT seqno, value:id::int AS id, CAST(NULL AS double) AS x")
    for number, x in enumerate(("1.5", f'"{value}"', "2.5")):
        lake.staging.sync([[("accounts", f'{{"id":{number}}}', f'{{"id":{number},"x":{x}}}')]])
        lake.deliver()
    assert engines(lake, "accounts")[1:] == ["delta-rs", "Apache-Spark", "delta-rs"]
    by_spark = lake.spark.read.format("delta").load(str(lake.folder / "accounts"))
    assert [row.x for row in by_spark.orderBy("id").collect() if row.id != 1] == [1.5, 2.5]
    assert by_spark.where(f"x = double('{value}')").count() == 1


def test_a_table_that_was_made_and_not_filled_gets_properties_and_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill in between, and a change of the config."""

    def killed(*_: Any) -> NoReturn:
        raise SystemExit

    lake.staging.sync([[account(1, "1")]])
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append_by_delta_rs", killed)
        with pytest.raises(SystemExit):
            lake.deliver()
    assert DeltaTable(str(lake.folder / "accounts")).version() == 0
    lake.config("deliver: {tables: {accounts: {properties: {team.owner: data}}}}\n")
    lake.deliver()
    assert DeltaTable(str(lake.folder / "accounts")).metadata().configuration["team.owner"] == "data"
    assert [row["id"] for row in lake.rows("accounts")] == [1]


@pytest.mark.parametrize(
    ("kind", "first", "engine"),
    [("int", "1", "delta-rs"), ("double", "1.5", "delta-rs"), ("double", '"NaN"', "Apache-Spark")],
)
def test_small_files_are_put_together_by_what_writes_all_rows_as_spark_does(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str, first: str, engine: str
) -> None:
    monkeypatch.setattr(writer, "MANY", 3)
    lake.config(APPENDED, accounts=f"SELECT seqno, value:id::int AS id, value:x::{kind} AS x")
    for number in range(6):
        x = 1 if number else first
        lake.staging.sync([[("accounts", f'{{"id":{number}}}', f'{{"id":{number},"x":{x}}}')]])
        lake.deliver()
    commits = DeltaTable(str(lake.folder / "accounts")).history()
    (compaction,) = [commit for commit in commits if commit["operation"] == "OPTIMIZE"]
    assert compaction["engineInfo"].startswith(engine)
    assert "zync" in compaction["userMetadata"]
    assert len(DeltaTable(str(lake.folder / "accounts")).file_uris()) == 3
    assert [row["id"] for row in lake.rows("accounts")] == [*range(6)]


def test_small_files_between_large_ones_are_put_together_by_spark(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs leaves alone what has no small neighbour."""
    lake.config(APPENDED)
    for number in range(4):
        lake.staging.sync([[account(number, "1", "ab" * 20_000 if number % 2 else "a")]])
        lake.deliver()
    sizes = sorted(pa.table(DeltaTable(str(lake.folder / "accounts")).get_add_actions())["size_bytes"].to_pylist())
    monkeypatch.setattr(delta_rs, "_COMPACTED_BYTES", sizes[2])
    monkeypatch.setattr(writer, "MANY", 3)
    lake.staging.sync([[account(4, "1", "a")]])
    lake.deliver()
    assert engines(lake, "accounts")[-1] == "Apache-Spark"
    assert [row["id"] for row in lake.rows("accounts")] == [*range(5)]


def test_what_cannot_be_read_is_no_fault_of_the_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """While rows are appended they are read: an error then is that of the reading, and Spark is not asked."""

    def fails(*_: Any) -> NoReturn:
        msg = "no answer"
        raise OSError(msg)

    lake.staging.sync([[history(1, "1.00")]])
    monkeypatch.setattr(without_spark, "_parsed", fails)
    monkeypatch.setattr(apply, "_Apply", None)
    with pytest.raises(OSError, match="no answer"):
        lake.deliver()


def test_of_long_texts_the_log_has_the_beginning(lake: Lake) -> None:
    for number in (1, 2):
        lake.staging.sync([[account(number, "1", "x" * 5000)]])
        lake.deliver()
    log = sorted((lake.folder / "accounts" / "_delta_log").glob("*.json"))
    assert engines(lake, "accounts")[1:] == ["delta-rs"] * 2
    assert all(len(entry.read_text()) < 5000 for entry in log)
