"""Decides what becomes of a rule's rows if the connector left fields out of their records.

Debezium sends a placeholder for a value that it does not have ("unavailable value"). A column made of such fields alone
is marked in staging as left out; where a row cannot be known without them, its transaction goes to quarantine.

Which fields a rule's columns are made of does not change while its config is the same, so it is analysed once.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from zync.config.model import Config, OutputRule
from zync.debezium.unavailable import KEY_CHANGED, Placeholder, has_envelopes, placeholder
from zync.rules.json_text import as_json
from zync.rules.lineage import WHOLE, Lineage, Uses, lineage, take_along
from zync.sql import literal, name

SEQNO, ORDER, DELETE = "seqno", "_order", "_delete"
RESERVED = (SEQNO, ORDER, DELETE)
"""Columns that a rule may select and that do not become columns of its output."""
_NO_NAMES = "CAST(array() AS ARRAY<STRING>)"
_KEY = "coalesce(try_variant_get(key, '$.payload', 'variant'), key)"
_KEY_NAMES = (
    f"CASE WHEN NOT {KEY_CHANGED} THEN coalesce(map_keys(try_variant_get({_KEY}, '$', 'map<string, variant>')), "
    f"{_NO_NAMES}) ELSE {_NO_NAMES} END"
)
"""The names of fields that an update certainly did not change: those of the record's key, unless the key changed."""
_WAY_OUT = (
    "ALTER TABLE … REPLICA IDENTITY FULL has the connector leave nothing out from then on; or let the rule look at "
    "left_out, and say itself what becomes of such rows"
)


@dataclass(frozen=True)
class _UnknownCase:
    """A case in which a rule's row cannot be known.

    Attributes:
        condition: SQL over a record of a view.
        why: The reason, for the error's text; `{}` stands for the fields that were left out.
    """

    condition: str
    why: str


@dataclass(frozen=True)
class LeftOutHandling:
    """What becomes of the rows of a rule when fields of their records were left out.

    Attributes:
        unknown_cases: By view, the cases in which a row cannot be known.
        columns: The columns made of fields that may be left out, with the names of those fields. Where a column cannot
            be known, as it is made of others too, `unknown_cases` has the case.
        plain_columns: Those of `columns` that are such a field itself.
        key_fields: The field of the record by the column of the output's key; empty unless known for the whole key.
        views: The views in which fields may be left out.
    """

    unknown_cases: dict[str, tuple[_UnknownCase, ...]]
    columns: dict[str, tuple[str, ...]]
    plain_columns: frozenset[str]
    key_fields: dict[str, str]
    views: frozenset[str]


def envelope_views(config: Config) -> frozenset[str]:
    """Returns the views in which fields may be left out, in lower case."""
    if not has_envelopes(config):
        return frozenset()
    topics = config.topics.items()
    return frozenset(
        {"records", *((topic.as_ or topic_name).lower() for topic_name, topic in topics if topic.envelope)}
    )


_handlings: dict[tuple[str, ...], LeftOutHandling] = {}
"""The results of `handling_of` by rule, config and columns; a process has few of them."""


def handling_of(rows: DataFrame, rule: OutputRule, config: Config) -> LeftOutHandling | None:
    """Returns what becomes of a rule's rows; None if the config has no view with fields that may be left out.

    Args:
        rows: The rule's result.
        rule: The rule.
        config: The config.
    """
    views = envelope_views(config)
    if not views:
        return None
    digests = config.digests
    cache_key = (rule.topic, *rule.key, rule.name, rule.text, rule.modules_digest, digests["config"], *rows.columns)
    if cache_key not in _handlings:
        _handlings[cache_key] = _handling_by_lineage(lineage(rows, views), rule, views)
    return _handlings[cache_key]


