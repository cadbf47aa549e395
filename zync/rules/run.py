"""Runs the user's rules over the views of whole transactions, and turns their results into output rows."""

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
from zync.rules.left_out import DELETE, ORDER, RESERVED, SEQNO, envelope_views, guard, handling_of, with_state
from zync.rules.lookups import bind
from zync.rules.modules import importable
from zync.rules.views import bind_views
from zync.spark.causes import causes, is_environment_error
from zync.spark.errors import line_of, message_of, spark_errors
from zync.spark.frames import leaves, result_of, select
from zync.spark.session import as_process_session
from zync.spark.sizing import as_usual
from zync.spark.times import YEARS
from zync.sql import aliased, literal, name


class RaisedError(UsageError):
    """A rule's Python function raised an exception. Nothing was written.

    The message names the rule and the exception: correct the function.
    """

    code = "ZYNC-RULE-RAISED"


@dataclass(frozen=True)
class RuleError(Exception):
    """A rule failed on data; `cause` is the error that Spark or Python raised."""

    rule: OutputRule
    cause: Exception

    def __str__(self) -> str:
        return message_of(self.cause)


def rule_texts(config: Config) -> list[str] | None:
    """Returns the SQL texts of all rules; None if there are Python rules, which may read any view."""
    return None if any(rule.python for rule in config.outputs) else list(map(_statement, config.outputs))


def _statement(rule: OutputRule) -> str:
    """Returns the SELECT of a rule, with the line numbers of its file; UsageError if the file cannot be read."""
    try:
        return rule.text.rstrip().rstrip(";")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"rule {rule.name} (output {rule.topic}) cannot be read: {error}"
        raise UsageError(msg) from error


def bind_lookups(spark: SparkSession, config: Config) -> dict[str, str]:
    """Creates a view of each lookup table, pinned to its present content.

    Returns:
        The digests of the contents, by `lookup <name>`.

    Raises:
        UsageError: A lookup table cannot be read.
    """
    return {f"lookup {view}": bind(spark, view, lookup) for view, lookup in config.lookups.items()}


def run_rules(spark: SparkSession, config: Config) -> list[tuple[OutputRule, DataFrame]]:
    """Plans each rule over the present views and returns it with its result; UsageError for the first invalid rule."""
    return [(rule, run_rule(spark, rule)) for rule in config.outputs]


_guards: dict[tuple[str, ...], dict[str, str]] = {}
"""The guards that a config's rules need, by view; the key is the config's digests, of which a process has few."""


def guarded_rules(
    spark: SparkSession, records: DataFrame, config: Config, *, documents: bool = True
) -> list[tuple[OutputRule, DataFrame]]:
    """Creates the views and plans the rules over them; a result fails when it computes a row that cannot be known.

    The guards of the views follow from the rules' plans, so the first time the views are created twice.

    Args:
        spark: The session.
        records: The records of whole transactions.
        config: The config with the rules.
        documents: Whether some records may be MongoDB documents.

    Returns:
        Each rule with its result.

    Raises:
        UsageError: A rule is invalid.
    """
    cache_key = tuple(config.digests.values())
    guards = _guards.get(cache_key, {})
    while True:
        bind_views(records, config, rule_texts(config), guards, documents=documents)
        results = run_rules(spark, config)
        handlings = [(rule, handling_of(rows, rule, config)) for rule, rows in results]
        needed = {view: condition for view in envelope_views(config) if (condition := guard(handlings, view))}
        if needed == guards:
            _guards[cache_key] = guards
            return results
        guards = needed


