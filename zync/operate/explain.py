"""`zync explain` and `zync check`: analyzes the pipeline of a config without touching data."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from zync.config.model import PARTS, Config, DeliveredTable, OutputRule, Topic
from zync.deliver.kafka.encoder import in_format
from zync.deliver.tables import schema_changes, snapshots
from zync.deliver.tables.target import table_targets
from zync.errors import UsageError
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.rules.left_out import DELETE
from zync.rules.plan import rules_over_nothing
from zync.rules.schema import Made, columns_by_topic
from zync.rules.transform import union_by_order_type
from zync.spark.frames import from_rows
from zync.spark.sizing import Sizing, tune
from zync.transactions.assemble import state_types
from zync.transactions.done import Done, understand

_ORDER_DEPENDENT = ("first", "first_value", "last", "last_value", "any_value", "collect_list", "array_agg", "listagg")
"""Aggregates whose result depends on the order of their rows."""
_QUERY_CONSTANTS = ("now", "localtimestamp", "session_user", "user", "version")
"""Functions that Spark calls deterministic, as their value is constant during a query: these and current_…"""
_MAYBE_UNSTABLE = re.compile(rf"\b({'|'.join((*_ORDER_DEPENDENT, *_QUERY_CONSTANTS))}|current_\w+)\(", re.IGNORECASE)


@dataclass(frozen=True)
class Rule:
    """A rule, with its SQL text, and the columns of its output with their Spark types."""

    name: str
    topic: str
    key: tuple[str, ...]
    text: str
    columns: dict[str, str]


@dataclass(frozen=True)
class Pipeline:
    """The analyzed pipeline of a config.

    Attributes:
        topics: the settings of each input topic.
        done: the expression by which a transaction is complete.
        mergeable: whether the state of `done` is kept between syncs; if not, records in flight are read again.
        rules: the rules with their output columns.
        warnings: problems that do not keep the pipeline from running.
    """

    topics: list[dict[str, str | None]]
    done: str
    mergeable: bool
    rules: list[Rule]
    warnings: list[str]


def explain(spark: SparkSession, config: Config) -> Pipeline:
    """Analyzes the pipeline of this config over no records.

    Args:
        spark: A session made by `zync.spark_session`, whose temporary views are replaced.
        config: The config.

    Raises:
        UsageError: for the first part of the config that cannot run.

    Example:
        >>> (rule,) = zync.explain(spark, config).rules
        >>> rule.columns["total"]
        'decimal(10,2)'
    """
    tune(spark, config.spark, Sizing(0))
    done = understand(spark, config)
    records, rule_outputs = rules_over_nothing(spark, config, done)
    union_by_order_type(rule_outputs, spark)
    _check_formats(config, rule_outputs)
    if config.deliver.tables is not None:
        _check_tables(spark, config, rule_outputs)
    warnings = [
        *_done_warnings(config, done),
        *_order_warnings(config),
        *_type_warnings(rule_outputs),
        *_deletion_warnings(rule_outputs),
        *_determinism_warnings("id, record_id or done", records, views=True),
        *_condition_warnings(spark, records, done),
    ]
    for rule, rows in rule_outputs:
        warnings += _determinism_warnings(f"rule {rule.name} (output {rule.topic})", rows)
    return Pipeline(
        topics=[
            {
                "topic": name,
                "view": topic.as_ or name,
                "id": config.as_written(_id(topic, config)),
                "schema": topic.schema,
                "null_id": topic.null_id,
                "key": config.format(topic, "key"),
                "value": config.format(topic, "value"),
                "compression": topic.compression,
            }
            for name, topic in config.topics.items()
        ],
        done=config.as_written(done.text),
        mergeable=done.mergeable,
        rules=[_rule(rule, rows) for rule, rows in rule_outputs],
        warnings=[config.as_written(warning) for warning in warnings],
    )


def _check_formats(config: Config, rule_outputs: Made) -> None:
    """Raises UsageError where a delivery's format cannot encode a column of an output."""
    formats = {
        (rule.topic, part): config.delivered_format(rule.topic, part) for rule, _ in rule_outputs for part in PARTS
    }
    typed = {topic for (topic, _), format_ in formats.items() if format_ != "json"}
    typed_outputs = [(rule, rows) for rule, rows in rule_outputs if rule.topic in typed]
    for topic, columns in columns_by_topic(typed_outputs).items():
        for part in PARTS:
            if formats[topic, part] != "json":
                schema = getattr(columns, part).jsonValue()
                in_format(formats[topic, part], schema, config.kafka_delivery.target(topic), part)


