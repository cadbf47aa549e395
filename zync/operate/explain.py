"""`zync explain` and `zync check`: the pipeline of a config, as it will run, without touching data."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from zync.config.model import PARTS, Config, DeliveredTable, OutputRule, Topic
from zync.deliver.kafka.encoder import in_format
from zync.deliver.tables import schema_changes, snapshots
from zync.deliver.tables.target import targets
from zync.errors import UsageError
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.rules.left_out import DELETE
from zync.rules.plan import rules_over_nothing
from zync.rules.schema import Made, columns_by_topic
from zync.rules.transform import made_alike
from zync.spark.frames import local
from zync.transactions.assemble import state_types
from zync.transactions.done import Done, understand

_BY_ARRIVAL = ("first", "first_value", "last", "last_value", "any_value", "collect_list", "array_agg", "listagg")
_OF_THE_SYNC = ("now", "localtimestamp", "session_user", "user", "version")
"""What Spark takes for constants: functions that are one value throughout a query, beside those called current_…"""
_MAY_CHANGE = re.compile(rf"\b({'|'.join((*_BY_ARRIVAL, *_OF_THE_SYNC))}|current_\w+)\(", re.IGNORECASE)


@dataclass(frozen=True)
class Rule:
    """A rule as it will run: its text, and its output's columns with their types."""

    name: str
    topic: str
    key: tuple[str, ...]
    text: str
    columns: dict[str, str]


@dataclass(frozen=True)
class Pipeline:
    """A config as it will run, and what there is to say against it."""

    topics: list[dict[str, str | None]]
    done: str
    mergeable: bool
    rules: list[Rule]
    warnings: list[str]


def explain(spark: SparkSession, config: Config) -> Pipeline:
    """The pipeline of this config. UsageError for the first thing that cannot run."""
    done = understand(spark, config)
    empty, made = rules_over_nothing(spark, config, done)
    made_alike(made, spark)
    _check_formats(config, made)
    if config.deliver.tables is not None:
        _check_tables(spark, config, made)
    return Pipeline(
        topics=[
            {
                "topic": name,
                "view": one.as_ or name,
                "id": config.as_written(_id(one, config)),
                "schema": one.schema,
                "null_id": one.null_id,
                "key": config.format(one, "key"),
                "value": config.format(one, "value"),
                "compression": one.compression,
            }
            for name, one in config.topics.items()
        ],
        done=config.as_written(done.text),
        mergeable=done.mergeable,
        rules=[_rule(rule, rows) for rule, rows in made],
        warnings=[
            config.as_written(one)
            for one in (
                *_done_warnings(config, done),
                *_order_warnings(config),
                *_type_warnings(made),
                *_deletion_warnings(made),
                *_chance_warnings("id, record_id or done", empty, views=True),
                *_condition_warnings(spark, empty, done),
                *(w for rule, rows in made for w in _chance_warnings(f"rule {rule.name} (output {rule.topic})", rows)),
            )
        ],
    )


def _check_formats(config: Config, made: Made) -> None:
    """UsageError where a delivery's format has nothing for a column of what rules make."""
    formats = {(rule.topic, part): config.delivered_format(rule.topic, part) for rule, _ in made for part in PARTS}
    typed = {topic for (topic, _), format_ in formats.items() if format_ != "json"}
    for topic, columns in columns_by_topic([one for one in made if one[0].topic in typed]).items():
        for part in PARTS:
            if formats[topic, part] != "json":
                kind = getattr(columns, part).jsonValue()
                in_format(formats[topic, part], kind, config.kafka_delivery.target(topic), part)


def _check_tables(spark: SparkSession, config: Config, made: Made) -> None:
    """UsageError where tables cannot have what rules make, or those that are there cannot take it."""
    for target in targets([*made], config.deliver.tables or {}, locate(snapshots.FOLDER, config.lake)).values():
        table = open_table(target.location)
        if table is not None and table.version():
            schema_changes.changes(target, spark.read.format("delta").load(target.location).schema)


def _id(topic: Topic, config: Config) -> str:
    ours = topic.envelope or any(topic is config.topics.get(name) for name in config.transactions.end_topics)
    return f"that of {config.transactions.preset}" if ours else topic.id


def _rule(rule: OutputRule, rows: DataFrame) -> Rule:
    columns = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    source = rule.text.strip()
    return Rule(rule.name, rule.topic, rule.key, source, columns)


def _done_warnings(config: Config, done: Done) -> list[str]:
    found = []
    counts = any(
        re.match(r"(?i)(count|count_if|sum|size|array_size|approx_count)", one.text) for one in done.aggregates
    )
    named = [topic for topic in config.topics if f"'{topic}'" in done.text or f'"{topic}"' in done.text]
    if done.aggregates and not counts and len(named) < max(1, len(config.topics)):
        found.append(
            f"done rests on the order of records across partitions, and Kafka keeps none: {done.text!r} holds as soon "
            "as some records are there, whatever others are still to come. Name counts (count(*) = max(value:n::int)) "
            "or every participant (bool_or(topic = '…'))"
        )
    found += [
        f"{one.text} cannot be merged: transactions in flight will be read again by every sync that meets them"
        for one in done.aggregates
        if not one.mergeable
    ]
    if not done.preset and any(topic.record_id for topic in config.topics.values()):
        found.append("record_id: transactions in flight will be read again by every sync that meets them")
    return found


