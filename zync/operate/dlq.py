"""What is set aside, by rule and error. No Spark."""

import re
from itertools import islice
from typing import Any

from zync.operate.txn import Transaction, find, raw_rows, with_decisions
from zync.raw.table import existing_raw

_MASK = "…"
_PARTS = re.compile(
    r"""
    (?P<kept>\[[A-Z_][A-Z0-9_.]*\])                      # Spark's condition
  | (?<=record\ parsing:\ ).*?(?=\.\s+Parse\ Mode:)      # which Spark does not quote
  | (?<=Malformed\ CSV\ record:\ ).*
  | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`      # of Spark's errors what is quoted has its quotes escaped
  | [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}
  | (?:(?<!\w)-)?\d(?:[\d.,:eE+-]*\d)?
    """,
    re.VERBOSE | re.DOTALL,
)
"""What may differ from record to record in an error."""
_TYPE = (
    "VOID|BOOLEAN|TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL|STRING|CHAR|VARCHAR|BINARY|DATE|TIME|TIMESTAMP|"
    "TIMESTAMP_NTZ|TIMESTAMP_LTZ|INTERVAL|VARIANT|ARRAY|MAP|STRUCT"
)
_SAME = re.compile(
    rf"""
    "(?:(?:{_TYPE})\b[\w\s(),<>:.]*|spark\.[\w.]+|true|false)" | '(?:mode|PERMISSIVE)' | `[A-Za-z_][\w.()\s,<>:]*`
    """,
    re.VERBOSE,
)
"""What is quoted, and is the same in all errors of a kind: types, properties, columns and functions."""
_LONGEST = 60
"""Characters of a value that is shown as an example."""


def groups(raw: str, staging: str) -> list[dict[str, Any]]:
    """What is set aside, by rule and kind of error, the most frequent first.

    Each with its state, a count, how many were `decided` about since the newest sync, the `error` with the values in it
    masked, some ids; and of the first of them, as an `example`, its error, the values that are masked, and where its
    records are in Kafka.
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
            "error": kind,
            "example": {"id": mine[0].id, "error": mine[0].reason, "values": values_in(mine[0].reason or "")},
            "ids": [one.id for one in mine[:5]],
            "places": [
                "{topic}/{partition}/{offset}".format(**row["kafka"])
                for row in islice(raw_rows(raw_table, mine[0].records, ["seqno", "kafka"]), 5)
            ],
        }
        for (state, rule, kind), mine in sorted(found.items(), key=lambda item: -len(item[1]))
    ]


def describe(group: dict[str, Any]) -> str:
    """A group as a line for people."""
    by = f"rule {group['rule']}: " if group["rule"] else ""
    ids = ", ".join([*group["ids"], _MASK] if group["count"] > len(group["ids"]) else group["ids"])
    decided = f"; decided about: {group['decided']:,}, on which the next sync acts" if group["decided"] else ""
    example = group["example"]
    values = ", ".join(one if len(one) <= _LONGEST else one[:_LONGEST] + _MASK for one in example["values"])
    place = group["places"][0]
    where = place if place == example["id"] else f"{example['id']}, at {place}"
    first = f"for example {values} in {where}" if values else f"the first at {place}"
    return f"{group['count']:,} {group['state']}  {by}{group['error']}  (ids {ids}; {first}{decided})"


def kind_of(error: str) -> str:
    """The error with what differs from record to record masked: values and numbers, but no types."""
    return _PARTS.sub(lambda part: part[0] if _is_same(part) else _MASK, error)


def values_in(error: str) -> list[str]:
    """What `kind_of` masks."""
    return [part[0] for part in _PARTS.finditer(error) if part[0] and not _is_same(part)]


def _is_same(part: re.Match[str]) -> bool:
    return part["kept"] is not None or _SAME.fullmatch(part[0]) is not None
