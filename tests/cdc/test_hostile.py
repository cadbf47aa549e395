"""Values that no connector sends, on topics of the Debezium preset: none stops a sync, and none is lost in silence."""

import base64
import json
from pathlib import Path
from typing import Any

from tests.cdc.test_captures import pipeline
from tests.conftest import rows
from zync.operate.verify import verify
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer

NO_JSON, NO_TEXT, NO_ENVELOPE = (
    "value is not one JSON value",
    "value is not UTF-8",
    "value is no envelope of Debezium (op beside before, after or source): does ExtractNewRecordState, or another "
    "transform, flatten it? Take that out of the connector's config",
)


def row(txn: Any, total_order: Any = 1, **more: Any) -> str:
    block = {"id": txn, "total_order": total_order, "data_collection_order": 1}
    source = {"connector": "postgresql", "version": "3.7.0.Final", "schema": "public", "table": "t", "lsn": 5}
    return json.dumps({"before": None, "after": {"id": 1}, "source": source, "op": "c", "transaction": block, **more})


def end(txn: Any, count: Any, **more: Any) -> str:
    counted = [{"data_collection": "public.t", "event_count": count}]
    return json.dumps({"status": "END", "id": txn, "event_count": count, "data_collections": counted, **more})


ROWS: list[tuple[str | bytes, str, str | None]] = [
    ('{"op":"c"', "quarantined", NO_JSON),
    (b"\xff{}", "quarantined", NO_TEXT),
    ('{"op":"c","op":"d"}', "quarantined", NO_JSON),
    ('{"op":NaN}', "quarantined", NO_JSON),
    ("[" * 3000 + "]" * 3000, "quarantined", NO_JSON),
    *((text, "quarantined", NO_ENVELOPE) for text in ("5", "[]", '"x"', "{}", "null", '{"id":1,"balance":2}')),
    ('{"schema":{},"payload":7}', "quarantined", NO_ENVELOPE),
    (row(None, transaction="x"), "done", None),
    (row(None, transaction=[]), "done", None),
    (row(None), "done", None),
    (row(None, after="x" * 5_000_000), "done", None),
    (row("8:1", "a"), "pending", "the done condition fails on it"),
    (row("9:1", -1), "pending", None),
    (row("10:1", 2**63), "pending", "the done condition fails on it"),
    (row("11:1", op=None), "pending", NO_ENVELOPE),
    (row("12:1", source=3), "pending", None),
]
ENDS: list[tuple[str, str, str | None]] = [
    ('{"status":"END"', "quarantined", NO_JSON),
    (end("13:1", -1), "pending", None),
    (end("14:1", "x"), "pending", "the done condition fails on it"),
    (end("15:1", 2**63), "pending", "the done condition fails on it"),
    (end("16:1", 1, data_collections=5), "pending", "the done condition fails on it"),
    (end("17:1", 1, status="MAYBE"), "pending", None),
    (end("18:1", 0, data_collections=[]), "done", None),
]


def test_each_is_set_aside_in_flight_or_by_itself_and_what_is_good_lands(tmp_path: Path, spark: Any) -> None:
    def line(topic: str, value: str | bytes) -> str:
        said = {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        return json.dumps({"topic": topic, "value": said}) + "\n"

    bad = [("p.public.t", *one) for one in ROWS] + [("p.transaction", *one) for one in ENDS]
    lines = [line("p.public.t", row("7:1")), *(line(topic, value) for topic, value, _, _ in bad)]
    lines += [line("p.transaction", end("7:2", 1)), line("p.history", '{"ddl":"ALTER"}')]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    load(str(tmp_path / "raw"), [str(tmp_path / "in.jsonl")])
    config = pipeline(tmp_path, "p", "SELECT seqno, _order, txn, row:id::int AS id FROM `p.public.t`")
    Syncer(config, str(tmp_path / "raw"), str(tmp_path / "staging"), spark).sync()
    staging = rows(tmp_path / "staging")
    fates = {
        seqno: (one["kind"], one["reason"])
        for one in staging
        if one["kind"] not in ("output", "cursor")
        for part in one["records"]
        for seqno in range(part["first"], part["last"] + 1)
    }
    expected = [(kind, reason) for _, _, kind, reason in bad]
    assert [fates[seqno] for seqno in range(1, len(lines) + 1)] == [
        ("done", None),
        *expected,
        ("done", None),
        ("done", None),
    ]
    out = [json.loads(one["value"]) for one in staging if one["kind"] == "output"]
    assert [one["txn"] for one in out] == [*(f"p.public.t/0/{at}" for at in range(13, 17)), "7"]
    proofs = verify(str(tmp_path / "raw"), str(tmp_path / "staging"), config, every_version=True, kafka=False)
    assert not [one for one in proofs if one.violations]
