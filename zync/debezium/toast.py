"""What Debezium leaves out: large values of PostgreSQL's that an update did not touch, and that it did not look up.

In their place comes a placeholder (https://debezium.io/documentation/reference/connectors/postgresql.html, "Toasted
values"). The value is that of the newest row before it in the source's order, which may be yet to come. So a row that
took one from elsewhere says in a column of its own, `_left_out`, which columns these are, and where each is from.
"""

from collections.abc import Collection, Iterable, Mapping

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from zync.debezium.unavailable import Placeholder
from zync.sql import literal, name

COLUMN = "_left_out"
MISSING, KNOWN = "_missing", "_known_"
"""Columns that statements have beside a table's: which of its own were left out, and what is known of each of them."""
TYPE = "MAP<STRING, STRUCT<position: BIGINT, seqno: BIGINT>>"


def is_left_out(value: str, kind: DataType, stands: Placeholder) -> str | None:
    """A condition, never null: `value`, SQL of that type, is a placeholder. None: no value of that type can be one.

    In arrays, JSON and hstore, as Debezium has it, the placeholder is all that there is. Stagings that say by
    themselves which columns were left out have it in columns of few types; older ones say it by nothing else.
    """
    texts = ", ".join(map(literal, stands.texts))
    found = None
    if kind.typeName() == "string":
        found = f"{value} IN ({texts})"
    elif kind.typeName() == "binary":
        found = f"{value} = X'{stands.data.hex()}'"
    elif kind.typeName() == "variant":
        found = f"to_json({value}) IN ({', '.join(map(literal, stands.json))})"
    elif isinstance(kind, MapType) and kind.keyType.typeName() == "string":
        found = f"size({value}) = 1 AND map_contains_key({value}, {literal(stands.text)})"
    elif isinstance(kind, ArrayType) and kind.elementType.typeName() == "string":
        found = f"size({value}) = 1 AND element_at({value}, 1) IN ({texts}, {literal(stands.uuid)})"
    elif isinstance(kind, ArrayType) and kind.elementType.typeName() == "binary":
        found = f"size({value}) = 1 AND element_at({value}, 1) = X'{stands.data.hex()}'"
    elif isinstance(kind, ArrayType) and kind.elementType.typeName() in ("integer", "long"):
        found = f"{value} = CAST(array({', '.join(map(str, stands.numbers))}) AS {kind.simpleString()})"
    return f"coalesce({found}, false)" if found else None


def may_be_left_out(
    columns: StructType, key: tuple[str, ...], stands: Placeholder, named: Collection[str], noted: Collection[str]
) -> dict[str, str]:
    """Columns whose values may have been left out, each with the condition that `v`'s was.

    named: those that a row of the batch says are left out (its `left_out`); noted: those that rows of the table say.
    """
    found = {}
    for one in columns:
        if one.name in key:
            continue
        by_value = is_left_out(f"v.{name(one.name)}", one.dataType, stands)
        by_name = f"coalesce(array_contains(left_out, {literal(one.name)}), false)" if one.name in named else None
        conditions = [condition for condition in (by_name, by_value) if condition]
        if conditions or one.name in noted:
            found[one.name] = f"({' OR '.join(conditions) or 'false'})"
    return found


NOTED = "zync.left_out"
"""A table's property: columns that rows say were left out, though no value of theirs says so itself."""


def noted(properties: Mapping[str, str]) -> frozenset[str]:
    """The columns that a table of those properties has on record so."""
    return frozenset(filter(None, properties.get(NOTED, "").split(", ")))


def as_they_came(columns: Mapping[str, str]) -> dict[str, str]:
    """`_left_out` of rows that are kept as they came: their values are from nowhere."""
    return {COLUMN: _entries({one: (its, _NOWHERE) for one, its in columns.items()})}


def newest_known(columns: dict[str, str], *, moved: bool = False) -> str:
    """Aggregates for each of those columns: the newest value `x` that was not left out, and its `place`; or null.

    `moved`: some rows have columns that are `unresolved`: what they were by another key is not known.
    """

    def place(column: str) -> str:
        its = _place("place.position", "place.seqno")
        unresolved = f"array_contains(unresolved, {literal(column)})"
        return f"IF({unresolved}, {_place('place.position', '-1L')}, {its})" if moved else its

    return "".join(
        f", max_by(named_struct('x', v.{name(column)}, 'place', {place(column)}), place) "
        f"FILTER (WHERE NOT deleted AND NOT {condition}) AS {_known(column)}"
        for column, condition in columns.items()
    )