def _handling_by_lineage(rule_lineage: Lineage, rule: OutputRule, views: frozenset[str]) -> LeftOutHandling:
    """Derives what becomes of a rule's rows from the lineage of its result."""
    columns: dict[str, tuple[str, ...]] = {}
    unknown_cases: dict[str, list[_UnknownCase]] = {view: [] for view in sorted(views)}
    row_uses = rule_lineage.rows
    for column, uses in rule_lineage.columns.items():
        if column in RESERVED or column in rule.key:
            row_uses |= uses
        elif uses.fields and not uses.left_out and rule_lineage.follows:
            columns[column] = tuple(sorted({field for _, field in uses.fields}))
            for view in uses.views:
                if condition := _mixed(uses, view):
                    why = f"column {column} is made of {{}} and of what may have changed"
                    unknown_cases[view].append(_UnknownCase(condition, why))
    key_fields = {column: rule_lineage.plain[column] for column in rule.key if column in rule_lineage.plain}
    if rule.key:
        has_fields = " AND ".join(f"{_field('old_key', field)} IS NOT NULL" for field in key_fields.values()) or "true"
        has_old_key = has_fields if len(key_fields) == len(rule.key) else "false"
        any_left_out = _overlaps([field for fields in columns.values() for field in fields])
        for view in sorted({view for column in columns for view in rule_lineage.columns[column].views}):
            why = "the row had another key, by which its earlier row cannot be found to take {} from"
            condition = f"{any_left_out} AND {KEY_CHANGED} AND NOT ({has_old_key})"
            unknown_cases[view].append(_UnknownCase(condition, why))
    for view in sorted(row_uses.views):
        why = "which rows there are, or their key, depends on {}"
        unknown_cases[view].append(_UnknownCase(_overlaps(row_uses.of(view)), why))
    # A rule that reads left_out itself is responsible for all that cannot be known: rows, keys and mixed columns.
    if row_uses.left_out or any(uses.left_out for uses in rule_lineage.columns.values()):
        unknown_cases = {}
        uses_of = {column: rule_lineage.columns[column] for column in columns}
        mixed = {column for column, uses in uses_of.items() if any(_mixed(uses, view) for view in uses.views)}
        columns = {column: fields for column, fields in columns.items() if column not in mixed}
    return LeftOutHandling(
        {view: tuple(cases) for view, cases in unknown_cases.items() if cases},
        columns,
        frozenset(column for column in rule_lineage.plain if column in columns),
        key_fields if len(key_fields) == len(rule.key) else {},
        views,
    )


def _mixed(uses: Uses, view: str) -> str | None:
    """Returns the condition, over a record, under which a column cannot be known; None: it always can.

    That is so where it is made of a field that was left out and of something that the update may have changed.
    """
    fields = uses.of(view)
    any_left_out = _overlaps(fields)
    if WHOLE in fields or uses.changing or len(uses.views) > 1:
        return any_left_out
    may_differ = "false"
    if len(fields) > 1:
        may_differ = f"size(array_except(array_except({_names(fields)}, left_out), {_KEY_NAMES})) > 0"
    if uses.key:
        may_differ = f"({may_differ} OR {KEY_CHANGED})"
    return None if may_differ == "false" else f"{any_left_out} AND {may_differ}"


def _overlaps(fields: Collection[str], names: str = "left_out") -> str:
    """Returns the condition that one of the fields was left out.

    Args:
        fields: Names of fields.
        names: The column with the names of the fields that were left out.
    """
    return f"size({names}) > 0" if WHOLE in fields else f"arrays_overlap({names}, {_names(fields)})"


def _names(fields: Collection[str]) -> str:
    return f"array({', '.join(map(literal, sorted(fields)))})"


