"""Whatever the order between partitions and wherever syncs cut it, a capture's transactions land whole and once."""

import json
import os
import random
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.captures import DATA, NAMES, SHORT, Capture, image, read, truth
from tests.conftest import Loader, rows
from zync.project.load import load as load_config
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer
from zync.transactions import gather

SEED = int(os.environ.get("ZYNC_TEST_SEED", "1"))
"""Of the interleaving and the cuts."""
MOST_CUTS = 2 if "ZYNC_TEST_SEED" in os.environ else 1
RULE = "SELECT seqno, _order, txn, value FROM records WHERE op IS NOT NULL"


def pipeline(folder: Path, prefix: str, rule: str = RULE, more: str = "", said: str = "") -> Any:
    (folder / "rows.sql").write_text(rule)
    (folder / "zync.yaml").write_text(
        f"transactions: {{preset: debezium, topic: {prefix}.transaction{said}}}\n"
        f"outputs: [{{topic: rows, sql: rows.sql}}]\n{more}"
    )
    return load_config(folder / "zync.yaml")


def sync_in_cuts(folder: Path, capture: Capture, seed: int, spark: Any, said: str = "") -> list[dict[str, Any]]:
    """Staging after some interleaving of the capture was synced in some cuts, with few or many records in a file.

    What is in flight comes as its state, or is read again.
    """
    records = capture.interleaved(seed)
    chance = random.Random(f"{seed} {len(records)}")  # noqa: S311 - a test's; of one seed alone all had the same cuts
    cuts = sorted(chance.sample(range(1, len(records)), chance.randint(0, MOST_CUTS)))
    syncer = Syncer(pipeline(folder, capture.prefix, said=said), str(folder / "raw"), str(folder / "staging"), spark)
    size, loader = chance.choice([30, len(records)]), Loader(str(folder / "raw"))
    with pytest.MonkeyPatch.context() as patch:
        for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
            for first in range(start, end, size):
                loader.load(records[first : min(first + size, end)])
            patch.setattr(gather, "RECENT", chance.choice([0, 50, 1000]))
            syncer.sync()
    return rows(folder / "staging")


@pytest.mark.parametrize(
    ("name", "retried"),
    [*((name, False) for name in NAMES), *((f"crash{version}_kill9_midoffset", True) for version in (360, 370))],
)
def test_each_transaction_is_out_once_and_whole(tmp_path: Path, spark: Any, name: str, *, retried: bool) -> None:
    capture, repeats = read(name), 0
    expected = truth(capture)
    if retried:
        capture, repeats = capture.with_retries(SEED)
        assert repeats > 100
    staging = sync_in_cuts(tmp_path, capture, SEED, spark)
    out: dict[str, Counter[str]] = defaultdict(Counter)
    for row in staging:
        if row["kind"] == "output":
            value = json.loads(row["value"])
            out[value["txn"]][image(value["value"])] += 1
    by_txn: dict[str, set[int]] = defaultdict(set)
    for row in staging:
        if row["kind"] == "output":
            by_txn[json.loads(row["value"])["txn"]].add(row["position"])
    assert {txn: at for txn, at in by_txn.items() if txn in expected.commits} == {
        txn: {at} for txn, at in expected.commits.items() if txn in by_txn
    }
    assert all(at is not None for places in by_txn.values() for at in places)
    single = {txn for txn in out if "/" in txn}
    short = {txn for txn, one in expected.transactions.items() if name in SHORT and one.total() == 1128}
    whole = {txn: one for txn, one in expected.transactions.items() if txn not in short}
    assert {txn: one for txn, one in out.items() if txn not in single} == {
        txn: one for txn, one in whole.items() if one
    }
    assert len(single) == expected.singles
    done = Counter(row["txn"] for row in staging if row["kind"] == "done" and row["txn"])
    assert done == Counter(list(whole))
    assert {row["txn"] for row in staging if row["kind"] in ("pending", "expired")} >= short
    kinds = Counter(row["kind"] for row in staging)
    assert kinds["duplicate"] == expected.repeats + repeats
    assert not kinds.keys() & {"late", "quarantined"}
    assert all("BEGIN or END" in row["reason"] for row in staging if row["kind"] == "ignored")
    assert len(short) == len(SHORT & {name})