def known(column: str) -> str:
    """What is known of a column, as the aggregates here call it."""
    return _known(column)


def origin(column: str) -> str:
    """In sql/tables/donors.sql, where a candidate's column is from."""
    its = f"origin[{literal(column)}]"
    return (
        f"named_struct('position', coalesce({its}.position, place.position), "
        f"'seqno', coalesce({its}.seqno, place.seqno), 'offset', place.offset)"
    )


def is_known(column: str) -> str:
    """Whether that is known."""
    return f"coalesce(origin[{literal(column)}].seqno, 0L) >= 0"


def of_newest(columns: dict[str, str]) -> dict[str, str]:
    """Over sql/tables/newest.sql: what is known of those columns, and `_left_out`."""
    values = {one: f"{_known(one)}.x" for one in columns}
    where = {one: (its, f"coalesce({_known(one)}.place, {_NOWHERE})") for one, its in columns.items()}
    return values | {COLUMN: _entries(where)}


def places(columns: Iterable[str]) -> dict[str, str]:
    """Over sql/tables/newest.sql: where what is known of those columns is from."""
    return {f"{KNOWN}{one}": f"coalesce({_known(one)}.place, {_NOWHERE})" for one in columns}


def merged(columns: Iterable[str], newer: str) -> tuple[str, dict[str, str]]:
    """How a row `t` of a table is updated by `s` of what arrived, as far as those columns go.

    `newer`: a condition that `s` is. Returns a condition that something is known of later in `s`; what columns become.
    """
    row, later, values, where = f"IF({newer}, s.{COLUMN}, t.{COLUMN})", [], {}, {}
    for column in columns:
        text, its = literal(column), f"s.{_known(column)}"
        there = f"IF(map_contains_key(t.{COLUMN}, {text}), t.{COLUMN}[{text}], {_place('t._position', 't._seqno')})"
        later.append(f"{its} > {there}")
        values[column] = f"IF({its} > {there}, s.{name(column)}, t.{name(column)})"
        where[column] = (f"coalesce(map_contains_key({row}, {text}), false)", f"greatest({its}, {there})")
    return " OR ".join(later), {**values, COLUMN: _entries(where)}


def in_transaction(columns: dict[str, str]) -> dict[str, str]:
    """Over a transaction's changes of a key: what those columns are after it; null where it left them out."""
    return {one: f"CASE WHEN {its} THEN {_known(one)}.x ELSE v.{name(one)} END" for one, its in columns.items()}


def missing(columns: dict[str, str]) -> str:
    """And the names of those that it left out."""
    found = (f"CASE WHEN {its} AND {_known(one)} IS NULL THEN {literal(one)} END" for one, its in columns.items())
    return f"array_compact(array({', '.join(found)}))"


def filled(columns: Iterable[str]) -> dict[str, str]:
    """Over the window `later` of a key's versions, of which `_missing` names those of the columns that it left out.

    Each is what it was in the version before; and `_left_out`.
    """
    values, where = {}, {}
    for column in columns:
        left_out, here = f"array_contains({MISSING}, {literal(column)})", _place("_position", "_seqno")
        known = f"CASE WHEN NOT {left_out} THEN named_struct('x', {name(column)}, 'place', {here}) END"
        last = f"last_value({known}, true) OVER later"
        values[column] = f"({last}).x"
        where[column] = (left_out, f"coalesce(({last}).place, {_NOWHERE})")
    return values | ({COLUMN: _entries(where)} if where else {})


def _known(column: str) -> str:
    return name(f"{KNOWN}{column}")


def _place(position: str, seqno: str) -> str:
    return f"named_struct('position', {position}, 'seqno', {seqno})"


_NOWHERE = _place("-1L", "-1L")
"""Where a value is from that did not arrive yet. (Its seqno is -1, too, where it was a row's by another key.)"""


def _entries(where: dict[str, tuple[str, str]]) -> str:
    """The value of `_left_out`: of each column for which the first, a condition, holds the second, a place; or null."""
    if not where:
        return f"CAST(NULL AS {TYPE})"
    some = " OR ".join(condition for condition, _ in where.values())
    found = (f"CASE WHEN {its} THEN struct({literal(one)}, {place}) END" for one, (its, place) in where.items())
    entries = f"array_compact(array({', '.join(found)}))"
    return f"CASE WHEN {some} THEN CAST(map_from_entries({entries}) AS {TYPE}) END"
