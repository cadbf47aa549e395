"""Lookup tables: rules join them, and each is pinned to one content, the one whose digest the sync commits."""

import hashlib
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import Lookup
from zync.errors import UsageError
from zync.rules import lookups
from zync.rules.lookups import bind


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [("csv", "id,name\n1,Ann\n", "id,name\n2,Bob\n"), ("json", '{"id":1,"name":"Ann"}', '{"id":2,"name":"Bob"}')],
)
def test_a_file_that_is_replaced_meanwhile_does_not_change_what_a_sync_sees(
    tmp_path: Path, spark: Any, kind: str, before: str, after: str
) -> None:
    file = tmp_path / f"names.{kind}"
    file.write_text(before)
    lookup = Lookup(**{kind: file})
    assert bind(spark, "pinned", lookup) == digest(before)
    file.write_text(after)
    for _ in range(2):
        assert [(row.id, row.name) for row in spark.table("pinned").collect()] == [(1, "Ann")]
    assert bind(spark, "pinned", lookup) == digest(after)
    assert [(row.id, row.name) for row in spark.table("pinned").collect()] == [(2, "Bob")]


def test_types_are_those_that_spark_infers(tmp_path: Path, spark: Any) -> None:
    csv = tmp_path / "types.csv"
    csv.write_text("i,n,d,day,t,s\n1,10000000000,1.5,2026-01-31,true,x\n2,,,,,\n")
    bind(spark, "types", Lookup(csv=csv))
    inferred = spark.read.csv(str(csv), header=True, inferSchema=True)
    assert spark.table("types").schema == inferred.schema
    assert spark.table("types").collect() == inferred.collect()
    json = tmp_path / "types.json"
    json.write_text('{"a":[{"b":1.25}],"day":"2026-01-31"}\n{"a":null}\n')
    bind(spark, "nested", Lookup(json=json))
    rows = spark.sql("SELECT a[0].b::decimal(4, 2) AS b, day::date AS day FROM nested").collect()
    assert [tuple(row) for row in rows] == [(Decimal("1.25"), date(2026, 1, 31)), (None, None)]


def test_a_file_without_rows_has_its_columns(tmp_path: Path, spark: Any) -> None:
    csv = tmp_path / "empty.csv"
    csv.write_text("id,name\n")
    bind(spark, "empty", Lookup(csv=csv))
    assert spark.table("empty").columns == ["id", "name"]
    assert spark.table("empty").count() == 0


def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real, contents = tmp_path / "names.csv", lookups._digest, iter(["x\n1\n", "x\n2\n", "x\n3\n"])  # noqa: SLF001

    def replaced_meanwhile(path: Path) -> str:
        found = real(path)
        if content := next(contents, None):
            file.write_text(content)
        return found

    file.write_text("x\n0\n")
    monkeypatch.setattr(lookups, "_digest", replaced_meanwhile)
    assert bind(spark, "busy", Lookup(csv=file)) == digest("x\n3\n")
    assert [row.x for row in spark.table("busy").collect()] == [3]
    file.write_text("x\n-1\n")
    contents = iter(f"x\n{number}\n" for number in range(4, 100))
    with pytest.raises(UsageError, match=r"lookup 'busy' cannot be read: .*names\.csv changed each of 5 times"):
        bind(spark, "busy", Lookup(csv=file))


@pytest.mark.parametrize(
    ("kind", "content", "says"),
    [
        ("csv", "id,name\n1,a\n2,b,lost\n", "Malformed CSV record: 2,b,lost"),
        ("csv", "id,name\n1,a\n2\n", "Malformed CSV record: 2"),
        ("json", '{"id":1}\n{"id":2,\n', "names.json:2: not one JSON value: Expecting property name"),
        ("json", '{"id":1}\n\n{"id":2}{"id":3}\n', "names.json:3: not one JSON value: Extra data"),
        ("json", '{"id":1,"id":2}\n', 'names.json:1: not one JSON value: the key "id" is there twice'),
        ("json", '{"id":1}\n' + "[" * 100_000 + "]" * 100_000, "names.json:2: not one JSON value: it is nested too"),
        ("json", '{"id":1}\n5\n', "invalid type of a JSON record"),
    ],
)
def test_a_line_that_is_none_makes_a_lookup_that_cannot_be_read(
    tmp_path: Path, spark: Any, kind: str, content: str, says: str
) -> None:
    file = tmp_path / f"names.{kind}"
    file.write_text(content)
    with pytest.raises(UsageError, match=f"lookup 'broken' cannot be read: .*{says}"):
        bind(spark, "broken", Lookup(**{kind: file}))


@pytest.fixture
def names(pipeline: Pipeline, txn: Any) -> Path:
    """The file of a lookup table that the rule joins; there was a sync with it."""
    file = pipeline.folder / "names.csv"
    file.write_text("x,name\n1,one\n2,two\n")
    pipeline.change(lookups={"names": Lookup(csv=file)})
    pipeline.rules(out="SELECT seqno, n.name FROM records r JOIN names n ON n.x = r.value:x::int")
    pipeline.load(("a", txn(1, x=2)))
    pipeline.sync()
    return file


def test_lookups_are_joined_and_a_missing_one_stops_the_sync(pipeline: Pipeline, txn: Any, names: Path) -> None:
    assert pipeline.values() == [{"name": "two"}]
    names.unlink()
    pipeline.load(("a", txn(2, x=1)))
    with pytest.raises(UsageError, match="lookup 'names' cannot be read"):
        pipeline.sync()
    assert len(pipeline.of("cursor")) == 1


def test_where_nothing_goes_out_no_rule_runs_and_what_is_on_record_stays(
    pipeline: Pipeline, txn: Any, names: Path
) -> None:
    names.rename(pipeline.folder / "away.csv")  # who asked for it would fail
    pipeline.load(("a", txn(2, 2, x=1)))
    assert pipeline.sync().in_flight == 1
    first, second = sorted(pipeline.of("cursor"), key=lambda row: row["sync"])
    assert first["digests"] == second["digests"]
    assert first["state"] == second["state"] != '{"columns":{}}'
    (pipeline.folder / "away.csv").rename(names)
    pipeline.load(("a", txn(2, 2, x=2)))
    pipeline.sync()
    assert sorted(one["name"] for one in pipeline.values()) == ["one", "two", "two"]
    pipeline.rules(out="SELECT seqno, no_such FROM records")
    pipeline.load(("a", txn(3, 2, x=1)))
    with pytest.raises(UsageError, match="no_such"):  # a changed rule is looked at all the same
        pipeline.sync()
