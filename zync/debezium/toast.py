"""Restores values that Debezium left out of a row, in delivered tables: SQL for the column `_left_out` and its use.

PostgreSQL's connector leaves out large values that an update did not touch and that it did not look up, and sends a
placeholder instead (https://debezium.io/documentation/reference/connectors/postgresql.html, "Toasted values"). The
value is that of the newest row before it in the source's order, which may arrive later. So a table's row that took a
value from another row names the column in `_left_out`, with the position of the row that the value is from.
"""

from collections.abc import Collection, Iterable, Mapping

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from zync.debezium.unavailable import Placeholder
from zync.sql import literal, name

COLUMN = "_left_out"
MISSING, KNOWN = "_missing", "_known_"
"""Columns that statements have in addition to a table's: the names of the columns that a row left out; and the prefix
of the columns with the newest known values."""
TYPE = "MAP<STRING, STRUCT<position: BIGINT, seqno: BIGINT>>"


def is_left_out(value: str, value_type: DataType, placeholder: Placeholder) -> str | None:
    """Returns the condition, never null, that a value is the placeholder; None: no value of that type can be.

    An array, JSON or hstore that was left out consists of the placeholder alone, as Debezium writes it. A staging that
    names the left-out columns itself has placeholders in columns of few types; in older ones only the value tells.

    Args:
        value: SQL for the value.
        value_type: The value's type.
        placeholder: The connector's placeholder.
    """
    texts = ", ".join(map(literal, placeholder.texts))
    condition = None
    if value_type.typeName() == "string":
        condition = f"{value} IN ({texts})"
    elif value_type.typeName() == "binary":
        condition = f"{value} = X'{placeholder.data.hex()}'"
    elif value_type.typeName() == "variant":
        condition = f"to_json({value}) IN ({', '.join(map(literal, placeholder.json))})"
    elif isinstance(value_type, MapType) and value_type.keyType.typeName() == "string":
        condition = f"size({value}) = 1 AND map_contains_key({value}, {literal(placeholder.text)})"
    elif isinstance(value_type, ArrayType) and value_type.elementType.typeName() == "string":
        condition = f"size({value}) = 1 AND element_at({value}, 1) IN ({texts}, {literal(placeholder.uuid)})"
    elif isinstance(value_type, ArrayType) and value_type.elementType.typeName() == "binary":
        condition = f"size({value}) = 1 AND element_at({value}, 1) = X'{placeholder.data.hex()}'"
    elif isinstance(value_type, ArrayType) and value_type.elementType.typeName() in ("integer", "long"):
        numbers = ", ".join(map(str, placeholder.numbers))
        condition = f"{value} = CAST(array({numbers}) AS {value_type.simpleString()})"
    return f"coalesce({condition}, false)" if condition else None


def may_be_left_out(
    columns: StructType, key: tuple[str, ...], placeholder: Placeholder, named: Collection[str], noted: Collection[str]
) -> dict[str, str]:
    """Returns the columns whose values may have been left out, each with the condition that it was left out of `v`.

    Args:
        columns: The table's columns.
        key: The names of the key's columns.
        placeholder: The connector's placeholder.
        named: The columns that some row of the batch names as left out, in its `left_out`.
        noted: The columns that rows of the table name as left out.
    """
    conditions_by_column = {}
    for field in columns:
        if field.name in key:
            continue
        by_value = is_left_out(f"v.{name(field.name)}", field.dataType, placeholder)
        by_name = f"coalesce(array_contains(left_out, {literal(field.name)}), false)" if field.name in named else None
        conditions = [condition for condition in (by_name, by_value) if condition]
        if conditions or field.name in noted:
            conditions_by_column[field.name] = f"({' OR '.join(conditions) or 'false'})"
    return conditions_by_column


NOTED = "zync.left_out"
"""A table property: the columns that rows name as left out, though no value in them shows it."""


def noted(properties: Mapping[str, str]) -> frozenset[str]:
    """Returns the columns in the property NOTED of a table.

    Args:
        properties: The table's properties.
    """
    return frozenset(filter(None, properties.get(NOTED, "").split(", ")))


def as_they_came(columns: Mapping[str, str]) -> dict[str, str]:
    """Returns SQL for `_left_out` of rows that are kept as they arrived: no value was taken from another row.

    Args:
        columns: From `may_be_left_out`.
    """
    return {COLUMN: _entries({column: (condition, _NOWHERE) for column, condition in columns.items()})}


def newest_known(columns: dict[str, str], *, moved: bool = False) -> str:
    """Returns SQL for an aggregate per column: the newest value `x` that was not left out, with its `place`; or null.

    Args:
        columns: From `may_be_left_out`.
        moved: Whether some rows have columns in `unresolved`, whose values under the row's former key are not known.
    """

    def place(column: str) -> str:
        known_place = _place("place.position", "place.seqno")
        unresolved = f"array_contains(unresolved, {literal(column)})"
        return f"IF({unresolved}, {_place('place.position', '-1L')}, {known_place})" if moved else known_place

    return "".join(
        f", max_by(named_struct('x', v.{name(column)}, 'place', {place(column)}), place) "
        f"FILTER (WHERE NOT deleted AND NOT {condition}) AS {_known(column)}"
        for column, condition in columns.items()
    )


