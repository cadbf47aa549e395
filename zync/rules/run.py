"""The user's rules: the views that they see, and what they make of whole transactions."""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config, OutputRule
from zync.errors import UsageError, ZyncError
from zync.rules.json_text import as_json
from zync.rules.left_out import DELETE, ORDER, RESERVED, SEQNO, envelope_views, guard, left_out, with_state
from zync.rules.lookups import bind
from zync.rules.views import bind_views
from zync.spark.errors import SURROUNDINGS, message_of, spark_errors
from zync.spark.frames import result_of, select
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
    """The SELECT of a rule; UsageError where its file cannot be read."""
    try:
        return rule.text.strip().rstrip(";")
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


def guarded_rules(spark: SparkSession, records: DataFrame, config: Config) -> list[tuple[OutputRule, DataFrame]]:
    """What each rule makes of whole transactions' `records`; where a row cannot be known, as it is made, it fails.

    Binds the views. What a rule is made of is known once it was planned: the first time views are bound twice.
    """
    asked = tuple(config.digests.values())
    guards = _guards.get(asked, {})
    while True:
        bind_views(records, config, rule_texts(config), guards)
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
    except PySparkException as error:
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
    kinds = {one.name: one.dataType.typeName() for one in made.schema.fields if one.name in RESERVED}
    if kinds.get(DELETE, "boolean") not in ("boolean", "void"):
        msg = f"{where} has {DELETE} as {kinds[DELETE]}: it says whether a row is a delete, cast it to boolean"
        raise UsageError(msg)
    if kinds.get(ORDER) in ("variant", "map"):
        msg = f"{where} has {ORDER} as {kinds[ORDER]}, which has no order: cast it to what has one"
        raise UsageError(msg)
    return made


def check_plans(spark: SparkSession, config: Config) -> None:
    """UsageError for the first rule that Spark takes for one and then cannot plan: its own error does not say which."""
    for rule, made in run_rules(spark, config):
        try:
            made._jdf.queryExecution().executedPlan()  # noqa: SLF001
        except spark_errors() as error:
            msg = f"rule {rule.name} (output {rule.topic}): Spark cannot plan it: {message_of(error)}"
            raise UsageError(msg) from error


def _made_by(function: Any, records: DataFrame, where: str) -> DataFrame:
    try:
        made = function(records)
    except PySparkException:
        raise
    except Exception as error:
        msg = f"{where} raised {type(error).__name__}: {error}"
        raise (ZyncError if isinstance(error, SURROUNDINGS) else RaisedError)(msg) from error
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
    `config`.
    """
    columns = {column: name(column) for column in made.columns if column not in RESERVED}
    rows, state, its = made, "NULL", config and left_out(made, rule, config)
    if config and its and its.columns:
        rows, instead, state = with_state(made, its, config)
        columns |= instead
    value = as_json(aliased(columns)) if columns else "'{}'"
    if DELETE in made.columns:
        value = f"CASE WHEN NOT coalesce({DELETE}, false) THEN {value} END"
        state = f"CASE WHEN NOT coalesce({DELETE}, false) THEN {state} END"
    without = f"rule {rule.name} makes a row whose seqno is null: of which transaction is it?"
    return select(
        rows,
        f"{literal(rule.topic)} AS topic",
        f"coalesce(CAST({SEQNO} AS BIGINT), CAST(raise_error({literal(without)}) AS BIGINT)) AS {SEQNO}",
        f"{ORDER if ORDER in made.columns else 'NULL'} AS {ORDER}",
        f"{number} AS rule",
        f"CAST({as_json(_key(made, rule)) if rule.key else 'NULL'} AS STRING) AS key",
        f"CAST({value} AS STRING) AS value",
        f"CAST({state} AS STRING) AS state",
    )


def _key(made: DataFrame, rule: OutputRule) -> list[str]:
    """The key's columns. Of 0.0 and -0.0, which are equal, it has but one, as it is compared as text, too."""
    zeros = {"float": "0F", "double": "0D"}
    kinds = {one.name.lower(): one.dataType.typeName() for one in made.schema.fields}
    zero = {one: zeros.get(kinds.get(one.lower(), "")) for one in rule.key}
    return [f"{name(one)} + {zero[one]} AS {name(one)}" if zero[one] else name(one) for one in rule.key]
