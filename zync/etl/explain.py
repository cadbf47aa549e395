"""`zync explain` and `zync check`: the pipeline of a config, as it will run, without touching data."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zync.config import Config, OutputRule, Topic
from zync.etl.rules import VIEW_COLUMNS, bind_lookups, bind_views, run_rule
from zync.etl.transform import made_by_topic
from zync.spark import read_parquet
from zync.transactions.decode import RAW_COLUMNS, decode
from zync.transactions.done import Done, understand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHANGING = (
    *("rand", "random", "randn", "randstr", "uuid", "shuffle", "monotonically_increasing_id", "spark_partition_id"),
    *("now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp", "unix_timestamp"),
    *("input_file_name", "current_user", "user", "session_user", "version"),
)
_BY_ARRIVAL = (
    *("first", "first_value", "last", "last_value", "any_value"),
    *("collect_list", "array_agg", "listagg", "string_agg"),
)


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


def explain(spark: "SparkSession", config: Config) -> Pipeline:
    """The pipeline of this config. UsageError for the first thing that cannot run."""
    done = understand(spark, config)
    empty = decode(spark, read_parquet(spark, [], RAW_COLUMNS), config, done)
    structs = [column for column in empty.columns if column.startswith("as_")]
    same = [column for column in VIEW_COLUMNS if "seqno" not in column]
    bind_views(spark, empty.selectExpr("seqno", "seqno AS record_seqno", *same, *structs), config)
    bind_lookups(spark, config)
    rules = [_rule(spark, rule) for rule in config.outputs]
    made_by_topic(spark, config)
    return Pipeline(
        topics=[
            {
                "topic": name,
                "view": one.as_ or name,
                "id": _id(one, config),
                "schema": one.schema,
                "null_id": one.null_id,
            }
            for name, one in config.topics.items()
        ],
        done=done.text,
        mergeable=done.mergeable,
        rules=rules,
        warnings=[*_done_warnings(config, done), *(text for rule in config.outputs for text in _rule_warnings(rule))],
    )


def _id(topic: Topic, config: Config) -> str:
    ours = topic.envelope or topic is config.topics.get(str(config.transactions.topic))
    return f"that of {config.transactions.preset}" if ours else topic.id


def _rule(spark: "SparkSession", rule: OutputRule) -> Rule:
    columns = {field.name: field.dataType.simpleString() for field in run_rule(spark, rule).schema.fields}
    return Rule(rule.name, rule.topic, rule.key, _source(rule), columns)


def _source(rule: OutputRule) -> str:
    return Path(rule.sql or str(rule.python).partition(":")[0]).read_text(encoding="utf-8").strip()


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


def _rule_warnings(rule: OutputRule) -> list[str]:
    if not rule.sql:
        return []
    text = re.sub(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'", " ", _source(rule), flags=re.DOTALL).lower()
    called = set(re.findall(r"\b(\w+)\s*\(", text)) | (
        {"current_timestamp", "current_date", "current_user", "localtimestamp"} & set(re.findall(r"\w+", text))
    )
    where = f"rule {rule.name} (output {rule.topic})"
    return [
        *(
            f"{where}: {name} is not deterministic: the same raw would give other rows"
            for name in _CHANGING
            if name in called
        ),
        *(
            f"{where}: {name} depends on the order in which Spark meets the rows: take min_by or array_sort"
            for name in _BY_ARRIVAL
            if name in called
        ),
    ]


def describe(pipeline: Pipeline) -> str:
    """The pipeline as lines for people."""
    lines = []
    for topic in pipeline.topics:
        schema = f", value {topic['schema']}" if topic["schema"] else ""
        lines.append(
            f"topic {topic['topic']}: view {topic['view']}, id {topic['id']}, null id {topic['null_id']}{schema}"
        )
    kept = "its state is kept between syncs" if pipeline.mergeable else "records in flight are read again"
    lines.append(f"done when {pipeline.done} ({kept})")
    for rule in pipeline.rules:
        lines.append(f"output {rule.topic} by {rule.name}, key {', '.join(rule.key) or 'none'}")
        lines += [f"    {column} {kind}" for column, kind in rule.columns.items()]
        lines += [f"  | {line}" for line in rule.text.splitlines()]
    return "\n".join(lines)