def _condition_warnings(spark: SparkSession, identified: DataFrame, done: Done) -> list[str]:
    """Chance in what `done` says of its aggregates, beside them."""
    types = {} if done.preset else state_types(spark, identified, done)
    if not types:
        return []
    values = ", ".join(f"a{number} {kind}" for number, kind in enumerate(types.values()))
    return _chance_warnings("done", local(spark, [], values).selectExpr(done.condition))


def _order_warnings(config: Config) -> list[str]:
    """Tables of current states that are filled in another order than the source's are no state that it was in."""
    said = config.deliver.tables
    states = [one.topic for one in config.outputs if said is not None and one.key and _is_state(said.get(one.topic))]
    if not states or not config.transactions.preset or config.transactions.order == "commit":
        return []
    return [
        f"tables hold the newest row of each key ({', '.join(dict.fromkeys(states))}), and with order: completion a "
        "transaction may be there before one that was committed earlier, so that they do not add up until that is "
        "there, too: say transactions.order: commit if they are to"
    ]


def _type_warnings(made: Made) -> list[str]:
    """Outputs whose rules do not agree on a column's type, or on the key."""
    found = []
    for topic in dict.fromkeys(rule.topic for rule, _ in made):
        try:
            columns_by_topic([one for one in made if one[0].topic == topic])
        except UsageError as error:
            found.append(f"{error}. Kafka gets both as JSON; tables and other formats take no such output: cast one")
    return found


def _deletion_warnings(made: Made) -> list[str]:
    """Rules that delete rows of which nobody can say which they are."""
    return [
        f"rule {rule.name} (output {rule.topic}) selects {DELETE}, and the output has no key: of a deleted row nothing "
        f"is left that says which it was. Name a key, or leave {DELETE} out"
        for rule, rows in made
        if DELETE in rows.columns and not rule.key
    ]


def _is_state(table: DeliveredTable | None) -> bool:
    return table is None or table.apply != "append"


def _chance_warnings(where: str, rows: DataFrame, *, views: bool = False) -> list[str]:
    """What of the plan of `rows` may give others when the same raw is synced again."""
    return [
        f"{where}: {name} depends on the order in which Spark meets the rows: take min_by or array_sort"
        if name in _BY_ARRIVAL
        else f"{where}: {name} is not deterministic: the same raw would give other rows"
        for name in sorted(set(_changing(rows._jdf.queryExecution().analyzed(), views=views)))  # noqa: SLF001
    ]


def _changing(plan: Any, *, views: bool) -> Iterator[str]:
    """Names of functions in a plan (a JVM object) whose value is not that of their arguments alone.

    `views`: whether to look into the temporary views that it reads, as those that a rule is given.
    """
    if plan.getClass().getSimpleName() == "View" and not views:
        return
    for one in _each(plan.expressions()):
        if not one.deterministic() or _MAY_CHANGE.search(one.sql()):  # else there is nothing to walk to, at a call a node
            yield from _changing_in(one)
    for one in (*_each(plan.children()), *_each(plan.subqueries())):
        yield from _changing(one, views=views)


def _changing_in(expression: Any, *, put_in_order: bool = False) -> Iterator[str]:
    """The same of an expression; `put_in_order`: the array that it makes is sorted, so that its order is no matter."""
    if expression.getClass().getSuperclass().getSimpleName() == "SubqueryExpression":  # one of its plan's subqueries
        return
    name, parts = expression.prettyName(), [*_each(expression.children())]
    own = not expression.deterministic() and all(one.deterministic() for one in parts)
    if (own or name in _BY_ARRIVAL or name in _OF_THE_SYNC or name.startswith("current_")) and not put_in_order:
        yield name
        return
    put_in_order = name in ("array_sort", "sort_array") or (put_in_order and name == "aggregateexpression")
    for one in parts:
        yield from _changing_in(one, put_in_order=put_in_order)


def _each(sequence: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.length()))


def describe(pipeline: Pipeline) -> str:
    """The pipeline as lines for people."""
    lines = []
    for topic in pipeline.topics:
        packed = f" in {topic['compression']}" if topic["compression"] != "none" else ""
        schema = f" as {topic['schema']}" if topic["schema"] else ""
        lines.append(
            f"topic {topic['topic']}: view {topic['view']}, id {topic['id']}, null id {topic['null_id']}, "
            f"key {topic['key']}, value {topic['value']}{packed}{schema}"
        )
    kept = "its state is kept between syncs" if pipeline.mergeable else "records in flight are read again"
    lines.append(f"done when {pipeline.done} ({kept})")
    for rule in pipeline.rules:
        lines.append(f"output {rule.topic} by {rule.name}, key {', '.join(rule.key) or 'none'}")
        lines += [f"    {column} {kind}" for column, kind in rule.columns.items()]
        lines += [f"  | {line}" for line in rule.text.splitlines()]
    return "\n".join(lines)