def _check_tables(spark: SparkSession, config: Config, rule_outputs: Made) -> None:
    """Raises UsageError where an output does not fit a table, or an existing table cannot take its schema."""
    columns = {topic: columns.value for topic, columns in columns_by_topic(rule_outputs).items()}
    folder = locate(snapshots.FOLDER, config.lake)
    for target in table_targets([rule for rule, _ in rule_outputs], columns, config.deliver, folder).values():
        table = open_table(target.location)
        if table is not None and table.version():
            schema_changes.changes(target, spark.read.format("delta").load(target.location).schema)


def _id(topic: Topic, config: Config) -> str:
    """Returns the topic's id expression, or, where the preset provides it, the preset's name."""
    by_preset = topic.envelope or any(topic is config.topics.get(name) for name in config.transactions.end_topics)
    return f"that of {config.transactions.preset}" if by_preset else topic.id


def _rule(rule: OutputRule, rows: DataFrame) -> Rule:
    columns = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    return Rule(rule.name, rule.topic, rule.key, rule.text.strip(), columns)


def _done_warnings(config: Config, done: Done) -> list[str]:
    """Warns of a `done` that depends on the order of records, and of state that cannot be kept between syncs."""
    warnings = []
    counts = any(
        re.match(r"(?i)(count|count_if|sum|size|array_size|approx_count)", aggregate.text)
        for aggregate in done.aggregates
    )
    named_topics = [topic for topic in config.topics if f"'{topic}'" in done.text or f'"{topic}"' in done.text]
    if done.aggregates and not counts and len(named_topics) < max(1, len(config.topics)):
        warnings.append(
            f"done rests on the order of records across partitions, and Kafka keeps none: {done.text!r} holds as soon "
            "as some records are there, whatever others are still to come. Name counts (count(*) = max(value:n::int)) "
            "or every participant (bool_or(topic = '…'))"
        )
    warnings += [
        f"{aggregate.text} cannot be merged: transactions in flight will be read again by every sync that meets them"
        for aggregate in done.aggregates
        if not aggregate.mergeable
    ]
    if not done.preset and any(topic.record_id for topic in config.topics.values()):
        warnings.append("record_id: transactions in flight will be read again by every sync that meets them")
    return warnings


def _condition_warnings(spark: SparkSession, records: DataFrame, done: Done) -> list[str]:
    """Warns of functions in the part of `done` outside its aggregates that are not deterministic."""
    types = {} if done.preset else state_types(spark, records, done)
    if not types:
        return []
    columns = ", ".join(f"a{number} {type_}" for number, type_ in enumerate(types.values()))
    return _determinism_warnings("done", from_rows(spark, [], columns).selectExpr(done.condition))


def _order_warnings(config: Config) -> list[str]:
    """Warns of upsert and history tables without commit order: they may hold a state that the source never had."""
    tables = config.deliver.tables
    topics = [rule.topic for rule in config.outputs if tables is not None and rule.key and _is_state(tables, rule)]
    if not topics or not config.transactions.preset or config.transactions.order == "commit":
        return []
    return [
        f"tables hold the newest row of each key ({', '.join(dict.fromkeys(topics))}), and with order: completion a "
        "transaction may be there before one that was committed earlier, so that they do not add up until that is "
        "there, too: say transactions.order: commit if they are to"
    ]


def _type_warnings(rule_outputs: Made) -> list[str]:
    """Warns of outputs whose rules disagree on the type of a column, or on the key."""
    warnings = []
    for topic in dict.fromkeys(rule.topic for rule, _ in rule_outputs):
        try:
            columns_by_topic([(rule, rows) for rule, rows in rule_outputs if rule.topic == topic])
        except UsageError as error:
            warnings.append(f"{error}. Kafka gets both as JSON; tables and other formats take no such output: cast one")
    return warnings


