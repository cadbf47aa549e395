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


@pytest.mark.parametrize("name", ["[a]{b}*?.csv", "a b%20.csv"])
def test_a_file_may_have_any_name_any_line_ends_and_a_mark(tmp_path: Path, spark: Any, name: str) -> None:
    file = tmp_path / name
    file.write_bytes('\ufeffid,name\r\n1,Änn\r\n\r\n2,"a, b"\n'.encode())
    bind(spark, "named", Lookup(csv=file))
    assert [tuple(row) for row in spark.table("named").collect()] == [(1, "Änn"), (2, "a, b")]


@pytest.mark.parametrize(("kind", "content"), [("csv", b"id\n1\n"), ("json", b'{"id":1}')])
def test_no_task_reads_the_file(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, kind: str, content: bytes
) -> None:
    """It is where this process is, and executors may be elsewhere: here it is nowhere once it was read."""
    file = tmp_path / f"names.{kind}"
    file.write_bytes(content)
    real = Path.read_bytes

    def read_and_removed(path: Path) -> bytes:
        found = real(path)
        path.unlink()
        return found

    monkeypatch.setattr(Path, "read_bytes", read_and_removed)
    bind(spark, "shipped", Lookup(**{kind: file}))
    assert [row.id for row in spark.table("shipped").collect()] == [1]


def test_only_the_first_line_is_the_header(tmp_path: Path, spark: Any) -> None:
    """Spark takes each line that is equal to it for one, if it is given lines and not a file."""
    file = tmp_path / "words.csv"
    file.write_text("\n  \ncode,word\na,b\ncode,word\n")
    bind(spark, "words", Lookup(csv=file))
    assert [tuple(row) for row in spark.table("words").collect()] == [("a", "b"), ("code", "word")]


@pytest.mark.parametrize(
    ("kind", "content", "says"),
    [
        ("csv", "id,name\n1,a\n2,b,lost\n", "names.csv:3: another number of columns than the header has: 2,b,lost"),
        ("csv", "id,name\n1,a\n2\n", "names.csv:3: another number of columns than the header has: 2"),
        ("csv", "id,name\n2\n1,a\n2\n", "names.csv:2: another number of columns than the header has: 2"),
        ("csv", "id,name\n1,a\n2\n\n2\n", "names.csv:3: another number of columns than the header has: 2"),
        ("csv", "\nid,ID\n1,2\n", "names.csv:2: two columns have the name 'id'"),
        ("csv", b"id,name\n1,\xff\n", "names.csv:2: not UTF-8: invalid start byte"),
        ("json", '{"id":1}\n{"id":2,\n', "names.json:2: not one JSON value: Expecting property name"),
        ("json", '{"id":1}\n\n{"id":2}{"id":3}\n', "names.json:3: not one JSON value: Extra data"),
        ("json", '{"id":1,"id":2}\n', 'names.json:1: not one JSON value: the key "id" is there twice'),
        ("json", '{"id":1}\n' + "[" * 100_000 + "]" * 100_000, "names.json:2: not one JSON value: it is nested too"),
        ("json", '{"id":1}\n5\n', "invalid type of a JSON record"),
    ],
)
def test_a_line_that_is_none_makes_a_lookup_that_cannot_be_read(
    tmp_path: Path, spark: Any, kind: str, content: str | bytes, says: str
) -> None:
    file = tmp_path / f"names.{kind}"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
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
