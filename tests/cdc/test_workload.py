"""Any changes in a real PostgreSQL, through a real Debezium: tables and Kafka come to what PostgreSQL has, row by row.

Two sessions at once insert, update, give rows other keys, delete, truncate, roll back and have tables snapshot anew, by
chance. Large values that an update does not touch are left out by the connector, which is killed once.
"""

import json
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import rows, zync
from tests.deliver.conftest import committed
from zync.debezium.toast import COLUMN
from zync.deliver.tables.delivery import sync_to_tables
from zync.demo.postgres import Debezium, Postgres
from zync.lake.table import existing_table
from zync.operate.verify.tables import tables_claims
from zync.project.load import load
from zync.raw.table import next_seqno
from zync.sync.syncer import Syncer

SEED = int(os.environ.get("ZYNC_TEST_SEED", "1"))
EACH = int(os.environ.get("ZYNC_TEST_CDC_TRANSACTIONS", "15"))
"""Transactions of a session in a phase."""
CUTS = 2 if "ZYNC_TEST_CDC_TRANSACTIONS" in os.environ else 1
"""Syncs of what came in a phase, each followed by a delivery or not."""
PHASES = ("truncating", "killed", "snapshots", "truncating")
KEYS = 16
LARGE = 3000
"""Characters; PostgreSQL puts a value of more than 2,000 bytes elsewhere (TOAST)."""
SCHEMA = f"""
CREATE TABLE items (id int PRIMARY KEY, n int, note text, doc jsonb);
CREATE TABLE lines (item int, line int, note text, PRIMARY KEY (item, line));
CREATE TABLE signals (id text PRIMARY KEY, type text, data text);
CREATE TABLE pulse (x int);
ALTER TABLE items ALTER note SET STORAGE EXTERNAL, ALTER doc SET STORAGE EXTERNAL;
ALTER TABLE lines ALTER note SET STORAGE EXTERNAL;
INSERT INTO items SELECT k, k, repeat('s', {LARGE}), '{{"k": 1}}' FROM generate_series(0, {KEYS // 2}) k;
INSERT INTO lines SELECT k, 0, repeat('t', {LARGE}) FROM generate_series(0, {KEYS // 2}) k;
"""
COLUMNS = {
    "items": {"id": "row:id::int", "n": "row:n::int", "note": "row:note::string", "doc": "row:doc::string"},
    "lines": {"item": "row:item::int", "line": "row:line::int", "note": "row:note::string"},
}
KEY = {"items": ("id",), "lines": ("item", "line")}
COMPUTED = {"loud": "upper(row:note::string)", "size": "length(row:note::string)"}
CONFIG = """\
kafka: {{bootstrap.servers: "{broker}"}}
transactions: {{preset: debezium, topic: {prefix}.transaction{order}}}
topics: {{{prefix}.public.items: {{as: items}}, {prefix}.public.lines: {{as: lines}}}}
outputs:
  - {{topic: items, sql: items.sql, key: [id]}}
  - {{topic: lines, sql: lines.sql, key: [item, line]}}
  - {{topic: items_versions, sql: items.sql, key: [id]}}
  - {{topic: lines_versions, sql: lines.sql, key: [item, line]}}
deliver:
  tables: {{items_versions: {{apply: history}}, lines_versions: {{apply: history}}}}
  kafka:
    topics:
      items: {{as: out.{prefix}.items, partitions: 1}}
      lines: {{as: out.{prefix}.lines, partitions: 1}}
"""
Row = dict[str, Any]


