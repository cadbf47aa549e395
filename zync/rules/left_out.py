"""What becomes of a rule's rows where the connector left fields out: kept apart, or their transaction set aside.

Which fields a rule's columns are made of does not change while its config is the same, so it is looked for once.
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
"""Columns that a rule may select and that are no columns of its rows."""
_NO_NAMES = "CAST(array() AS ARRAY<STRING>)"
_KEY = "coalesce(try_variant_get(key, '$.payload', 'variant'), key)"
_KEY_NAMES = (
    f"CASE WHEN NOT {KEY_CHANGED} THEN coalesce(map_keys(try_variant_get({_KEY}, '$', 'map<string, variant>')), "
    f"{_NO_NAMES}) ELSE {_NO_NAMES} END"
)
"""The fields that an update did not change: those of the record's key, if it has no other by now."""
_WAY_OUT = (
    "ALTER TABLE … REPLICA IDENTITY FULL has the connector leave nothing out from then on; or let the rule look at "
    "left_out, and say itself what becomes of such rows"
)


@dataclass(frozen=True)
class _Unknown:
    """Why a row cannot be known: a condition on a record of a view, and the words for it."""

    condition: str
    why: str


@dataclass(frozen=True)
class LeftOut:
    """What becomes of one rule's rows.

    unknown: by view when they cannot be known. columns: those that are made of fields that may be left out alone, with
    the names of those. plain: of these the ones that are the field itself. key: which fields of the row the columns of
    its key are.
    """

    unknown: dict[str, tuple[_Unknown, ...]]
    columns: dict[str, tuple[str, ...]]
    plain: frozenset[str]
    key: dict[str, str]
    views: frozenset[str]


def envelope_views(config: Config) -> frozenset[str]:
    """The views in which fields may be left out, in lower case."""
    if not has_envelopes(config):
        return frozenset()
    return frozenset({"records", *((one.as_ or topic).lower() for topic, one in config.topics.items() if one.envelope)})


_known: dict[tuple[str, ...], LeftOut] = {}
"""By rule, config and columns: a process has few of them."""


def left_out(made: DataFrame, rule: OutputRule, config: Config) -> LeftOut | None:
    """What becomes of the rows of `rule`, which makes `made`; None where nothing is left out of what it sees."""
    views = envelope_views(config)
    if not views:
        return None
    digests = config.digests
    asked = (rule.topic, *rule.key, rule.name, rule.text, digests["config"], *made.columns)
    if asked not in _known:
        _known[asked] = understand(lineage(made, views), rule, views)
    return _known[asked]


def understand(found: Lineage, rule: OutputRule, views: frozenset[str]) -> LeftOut:
    """What becomes of the rows of a rule of that lineage."""
    columns: dict[str, tuple[str, ...]] = {}
    unknown: dict[str, list[_Unknown]] = {view: [] for view in sorted(views)}
    rows = found.rows
    for column, uses in found.columns.items():
        if column in RESERVED or column in rule.key:
            rows |= uses
        elif uses.fields and not uses.left_out and found.follows:
            columns[column] = tuple(sorted({name for _, name in uses.fields}))
            for view in uses.views:
                if condition := _mixed(uses, view):
                    why = f"column {column} is made of {{}} and of what may have changed"
                    unknown[view].append(_Unknown(condition, why))
    key = {column: found.plain[column] for column in rule.key if column in found.plain}
    if rule.key:
        there = " AND ".join(f"{_field('old_key', one)} IS NOT NULL" for one in key.values()) or "true"
        told = there if len(key) == len(rule.key) else "false"
        some = _overlaps([one for its in columns.values() for one in its])
        for view in sorted({view for column in columns for view in found.columns[column].views}):
            why = "the row had another key, by which its row is not to be found, and {} is there"
            unknown[view].append(_Unknown(f"{some} AND {KEY_CHANGED} AND NOT ({told})", why))
    for view in sorted(rows.views):
        why = "which rows there are, or their key, depends on {}"
        unknown[view].append(_Unknown(_overlaps(rows.of(view)), why))
    if rows.left_out or any(one.left_out for one in found.columns.values()):  # then the rule answers for the rest
        unknown = {}
        uses_of = {one: found.columns[one] for one in columns}
        mixed = {one for one, uses in uses_of.items() if any(_mixed(uses, view) for view in uses.views)}
        columns = {one: its for one, its in columns.items() if one not in mixed}
    return LeftOut(
        {view: tuple(its) for view, its in unknown.items() if its},
        columns,
        frozenset(column for column in found.plain if column in columns),
        key if len(key) == len(rule.key) else {},
        views,
    )


