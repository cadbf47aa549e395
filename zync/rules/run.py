"""The user's rules: the views that they see, and what they make of whole transactions."""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from zync.config.model import Config, OutputRule
from zync.errors import UsageError, ZyncError
from zync.rules.json_text import as_json
from zync.rules.left_out import DELETE, ORDER, RESERVED, SEQNO, envelope_views, guard, left_out, with_state
from zync.rules.lookups import bind
from zync.rules.views import bind_views
from zync.spark.causes import causes, is_of_surroundings
from zync.spark.errors import line_of, message_of, spark_errors
from zync.spark.frames import leaves, result_of, select
from zync.spark.times import YEARS
from zync.spark.tuning import as_usual
from zync.sql import aliased, literal, name


class RaisedError(UsageError):
    """A rule's Python function raised an exception. Nothing was written.

    The message names the rule and the exception: correct the function.
    """

    code = "ZYNC-RULE-RAISED"


@dataclass(frozen=True)
class RuleError(Exception):
    """A rule failed on data; `cause` is what Spark or Python said."""

    rule: OutputRule
    cause: Exception

    def __str__(self) -> str:
        return message_of(self.cause)


def rule_texts(config: Config) -> list[str] | None:
    """The statements of all rules; None where there are others, in Python, that may ask for any view."""
    return None if any(rule.python for rule in config.outputs) else list(map(_statement, config.outputs))


def _statement(rule: OutputRule) -> str:
    """The SELECT of a rule, on the lines of its file; UsageError where that cannot be read."""
    try:
        return rule.text.rstrip().rstrip(";")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"rule {rule.name} (output {rule.topic}) cannot be read: {error}"
        raise UsageError(msg) from error


def bind_lookups(spark: SparkSession, config: Config) -> dict[str, str]:
    """Makes a view of each lookup table, pinned to what it holds now; returns a digest of each (`lookup <name>`)."""
    return {f"lookup {lookup}": bind(spark, lookup, one) for lookup, one in config.lookups.items()}


def run_rules(spark: SparkSession, config: Config) -> list[tuple[OutputRule, DataFrame]]:
    """What each rule makes of the views as they are bound; UsageError for the first that is not a rule."""
    return [(rule, run_rule(spark, rule)) for rule in config.outputs]


_guards: dict[tuple[str, ...], dict[str, str]] = {}
"""By the digests of a config, the guards of its views that its rules need: a process has few of them."""


def guarded_rules(
    spark: SparkSession, records: DataFrame, config: Config, *, documents: bool = True
) -> list[tuple[OutputRule, DataFrame]]:
    """What each rule makes of whole transactions' `records`; where a row cannot be known, as it is made, it fails.

    Binds the views; `documents`: some records may be MongoDB's. What a rule is made of is known once it was planned:
    the first time views are bound twice.
    """
    asked = tuple(config.digests.values())
    guards = _guards.get(asked, {})
    while True:
        bind_views(records, config, rule_texts(config), guards, documents=documents)
        made = run_rules(spark, config)
        known = [(rule, left_out(rows, rule, config)) for rule, rows in made]
        needed = {view: found for view in envelope_views(config) if (found := guard(known, view))}
        if needed == guards:
            _guards[asked] = guards
            return made
        guards = needed