def run_rule(spark: SparkSession, rule: OutputRule) -> DataFrame:
    """Plans a rule over the present views and returns its result.

    Reserved columns have their names in lower case in the result, however the rule writes them.

    Raises:
        UsageError: The rule cannot be analysed, or its columns are not allowed.
    """
    where = f"rule {rule.name} (output {rule.topic})"
    try:
        with as_usual(spark):
            if rule.python:
                with importable(spark, rule), as_process_session(spark):
                    result = _result_of_function(_python_rule(rule), spark.table("records"), where)
            else:
                text = _statement(rule)
                spark._jsparkSession.sessionState().sqlParser().parseQuery(text)  # noqa: SLF001
                result = result_of(spark, text)
        columns = result.columns
        renamed = {column: column.lower() for column in columns if column.lower() in RESERVED and not column.islower()}
        if renamed:
            result = result.withColumnsRenamed(renamed)
            columns = result.columns
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
    lower_columns = [column.lower() for column in columns]  # Spark, Delta and most readers ignore case
    if len(set(lower_columns)) < len(lower_columns):
        repeated = next(column for column in columns if lower_columns.count(column.lower()) > 1)
        msg = f"{where} selects {repeated!r} twice: name one of them otherwise"
        raise UsageError(msg)
    for field in result.schema.fields:
        if field.name not in RESERVED and any(leaf.typeName() == "void" for leaf in leaves(field.dataType)):
            type_text = field.dataType.simpleString()
            msg = (
                f"{where} has column {field.name!r} as {type_text}, and void is no type that a column can keep: give "
                f"the null one, as by CAST(NULL AS STRING){f' AS {field.name}' if type_text == 'void' else ''}"
            )
            raise UsageError(msg)
    type_names = {field.name: field.dataType.typeName() for field in result.schema.fields if field.name in RESERVED}
    if type_names.get(DELETE, "boolean") not in ("boolean", "void"):
        msg = f"{where} has {DELETE} as {type_names[DELETE]}: it says whether a row is a delete, cast it to boolean"
        raise UsageError(msg)
    if type_names.get(ORDER) in ("variant", "map"):
        msg = f"{where} has {ORDER} as {type_names[ORDER]}, which has no order: cast it to what has one"
        raise UsageError(msg)
    return result


def check_plans(spark: SparkSession, config: Config) -> None:
    """Raises UsageError for the first rule that Spark can analyse but not plan: its own error does not name the rule.

    Errors of the environment are raised unchanged.
    """
    for rule, result in run_rules(spark, config):
        try:
            result._jdf.queryExecution().executedPlan()  # noqa: SLF001
        except spark_errors() as error:
            if is_environment_error(error):
                raise
            msg = f"rule {rule.name} (output {rule.topic}): Spark cannot plan it: {message_of(error)}"
            raise UsageError(msg) from error


def _result_of_function(function: Any, records: DataFrame, where: str) -> DataFrame:
    """Calls a rule's Python function on the records.

    Args:
        function: The function.
        records: The view `records`.
        where: The rule and its output, for the error's text.

    Raises:
        RaisedError: The function raised an exception.
        UsageError: It does not return a DataFrame.
        ZyncError: The environment failed.
    """
    try:
        result = function(records)
    except Exception as error:
        if isinstance(error, AnalysisException) or (isinstance(error, PySparkException) and not causes(error)):
            raise  # the query is invalid; any other Spark error comes from a query that the function ran on the data
        error_text = message_of(error) if isinstance(error, spark_errors()) else f"{type(error).__name__}: {error}"
        msg = f"{where} raised {error_text}"
        raise (ZyncError if is_environment_error(error) else RaisedError)(msg) from error
    if not isinstance(result, DataFrame):
        msg = f"{where} must return a DataFrame, not {type(result).__name__}"
        raise UsageError(msg)
    return result


def _python_rule(rule: OutputRule) -> Any:
    """Returns the function that `path.py:function` names; without a function's name it is `rule`."""
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


