"""What Debezium left out is null where rules see it; rows that are made of it say so, or are set aside."""

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.left_out import CODE, LEFT_OUT, Database, Output, Table, change, end_of, outputs, table
from tests.conftest import rows
from zync.operate.decide import decide
from zync.sync.syncer import Syncer
from zync.transactions import gather

Seen = Callable[[str], list[Output]]
COMPUTED = {
    "shout": "upper(row:note::string)",
    "size": "length(row:note::string)",
    "doc": "parse_json(row:json::string)",
    "named": "named_struct('a', row:note::string, 'b', lower(row:note::string))",
    "days": "transform(row:days::array<int>, day -> date_add(DATE'1970-01-01', day))",
}
COMPUTING = ", ".join(f"{text} AS {column}" for column, text in COMPUTED.items())
BASE64 = b64encode(LEFT_OUT.encode()).decode()
FORMS = {
    "text": LEFT_OUT,
    "base64": BASE64,
    "hex": LEFT_OUT.encode().hex(),
    "texts": [LEFT_OUT],
    "blobs": [BASE64],
    "uuids": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    "numbers": CODE,
    "floats": [float(one) for one in CODE],
    "decimals": [b64encode(bytes([one])).decode() for one in CODE],
    "hstore": {LEFT_OUT: LEFT_OUT},
}
REAL = {
    "quoted": f'"{LEFT_OUT}"',
    "nested": {"a": LEFT_OUT},
    "many": [LEFT_OUT, LEFT_OUT],
    "null": None,
    "payload": 1,
}
WHOLE = change("u", 1, **FORMS, **REAL)
PLANS = {
    "with": "WITH a AS (SELECT seqno, row AS r FROM {table}), "
    "b AS (SELECT seqno, r:id::int AS id, r:note::string AS x, "
    "r:n::int AS n FROM a) SELECT seqno, id, upper(x) AS shout, n FROM b WHERE n > 0",
    "subquery": "SELECT seqno, id, upper(x) AS shout, n FROM (SELECT *, row:note::string AS x, row:id::int AS id, "
    "row:n::int AS n FROM {table}) ORDER BY n",
    "join": "SELECT d.seqno, row:id::int AS id, concat(row:note::string, '!') AS shout, row:n::int AS n "
    "FROM {table} d LEFT JOIN (SELECT 1 AS n, 'x' AS name) l ON d.row:n::int = l.n",
    "path": "SELECT seqno, variant_get(value, '$.after.id', 'int') AS id, "
    "upper(try_variant_get(after, '$[\"note\"]', 'string')) AS shout, value:after.n::int AS n FROM {table}",
}
LOOKING = (
    "CASE WHEN array_contains(left_out, 'note') THEN 'unknown' ELSE concat(row:n::string, row:note::string) END mixed"
)
PYTHON = """def rule(records):
    mine = records.where("topic = 'p.s.{table}' AND op IS NOT NULL")
    return mine.selectExpr('seqno', 'row:id::int AS id', 'row:n::int AS n', 'upper(row:note::string) AS shout')
"""


def in_connects_json(one: dict[str, Any]) -> dict[str, Any]:
    """The change with the schema beside it that Connect's converter writes."""
    date = {"type": "int32", "name": "io.debezium.time.Date"}
    row = {
        "id": {"type": "int32"},
        "body": {"type": "bytes"},
        "days": {"type": "array", "items": date},
        "on": date,
        "note": {"type": "string"},
    }
    source = {name: {"type": "string"} for name in ("version", "connector", "schema", "table")} | {
        "lsn": {"type": "int64"}
    }

    def struct(fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "struct", "fields": [{"field": name, "optional": True, **its} for name, its in fields.items()]}

    envelope = {"before": struct(row), "after": struct(row), "source": struct(source), "op": {"type": "string"}}
    schema = struct(envelope | {"ts_ms": {"type": "int64"}})
    return {**one, "value": {"schema": schema, "payload": one["value"]}}


