"""What Debezium left out is null where rules see it; what they make of it keeps its value, or is set aside by name."""

import json
import threading
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import rows
from zync.deliver.tables.delivery import sync_to_tables
from zync.operate.decide import decide
from zync.project.load import load as load_config
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer
from zync.transactions import gather

LEFT_OUT = "__debezium_unavailable_value"
CODE = list(LEFT_OUT.encode())


class Database:
    """A table `docs` of PostgreSQL's, read by Debezium: each change is a transaction by itself."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark, self.lsn = folder, spark, 0
        self.records: list[dict[str, Any]] = []

    def rules(self, config: str = "", said: str = "", key: str = "id", **texts: str) -> None:
        """Rules by the output that they make; `config`: more of it."""
        outputs = []
        for topic, text in texts.items():
            (self.folder / f"{topic}.sql").write_text(text)
            outputs.append(f"{{topic: {topic}, sql: {topic}.sql, key: [{key}]}}")
        transactions = f"transactions: {{preset: debezium, topic: p.transaction{said}}}\n"
        more = config or "topics: {p.s.docs: {as: docs}}\n"
        (self.folder / "zync.yaml").write_text(f"{transactions}outputs: [{', '.join(outputs)}]\n{more}")

    def change(self, op: str, key: int, wrap: bool = False, old_key: int | None = None, **row: Any) -> None:
        self.lsn += 10
        image = {"id": key, **row}
        source = {"version": "3.7.0.Final", "connector": "postgresql", "schema": "s", "table": "docs", "lsn": self.lsn}
        before, after = (image, None) if op == "d" else (None, image)
        value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_000}
        text = json.dumps({"schema": {}, "payload": value} if wrap else value, separators=(",", ":"))
        headers = [["__debezium.oldkey", json.dumps({"id": old_key})]] if old_key is not None else []
        place = {"topic": "p.s.docs", "key": json.dumps({"id": key}), "headers": headers}
        self.records.append({**place, "value": text})

    def sync(self) -> list[dict[str, Any]]:
        """Syncs what was changed since the last time. All rows of staging."""
        (self.folder / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in self.records))
        self.records = []
        raw, staging = str(self.folder / "raw"), str(self.folder / "staging")
        load(raw, [str(self.folder / "in.jsonl")])
        Syncer(load_config(self.folder / "zync.yaml"), raw, staging, self.spark).sync()
        return rows(self.folder / "staging")

    def outputs(self) -> list[tuple[Any, list[str]]]:
        """Of each output row of a sync of what was changed: its value, and the columns that were left out of it."""
        found = [one for one in self.sync() if one["kind"] == "output"]
        found.sort(key=lambda one: (one["seqno"], one["kafka"]["topic"]))
        return [(json.loads(one["value"]), json.loads(one["state"] or "{}").get("left_out", [])) for one in found]

    def deliver(self, topic: str) -> list[dict[str, Any]]:
        """The table of that topic after what was changed was synced and delivered."""
        self.sync()
        config, tables = load_config(self.folder / "zync.yaml"), str(self.folder / "tables")
        staging = str(self.folder / "staging")
        sync_to_tables(self.spark, config, staging, tables, threading.Event(), until_caught_up=True)
        found = DeltaTable(f"{tables}/{topic}").to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda one: (one["id"], one["_position"]))


@pytest.fixture
def database(tmp_path: Path, spark: Any) -> Database:
    return Database(tmp_path, spark)


def assert_set_aside(staging: list[dict[str, Any]], *says: str) -> None:
    """One transaction is, for a reason that says all that; the others went out."""
    (aside,) = [one for one in staging if one["kind"] == "quarantined"]
    for one in says:
        assert one in aside["reason"]


COMPUTED = {
    "shout": "upper(row:note::string)",
    "size": "length(row:note::string)",
    "doc": "parse_json(row:json::string)",
    "named": "named_struct('a', row:note::string, 'b', lower(row:note::string))",
    "days": "transform(row:days::array<int>, day -> date_add(DATE'1970-01-01', day))",
}


def test_a_rule_that_computes_on_what_was_left_out_makes_rows_that_say_so(database: Database) -> None:
    computed = ", ".join(f"{text} AS {column}" for column, text in COMPUTED.items())
    database.rules(
        docs=f"SELECT seqno, row:id::int AS id, row:n::int AS n, row:note::string AS note, {computed} FROM docs"
    )
    database.change("c", 1, n=1, note="long", json='{"a": 1}', days=[1, 2])
    database.change("u", 1, n=2, note=LEFT_OUT, json=LEFT_OUT, days=CODE)
    database.change("u", 1, n=3, note=LEFT_OUT, json="[]", days=[3])
    first, second, third = database.outputs()
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


def test_a_placeholder_in_any_form_is_null_where_rules_see_it(database: Database) -> None:
    """Of text, bytea by each mode, arrays of text, UUIDs, bytes, numbers, dates and decimals, and hstore."""
    base64 = b64encode(LEFT_OUT.encode()).decode()
    forms = {
        "text": LEFT_OUT,
        "base64": base64,
        "hex": LEFT_OUT.encode().hex(),
        "texts": [LEFT_OUT],
        "blobs": [base64],
        "uuids": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        "numbers": CODE,
        "floats": [float(one) for one in CODE],
        "decimals": [b64encode(bytes([one])).decode() for one in CODE],
        "hstore": {LEFT_OUT: LEFT_OUT},
    }
    real = {
        "quoted": f'"{LEFT_OUT}"',
        "nested": {"a": LEFT_OUT},
        "many": [LEFT_OUT, LEFT_OUT],
        "null": None,
        "payload": 1,
    }
    database.rules(docs="SELECT seqno, row:id::int AS id, row, after, value, left_out FROM docs")
    database.change("u", 1, **forms, **real)
    database.change("u", 1, wrap=True, **forms, **real)
    for one, form in forms.items():
        database.change("u", 1, **{one: form})
    database.change("c", 1, text=LEFT_OUT)  # what is new has all values: this is one
    whole, wrapped, *single, new = (value for value, _ in database.outputs())
    for value, envelope in ((whole, whole["value"]), (wrapped, wrapped["value"]["payload"])):
        assert value["row"] == value["after"] == {"id": 1, **dict.fromkeys(forms), **real}
        assert envelope["after"] == {"id": 1, **forms, **real}  # as it came
        assert value["left_out"] == sorted(forms)
    assert [(one["row"], one["left_out"]) for one in single] == [({"id": 1, name: None}, [name]) for name in forms]
    assert (new["row"], new["left_out"]) == ({"id": 1, "text": LEFT_OUT}, [])


def test_a_struct_by_the_topics_schema_has_null_there(database: Database) -> None:
    database.rules(
        'topics: {p.s.docs: {as: docs, schema: "id INT, note STRING, days ARRAY<DATE>, size DECIMAL(10,2)"}}\n',
        docs="SELECT seqno, row.id, upper(row.note) AS note, row.days, row.size FROM docs",
    )
    database.change("u", 1, note=LEFT_OUT, days=LEFT_OUT, size=1.5)
    assert database.outputs() == [({"id": 1, "note": None, "days": None, "size": 1.5}, ["note", "days"])]


@pytest.mark.parametrize("rule", ["with", "subquery", "join", "path"])
def test_what_a_column_is_made_of_is_seen_through_the_whole_plan(database: Database, rule: str) -> None:
    text = {
        "with": "WITH a AS (SELECT seqno, row AS r FROM docs), "
        "b AS (SELECT seqno, r:id::int AS id, r:note::string AS x, "
        "r:n::int AS n FROM a) SELECT seqno, id, upper(x) AS shout, n FROM b WHERE n > 0",
        "subquery": "SELECT seqno, id, upper(x) AS shout, n FROM (SELECT *, row:note::string AS x, row:id::int AS id, "
        "row:n::int AS n FROM docs) ORDER BY n",
        "join": "SELECT d.seqno, row:id::int AS id, concat(row:note::string, '!') AS shout, row:n::int AS n "
        "FROM docs d LEFT JOIN (SELECT 1 AS n, 'x' AS name) l ON d.row:n::int = l.n",
        "path": "SELECT seqno, variant_get(value, '$.after.id', 'int') AS id, "
        "upper(try_variant_get(after, '$[\"note\"]', 'string')) AS shout, value:after.n::int AS n FROM docs",
    }[rule]
    database.rules(docs=text)
    database.change("u", 1, n=1, note=LEFT_OUT)
    database.change("u", 1, n=2, note="x")
    (first, left_out), (second, none) = database.outputs()
    assert (first, left_out, none) == ({"id": 1, "shout": None, "n": 1}, ["shout"], [])
    assert second["shout"] in ("X", "x!")


UNKNOWN = {
    "another field": "SELECT seqno, row:id::int AS id, concat(row:n::string, row:note::string) AS mixed FROM docs",
    "the time": "SELECT seqno, row:id::int AS id, struct(ts, row:note::string) AS mixed FROM docs",
    "the whole row": "SELECT seqno, row:id::int AS id, to_json(row) AS mixed FROM docs",
    "a lookup": "SELECT seqno, row:id::int AS id, concat(row:note::string, l.name) AS mixed FROM docs "
    "JOIN (VALUES ('x')) AS l(name)",
    "which rows": "SELECT seqno, row:id::int AS id FROM docs WHERE row:note::string LIKE 'l%'",
    "the key": "SELECT seqno, upper(row:note::string) AS id FROM docs",
    "a deletion": "SELECT seqno, row:id::int AS id, row:note::string IS NULL AS _delete FROM docs",
    "a subquery": "SELECT seqno, row:id::int AS id FROM docs d "
    "WHERE EXISTS (SELECT 1 FROM docs e WHERE e.seqno = d.seqno AND e.row:note::string = 'long')",
    "an aggregate": "SELECT seqno, max(row:id::int) AS id, max(row:note::string) AS mixed FROM docs GROUP BY seqno",
    "a union": "SELECT seqno, row:id::int AS id, row:note::string AS n FROM docs UNION ALL "
    "SELECT seqno, row:id::int, row:n::string FROM docs",
    "distinct": "SELECT DISTINCT seqno, row:id::int AS id, row:note::string AS note FROM docs",
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_cannot_be_known_is_set_aside_with_the_way_out(database: Database, what: str) -> None:
    database.rules(docs=UNKNOWN[what])
    database.change("u", 1, n=1, note="long")
    database.change("u", 2, n=2, note=LEFT_OUT, more="x")
    database.change("u", 3, n=3, note="long", more=LEFT_OUT) if what != "the whole row" else None
    staging = database.sync()
    assert_set_aside(staging, "docs.sql", "note", "REPLICA IDENTITY FULL", *(["mixed"] if what == "the time" else []))
    out = {one["seqno"] for one in staging if one["kind"] == "output"}
    assert out == ({1} if what == "the whole row" else {1, 3})


def test_with_what_an_update_cannot_have_changed_a_column_is_known(database: Database) -> None:
    database.rules(
        docs="SELECT seqno, row:id::int AS id, concat(row:id::string, key:id::string, row:note::string) AS x FROM docs"
    )
    database.change("u", 1, note=LEFT_OUT)
    database.change("c", 2, note=LEFT_OUT, old_key=1)
    staging = database.sync()
    assert [one["state"] for one in staging if one["kind"] == "output"] == ['{"left_out":["x"]}']
    assert_set_aside(staging, "column x")


def test_a_rule_that_looks_at_what_was_left_out_is_taken_at_its_word(database: Database) -> None:
    mixed = "CASE WHEN array_contains(left_out, 'note') THEN 'unknown' ELSE concat(row:n::string, row:note::string) END"
    database.rules(
        docs=f"SELECT seqno, row:id::int AS id, upper(row:note::string) AS shout, {mixed} AS mixed FROM docs",
        known="SELECT seqno, row:id::int AS id, concat(row:n::string, row:note::string) AS mixed FROM docs "
        "WHERE NOT array_contains(left_out, 'note')",
    )
    database.change("u", 1, n=1, note=LEFT_OUT)
    database.change("u", 1, n=2, note="x")
    assert database.outputs() == [
        ({"id": 1, "shout": None, "mixed": "unknown"}, ["shout"]),
        ({"id": 1, "shout": "X", "mixed": "2x"}, []),
        ({"id": 1, "mixed": "2x"}, []),
    ]


def test_a_rule_in_python_is_no_exception(database: Database) -> None:
    database.rules(docs="SELECT 1")
    (database.folder / "rule.py").write_text(
        "def rule(records):\n"
        "    docs = records.where(\"topic = 'p.s.docs' AND op IS NOT NULL\")\n"
        "    shout = 'upper(row:note::string) AS shout'\n"
        "    return docs.selectExpr('seqno', 'row:id::int AS id', 'row:n::int AS n', shout)\n"
    )
    config = (database.folder / "zync.yaml").read_text().replace("sql: docs.sql", 'python: "rule.py:rule"')
    (database.folder / "zync.yaml").write_text(config)
    database.change("u", 1, n=1, note=LEFT_OUT)
    assert database.outputs() == [({"id": 1, "n": 1, "shout": None}, ["shout"])]


def test_values_that_a_schema_decodes_are_no_exception(database: Database) -> None:
    """Connect's JSON: dates become dates, and bytes bytes, before a rule sees them."""
    database.rules(
        "formats: {value: connect-json}\ntopics: {p.s.docs: {as: docs}}\n",
        docs="SELECT seqno, row:id::int AS id, row:body::binary AS body, length(row:body::binary) AS size, "
        "row:days::array<date> AS days, row:on::date AS on FROM docs",
    )
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
    base64 = b64encode(LEFT_OUT.encode()).decode()
    database.change("u", 1, body="aGk=", days=[1], on=20000, note="x")
    database.change("u", 1, body=base64, days=CODE, on=20000, note=LEFT_OUT)
    for record in database.records:
        record["value"] = json.dumps({"schema": schema, "payload": json.loads(record["value"])}, separators=(",", ":"))
    known, left_out = database.outputs()
    assert known == ({"id": 1, "body": "aGk=", "size": 2, "days": ["1970-01-02"], "on": "2024-10-04"}, [])
    nothing = {"id": 1, "body": base64, "size": None, "days": None, "on": "2024-10-04"}
    assert left_out == (nothing, ["body", "size", "days"])


