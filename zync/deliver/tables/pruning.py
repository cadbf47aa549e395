"""Which of a table's files may have the keys that arrived: no others are read."""

from collections.abc import Callable
from typing import Any

from zync.deliver.tables.target import Target
from zync.sql import literal, name

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_TYPES = (*_BITS, "date", "timestamp", "string", "decimal")
"""Those of which files have least and greatest values on record."""


def ends(target: Target, value: Callable[[str], str]) -> list[str]:
    """Aggregates for each such column of the key: least, greatest, and how many nulls. `value`: SQL for a column."""
    return [
        f"struct(CAST(min({one}) AS STRING), CAST(max({one}) AS STRING), count_if({one} IS NULL))"
        for one in map(value, _columns(target))
    ]


def between(target: Target, found: list[Any]) -> list[str]:
    """Conditions on the target `t`, by what `ends` found."""
    conditions = []
    for column, (low, high, nulls) in zip(_columns(target), found, strict=True):
        kind = target.columns[column].dataType
        if low is not None and not nulls:
            bits = _BITS.get(kind.typeName())
            around = _around(int(low), int(high), bits) if bits else (low, high)
            limits = " AND ".join(f"CAST({literal(str(end))} AS {kind.simpleString()})" for end in around)
            conditions.append(f"t.{name(column)} BETWEEN {limits}")
    return conditions


def _columns(target: Target) -> list[str]:
    return [one for one in target.key if target.columns[one].dataType.typeName() in _TYPES]


def _around(low: int, high: int, bits: int) -> tuple[int, int]:
    """A somewhat wider range of such integers, the same for batches that are alike: each other is compiled anew."""
    step, least = 1 << max(0, (high - low).bit_length() - 3), -(1 << (bits - 1))
    return max(low // step * step, least), min(-(-high // step) * step, -least - 1)
