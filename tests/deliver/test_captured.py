"""What a real Debezium sent of changed keys, deletes and TOAST comes into tables as PostgreSQL had it."""

import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.cdc.captures import Capture, read, truth
from zync.deliver.tables.delivery import sync_to_tables
from zync.project.load import load as load_config
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer

LEFT_OUT = "__debezium_unavailable_value"
CONFIG = """\
transactions: {{preset: debezium, topic: {prefix}.transaction}}
topics: {{{prefix}.m.item: {{as: item}}, {prefix}.m.doc: {{as: doc}}}}
outputs:
  - {{topic: items, sql: items.sql, key: [id]}}
  - {{topic: docs, sql: docs.sql, key: [id]}}
  - {{topic: changes, sql: docs.sql, key: [id]}}
deliver: {{tables: {{changes: {{apply: history}}}}}}
"""
RULES = {
    "items": "SELECT seqno, _order, row:id::int AS id, row:v::string AS v, op = 'd' AS _delete FROM item",
    "docs": "SELECT seqno, _order, row:id::int AS id, row:n::int AS n, row:body::string AS body, "
    "length(row:body::string) AS size FROM doc",
}


@pytest.mark.parametrize(("name", "seed"), [("misc", 1), ("misc370", 2)])
def test_the_tables_are_what_the_database_had(tmp_path: Path, spark: Any, name: str, seed: int) -> None:
    capture = read(name)
    items, docs = versions(capture, "item"), versions(capture, "doc")
    body = docs[1][0]["body"]
    assert [one["body"] == LEFT_OUT for one in docs[1]] == [False, True, False]
    assert body != docs[1][2]["body"]
    assert len({1, 2, 801, 802} & items.keys()) == 4  # two keys that were changed, one twice and then deleted
    deliver_in_cuts(tmp_path, capture, seed, spark)

    def table(topic: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = DeltaTable(str(tmp_path / "tables" / topic)).to_pyarrow_table().to_pylist()
        return sorted(tuple(row[column] for column in columns) for row in rows)

    there = {key: mine[-1]["v"] for key, mine in items.items() if mine[-1]}
    assert table("items", "id", "v") == sorted(there.items())
    assert {3, 101} <= there.keys()
    newest = docs[1][2]["body"]
    assert table("docs", "id", "n", "body", "size") == [(1, 2, newest, len(newest))]
    expected = [(0, body, len(body), False), (1, body, len(body), False), (2, newest, len(newest), True)]
    assert table("changes", "n", "body", "size", "current") == expected


def versions(capture: Capture, table: str) -> dict[int, list[dict[str, Any]]]:
    """Of each key its rows in the order of the source, None where it was deleted."""
    commits, found = truth(capture).commits, []
    for (topic, _), records in capture.partitions.items():
        for value in (one["value"] and json.loads(one["value"]) for one in records):
            if topic.endswith(f".m.{table}") and value:
                of = value["transaction"]
                place = (commits[of["id"].split(":")[0]], of["total_order"]) if of else (value["source"]["lsn"], 0)
                found.append((place, value))
    by_key: dict[int, list[dict[str, Any]]] = {}
    for _, value in sorted(found, key=lambda one: one[0]):
        by_key.setdefault((value["after"] or value["before"])["id"], []).append(value["after"])
    return by_key


def deliver_in_cuts(folder: Path, capture: Capture, seed: int, spark: Any) -> None:
    """Syncs some interleaving of the capture in some cuts, and brings each sync into the tables before the next."""
    (folder / "zync.yaml").write_text(CONFIG.format(prefix=capture.prefix))
    for topic, rule in RULES.items():
        (folder / f"{topic}.sql").write_text(rule)
    config, raw, staging = load_config(folder / "zync.yaml"), str(folder / "raw"), str(folder / "staging")
    records = capture.interleaved(seed)
    cuts = sorted(random.Random(seed).sample(range(1, len(records)), 3))  # noqa: S311 - a test's
    syncer, syncs = Syncer(config, raw, staging, spark), set()
    for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        (folder / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records[start:end]))
        load(raw, [str(folder / "in.jsonl")])
        syncer.sync()
        found = sync_to_tables(spark, config, staging, str(folder / "tables"), threading.Event(), until_caught_up=True)
        syncs.add(found and found.sync)
    assert syncs == {1, 2, 3, 4}