@pytest.mark.parametrize("connector", ["oracle", "sqlserver"])
def test_other_connectors_and_other_placeholders_are_known(database: Database, connector: str) -> None:
    """Oracle's LOBs and SQL Server's columns of `max` types: the same text by default, and by the same option."""
    database.rules(
        said=", unavailable_value: left out",
        docs="SELECT seqno, row:ID::int AS id, row:BODY::string AS body, length(row:BODY::string) AS size FROM docs",
    )
    database.change("u", 1, ID=1, BODY="left out")
    database.change("u", 1, ID=1, BODY=LEFT_OUT)
    for record in database.records:
        value = json.loads(record["value"])
        value["source"] |= {"connector": connector}
        record["value"] = json.dumps(value)
    assert database.outputs() == [
        ({"id": 1, "body": "left out", "size": None}, ["body", "size"]),
        ({"id": 1, "body": LEFT_OUT, "size": len(LEFT_OUT)}, []),
    ]


@pytest.mark.parametrize("apply", ["upsert", "history", "append"])
def test_tables_keep_what_was_computed_on_what_was_left_out(database: Database, apply: str) -> None:
    database.rules(
        f"topics: {{p.s.docs: {{as: docs}}}}\ndeliver: {{tables: {{docs: {{apply: {apply}}}}}}}\n",
        docs="SELECT seqno, _order, row:id::int AS id, row:n::int AS n, length(row:note::string) AS size, "
        "parse_json(row:note::string):a::int AS a, op = 'd' AS _delete FROM docs",
    )
    database.change("c", 1, n=1, note='{"a": 1}')
    database.change("c", 2, n=1, note='{"a": 2}')
    database.deliver("docs")
    database.change("u", 1, n=2, note=LEFT_OUT)
    database.change("u", 2, n=2, note='{"a": 20}')
    database.change("u", 2, n=3, note=LEFT_OUT)
    found = [(one["id"], one["n"], one["size"], one["a"]) for one in database.deliver("docs")]
    before, after = [(1, 1, 8, 1), (2, 1, 8, 2)], [(1, 2, 8, 1), (2, 3, 9, 20)]
    if apply == "upsert":
        assert found == after
    elif apply == "history":
        assert found == sorted([*before, *after, (2, 2, 9, 20)])
    else:
        assert found == sorted(
            [*before, (1, 2, None, None), (2, 2, 9, 20), (2, 3, None, None)], key=lambda one: one[:2]
        )
        left_out = [dict(one["_left_out"] or []) for one in database.deliver("docs")]
        nowhere = {"position": -1, "seqno": -1}
        assert left_out == [{}, {"size": nowhere, "a": nowhere}, {}, {}, {"size": nowhere, "a": nowhere}]


