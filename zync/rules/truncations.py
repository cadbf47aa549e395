"""Turns TRUNCATEs of source tables into output rows, for the outputs that are made of that table alone."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from zync.config.model import Config, OutputRule
from zync.config.topics import claiming
from zync.debezium.envelope import IS_TRUNCATION, ORDER
from zync.rules.left_out import ORDER as ORDER_COLUMN
from zync.rules.run import bind_lookups, rule_texts, run_rules
from zync.rules.schema import Made
from zync.rules.views import bind_views
from zync.spark.expressions import try_eval
from zync.spark.frames import from_rows, select
from zync.transactions.envelopes import with_body
from zync.transactions.quarantine import Failure

_RECORDS = "records"
_ORDER_TYPE = "struct<place:bigint,total_order:bigint>"
"""The type of `_order` in the preset's views."""


class Truncated(NamedTuple):
    """A truncation of an output topic: deletes all rows before the TRUNCATE in the source's order.

    Attributes:
        output: The output topic.
        seqno: The transaction's seqno.
        source_position: `_order.place` of the TRUNCATE.
        total_order: `_order.total_order` of the TRUNCATE.
    """

    output: str
    seqno: int
    source_position: int | None
    total_order: int | None


def find_truncated(
    spark: SparkSession, records: DataFrame, config: Config, positions: DataFrame
) -> tuple[list[Truncated], list[Failure]]:
    """Finds the TRUNCATE records and decides which rows of which outputs they delete.

    Args:
        spark: The session.
        records: The records of whole transactions.
        config: The config.
        positions: Each transaction's (seqno) `position` in the source's order (sql/apply_rules/positions.sql).

    Returns:
        The truncations of outputs, and the transactions whose truncations cannot be applied to an output.

    Raises:
        UsageError: A rule is invalid.
    """
    bodies = with_body(records).withColumn("at", try_eval(spark, sf.expr(ORDER), "seqno > 0"))
    bodies = select(bodies, "seqno", "topic", f"{IS_TRUNCATION} AS truncates", "at")
    rows = select(bodies.where("truncates").join(positions, "seqno", "left"), "seqno", "topic", "at.*", "position")
    truncates = rows.collect()
    if not truncates:
        return [], []
    truncated_tables = sorted({(row["seqno"], row["topic"]) for row in truncates})
    tables = from_rows(spark, truncated_tables, "seqno bigint, topic string")
    other_rows = bodies.where("NOT truncates").join(tables.hint("broadcast"), ["seqno", "topic"], "left_semi")
    with_rows = {(row["seqno"], row["topic"]) for row in other_rows.select("seqno", "topic").distinct().collect()}
    bind_views(records.limit(0), config, rule_texts(config))
    bind_lookups(spark, config)
    outputs = _OutputSources(config, run_rules(spark, config))
    truncated: list[Truncated] = []
    failures: dict[int, Failure] = {}
    for row in truncates:
        for output, rule in outputs.made_of(row["topic"]):
            why = outputs.unknown(output, row["topic"], with_rows=(row["seqno"], row["topic"]) in with_rows)
            if why is None and row["position"] is None:
                why = "where it is in the source's order is not known"
            if why:
                reason = f"TRUNCATE of {row['topic']}: which rows of output {output} are gone is not known: {why}"
                failures.setdefault(row["seqno"], Failure(row["seqno"], reason, rule.name))
            truncated.append(Truncated(output, row["seqno"], row["place"], row["total_order"]))
    return truncated, list(failures.values())


def rows_of(spark: SparkSession, truncated: Sequence[Truncated], order_type: str) -> DataFrame:
    """Returns the output rows of truncations, with the columns of `output_rows` and the rule -1.

    Args:
        spark: The session.
        truncated: The truncations.
        order_type: The type of `_order` in the rows of the output's rules.
    """
    truncations = from_rows(
        spark,
        [tuple(truncation) for truncation in truncated],
        "topic string, seqno bigint, source_position bigint, total_order bigint",
    )
    order = (
        "named_struct('place', source_position, 'total_order', total_order)" if order_type == _ORDER_TYPE else "NULL"
    )
    null_text = "CAST(NULL AS STRING)"
    return select(
        truncations,
        "topic",
        "seqno",
        f"{'NULL' if order_type == 'void' else f'CAST({order} AS {order_type})'} AS {ORDER_COLUMN}",
        "-1 AS rule",
        f"{null_text} AS key",
        f"{null_text} AS value",
        f"{null_text} AS state",
    )


class _OutputSources:
    """The topics of the config that each output's rules read, by their analysed plans.

    Attributes:
        rules: The rules of each output.
        sources: The topics that the rules of each output read; `records` stands for the view of that name.
        order_types: The types that `_order` has in the rules of each output.
    """

    def __init__(self, config: Config, results: Made) -> None:
        self.config = config
        views = {(topic.as_ or name).lower(): name for name, topic in config.topics.items()} | {_RECORDS: _RECORDS}
        self.rules: dict[str, list[OutputRule]] = {}
        self.sources: dict[str, set[str]] = {}
        self.order_types: dict[str, set[str]] = {}
        for rule, rows in results:
            read_views = _views(rows._jdf.queryExecution().analyzed())  # noqa: SLF001
            self.rules.setdefault(rule.topic, []).append(rule)
            self.sources.setdefault(rule.topic, set()).update(views[view] for view in read_views if view in views)
            types = {field.dataType.simpleString() for field in rows.schema.fields if field.name == ORDER_COLUMN}
            self.order_types.setdefault(rule.topic, set()).update(types or {"void"})

    def made_of(self, topic: str) -> list[tuple[str, OutputRule]]:
        """Returns the outputs with a rule that reads the topic's view, each with its first rule.

        Rules that read `records` see the TRUNCATE records themselves.
        """
        entry = claiming(self.config, topic) or topic
        return [(output, self.rules[output][0]) for output, sources in self.sources.items() if entry in sources]

    def unknown(self, output: str, topic: str, *, with_rows: bool) -> str | None:
        """Returns why it is not known which rows of an output a TRUNCATE deletes; None if it is known.

        Args:
            output: The output topic.
            topic: The topic of the truncated table.
            with_rows: Whether the transaction has other rows of the table.
        """
        entry = claiming(self.config, topic) or topic
        if entry.startswith("^"):
            return f"its rules read several tables as {entry}: give the topic an entry of its own in topics"
        if len(self.sources[output]) > 1:
            return f"its rules read more than that table ({', '.join(sorted(self.sources[output]))})"
        if with_rows and self.order_types[output] != {_ORDER_TYPE}:
            return "the transaction has other rows of that table, and its rules do not select _order as the view has it"
        return None


def _views(plan: Any) -> set[str]:
    """Returns the temporary views that a plan (a JVM object) reads, in lower case, as Spark compares them."""
    views: set[str] = set()
    remaining = [plan]
    while remaining:
        node = remaining.pop()
        if node.getClass().getSimpleName() == "View":
            views.add(str(node.desc().identifier().table()).lower())
            continue
        for nodes in (node.children(), node.subqueries()):
            remaining += [nodes.apply(index) for index in range(nodes.length())]
    return views
