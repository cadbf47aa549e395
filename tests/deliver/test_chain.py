"""Two zyncs, one behind the other: what the first one delivers, the second one makes the same transactions of."""

import json
import random
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conftest import TopicMaker, rows
from zync.deliver.kafka.delivery import Delivery, sync_to_kafka
from zync.ingest.consume import Ingest, sync_from_kafka
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer

FIRST = """\
lake: lake
kafka: {{bootstrap.servers: "{broker}"}}
topics:
  left: {{id: "value:txn"}}
  right: {{id: "value:txn", null_id: single}}
transactions: {{done: "count(*) = max(value:n::int)"}}
outputs:
  - {{topic: {one}, sql: left.sql, key: [k]}}
  - {{topic: {other}, sql: right.sql, key: [k]}}
deliver: {{kafka: {{transaction_topic: {ends}}}}}
"""
SECOND = """\
lake: lake
kafka: {{bootstrap.servers: "{broker}"}}
topics:
  "^{prefix}": {{id: "CAST(map_from_entries(headers)['zync.seqno'] AS STRING)"}}
transactions:
  done: >-
    max(CASE WHEN value:status::string = 'END' THEN value:event_count::int END)
    = count_if(topic <> '{ends}')
outputs:
  - {{topic: {one}, sql: one.sql, key: [k]}}
  - {{topic: {other}, sql: other.sql, key: [k]}}
"""
RULE = "SELECT seqno, record_seqno AS _order, value:k::int AS k, value:v::string AS v FROM `{view}`"


def outputs(staging: Path, names: dict[str, str]) -> dict[str, list[tuple[str, str, str]]]:
    """The rows of each transaction, by the id that the first zync knows it by."""
    found = rows(staging)
    txn = {row["seqno"]: row["txn"] for row in found if row["kind"] == "done"}
    made: dict[str, list[tuple[str, str, str]]] = {}
    for row in sorted((one for one in found if one["kind"] == "output"), key=lambda one: one["kafka"]["offset"]):
        key = names.get(str(txn[row["seqno"]]), str(txn[row["seqno"]] or row["seqno"]))
        made.setdefault(key, []).append((row["kafka"]["topic"], row["key"], row["value"]))
    return made


def test_a_second_zync_re_aggregates_the_same_transactions(
    tmp_path: Path, broker: str, topic: TopicMaker, spark: Any
) -> None:
    prefix = f"chain-{uuid.uuid4().hex[:8]}"
    one, other, ends = f"{prefix}-one", f"{prefix}-other", f"{prefix}-transactions"
    for name in (one, other):
        topic.create(name, partitions=3)
    said = {"broker": broker, "prefix": prefix, "one": one, "other": other, "ends": ends}
    folders = {"first": tmp_path / "first", "second": tmp_path / "second"}
    for folder, text in zip(folders.values(), (FIRST, SECOND), strict=True):
        folder.mkdir()
        (folder / "zync.yaml").write_text(text.format(**said))
    for view in ("left", "right"):
        (folders["first"] / f"{view}.sql").write_text(RULE.format(view=view))
    for file, name in (("one", one), ("other", other)):
        (folders["second"] / f"{file}.sql").write_text(
            RULE.format(view="records") + f" WHERE topic = '{name}' AND value IS NOT NULL"
        )
    first, second = (read_config(folder / "zync.yaml") for folder in folders.values())

    chance = random.Random(3)
    records = []
    for txn in range(60):
        size = chance.randint(1, 6)
        for n in range(size):
            value = {"txn": txn, "n": size, "k": chance.randrange(9), "v": f"{txn}.{n}"}
            records.append({"topic": chance.choice(["left", "right"]), "key": None, "value": value})
    records += [{"topic": "right", "key": None, "value": {"k": n, "v": "alone"}} for n in range(5)]
    chance.shuffle(records)
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    tables = {name: str(folder / "lake" / "raw") for name, folder in folders.items()}
    staging = {name: str(folder / "lake" / "staging") for name, folder in folders.items()}
    load(tables["first"], [str(tmp_path / "records.jsonl")])
    assert Syncer(first, tables["first"], staging["first"], spark).sync().transactions == 65
    done = sync_to_kafka(Delivery(staging["first"], config=first, group_rows=20, until_caught_up=True))
    assert done.transactions == 65

    sync_from_kafka(Ingest(tables["second"], second.kafka, second.sources, until_caught_up=True))
    outcome = Syncer(second, tables["second"], staging["second"], spark).sync()
    assert (outcome.transactions, outcome.in_flight, outcome.set_aside) == (65, 0, {})
    known = {str(row["seqno"]): row["txn"] for row in rows(Path(staging["first"])) if row["kind"] == "done"}
    names = {seqno: txn or seqno for seqno, txn in known.items()}
    before, after = outputs(Path(staging["first"]), {}), outputs(Path(staging["second"]), names)
    assert {txn: sorted(found) for txn, found in after.items()} == {txn: sorted(found) for txn, found in before.items()}

    events = [json.loads(row["value"]) for row in rows(Path(tables["second"])) if row["kafka"]["topic"] == ends]
    begun = [event["id"] for event in events if event["status"] == "BEGIN"]
    ended = {event["id"]: event for event in events if event["status"] == "END"}
    assert sorted(begun) == sorted(ended) == sorted(f"{txn}:{seqno}" if txn else seqno for seqno, txn in known.items())
    assert all(event["event_count"] is None for event in events if event["status"] == "BEGIN")
    counted: dict[str, Counter[str]] = {seqno: Counter() for seqno in known}
    for row in rows(Path(staging["first"])):
        if row["kind"] == "output":
            counted[str(row["seqno"])][row["kafka"]["topic"]] += 1
    for seqno, txn in known.items():
        event = ended[f"{txn}:{seqno}" if txn else seqno]
        counts = {one["data_collection"]: one["event_count"] for one in event["data_collections"]}
        assert (counts, event["event_count"]) == (counted[seqno], counted[seqno].total())