class Session:
    """A client whose rows have keys of its own: those that are even, or those that are odd."""

    def __init__(self, postgres: Postgres, chance: random.Random, parity: int) -> None:
        self.postgres, self.chance, self.parity = postgres, chance, parity

    def work(self, phase: str) -> None:
        """Commits transactions, and rolls some back."""
        self.postgres.sql("\n".join(self.transaction(phase) for _ in range(EACH)))

    def transaction(self, phase: str) -> str:
        changes = [self.change(phase) for _ in range(self.chance.choice((1, 1, 2, 5)))]
        return "\n".join(["BEGIN;", *changes, self.chance.choice(("COMMIT;",) * 9 + ("ROLLBACK;",))])

    def change(self, phase: str) -> str:
        key, other = (self.parity + 2 * self.chance.randrange(KEYS // 2) for _ in range(2))
        n, line, whole = self.chance.randrange(100), self.chance.randrange(2), self.chance.random()
        if phase == "truncating" and whole < 0.02:
            return self.chance.choice(("TRUNCATE items;", "TRUNCATE lines;"))
        if phase == "snapshots" and whole < 0.05:
            asked = {"data-collections": [f"public.{self.chance.choice(('items', 'lines'))}"], "type": "incremental"}
            return f"INSERT INTO signals VALUES (gen_random_uuid(), 'execute-snapshot', '{json.dumps(asked)}');"
        return self.chance.choice(
            (
                f"INSERT INTO items VALUES ({key}, {n}, {self.text()}, {self.document()}) "
                "ON CONFLICT (id) DO UPDATE SET n = excluded.n;",
                f"INSERT INTO lines VALUES ({key}, {line}, {self.text()}) ON CONFLICT DO NOTHING;",
                f"UPDATE items SET n = {n} WHERE id = {key};",
                f"UPDATE items SET note = {self.text()} WHERE id = {key};",
                f"UPDATE items SET doc = {self.document()}, n = {n} WHERE id = {key};",
                f"UPDATE items SET id = {other} WHERE id = {key} AND NOT EXISTS (FROM_ITEMS);".replace(
                    "FROM_ITEMS", f"SELECT FROM items WHERE id = {other}"
                ),
                f"UPDATE lines SET item = {other} WHERE item = {key} AND line = {line} "
                f"AND NOT EXISTS (SELECT FROM lines WHERE item = {other} AND line = {line});",
                f"DELETE FROM items WHERE id = {key};",
                f"DELETE FROM lines WHERE item = {key};",
            )
        )

    def text(self) -> str:
        letter = self.chance.choice("abcdeé")
        return self.chance.choice((f"'{letter}'", "NULL", *(f"repeat('{letter}', {LARGE})",) * 3))

    def document(self) -> str:
        return f"jsonb_build_object('k', {self.text()})"


def truth(postgres: Postgres, table: str) -> list[Row]:
    text = f"SELECT json_build_object({', '.join(f'$${c}$$, {c}' for c in COLUMNS[table])}) FROM {table}"
    found = [json.loads("|".join(row)) for row in postgres.sql(text.replace(", doc)", ", doc::text)"))]
    return ordered(
        [{**row, "loud": (note := row["note"]) and note.upper(), "size": note and len(note)} for row in found]
    )


def ordered(found: list[Row]) -> list[Row]:
    return sorted((dict(sorted(row.items())) for row in found), key=repr)


class Lake:
    """What zync makes of one raw by one config."""

    def __init__(self, folder: Path, raw: Path, spark: Any, config: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.spark = folder, spark
        (folder / "zync.yaml").write_text(config)
        for table, columns in COLUMNS.items():
            made = ", ".join(f"{text} AS {column}" for column, text in {**columns, **COMPUTED}.items())
            (folder / f"{table}.sql").write_text(f"SELECT seqno, _order, op = 'd' AS _delete, {made} FROM {table}")
        self.config, self.staging = load(folder / "zync.yaml"), str(folder / "lake" / "staging")
        self.syncer = Syncer(self.config, str(raw), self.staging, spark)

    def deliver(self) -> None:
        folder = str(self.folder / "lake" / "tables")
        sync_to_tables(self.spark, self.config, self.staging, folder, threading.Event(), until_caught_up=True)
        assert [text for claim in tables_claims(folder, self.staging) for text in claim.violations] == []

    def table(self, name: str) -> list[Row]:
        return DeltaTable(str(self.folder / "lake" / "tables" / name)).to_pyarrow_table().to_pylist()

    def newest(self, table: str) -> list[Row]:
        return self.only(table, self.table(table))

    def current(self, table: str) -> list[Row]:
        return self.only(table, [row for row in self.table(f"{table}_versions") if row["current"]])

    def only(self, table: str, found: list[Row]) -> list[Row]:
        return ordered([{column: row[column] for column in (*COLUMNS[table], *COMPUTED)} for row in found])


def in_kafka(broker: str, topic: str) -> list[Row]:
    """The rows that a consumer has in the end, who keeps what a message says was left out of it.

    Of a topic with one partition: with more, the old key's message may be in another, and come later.
    """
    living, last = dict[bytes | None, Row](), dict[bytes | None, Row]()
    for one in committed(broker, topic):
        if one.value is None:
            living.pop(one.key, None)
            continue
        before = last.get(one.headers.get("zync.old_key", one.key), {})
        kept = {column: before[column] for column in json.loads(one.headers.get("zync.left_out", "[]"))}
        living[one.key] = last[one.key] = {**json.loads(one.value), **kept}
    return ordered([*living.values()])


@pytest.mark.timeout(3600)
def test_tables_and_kafka_come_to_what_postgres_has(
    tmp_path: Path, broker: str, postgres: Postgres, spark: Any
) -> None:
    chance, prefix = random.Random(SEED), f"work{os.getpid()}"  # noqa: S311 - a test's
    options = {"skipped.operations": "none", "signal.data.collection": "public.signals"}
    debezium = Debezium(tmp_path / "connect", broker, postgres, prefix, options)
    raw = tmp_path / "lake" / "raw"
    texts = {order: CONFIG.format(broker=broker, prefix=prefix, order=order) for order in (", order: commit", "")}
    in_order, by_completion = Lake(tmp_path, raw, spark, texts[", order: commit"]), None
    postgres.sql(SCHEMA)
    try:
        debezium.start()
        for phase in PHASES:
            sessions = [Session(postgres, random.Random(chance.random()), parity) for parity in (0, 1)]  # noqa: S311
            with ThreadPoolExecutor(2) as pool:
                working = [pool.submit(session.work, phase) for session in sessions]
                if phase == "killed":
                    debezium.kill()
                    debezium.start()
                for one in working:
                    one.result()
            debezium.wait_until_streamed()
            before = next_seqno(existing_table(str(raw), "")) if raw.exists() else 1
            zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=tmp_path)
            after = next_seqno(existing_table(str(raw), ""))
            for cut in sorted(chance.choices(range(before, after), k=CUTS)):
                in_order.syncer.sync(cut)
                if chance.random() < 0.5:
                    in_order.deliver()
        by_completion = Lake(tmp_path / "completion", raw, spark, texts[""])
        for lake in (in_order, by_completion):
            outcome = lake.syncer.sync(None)
            lake.deliver()
            assert outcome.in_flight == 0
            staging = rows(Path(lake.staging))
            assert [row["reason"] for row in staging if row["kind"] in ("quarantined", "late")] == []
            assert {"t", "left_out"} <= kinds_of(staging)
    finally:
        debezium.kill()
    zync("sync-to", "kafka", "staging", "--until-caught-up", cwd=tmp_path)
    for table in COLUMNS:
        expected = truth(postgres, table)
        assert in_order.newest(table) == expected
        assert in_order.current(table) == expected
        assert in_kafka(broker, f"out.{prefix}.{table}") == expected
        assert_known(by_completion.table(table), expected, KEY[table])


def kinds_of(staging: list[Row]) -> set[str]:
    """What was met: truncations, and values that were left out."""
    outputs = [row for row in staging if row["kind"] == "output"]
    truncations = {"t" for row in outputs if row["reason"] == "truncate"}
    return truncations | {"left_out" for row in outputs if row["state"]}


def assert_known(found: list[Row], expected: list[Row], key: tuple[str, ...]) -> None:
    """The rows are those, but for values that came by a key before it was known: the table says which those are."""
    by_key = {tuple(row[column] for column in key): row for row in found}
    assert by_key.keys() == {tuple(row[column] for column in key) for row in expected}
    for row in expected:
        one = by_key[tuple(row[column] for column in key)]
        unknown = {column for column, place in one.get(COLUMN) or () if place["seqno"] < 0}
        assert {column: one[column] for column in row.keys() - unknown} == {c: row[c] for c in row.keys() - unknown}
