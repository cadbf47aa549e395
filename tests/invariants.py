"""What must hold of raw and staging together, whatever was killed: staging is what the model makes of raw."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import model
from tests.conftest import rows


def raw_records(raw: Path) -> list[model.Record]:
    """Raw's rows as the model takes them; that seqno has no gap and offsets rise is checked on the way."""
    found = []
    last: dict[tuple[str, int], int] = {}
    for number, row in enumerate(rows(raw), start=1):
        place = (row["kafka"]["topic"], row["kafka"]["partition"])
        assert row["seqno"] == number
        assert row["kafka"]["offset"] > last.get(place, -1)
        last[place] = row["kafka"]["offset"]
        stamp = int(row["ingested"].timestamp() * 1_000_000)
        value = row["value"] and json.loads(row["value"])
        found.append(model.Record(number, place[0], row["kafka"]["offset"], value, ingested=stamp))
    return found


def assert_staging_is_what_raw_says(
    lake: Path, done: Callable[[list[model.Record]], bool], rule: Callable[..., Any], topics: dict[str, Any]
) -> model.State:
    """Compares staging, up to its head, with the model's one pass; returns what the model says."""
    staging = rows(lake / "staging")
    cursors = sorted((row for row in staging if row["kind"] == "cursor"), key=lambda row: row["sync"])
    assert [row["sync"] for row in cursors] == list(range(1, len(cursors) + 1))
    records = raw_records(lake / "raw")[: cursors[-1]["head"]]
    pipeline = model.Pipeline(topics, lambda r: str(r.value["txn"]), done, rule)
    state = model.run(pipeline, records)
    found = [
        (row["seqno"], row["kafka"]["topic"], row["kafka"]["offset"], row["key"], row["value"])
        for row in staging
        if row["kind"] == "output"
    ]
    assert sorted(found) == sorted(state.outputs)
    members = {
        row["seqno"]: [n for one in row["records"] for n in range(one["first"], one["last"] + 1)]
        for row in staging
        if row["kind"] == "done"
    }
    assert members == {seqno: seqnos for seqno, (_, seqnos) in state.done.items()}
    assert cursors[-1]["seqno"] == model.cursor(pipeline, state)
    return state
