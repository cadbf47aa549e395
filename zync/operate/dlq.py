"""`zync dlq list`: groups what is set aside by rule and kind of error. No Spark."""

import re
from itertools import islice
from typing import Any

from deltalake import DeltaTable

from zync.operate.txn import Transaction, find, raw_rows, with_decisions
from zync.raw.table import existing_raw
from zync.staging.kinds import UNDECIDED_KINDS

_MASK = "…"
_VARIABLE = re.compile(
    r"""
    (?P<kept>\[[A-Z_][A-Z0-9_.]*\])                      # Spark's error condition
  | (?<=record\ parsing:\ ).*?(?=\.\s+Parse\ Mode:)      # Spark does not quote this record
  | (?<=Malformed\ CSV\ record:\ ).*
  | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`      # in Spark's errors quotes inside of quoted text are escaped
  | [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}
  | (?:(?<!\w)-)?\d(?:[\d.,:eE+-]*\d)?
    """,
    re.VERBOSE | re.DOTALL,
)
"""The parts of an error text that may differ from record to record."""
_TYPE = (
    "VOID|BOOLEAN|TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL|STRING|CHAR|VARCHAR|BINARY|DATE|TIME|TIMESTAMP|"
    "TIMESTAMP_NTZ|TIMESTAMP_LTZ|INTERVAL|VARIANT|ARRAY|MAP|STRUCT"
)
_CONSTANT = re.compile(
    rf"""
    "(?:(?:{_TYPE})\b[\w\s(),<>:.]*|spark\.[\w.]+|true|false)" | '(?:mode|PERMISSIVE)' | `[A-Za-z_][\w.()\s,<>:]*`
    """,
    re.VERBOSE,
)
"""Quoted text that is the same in all errors of a kind: types, properties, columns and functions."""
_MAX_VALUE_LENGTH = 60
"""Characters of an example's value that are shown."""


def groups(raw: str, staging: str) -> list[dict[str, Any]]:
    """Groups what is set aside by state, rule and kind of error, the most frequent first.

    Returns:
        A dict for each group:
            `state`: quarantined or late.
            `count`: the number of its transactions.
            `decided`: how many of them have a decision that no sync has read yet.
            `rule`: the rule that failed, or None.
            `error`: the error text with its values masked.
            `example`: `id`, `error` and the masked `values` of the first transaction.
            `ids`: the first five ids.
            `places`: topic/partition/offset of the first five records of the example.
    """
    raw_table = existing_raw(raw)
    by_kind: dict[tuple[str, str | None, str], list[Transaction]] = {}
    for transaction in with_decisions(find(staging, UNDECIDED_KINDS), raw_table, staging):
        kind = kind_of(transaction.reason or "")
        by_kind.setdefault((transaction.state, transaction.rule, kind), []).append(transaction)
    most_frequent = sorted(by_kind.items(), key=lambda item: -len(item[1]))
    return [_group(raw_table, *group, transactions) for group, transactions in most_frequent]


def _group(
    raw_table: DeltaTable, state: str, rule: str | None, kind: str, transactions: list[Transaction]
) -> dict[str, Any]:
    first = transactions[0]
    return {
        "state": state,
        "count": len(transactions),
        "decided": sum(transaction.decided is not None for transaction in transactions),
        "rule": rule,
        "error": kind,
        "example": {"id": first.id, "error": first.reason, "values": values_in(first.reason or "")},
        "ids": [transaction.id for transaction in transactions[:5]],
        "places": [
            "{topic}/{partition}/{offset}".format(**row["kafka"])
            for row in islice(raw_rows(raw_table, first.records, ["seqno", "kafka"]), 5)
        ],
    }


def describe(group: dict[str, Any]) -> str:
    """Returns a group as a line for people."""
    rule = f"rule {group['rule']}: " if group["rule"] else ""
    ids = ", ".join([*group["ids"], _MASK] if group["count"] > len(group["ids"]) else group["ids"])
    decided = f"; decided about: {group['decided']:,}, on which the next sync acts" if group["decided"] else ""
    example = group["example"]
    values = ", ".join(
        value if len(value) <= _MAX_VALUE_LENGTH else value[:_MAX_VALUE_LENGTH] + _MASK for value in example["values"]
    )
    coordinates = group["places"][0]
    record = coordinates if coordinates == example["id"] else f"{example['id']}, at {coordinates}"
    first = f"for example {values} in {record}" if values else f"the first at {coordinates}"
    return f"{group['count']:,} {group['state']}  {rule}{group['error']}  (ids {ids}; {first}{decided})"


def kind_of(error: str) -> str:
    """Returns the error text with values and numbers masked, as they differ from record to record; types stay."""
    return _VARIABLE.sub(lambda part: part[0] if _is_constant(part) else _MASK, error)


def values_in(error: str) -> list[str]:
    """Returns the values that `kind_of` masks, in order."""
    return [part[0] for part in _VARIABLE.finditer(error) if part[0] and not _is_constant(part)]


def _is_constant(part: re.Match[str]) -> bool:
    return part["kept"] is not None or _CONSTANT.fullmatch(part[0]) is not None