def test_it_is_known_of_records_that_are_read_again_later(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a transaction that was in flight, and of one that is redriven when its rule was mended."""
    monkeypatch.setattr(gather, "RECENT", 0)
    database.rules(docs="SELECT seqno, row:id::int AS id, row:n::string || row:note::string AS mixed FROM docs")
    database.change("u", 1, n=1, note=LEFT_OUT)
    value = json.loads(database.records[0]["value"])
    value["transaction"] = {"id": "7:10", "total_order": 1, "data_collection_order": 1}
    database.records[0]["value"] = json.dumps(value)
    database.sync()
    counts = [{"data_collection": "s.docs", "event_count": 1}]
    end = {"status": "END", "id": "7:11", "event_count": 1, "data_collections": counts}
    database.records.append({"topic": "p.transaction", "key": None, "value": json.dumps(end)})
    assert_set_aside(database.sync(), "column mixed")
    database.rules(docs="SELECT seqno, row:id::int AS id, upper(row:note::string) AS shout FROM docs")
    config = load_config(database.folder / "zync.yaml")
    raw, staging = str(database.folder / "raw"), str(database.folder / "staging")
    decide(raw, ["7"], "redrive", "its rule was mended")
    Syncer(config, raw, staging, database.spark).sync()
    (out,) = [one for one in rows(database.folder / "staging") if one["kind"] == "output"]
    assert (json.loads(out["value"]), out["state"]) == ({"id": 1, "shout": None}, '{"left_out":["shout"]}')


MOVES = (
    "SELECT seqno, _order, row:id::int AS id, row:n::int AS n, row:note::string AS note, "
    "length(row:note::string) AS size, op = 'd' AS _delete FROM docs"
)


def move(database: Database, old: int, new: int, **row: Any) -> None:
    """An update of the primary key, as Debezium sends it: the row's deletion and a new row, with what was left out."""
    database.change("d", old)
    database.change("c", new, old_key=old, **row)


@pytest.mark.parametrize("apply", ["upsert", "history"])
@pytest.mark.parametrize("together", [True, False])
def test_a_row_that_got_another_key_keeps_what_was_left_out(database: Database, apply: str, *, together: bool) -> None:
    """In a batch with the old row or later; once, or twice in one batch; onto a key that was another row's."""
    database.rules(
        f"topics: {{p.s.docs: {{as: docs}}}}\ndeliver: {{tables: {{docs: {{apply: {apply}}}}}}}\n", docs=MOVES
    )
    database.change("c", 1, n=1, note="first")
    database.change("c", 2, n=1, note="second text")
    database.change("c", 9, n=1, note="of another row")
    database.change("u", 1, n=2, note=LEFT_OUT)
    if not together:
        database.deliver("docs")
    move(database, 1, 10, n=3, note=LEFT_OUT)
    database.change("d", 9)
    move(database, 2, 8, n=3, note=LEFT_OUT)
    move(database, 8, 9, n=4, note=LEFT_OUT)
    if not together:
        database.deliver("docs")
    database.change("u", 10, n=4, note=LEFT_OUT)
    database.change("u", 9, n=5, note=LEFT_OUT)
    table = [one for one in database.deliver("docs") if one.get("current", True)]
    found = [(one["id"], one["n"], one["note"], one["size"]) for one in table]
    assert found == [(9, 5, "second text", 11), (10, 4, "first", 5)]


@pytest.mark.parametrize("apply", ["upsert", "history"])
def test_what_a_row_was_by_an_old_key_that_is_not_there_is_null_and_says_so(database: Database, apply: str) -> None:
    database.rules(
        f"topics: {{p.s.docs: {{as: docs}}}}\ndeliver: {{tables: {{docs: {{apply: {apply}}}}}}}\n", docs=MOVES
    )
    database.change("c", 10, n=1, note="of another row")
    database.deliver("docs")
    database.change("d", 10)
    move(database, 1, 10, n=3, note=LEFT_OUT)
    newest = database.deliver("docs")[-1]
    assert (newest["n"], newest["note"], newest["size"]) == (3, None, None)
    if apply == "upsert":
        assert {name: place["seqno"] for name, place in newest["_left_out"]} == {"note": -1, "size": -1}
    else:
        assert {name for name, _ in newest["_left_out"]} == {"note", "size"}


@pytest.mark.parametrize("what", ["a computed key", "a key that no header names"])
def test_a_row_whose_old_key_cannot_be_told_is_set_aside(database: Database, what: str) -> None:
    key = "concat('a', row:id::string)" if what == "a computed key" else "row:other::string"
    database.rules(docs=f"SELECT seqno, {key} AS id, upper(row:note::string) AS shout FROM docs")
    database.change("u", 1, other="x", note=LEFT_OUT)
    database.change("c", 2, other="x", note=LEFT_OUT, old_key=1)
    assert_set_aside(database.sync(), "another key", "note", "REPLICA IDENTITY FULL")