def _mixed(uses: Uses, view: str) -> str | None:
    """When a column that is made so cannot be known, as a condition on a record; None: never."""
    fields = uses.of(view)
    some = _overlaps(fields)
    if WHOLE in fields or uses.changing or len(uses.views) > 1:
        return some
    others = "false"
    if len(fields) > 1:
        others = f"size(array_except(array_except({_names(fields)}, left_out), {_KEY_NAMES})) > 0"
    if uses.key:
        others = f"({others} OR {KEY_CHANGED})"
    return None if others == "false" else f"{some} AND {others}"


def _overlaps(fields: Collection[str], names: str = "left_out") -> str:
    """Whether any of those fields was left out; `names`: the column with the names of those that were."""
    return f"size({names}) > 0" if WHOLE in fields else f"arrays_overlap({names}, {_names(fields)})"


def _names(fields: Collection[str]) -> str:
    return f"array({', '.join(map(literal, sorted(fields)))})"


def guard(made: Sequence[tuple[OutputRule, LeftOut | None]], view: str) -> str | None:
    """A condition that holds of each record of a view, or raises an error: a rule's row cannot be known. None: none."""
    cases = [
        f"WHEN {one.condition} THEN raise_error(concat({', '.join(_reason(rule, one.why))}))"
        for rule, its in made
        if its
        for one in its.unknown.get(view, ())
    ]
    if not cases:
        return None
    # Not deterministic, so that Spark asks it of no record that a join before takes away (PushPredicateThroughJoin).
    return (
        f"monotonically_increasing_id() >= 0 AND CASE WHEN size(left_out) = 0 THEN true {' '.join(cases)} ELSE true END"
    )


def _reason(rule: OutputRule, why: str) -> Iterator[str]:
    before, after = f"rule {rule.name} (output {rule.topic}): {why}".split("{}")
    yield literal(f"{before}what the connector left out (")
    yield "array_join(left_out, ', ')"
    yield literal(f"){after}, so it cannot be known: {_WAY_OUT}")


def with_state(made: DataFrame, its: LeftOut, config: Config) -> tuple[DataFrame, dict[str, str], str]:
    """`made` with the names of what was left out of its records; its columns so; and staging's `state` of its rows.

    A column that was left out is null, whatever the rule made of null. One that is the field itself has the placeholder
    that consumers of Debezium's know, if its type has one.
    """
    rows = take_along(made, its.views, ("left_out", "old_key")).toDF(*made.columns, _ALONG, _OLD_KEY)
    text = placeholder(config)
    kinds = {one.name: one.dataType for one in made.schema.fields}
    columns = {}
    for column, fields in its.columns.items():
        stands = _placeholder_of(text, kinds[column].typeName()) if column in its.plain else "NULL"
        columns[column] = f"(CASE WHEN {_overlaps(fields, _ALONG)} THEN {stands} ELSE {name(column)} END)"
    names = ", ".join(
        f"CASE WHEN {_overlaps(fields, _ALONG)} THEN {literal(column)} END" for column, fields in its.columns.items()
    )
    found = f"array_except(array({names}), array(CAST(NULL AS STRING)))"
    said = f"'left_out', {found}"
    if its.key:
        old = (
            f"{_field(_OLD_KEY, field, kinds[column].simpleString())} AS {name(column)}"
            for column, field in its.key.items()
        )
        said = f"{said}, 'old_key', CASE WHEN {_OLD_KEY} IS NOT NULL THEN {as_json([*old])} END"
    state = f"CASE WHEN size({_ALONG}) > 0 AND size({found}) > 0 THEN to_json(named_struct({said})) END"
    return rows, columns, state


def _field(key: str, field: str, kind: str = "variant") -> str:
    """A field of a key (VARIANT), as that type; null where it is not there."""
    quoted = field.replace("\\", "\\\\").replace("'", "\\'")
    path = literal(f"$['{quoted}']")
    return f"try_variant_get({key}, {path}, {literal(kind)})"


_ALONG, _OLD_KEY = "_zync_left_out", "_zync_old_key"
"""Columns beside a rule's: the names of what was left out, and the key that the row had."""


def _placeholder_of(text: Placeholder, kind: str) -> str:
    forms = {
        "string": literal(text.text),
        "binary": f"X'{text.data.hex()}'",
        "variant": f"CAST({literal(text.text)} AS VARIANT)",
    }
    return forms.get(kind, "NULL")