def run_rule(spark: SparkSession, rule: OutputRule) -> DataFrame:
    """What the rule makes of the views as they are bound; UsageError where it is not a rule.

    Reserved columns come by the names that they have here, however the rule writes them.
    """
    where = f"rule {rule.name} (output {rule.topic})"
    try:
        with as_usual(spark):
            if rule.python:
                made = _made_by(_python_rule(rule), spark.table("records"), where)
            else:
                text = _statement(rule)
                spark._jsparkSession.sessionState().sqlParser().parseQuery(text)  # noqa: SLF001
                made = result_of(spark, text)
        columns = made.columns
        renamed = {one: one.lower() for one in columns if one.lower() in RESERVED and not one.islower()}
        if renamed:
            made = made.withColumnsRenamed(renamed)
            columns = made.columns
    except spark_errors() as error:
        line = None if rule.python else line_of(error)
        if line is not None:
            where = f"rule {rule.name}:{line} (output {rule.topic})"
        msg = f"{where}: {message_of(error)}"
        raise UsageError(msg) from error
    if SEQNO not in columns:
        msg = f"{where} must select seqno, the transaction's; it selects {', '.join(columns)}"
        raise UsageError(msg)
    missing = [key for key in rule.key if key not in columns or key in RESERVED]
    if missing:
        msg = f"{where} has no column {missing[0]!r} for the key; it selects {', '.join(columns)}"
        raise UsageError(msg)
    alike = [column.lower() for column in columns]  # as Spark, Delta and most readers see them
    if len(set(alike)) < len(alike):
        twice = next(column for column in columns if alike.count(column.lower()) > 1)
        msg = f"{where} selects {twice!r} twice: name one of them otherwise"
        raise UsageError(msg)
    for one in made.schema.fields:
        if one.name not in RESERVED and any(leaf.typeName() == "void" for leaf in leaves(one.dataType)):
            kind = one.dataType.simpleString()
            msg = (
                f"{where} has column {one.name!r} as {kind}, and void is no type that a column can keep: give the null "
                f"one, as by CAST(NULL AS STRING){f' AS {one.name}' if kind == 'void' else ''}"
            )
            raise UsageError(msg)
    kinds = {one.name: one.dataType.typeName() for one in made.schema.fields if one.name in RESERVED}
    if kinds.get(DELETE, "boolean") not in ("boolean", "void"):
        msg = f"{where} has {DELETE} as {kinds[DELETE]}: it says whether a row is a delete, cast it to boolean"
        raise UsageError(msg)
    if kinds.get(ORDER) in ("variant", "map"):
        msg = f"{where} has {ORDER} as {kinds[ORDER]}, which has no order: cast it to what has one"
        raise UsageError(msg)
    return made


def check_plans(spark: SparkSession, config: Config) -> None:
    """UsageError for the first rule that Spark takes for one and then cannot plan: its own error does not say which.

    An error of the surroundings is raised as it is.
    """
    for rule, made in run_rules(spark, config):
        try:
            made._jdf.queryExecution().executedPlan()  # noqa: SLF001
        except spark_errors() as error:
            if is_of_surroundings(error):
                raise
            msg = f"rule {rule.name} (output {rule.topic}): Spark cannot plan it: {message_of(error)}"
            raise UsageError(msg) from error


def _made_by(function: Any, records: DataFrame, where: str) -> DataFrame:
    try:
        made = function(records)
    except Exception as error:
        if isinstance(error, AnalysisException) or (isinstance(error, PySparkException) and not causes(error)):
            raise  # what it asks of Spark cannot be done; else it ran a query, and that failed on what there is
        said = message_of(error) if isinstance(error, spark_errors()) else f"{type(error).__name__}: {error}"
        msg = f"{where} raised {said}"
        raise (ZyncError if is_of_surroundings(error) else RaisedError)(msg) from error
    if not isinstance(made, DataFrame):
        msg = f"{where} must return a DataFrame, not {type(made).__name__}"
        raise UsageError(msg)
    return made


def _python_rule(rule: OutputRule) -> Any:
    """The function that `path.py:function` names (`rule` where only the file is named)."""
    path, _, function = str(rule.python).partition(":")
    if not Path(path).is_file():
        msg = f"rule {rule.python} (output {rule.topic}): there is no Python file {path}"
        raise UsageError(msg)
    module = ModuleType(Path(path).stem)
    module.__file__ = path
    try:
        exec(compile(rule.text, path, "exec"), vars(module))  # noqa: S102 - the user's own rule
        return getattr(module, function or "rule")
    except Exception as error:
        msg = f"rule {rule.python} (output {rule.topic}): {type(error).__name__}: {error}"
        raise UsageError(msg) from error


