"""A bank in a real PostgreSQL, through a real Debezium, Kafka and zync: who of them takes part is killed with -9."""

import json
import os
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import rows, start, zync
from tests.kafka.conftest import wait_until
from zync.demo.postgres import Debezium, Postgres
from zync.lake.table import existing_table, open_table
from zync.project.load import load as load_config
from zync.raw.table import next_seqno, positions
from zync.sync.syncer import Syncer

CLIENTS = 4
EACH = int(os.environ.get("ZYNC_TEST_CDC_TRANSACTIONS", "25"))
MANY = 100 * EACH + 1000
"""Rows of one large transaction."""

SCHEMA = """
CREATE TABLE branches (bid int PRIMARY KEY, balance int);
CREATE TABLE tellers (tid int PRIMARY KEY, bid int, balance int);
CREATE TABLE accounts (aid int PRIMARY KEY, bid int, balance int);
CREATE TABLE history (xid text DEFAULT pg_current_xact_id()::text, tid int, bid int, aid int, delta int);
CREATE TABLE big (id int PRIMARY KEY, x int);
CREATE TABLE pulse (x int);
INSERT INTO branches VALUES (1, 0);
INSERT INTO tellers SELECT n, 1, 0 FROM generate_series(1, 10) n;
INSERT INTO accounts SELECT n, 1, 0 FROM generate_series(1, 200) n;
"""
TRANSFER = r"""
\set aid random(1, 200)
\set tid random(1, 10)
\set delta random(-5000, 5000)
BEGIN;
UPDATE accounts SET balance = balance + :delta WHERE aid = :aid;
UPDATE tellers SET balance = balance + :delta WHERE tid = :tid;
UPDATE branches SET balance = balance + :delta WHERE bid = 1;
INSERT INTO history (tid, bid, aid, delta) VALUES (:tid, 1, :aid, :delta);
END;
"""
ODD = f"""
BEGIN; INSERT INTO big SELECT n, n FROM generate_series(1, {MANY}) n; COMMIT;
BEGIN; INSERT INTO big VALUES (0, 0); ROLLBACK;
BEGIN; UPDATE big SET x = -1 WHERE id = 1; SAVEPOINT s; UPDATE big SET x = -2 WHERE id = 2; ROLLBACK TO s; COMMIT;
UPDATE big SET id = -3 WHERE id = 3;
DELETE FROM big WHERE id = 4;
"""
CONFIG = """\
kafka: {{bootstrap.servers: "{broker}", session.timeout.ms: 6000}}
transactions: {{preset: debezium, topic: {prefix}.transaction}}
outputs: [{{topic: rows, sql: rows.sql}}]
"""
RULE = "SELECT seqno, _order, txn, op, source:table::string AS name, before, after FROM records WHERE op IS NOT NULL"


@pytest.mark.timeout(900)
def test_every_transaction_of_the_bank_lands_once_and_whole(
    tmp_path: Path, broker: str, postgres: Postgres, spark: Any
) -> None:
    prefix = f"bank{os.getpid()}"
    debezium = Debezium(tmp_path / "connect", broker, postgres, prefix)
    (tmp_path / "zync.yaml").write_text(CONFIG.format(broker=broker, prefix=prefix))
    (tmp_path / "rows.sql").write_text(RULE)
    (tmp_path / "transfer.sql").write_text(TRANSFER)
    postgres.sql(SCHEMA)

    def ingest() -> "subprocess.Popen[str]":
        return start("sync-from", "kafka", "raw", "--commit-every", "1s", cwd=tmp_path)

    def load() -> "subprocess.Popen[bytes]":
        return postgres.pgbench("-c", str(CLIENTS), "-t", str(EACH), "-f", str(tmp_path / "transfer.sql"))

    raw, staging = str(tmp_path / "lake" / "raw"), str(tmp_path / "lake" / "staging")
    running = ingest()
    try:
        debezium.start()
        first = load()
        wait_until(lambda: streams(raw, prefix), 120)  # a kill before would have the snapshot taken again
        postgres.sql(ODD)
        time.sleep(1)
        debezium.kill()
        running.kill()
        running.wait()
        debezium.start()
        before = next_seqno(existing_table(raw, ""))
        running = ingest()
        assert first.wait(120) == 0
        assert load().wait(120) == 0
        debezium.wait_until_streamed()
        wait_until(lambda: next_seqno(existing_table(raw, "")) > before, 120)  # it goes on, and hears signals
    finally:
        debezium.kill()
        running.terminate()
        assert running.wait(60) == 0
    zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=tmp_path)
    syncing = start("sync", "raw", "staging", cwd=tmp_path)
    wait_until(lambda: list(Path(staging).glob("sync-*")), 120)  # it writes
    syncing.kill()
    assert syncing.wait() == -signal.SIGKILL
    head = next_seqno(existing_table(raw, "")) - 1
    for cut in (head // 5, head // 2, None):
        outcome = Syncer(load_config(tmp_path / "zync.yaml"), raw, staging, spark).sync(cut)
    assert outcome.in_flight == 0, zync("txn", "list", cwd=tmp_path).stdout
    assert json.loads(zync("verify", "--every-version", "--kafka", "--json", cwd=tmp_path).stdout)["ok"]
    assert_the_same_bank(rows(tmp_path / "lake" / "staging"), postgres)


def streams(raw: str, prefix: str) -> bool:
    """Whether raw has something of a transaction by now."""
    table = open_table(raw)
    return table is not None and f"{prefix}.transaction" in {one.topic for one in positions(table).next}


def assert_the_same_bank(staging: list[dict[str, Any]], postgres: Postgres) -> None:
    out: dict[str, list[dict[str, Any]]] = defaultdict(list)
    syncs: dict[str, set[int]] = defaultdict(set)
    for row in sorted((row for row in staging if row["kind"] == "output"), key=lambda row: row["kafka"]["offset"]):
        value = {**json.loads(row["value"]), "position": row["position"]}
        out[value["txn"]].append(value)
        syncs[value["txn"]].add(row["sync"])
    assert all(len(one) == 1 for one in syncs.values())  # so at no version is a transaction partly there
    transfers = {txn: mine for txn, mine in out.items() if any(one["name"] == "history" for one in mine)}
    truth = {xid: int(delta) for xid, delta in postgres.sql("SELECT xid, delta FROM history")}
    assert transfers.keys() == truth.keys()
    for txn, mine in transfers.items():
        assert sorted(one["name"] for one in mine) == ["accounts", "branches", "history", "tellers"]
        (delta,) = [one["after"]["delta"] for one in mine if one["name"] == "history"]
        assert delta == truth[txn]
    assert len(truth) == 2 * CLIENTS * EACH
    assert sorted(len(mine) for mine in out.values())[-1] == MANY
    for table, key in (("accounts", "aid"), ("tellers", "tid"), ("branches", "bid"), ("big", "id")):
        there = [json.loads("|".join(row)) for row in postgres.sql(f"SELECT row_to_json(t) FROM {table} t")]
        assert replayed(out, table, key) == {row[key]: row for row in there}, table
    assert not [row for row in staging if row["kind"] in ("late", "quarantined")]


def replayed(out: dict[str, list[dict[str, Any]]], table: str, key: str) -> dict[int, dict[str, int]]:
    """The table that the output rows make, in the source's order of commits."""
    found: dict[int, dict[str, int]] = {}
    for mine in sorted(out.values(), key=lambda mine: mine[0]["position"]):
        for one in mine:
            if one["name"] == table and one["op"] == "d":
                found.pop(one["before"][key])
            elif one["name"] == table:
                found[one["after"][key]] = one["after"]
    return found
