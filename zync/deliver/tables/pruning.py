"""File pruning: limits a MERGE, and reads of a table, to the files that can hold the arriving keys."""

from collections.abc import Callable
from typing import Any

from zync.deliver.tables.target import TableTarget
from zync.sql import literal, name

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_TYPES = (*_BITS, "date", "timestamp", "string", "decimal")
"""The types of columns for which Delta's log has the minimum and maximum of each file."""


def ends(target: TableTarget, value: Callable[[str], str]) -> list[str]:
    """Returns an aggregate for each prunable key column: struct(minimum, maximum, number of nulls).

    `value` returns the SQL of a column's value.
    """
    return [
        f"struct(CAST(min({sql}) AS STRING), CAST(max({sql}) AS STRING), count_if({sql} IS NULL))"
        for sql in map(value, _prunable_columns(target))
    ]


def between(target: TableTarget, key_ends: list[Any]) -> list[str]:
    """Returns conditions on the table `t` that hold for all arriving keys, from the results of `ends`."""
    conditions = []
    for column, (low, high, nulls) in zip(_prunable_columns(target), key_ends, strict=True):
        column_type = target.columns[column].dataType
        if low is not None and not nulls:
            bits = _BITS.get(column_type.typeName())
            bounds = _around(int(low), int(high), bits) if bits else (low, high)
            limits = " AND ".join(f"CAST({literal(str(bound))} AS {column_type.simpleString()})" for bound in bounds)
            conditions.append(f"t.{name(column)} BETWEEN {limits}")
    return conditions


def _prunable_columns(target: TableTarget) -> list[str]:
    return [column for column in target.key if target.columns[column].dataType.typeName() in _TYPES]


def _around(low: int, high: int, bits: int) -> tuple[int, int]:
    """Rounds the bounds outwards to multiples of a power of two, within integers of `bits` bits.

    Similar batches then have the same literals, so that Spark reuses the compiled code.
    """
    step, min_value = 1 << max(0, (high - low).bit_length() - 3), -(1 << (bits - 1))
    return max(low // step * step, min_value), min(-(-high // step) * step, -min_value - 1)
