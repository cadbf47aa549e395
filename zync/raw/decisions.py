"""Operators' decisions as raw has them: records of its reserved topic."""

import json
from typing import Any

import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.lake.files import data_files, dataset
from zync.raw.table import DECISIONS, RAW_SCHEMA, stored_position


def decisions(raw: DeltaTable, above: int = 0) -> list[tuple[int, dict[str, Any]]]:
    """Those above that seqno, in order: (seqno, what `zync.operate.decide` wrote; {} for what it did not)."""
    paths = [file.path for file in data_files(raw, "seqno", above=above)]
    if not paths or stored_position(raw, DECISIONS) is None:
        return []
    ours = (ds.field("kafka", "topic") == DECISIONS.topic) & (ds.field("seqno") > above)
    rows = dataset(raw, paths, RAW_SCHEMA).to_table(columns=["seqno", "value"], filter=ours).sort_by("seqno")
    return [(row["seqno"], _object(row["value"])) for row in rows.to_pylist()]


def _object(value: bytes | None) -> dict[str, Any]:
    try:
        one = json.loads(value or b"")
    except (ValueError, RecursionError):
        return {}
    return one if isinstance(one, dict) else {}