def output_rows(result: DataFrame, rule: OutputRule, number: int, config: Config | None = None) -> DataFrame:
    """Turns a rule's result into output rows (topic, seqno, _order, rule, key, value, state).

    `key` and `value` are JSON text, with the columns in the order selected; `state` names the columns that the
    connector left out, and is null if there are none. The query fails on a row with a null in its key, unless the rule
    allows it, and on a time outside the years 1 to 9999.

    Args:
        result: The rule's result.
        rule: The rule.
        number: The rule's number, which the column `rule` gets.
        config: The config; None: no record has fields that were left out.
    """
    columns = {column: name(column) for column in result.columns if column not in RESERVED}
    types = {field.name.lower(): field.dataType for field in result.schema.fields}
    rows, state, handling = result, "NULL", config and handling_of(result, rule, config)
    if config and handling and handling.columns:
        rows, left_out_columns, state = with_state(result, handling, config)
        columns |= left_out_columns
    columns |= {column: _within_years(text, column, types[column.lower()], rule) for column, text in columns.items()}
    value = as_json(aliased(columns)) if columns else "'{}'"
    if DELETE in result.columns:
        value = f"CASE WHEN NOT coalesce({DELETE}, false) THEN {value} END"
        state = f"CASE WHEN NOT coalesce({DELETE}, false) THEN {state} END"
    null_seqno = f"rule {rule.name} makes a row whose seqno is null: of which transaction is it?"
    key = {column: _key_column(column, types[column.lower()], rule) for column in rule.key}
    return select(
        rows,
        f"{literal(rule.topic)} AS topic",
        f"coalesce(CAST({SEQNO} AS BIGINT), CAST(raise_error({literal(null_seqno)}) AS BIGINT)) AS {SEQNO}",
        f"{ORDER if ORDER in result.columns else 'NULL'} AS {ORDER}",
        f"{number} AS rule",
        f"CAST({as_json(aliased(key)) if key else 'NULL'} AS STRING) AS key",
        f"CAST({value} AS STRING) AS value",
        f"CAST({state} AS STRING) AS state",
    )


def _key_column(column: str, column_type: DataType, rule: OutputRule) -> str:
    """Returns SQL for a column of the key.

    Adding 0.0 turns -0.0 into 0.0: the two are equal, but keys are compared as text, too.
    """
    zero = {"float": "0F", "double": "0D"}.get(column_type.typeName())
    checked = _within_years(name(column), column, column_type, rule)
    text = f"{checked} + {zero}" if zero else checked
    if rule.null_keys == "allow":
        return text
    why = (
        f"rule {rule.name}: column {column!r} of the key is null. Select what is never null, leave such rows out by "
        f"WHERE, or say null_keys: allow for output {rule.topic}"
    )
    is_null = f"{name(column)} IS NULL"
    if column_type.typeName() == "variant":
        is_null += f" OR is_variant_null({name(column)})"
    return f"IF({is_null}, raise_error({literal(why)}), {text})"


def _within_years(text: str, column: str, column_type: DataType, rule: OutputRule) -> str:
    """Returns SQL for a column's value `text` that fails if a time in it is outside the years 1 to 9999."""
    is_beyond = _beyond_years(text, column_type)
    if is_beyond is None:
        return text
    why = (
        f"rule {rule.name}: column {column!r} has a time that is not of the years 1 to 9999. A number cast to a "
        "timestamp counts seconds: use timestamp_millis or timestamp_micros, or cast what is no time to string"
    )
    return f"IF(coalesce({is_beyond}, false), raise_error({literal(why)}), {text})"


def _beyond_years(text: str, value_type: DataType, depth: int = 0) -> str | None:
    """Returns the condition that the value `text` holds a time out of range; None if its type has no times in it.

    Args:
        text: SQL for the value.
        value_type: The value's type.
        depth: The number of arrays and maps around the value, which numbers the lambda's variable.
    """
    if isinstance(value_type, StructType):
        conditions = (_beyond_years(f"{text}.{name(field.name)}", field.dataType, depth) for field in value_type.fields)
        return " OR ".join(f"coalesce({condition}, false)" for condition in conditions if condition) or None
    if isinstance(value_type, ArrayType | MapType):
        inner_type = value_type.elementType if isinstance(value_type, ArrayType) else value_type.valueType
        condition = _beyond_years(f"x{depth}", inner_type, depth + 1)
        values = text if isinstance(value_type, ArrayType) else f"map_values({text})"
        return condition and f"exists({values}, x{depth} -> coalesce({condition}, false))"
    years = YEARS.get(type(value_type))
    return years and f"{text} NOT BETWEEN {years}"
