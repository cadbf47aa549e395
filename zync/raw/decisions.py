"""Reads operators' decisions from raw, where they are records of a reserved topic."""

import json
from typing import Any

import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.lake.files import data_files, dataset
from zync.raw.table import DECISIONS, RAW_SCHEMA, stored_position


def decisions(raw: DeltaTable, above: int = 0) -> list[tuple[int, dict[str, Any]]]:
    """Returns the decisions above a seqno as (seqno, decision), in order of seqno.

    A decision has the keys that `zync.operate.decide` wrote; it is empty if the record is no JSON object.
    """
    files = data_files(raw, "seqno", above=above)
    if not files or stored_position(raw, DECISIONS) is None:
        return []
    is_decision = (ds.field("kafka", "topic") == DECISIONS.topic) & (ds.field("seqno") > above)
    rows = dataset(raw, files, RAW_SCHEMA).to_table(columns=["seqno", "value"], filter=is_decision).sort_by("seqno")
    return [(row["seqno"], _object(row["value"])) for row in rows.to_pylist()]


def _object(value: bytes | None) -> dict[str, Any]:
    try:
        decision = json.loads(value or b"")
    except (ValueError, RecursionError):
        return {}
    return decision if isinstance(decision, dict) else {}