def known(column: str) -> str:
    """Returns the name of the aggregate with the newest known value of a column."""
    return _known(column)


def origin(column: str) -> str:
    """Returns SQL, in sql/tables/donors.sql, for the place that a candidate's column is from."""
    recorded = f"origin[{literal(column)}]"
    return (
        f"named_struct('position', coalesce({recorded}.position, place.position), "
        f"'seqno', coalesce({recorded}.seqno, place.seqno), 'offset', place.offset)"
    )


def is_known(column: str) -> str:
    """Returns the condition, in sql/tables/donors.sql, that the place that a candidate's column is from is known."""
    return f"coalesce(origin[{literal(column)}].seqno, 0L) >= 0"


def of_newest(columns: dict[str, str]) -> dict[str, str]:
    """Returns SQL, over sql/tables/newest.sql, for the newest known values of the columns and for `_left_out`.

    Args:
        columns: From `may_be_left_out`.
    """
    values = {column: f"{_known(column)}.x" for column in columns}
    entries = {
        column: (condition, f"coalesce({_known(column)}.place, {_NOWHERE})") for column, condition in columns.items()
    }
    return values | {COLUMN: _entries(entries)}


def places(columns: Iterable[str]) -> dict[str, str]:
    """Returns SQL, over sql/tables/newest.sql, for the place that the newest known value of each column is from."""
    return {f"{KNOWN}{column}": f"coalesce({_known(column)}.place, {_NOWHERE})" for column in columns}


def merged(columns: Iterable[str], newer: str) -> tuple[str, dict[str, str]]:
    """Returns how MERGE updates these columns of a table's row `t` by an arrived row `s`.

    Args:
        columns: The columns.
        newer: The condition that `s` is newer than `t`.

    Returns:
        The condition that `s` knows a later value of a column, and SQL for the columns' new values.
    """
    newer_row, conditions, values, entries = f"IF({newer}, s.{COLUMN}, t.{COLUMN})", [], {}, {}
    for column in columns:
        text, arrived_place = literal(column), f"s.{_known(column)}"
        row_place = _place("t._position", "t._seqno")
        stored_place = f"IF(map_contains_key(t.{COLUMN}, {text}), t.{COLUMN}[{text}], {row_place})"
        conditions.append(f"{arrived_place} > {stored_place}")
        values[column] = f"IF({arrived_place} > {stored_place}, s.{name(column)}, t.{name(column)})"
        entries[column] = (
            f"coalesce(map_contains_key({newer_row}, {text}), false)",
            f"greatest({arrived_place}, {stored_place})",
        )
    return " OR ".join(conditions), {**values, COLUMN: _entries(entries)}


def in_transaction(columns: dict[str, str]) -> dict[str, str]:
    """Returns SQL for the columns after all changes of a key in a transaction; null if the transaction left them out.

    Args:
        columns: From `may_be_left_out`.
    """
    return {
        column: f"CASE WHEN {condition} THEN {_known(column)}.x ELSE v.{name(column)} END"
        for column, condition in columns.items()
    }


def missing(columns: dict[str, str]) -> str:
    """Returns SQL for the names of the columns that a transaction left out of all changes of a key.

    Args:
        columns: From `may_be_left_out`.
    """
    names = (
        f"CASE WHEN {condition} AND {_known(column)} IS NULL THEN {literal(column)} END"
        for column, condition in columns.items()
    )
    return f"array_compact(array({', '.join(names)}))"


def filled(columns: Iterable[str]) -> dict[str, str]:
    """Returns SQL that fills columns of a key's versions from the version before, and sets `_left_out`.

    It is evaluated over the window `later` of the key's versions, where `_missing` names the columns that a version
    left out.
    """
    values, entries = {}, {}
    for column in columns:
        is_missing, version_place = f"array_contains({MISSING}, {literal(column)})", _place("_position", "_seqno")
        own_value = f"CASE WHEN NOT {is_missing} THEN named_struct('x', {name(column)}, 'place', {version_place}) END"
        last_value = f"last_value({own_value}, true) OVER later"
        values[column] = f"({last_value}).x"
        entries[column] = (is_missing, f"coalesce(({last_value}).place, {_NOWHERE})")
    return values | ({COLUMN: _entries(entries)} if entries else {})


def _known(column: str) -> str:
    return name(f"{KNOWN}{column}")


def _place(position: str, seqno: str) -> str:
    return f"named_struct('position', {position}, 'seqno', {seqno})"


_NOWHERE = _place("-1L", "-1L")
"""The place of a value that has not arrived yet. (A value that a row had under a former key has the seqno -1, too.)"""


def _entries(entries: dict[str, tuple[str, str]]) -> str:
    """Returns SQL for the value of `_left_out`, a map from column to place; null without entries.

    Args:
        entries: By column, the condition that it was left out, and the place that its value is from.
    """
    if not entries:
        return f"CAST(NULL AS {TYPE})"
    any_condition = " OR ".join(condition for condition, _ in entries.values())
    structs = (
        f"CASE WHEN {condition} THEN struct({literal(column)}, {place}) END"
        for column, (condition, place) in entries.items()
    )
    array = f"array_compact(array({', '.join(structs)}))"
    return f"CASE WHEN {any_condition} THEN CAST(map_from_entries({array}) AS {TYPE}) END"
