"""What is set aside, by rule and error. No Spark."""

import re
from itertools import islice
from typing import Any

from zync.operate.txn import Transaction, find, raw_rows, with_decisions
from zync.raw.table import existing_raw


def groups(raw: str, staging: str) -> list[dict[str, Any]]:
    """What is set aside, by rule and error (its numbers and quoted parts aside), the most frequent first.

    Each with its state, a count, how many were `decided` about since the newest sync, an example of the error, some
    ids, and where the first one's records are in Kafka.
    """
    raw_table = existing_raw(raw)
    found: dict[tuple[str, str | None, str], list[Transaction]] = {}
    for one in with_decisions(find(staging, ("quarantined", "late")), raw_table, staging):
        found.setdefault((one.state, one.rule, kind_of(one.reason or "")), []).append(one)
    return [
        {
            "state": state,
            "count": len(mine),
            "decided": sum(one.decided is not None for one in mine),
            "rule": rule,
            "error": mine[0].reason,
            "ids": [one.id for one in mine[:5]],
            "places": [
                "{topic}/{partition}/{offset}".format(**row["kafka"])
                for row in islice(raw_rows(raw_table, mine[0].records, ["seqno", "kafka"]), 5)
            ],
        }
        for (state, rule, _), mine in sorted(found.items(), key=lambda item: -len(item[1]))
    ]


def kind_of(error: str) -> str:
    """The error without what differs from record to record: of Spark's errors what is quoted has its quotes escaped."""
    return re.sub(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d+""", "…", error)