def output_rows(made: DataFrame, rule: OutputRule, number: int, config: Config | None = None) -> DataFrame:
    """A rule's result as (topic, seqno, _order, rule, key, value, state): JSON text, columns in the order selected.

    `state`: the columns that the connector left out, as staging has them; null where there are none, and without
    `config`. The query fails on a row with a null in its key, unless the rule allows that, and on a time that is not
    of the years 1 to 9999.
    """
    columns = {column: name(column) for column in made.columns if column not in RESERVED}
    types = {one.name.lower(): one.dataType for one in made.schema.fields}
    rows, state, its = made, "NULL", config and left_out(made, rule, config)
    if config and its and its.columns:
        rows, instead, state = with_state(made, its, config)
        columns |= instead
    columns |= {column: _within_years(text, column, types[column.lower()], rule) for column, text in columns.items()}
    value = as_json(aliased(columns)) if columns else "'{}'"
    if DELETE in made.columns:
        value = f"CASE WHEN NOT coalesce({DELETE}, false) THEN {value} END"
        state = f"CASE WHEN NOT coalesce({DELETE}, false) THEN {state} END"
    without = f"rule {rule.name} makes a row whose seqno is null: of which transaction is it?"
    key = {column: _key_column(column, types[column.lower()], rule) for column in rule.key}
    return select(
        rows,
        f"{literal(rule.topic)} AS topic",
        f"coalesce(CAST({SEQNO} AS BIGINT), CAST(raise_error({literal(without)}) AS BIGINT)) AS {SEQNO}",
        f"{ORDER if ORDER in made.columns else 'NULL'} AS {ORDER}",
        f"{number} AS rule",
        f"CAST({as_json(aliased(key)) if key else 'NULL'} AS STRING) AS key",
        f"CAST({value} AS STRING) AS value",
        f"CAST({state} AS STRING) AS state",
    )


def _key_column(column: str, kind: DataType, rule: OutputRule) -> str:
    """A column of the key. Of 0.0 and -0.0, which are equal, it has but one, as it is compared as text, too."""
    zero = {"float": "0F", "double": "0D"}.get(kind.typeName())
    found = _within_years(name(column), column, kind, rule)
    text = f"{found} + {zero}" if zero else found
    if rule.null_keys == "allow":
        return text
    why = (
        f"rule {rule.name}: column {column!r} of the key is null. Select what is never null, leave such rows out by "
        f"WHERE, or say null_keys: allow for output {rule.topic}"
    )
    is_null = f"{name(column)} IS NULL"
    if kind.typeName() == "variant":
        is_null += f" OR is_variant_null({name(column)})"
    return f"IF({is_null}, raise_error({literal(why)}), {text})"


def _within_years(text: str, column: str, kind: DataType, rule: OutputRule) -> str:
    """The value `text` of a column; the query fails where a time in it is not of the years 1 to 9999."""
    beyond = _beyond_years(text, kind)
    if beyond is None:
        return text
    why = (
        f"rule {rule.name}: column {column!r} has a time that is not of the years 1 to 9999. A number cast to a "
        "timestamp counts seconds: use timestamp_millis or timestamp_micros, or cast what is no time to string"
    )
    return f"IF(coalesce({beyond}, false), raise_error({literal(why)}), {text})"


def _beyond_years(text: str, kind: DataType, depth: int = 0) -> str | None:
    """The condition that a time in the value `text` of type `kind` is out of range; None where it holds no times."""
    if isinstance(kind, StructType):
        parts = (_beyond_years(f"{text}.{name(one.name)}", one.dataType, depth) for one in kind.fields)
        return " OR ".join(f"coalesce({part}, false)" for part in parts if part) or None
    if isinstance(kind, ArrayType | MapType):
        inner = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
        part = _beyond_years(f"x{depth}", inner, depth + 1)
        values = text if isinstance(kind, ArrayType) else f"map_values({text})"
        return part and f"exists({values}, x{depth} -> coalesce({part}, false))"
    years = YEARS.get(type(kind))
    return years and f"{text} NOT BETWEEN {years}"