def _deletion_warnings(rule_outputs: Made) -> list[str]:
    """Warns of rules that delete rows in an output without a key: nothing identifies the deleted row."""
    return [
        f"rule {rule.name} (output {rule.topic}) selects {DELETE}, and the output has no key: of a deleted row nothing "
        f"is left that says which it was. Name a key, or leave {DELETE} out"
        for rule, rows in rule_outputs
        if DELETE in rows.columns and not rule.key
    ]


def _is_state(tables: Mapping[str, DeliveredTable], rule: OutputRule) -> bool:
    """Returns whether the rule's table keeps a row for each key, or versions of it, not all rows."""
    table = tables.get(rule.topic)
    return table is None or table.apply != "append"


def _determinism_warnings(where: str, rows: DataFrame, *, views: bool = False) -> list[str]:
    """Warns of functions in the plan of `rows` by which another sync of the same raw may give other rows."""
    return [
        f"{where}: {name} depends on the order in which Spark meets the rows: take min_by or array_sort"
        if name in _ORDER_DEPENDENT
        else f"{where}: {name} is not deterministic: the same raw would give other rows"
        for name in sorted(set(_unstable_functions(rows._jdf.queryExecution().analyzed(), views=views)))  # noqa: SLF001
    ]


def _unstable_functions(plan: Any, *, views: bool) -> Iterator[str]:
    """Yields the names of functions in a logical plan whose value does not depend on their arguments alone.

    Args:
        plan: the plan, a JVM object.
        views: whether to descend into the temporary views that the plan reads, such as those of topics.
    """
    if plan.getClass().getSimpleName() == "View" and not views:
        return
    for expression in _items(plan.expressions()):
        # The SQL text is searched first, because the walk costs a call into the JVM for each node.
        if not expression.deterministic() or _MAYBE_UNSTABLE.search(expression.sql()):
            yield from _unstable_in_expression(expression)
    for child in (*_items(plan.children()), *_items(plan.subqueries())):
        yield from _unstable_functions(child, views=views)


def _unstable_in_expression(expression: Any, *, is_sorted: bool = False) -> Iterator[str]:
    """Yields the names of such functions in an expression.

    Args:
        expression: the expression, a JVM object.
        is_sorted: whether the array that the expression returns is sorted, so that the order of rows has no effect.
    """
    if expression.getClass().getSuperclass().getSimpleName() == "SubqueryExpression":  # the plan lists its subqueries
        return
    name, children = expression.prettyName(), [*_items(expression.children())]
    is_random = not expression.deterministic() and all(child.deterministic() for child in children)
    is_unstable = is_random or name in _ORDER_DEPENDENT or name in _QUERY_CONSTANTS or name.startswith("current_")
    if is_unstable and not is_sorted:
        yield name
        return
    is_sorted = name in ("array_sort", "sort_array") or (is_sorted and name == "aggregateexpression")
    for child in children:
        yield from _unstable_in_expression(child, is_sorted=is_sorted)


def _items(sequence: Any) -> Iterator[Any]:
    """Yields the items of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.length()))


def describe(pipeline: Pipeline) -> str:
    """Returns the pipeline as lines for people."""
    lines = []
    for topic in pipeline.topics:
        compression = f" in {topic['compression']}" if topic["compression"] != "none" else ""
        schema = f" as {topic['schema']}" if topic["schema"] else ""
        lines.append(
            f"topic {topic['topic']}: view {topic['view']}, id {topic['id']}, null id {topic['null_id']}, "
            f"key {topic['key']}, value {topic['value']}{compression}{schema}"
        )
    state = "its state is kept between syncs" if pipeline.mergeable else "records in flight are read again"
    lines.append(f"done when {pipeline.done} ({state})")
    for rule in pipeline.rules:
        lines.append(f"output {rule.topic} by {rule.name}, key {', '.join(rule.key) or 'none'}")
        lines += [f"    {column} {type_}" for column, type_ in rule.columns.items()]
        lines += [f"  | {line}" for line in rule.text.splitlines()]
    return "\n".join(lines)
