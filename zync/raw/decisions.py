"""Operators' decisions: records of a reserved topic in raw, which `zync txn` and `zync dlq` append and syncs obey."""

import json
from typing import Any

import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.lake.files import data_files, dataset
from zync.lake.ranges import SeqnoRanges
from zync.raw.jsonl import Line
from zync.raw.table import DECISIONS, RAW_SCHEMA, stored_position
from zync.text import json_object


def decision_line(action: str, txn: str, *, who: str, why: str, late: SeqnoRanges | None = None) -> Line:
    """Returns a decision as a record to append to raw.

    Args:
        action: What is decided: release, discard, redrive or drop.
        txn: The transaction's id.
        who: The author.
        why: The reason, for people who read it later.
        late: The late records that it is about; None if it is about the transaction.
    """
    value: dict[str, Any] = {"decision": action, "txn": txn, "who": who, "why": why}
    if late:
        value["late"] = late.to_structs()
    return Line(f"decision on {txn}", DECISIONS, value=json.dumps(value).encode())


def decisions(raw: DeltaTable, above: int = 0) -> list[tuple[int, dict[str, Any]]]:
    """Returns the decisions above a seqno as (seqno, decision), in order of seqno.

    A decision has the keys of `decision_line`; it is empty if the record is no JSON object.
    """
    files = data_files(raw, "seqno", above=above)
    if not files or stored_position(raw, DECISIONS) is None:
        return []
    is_decision = (ds.field("kafka", "topic") == DECISIONS.topic) & (ds.field("seqno") > above)
    rows = dataset(raw, files, RAW_SCHEMA).to_table(columns=["seqno", "value"], filter=is_decision).sort_by("seqno")
    return [(row["seqno"], json_object(row["value"]) or {}) for row in rows.to_pylist()]