def guard(handlings: Sequence[tuple[OutputRule, LeftOutHandling | None]], view: str) -> str | None:
    """Returns a condition over the records of a view that is true, or raises an error for a row that cannot be known.

    Args:
        handlings: Rules, and what becomes of their rows.
        view: The view's name, in lower case.

    Returns:
        The condition, or None if all rows can be known.
    """
    cases = [
        f"WHEN {case.condition} THEN raise_error(concat({', '.join(_reason(rule, case.why))}))"
        for rule, handling in handlings
        if handling
        for case in handling.unknown_cases.get(view, ())
    ]
    if not cases:
        return None
    # Not deterministic, so that PushPredicateThroughJoin does not evaluate it for records that a join would drop.
    return (
        f"monotonically_increasing_id() >= 0 AND CASE WHEN size(left_out) = 0 THEN true {' '.join(cases)} ELSE true END"
    )


def _reason(rule: OutputRule, why: str) -> Iterator[str]:
    """Yields the SQL texts that make up the error's message."""
    before, after = f"rule {rule.name} (output {rule.topic}): {why}".split("{}")
    yield literal(f"{before}what the connector left out (")
    yield "array_join(left_out, ', ')"
    yield literal(f"){after}, so it cannot be known: {_WAY_OUT}")


def with_state(result: DataFrame, handling: LeftOutHandling, config: Config) -> tuple[DataFrame, dict[str, str], str]:
    """Adds to a rule's rows which of their columns were left out.

    A column that was left out is null, whatever the rule made of null. If the column is the field itself, and its type
    has a placeholder, it has the placeholder that consumers of Debezium know.

    Args:
        result: The rule's result.
        handling: What becomes of its rows.
        config: The config.

    Returns:
        The rows, with the names of the left-out fields of their records; SQL for each of `handling.columns`; and SQL
        for staging's `state` of an output row.
    """
    rows = take_along(result, handling.views, ("left_out", "old_key")).toDF(*result.columns, _NAMES_COLUMN, _OLD_KEY)
    unavailable = placeholder(config)
    types = {field.name: field.dataType for field in result.schema.fields}
    columns = {}
    for column, fields in handling.columns.items():
        is_plain = column in handling.plain_columns
        substitute = _placeholder_of(unavailable, types[column].typeName()) if is_plain else "NULL"
        columns[column] = f"(CASE WHEN {_overlaps(fields, _NAMES_COLUMN)} THEN {substitute} ELSE {name(column)} END)"
    names = ", ".join(
        f"CASE WHEN {_overlaps(fields, _NAMES_COLUMN)} THEN {literal(column)} END"
        for column, fields in handling.columns.items()
    )
    left_out_columns = f"array_except(array({names}), array(CAST(NULL AS STRING)))"
    state_fields = f"'left_out', {left_out_columns}"
    if handling.key_fields:
        old_key_fields = (
            f"{_field(_OLD_KEY, field, types[column].simpleString())} AS {name(column)}"
            for column, field in handling.key_fields.items()
        )
        old_key = as_json([*old_key_fields])
        state_fields = f"{state_fields}, 'old_key', CASE WHEN {_OLD_KEY} IS NOT NULL THEN {old_key} END"
    state = (
        f"CASE WHEN size({_NAMES_COLUMN}) > 0 AND size({left_out_columns}) > 0 "
        f"THEN to_json(named_struct({state_fields})) END"
    )
    return rows, columns, state


def _field(key: str, field: str, field_type: str = "variant") -> str:
    """Returns SQL for a field of a key (VARIANT), cast to that type; null if the key does not have it."""
    quoted = field.replace("\\", "\\\\").replace("'", "\\'")
    path = literal(f"$['{quoted}']")
    return f"try_variant_get({key}, {path}, {literal(field_type)})"


_NAMES_COLUMN, _OLD_KEY = "_zync_left_out", "_zync_old_key"
"""Columns added to a rule's: the names of the fields that were left out, and the key that the row had before."""


def _placeholder_of(unavailable: Placeholder, type_name: str) -> str:
    """Returns SQL for the placeholder in a column of that type; NULL if the type has none."""
    forms = {
        "string": literal(unavailable.text),
        "binary": f"X'{unavailable.data.hex()}'",
        "variant": f"CAST({literal(unavailable.text)} AS VARIANT)",
    }
    return forms.get(type_name, "NULL")