SEEN = {
    "computed": table(
        f"SELECT seqno, row:id::int AS id, row:n::int AS n, row:note::string AS note, {COMPUTING} FROM {{table}}",
        change("c", 1, n=1, note="long", json='{"a": 1}', days=[1, 2]),
        change("u", 1, n=2, note=LEFT_OUT, json=LEFT_OUT, days=CODE),
        change("u", 1, n=3, note=LEFT_OUT, json="[]", days=[3]),
    ),
    "forms": table(
        "SELECT seqno, row:id::int AS id, row, after, value, left_out FROM {table}",
        WHOLE,
        {**WHOLE, "value": {"schema": {}, "payload": WHOLE["value"]}},
        *(change("u", 1, **{one: form}) for one, form in FORMS.items()),
        change("c", 1, text=LEFT_OUT),  # what is new has all values: this is one
    ),
    "structs": table(
        "SELECT seqno, row.id, upper(row.note) AS note, row.days, row.size FROM {table}",
        change("u", 1, note=LEFT_OUT, days=LEFT_OUT, size=1.5),
        topic=', schema: "id INT, note STRING, days ARRAY<DATE>, size DECIMAL(10,2)"',
    ),
    **{
        f"plan_{name}": table(rule, change("u", 1, n=1, note=LEFT_OUT), change("u", 1, n=2, note="x"))
        for name, rule in PLANS.items()
    },
    "looking": Table(
        {
            "": f"SELECT seqno, row:id::int AS id, upper(row:note::string) AS shout, {LOOKING} FROM {{table}}",
            "_known": "SELECT seqno, row:id::int AS id, concat(row:n::string, row:note::string) AS mixed FROM {table} "
            "WHERE NOT array_contains(left_out, 'note')",
        },
        [[change("u", 1, n=1, note=LEFT_OUT), change("u", 1, n=2, note="x")]],
    ),
    "python": table(PYTHON, change("u", 1, n=1, note=LEFT_OUT)),
    "decoded": table(
        "SELECT seqno, row:id::int AS id, row:body::binary AS body, length(row:body::binary) AS size, "
        "row:days::array<date> AS days, row:on::date AS on FROM {table}",
        in_connects_json(change("u", 1, body="aGk=", days=[1], on=20000, note="x")),
        in_connects_json(change("u", 1, body=BASE64, days=CODE, on=20000, note=LEFT_OUT)),
        topic=", value: connect-json",
    ),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Seen:
    """What one sync made of the tables of SEEN, by output: each row's value, and what was left out of it."""
    database = Database(tmp_path_factory.mktemp("seen"), spark, SEEN)
    database.take()
    staging = database.sync()
    return lambda output: outputs(staging, output)


def test_a_rule_that_computes_on_what_was_left_out_makes_rows_that_say_so(seen: Seen) -> None:
    first, second, third = seen("computed")
    assert first == (
        {
            "id": 1,
            "n": 1,
            "note": "long",
            "shout": "LONG",
            "size": 4,
            "doc": {"a": 1},
            "named": {"a": "long", "b": "long"},
            "days": ["1970-01-02", "1970-01-03"],
        },
        [],
    )
    nothing = dict.fromkeys(COMPUTED)
    assert second == ({"id": 1, "n": 2, "note": LEFT_OUT, **nothing}, ["note", *COMPUTED])
    assert third[1] == ["note", "shout", "size", "named"]
    assert (third[0]["doc"], third[0]["days"]) == ([], ["1970-01-04"])


def test_a_placeholder_in_any_form_is_null_where_rules_see_it(seen: Seen) -> None:
    """Of text, bytea by each mode, arrays of text, UUIDs, bytes, numbers, dates and decimals, and hstore."""
    whole, wrapped, *single, new = (value for value, _ in seen("forms"))
    for value, envelope in ((whole, whole["value"]), (wrapped, wrapped["value"]["payload"])):
        assert value["row"] == value["after"] == {"id": 1, **dict.fromkeys(FORMS), **REAL}
        assert envelope["after"] == {"id": 1, **FORMS, **REAL}  # as it came
        assert value["left_out"] == sorted(FORMS)
    assert [(one["row"], one["left_out"]) for one in single] == [({"id": 1, name: None}, [name]) for name in FORMS]
    assert (new["row"], new["left_out"]) == ({"id": 1, "text": LEFT_OUT}, [])


def test_a_struct_by_the_topics_schema_has_null_there(seen: Seen) -> None:
    assert seen("structs") == [({"id": 1, "note": None, "days": None, "size": 1.5}, ["note", "days"])]


@pytest.mark.parametrize("rule", PLANS)
def test_what_a_column_is_made_of_is_seen_through_the_whole_plan(seen: Seen, rule: str) -> None:
    (first, left_out), (second, none) = seen(f"plan_{rule}")
    assert (first, left_out, none) == ({"id": 1, "shout": None, "n": 1}, ["shout"], [])
    assert second["shout"] in ("X", "x!")


def test_a_rule_that_looks_at_what_was_left_out_is_taken_at_its_word(seen: Seen) -> None:
    assert seen("looking") == [
        ({"id": 1, "shout": None, "mixed": "unknown"}, ["shout"]),
        ({"id": 1, "shout": "X", "mixed": "2x"}, []),
    ]
    assert seen("looking_known") == [({"id": 1, "mixed": "2x"}, [])]


def test_a_rule_in_python_is_no_exception(seen: Seen) -> None:
    assert seen("python") == [({"id": 1, "n": 1, "shout": None}, ["shout"])]


def test_values_that_a_schema_decodes_are_no_exception(seen: Seen) -> None:
    """Connect's JSON: dates become dates, and bytes bytes, before a rule sees them."""
    known, left_out = seen("decoded")
    assert known == ({"id": 1, "body": "aGk=", "size": 2, "days": ["1970-01-02"], "on": "2024-10-04"}, [])
    nothing = {"id": 1, "body": BASE64, "size": None, "days": None, "on": "2024-10-04"}
    assert left_out == (nothing, ["body", "size", "days"])


CONNECTORS = ("oracle", "sqlserver")


def of_connector(name: str, *changes: dict[str, Any]) -> Table:
    for one in changes:
        one["value"]["source"]["connector"] = name
    rule = "SELECT seqno, row:ID::int AS id, row:BODY::string AS body, length(row:BODY::string) AS size FROM {table}"
    return table(rule, *changes)


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> list[dict[str, Any]]:
    """Staging after a sync where connectors have another placeholder."""
    tables = {
        name: of_connector(name, *(change("u", 1, ID=1, BODY=body) for body in ("left out", LEFT_OUT)))
        for name in CONNECTORS
    }
    folder = tmp_path_factory.mktemp("renamed")
    database = Database(folder, spark, tables, said=", unavailable_value: left out")
    database.take()
    return database.sync()


@pytest.mark.parametrize("connector", CONNECTORS)
def test_other_connectors_and_other_placeholders_are_known(renamed: list[dict[str, Any]], connector: str) -> None:
    """Oracle's LOBs and SQL Server's columns of `max` types: the same text by default, and by the same option."""
    assert outputs(renamed, connector) == [
        ({"id": 1, "body": "left out", "size": None}, ["body", "size"]),
        ({"id": 1, "body": LEFT_OUT, "size": len(LEFT_OUT)}, []),
    ]


UNKNOWN = {
    "another field": "SELECT seqno, row:id::int AS id, concat(row:n::string, row:note::string) AS mixed FROM {table}",
    "the time": "SELECT seqno, row:id::int AS id, struct(ts, row:note::string) AS mixed FROM {table}",
    "the whole row": "SELECT seqno, row:id::int AS id, to_json(row) AS mixed FROM {table}",
    "a lookup": "SELECT seqno, row:id::int AS id, concat(row:note::string, l.name) AS mixed FROM {table} "
    "JOIN (VALUES ('x')) AS l(name)",
    "which rows": "SELECT seqno, row:id::int AS id FROM {table} WHERE row:note::string LIKE 'l%'",
    "the key": "SELECT seqno, upper(row:note::string) AS id FROM {table}",
    "a deletion": "SELECT seqno, row:id::int AS id, row:note::string IS NULL AS _delete FROM {table}",
    "a subquery": "SELECT seqno, row:id::int AS id FROM {table} d "
    "WHERE EXISTS (SELECT 1 FROM {table} e WHERE e.seqno = d.seqno AND e.row:note::string = 'long')",
    "an aggregate": "SELECT seqno, max(row:id::int) AS id, max(row:note::string) AS mixed FROM {table} GROUP BY seqno",
    "a union": "SELECT seqno, row:id::int AS id, row:note::string AS n FROM {table} UNION ALL "
    "SELECT seqno, row:id::int, row:n::string FROM {table}",
    "distinct": "SELECT DISTINCT seqno, row:id::int AS id, row:note::string AS note FROM {table}",
}
UNTOLD = {
    "a computed key": "concat('a', row:id::string)",
    "a key that no header names": "row:other::string",
}


def identifier(what: str) -> str:
    return what.replace(" ", "_")


def unknown(rule: str, known: list[dict[str, Any]], other: dict[str, Any]) -> Table:
    return Table({"": rule}, [known, [other]])


def unknown_of(what: str) -> Table:
    first, second = change("u", 1, n=1, note="long"), change("u", 2, n=2, note=LEFT_OUT, more="x")
    known = [first] if what == "the whole row" else [first, change("u", 3, n=3, note="long", more=LEFT_OUT)]
    return unknown(UNKNOWN[what], known, second)


ASIDE = {
    **{identifier(what): unknown_of(what) for what in UNKNOWN},
    "with_its_key": unknown(
        "SELECT seqno, row:id::int AS id, concat(row:id::string, key:id::string, row:note::string) AS x FROM {table}",
        [change("u", 1, note=LEFT_OUT)],
        change("c", 2, note=LEFT_OUT, old_key=1),
    ),
    **{
        identifier(what): unknown(
            f"SELECT seqno, {key} AS id, upper(row:note::string) AS shout FROM {{table}}",
            [change("u", 1, other="x", note=LEFT_OUT)],
            change("c", 2, other="x", note=LEFT_OUT, old_key=1),
        )
        for what, key in UNTOLD.items()
    },
}


class Aside:
    """Staging after one sync of ASIDE: a transaction of what is known of each table, and for each one that is not."""

    def __init__(self, folder: Path, spark: Any) -> None:
        known = [one for its in ASIDE.values() for one in its.steps[0]]
        for number, one in enumerate(known, start=1):
            one["value"]["transaction"] = {"id": "1:1", "total_order": number, "data_collection_order": 1}
        self.database = Database(folder, spark, ASIDE)
        self.database.take(end_of("1:1", {name: len(its.steps[0]) for name, its in ASIDE.items()}))
        self.database.take()
        self.staging = self.database.sync()

    def check(self, name: str, says: list[str]) -> None:
        """What is not known of that table is set aside, for a reason that says all that; the rest of it went out."""
        mine = {seqno for seqno, table in enumerate(self.database.table_of, start=1) if table == name}
        (aside,) = [one for one in self.staging if one["kind"] == "quarantined" and one["seqno"] in mine]
        assert [one for one in says if one not in aside["reason"]] == []
        (done,) = [one for one in self.staging if one["kind"] == "done"]
        out = [one for one in self.staging if one["kind"] == "output" and one["kafka"]["topic"] == name]
        assert {one["seqno"] for one in out} == {done["seqno"]}


@pytest.fixture(scope="module")
def aside(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Aside:
    return Aside(tmp_path_factory.mktemp("aside"), spark)


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_cannot_be_known_is_set_aside_with_the_way_out(aside: Aside, what: str) -> None:
    name = identifier(what)
    says = [f"{name}.sql", "note", "REPLICA IDENTITY FULL", *(["mixed"] if what == "the time" else [])]
    aside.check(name, says)


def test_with_what_an_update_cannot_have_changed_a_column_is_known(aside: Aside) -> None:
    ((_, left_out),) = outputs(aside.staging, "with_its_key")
    assert left_out == ["x"]
    aside.check("with_its_key", ["column x"])


@pytest.mark.parametrize("what", UNTOLD)
def test_a_row_whose_old_key_cannot_be_told_is_set_aside(aside: Aside, what: str) -> None:
    aside.check(identifier(what), ["another key", "note", "REPLICA IDENTITY FULL"])


def test_it_is_known_of_records_that_are_read_again_later(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a transaction that was in flight, and of one that is redriven when its rule was mended."""
    monkeypatch.setattr(gather, "RECENT", 0)
    first = change("u", 1, n=1, note=LEFT_OUT)
    first["value"]["transaction"] = {"id": "7:10", "total_order": 1, "data_collection_order": 1}
    rule = "SELECT seqno, row:id::int AS id, row:n::string || row:note::string AS mixed FROM docs"
    tables = {"docs": table(rule, first)}
    database = Database(tmp_path, spark, tables)
    database.take()
    database.sync()
    database.take(end_of("7:11", {"docs": 1}))
    (aside,) = [one for one in database.sync() if one["kind"] == "quarantined"]
    assert "column mixed" in aside["reason"]
    tables["docs"].rules[""] = "SELECT seqno, row:id::int AS id, upper(row:note::string) AS shout FROM docs"
    database.configure()
    decide(database.raw, ["7"], "redrive", "its rule was mended")
    Syncer(database.config, database.raw, database.staging, spark).sync()
    (out,) = [one for one in rows(tmp_path / "staging") if one["kind"] == "output"]
    assert (json.loads(out["value"]), out["state"]) == ({"id": 1, "shout": None}, '{"left_out":["shout"]}')