@pytest.mark.parametrize("name", ["crash360_kill9_midoffset", "crash370_kill9_nooffset", "pgbench"])
def test_in_order_of_commit_positions_never_fall(tmp_path: Path, spark: Any, name: str) -> None:
    capture = read(name)
    expected = truth(capture)
    staging = sync_in_cuts(tmp_path, capture, SEED, spark, ", order: commit")
    made = [
        (row["kafka"]["offset"], row["position"], json.loads(row["value"])["txn"]) for row in staging if row["value"]
    ]
    whole = [(position, txn) for _, position, txn in sorted(made) if "/" not in txn]
    assert [position for position, _ in whole] == sorted(position for position, _ in whole)
    assert Counter(txn for _, txn in whole) == {txn: one.total() for txn, one in expected.transactions.items() if one}


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "schema and payload"])
def test_rules_see_each_table_with_typed_images(tmp_path: Path, spark: Any, wrapped: bool) -> None:
    records = [one for mine in read("pgbench").partitions.values() for one in mine]
    topic = "dbz.pgbench.public.pgbench_accounts"
    rule = f"SELECT seqno, _order, op, row.aid AS aid, after.abalance AS balance, ts FROM `{topic}`"
    more = f'topics: {{{topic}: {{schema: "aid INT, abalance DECIMAL(12,2)"}}}}\n'
    config = pipeline(tmp_path, "dbz.pgbench", rule, more)
    if wrapped:
        for record in records:
            record["value"] = record["value"] and json.dumps({"schema": {}, "payload": json.loads(record["value"])})
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    load(str(tmp_path / "raw"), [str(tmp_path / "in.jsonl")])
    outcome = Syncer(config, str(tmp_path / "raw"), str(tmp_path / "staging"), spark).sync()
    assert (outcome.in_flight, outcome.set_aside) == (0, {})
    out = [row for row in rows(tmp_path / "staging") if row["kind"] == "output"]
    made = [json.loads(row["value"]) for row in sorted(out, key=lambda row: (row["position"], row["kafka"]["offset"]))]
    assert len([row for row in made if row["op"] == "u"]) == 200
    assert all(isinstance(row["aid"], int) and row["ts"].endswith("Z") for row in made)
    known = json.loads((DATA / "pgbench.truth.json").read_text())
    assert sum({row["aid"]: Decimal(str(row["balance"])) for row in made}.values()) == known["accounts"]


_DOCUMENTED = {
    "mysql": ("57ec87ef-4a5a-11eb-b378-0242ac130002:10", ("inventory", None, "customers"), "inventory.customers"),
    "mariadb": ("0-1-47", ("inventory", None, "customers"), "inventory.customers"),
    "sqlserver": ("00000025:00000d08:0025", ("testDB", "dbo", "tablea"), "testDB.dbo.tablea"),
    "oracle": ("5.6.641", ("ORCLPDB1", "DEBEZIUM", "CUSTOMERS"), "ORCLPDB1.DEBEZIUM.CUSTOMERS"),
    "mongodb": ("1462833718356672513", ("testDB", None, "tablea"), "rs0.testDB.tablea"),
}
"""A transaction's id, a row's database, schema and table, and END's name for that, as Debezium documents each."""


@pytest.mark.parametrize("connector", _DOCUMENTED)
def test_other_connectors_name_transactions_and_tables_as_they_document(
    tmp_path: Path, spark: Any, connector: str
) -> None:
    txn, (database, schema, table), name = _DOCUMENTED[connector]
    own = "collection" if connector == "mongodb" else "table"
    records = []
    for order in (1, 2):
        source = {"version": "3.7.0.Final", "connector": connector, "db": database, "schema": schema, own: table}
        said = {"id": txn, "total_order": order, "data_collection_order": order}
        value = {"op": "c", "before": None, "after": {"x": order}, "source": source, "transaction": said}
        records.append({"topic": "p.t", "value": value})
    other = f"{name.rpartition('.')[0]}.other"
    for counts in ({name: 2}, {other: 2}):
        said = [{"data_collection": one, "event_count": count} for one, count in counts.items()]
        id_ = txn if name in counts else "another"
        value = {"status": "END", "id": id_, "event_count": 2, "data_collections": said}
        records.append({"topic": "p.transaction", "value": value})
    for order in (1, 2):
        value = json.loads(json.dumps(records[order - 1]["value"]))
        value["transaction"]["id"] = "another"
        records.append({"topic": "p.t", "value": value})
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    load(str(tmp_path / "raw"), [str(tmp_path / "in.jsonl")])
    syncer = Syncer(pipeline(tmp_path, "p"), str(tmp_path / "raw"), str(tmp_path / "staging"), spark)
    assert syncer.sync().in_flight == 1  # its END counts rows of another table
    (done,) = [row for row in rows(tmp_path / "staging") if row["kind"] == "done"]
    assert (done["txn"], done["seqno"]) == (txn, 3)
