"""What a truncation of a table in the source means for the outputs: a row of each that is made of that table alone."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from zync.config.model import Config, OutputRule
from zync.debezium.envelope import IS_TRUNCATION, ORDER
from zync.rules.left_out import ORDER as ORDER_COLUMN
from zync.rules.run import bind_lookups, rule_texts, run_rules
from zync.rules.schema import Made
from zync.rules.views import bind_views
from zync.spark.expressions import try_eval
from zync.spark.frames import local, select
from zync.transactions.envelopes import with_body
from zync.transactions.quarantine import Failure

_RECORDS = "records"
_ORDER_TYPE = "struct<place:bigint,total_order:bigint>"
"""Of the preset's `_order`."""


class Truncated(NamedTuple):
    """An output topic of which all rows are gone that come before that transaction's row of that `_order`."""

    output: str
    seqno: int
    place: int | None
    total_order: int | None


def find_truncated(
    spark: SparkSession, records: DataFrame, config: Config, positions: DataFrame
) -> tuple[list[Truncated], list[Failure]]:
    """What the truncations among `records` mean; and the transactions of which that cannot be known.

    `positions`: of transactions (seqno) their `position` in the source's order (sql/rules/places.sql).
    """
    bodies = with_body(records).withColumn("at", try_eval(spark, sf.expr(ORDER), "seqno > 0"))
    bodies = select(bodies, "seqno", "topic", f"{IS_TRUNCATION} AS truncates", "at")
    rows = select(bodies.where("truncates").join(positions, "seqno", "left"), "seqno", "topic", "at.*", "position")
    found = rows.collect()
    if not found:
        return [], []
    tables = local(spark, sorted({(one["seqno"], one["topic"]) for one in found}), "seqno bigint, topic string")
    others = bodies.where("NOT truncates").join(tables.hint("broadcast"), ["seqno", "topic"], "left_semi")
    with_rows = {(one["seqno"], one["topic"]) for one in others.select("seqno", "topic").distinct().collect()}
    bind_views(records.limit(0), config, rule_texts(config))
    bind_lookups(spark, config)
    outputs = _Outputs(config, run_rules(spark, config))
    truncated: list[Truncated] = []
    failures: dict[int, Failure] = {}
    for one in found:
        for output, rule in outputs.made_of(one["topic"]):
            why = outputs.unknown(output, one["topic"], with_rows=(one["seqno"], one["topic"]) in with_rows)
            if why is None and one["position"] is None:
                why = "where it is in the source's order is not known"
            if why:
                reason = f"TRUNCATE of {one['topic']}: which rows of output {output} are gone is not known: {why}"
                failures.setdefault(one["seqno"], Failure(one["seqno"], reason, rule.name))
            truncated.append(Truncated(output, one["seqno"], one["place"], one["total_order"]))
    return truncated, list(failures.values())


def rows_of(spark: SparkSession, truncated: Sequence[Truncated], kind: str) -> DataFrame:
    """Their output rows, as `output_rows` has those of rules, but of rule -1; `kind`: the type of `_order` there."""
    made = local(
        spark, [tuple(one) for one in truncated], "topic string, seqno bigint, place bigint, total_order bigint"
    )
    order = "named_struct('place', place, 'total_order', total_order)" if kind == _ORDER_TYPE else "NULL"
    nothing = "CAST(NULL AS STRING)"
    return select(
        made,
        "topic",
        "seqno",
        f"{'NULL' if kind == 'void' else f'CAST({order} AS {kind})'} AS {ORDER_COLUMN}",
        "-1 AS rule",
        f"{nothing} AS key",
        f"{nothing} AS value",
        f"{nothing} AS state",
    )


class _Outputs:
    """Which of the config's topics each output's rules are over, by their analysed plans."""

    def __init__(self, config: Config, made: Made) -> None:
        self.config = config
        views = {(one.as_ or topic).lower(): topic for topic, one in config.topics.items()} | {_RECORDS: _RECORDS}
        self.rules: dict[str, list[OutputRule]] = {}
        self.over: dict[str, set[str]] = {}
        self.orders: dict[str, set[str]] = {}
        for rule, rows in made:
            named = _views(rows._jdf.queryExecution().analyzed())  # noqa: SLF001
            self.rules.setdefault(rule.topic, []).append(rule)
            self.over.setdefault(rule.topic, set()).update(views[one] for one in named if one in views)
            kinds = {one.dataType.simpleString() for one in rows.schema.fields if one.name == ORDER_COLUMN}
            self.orders.setdefault(rule.topic, set()).update(kinds or {"void"})

    def made_of(self, topic: str) -> list[tuple[str, OutputRule]]:
        """The outputs that a rule makes of that topic's view; `records` shows truncations to rules themselves."""
        return [(output, self.rules[output][0]) for output, over in self.over.items() if self._claiming(topic) in over]

    def unknown(self, output: str, topic: str, *, with_rows: bool) -> str | None:
        """Why it is not known which of an output's rows are gone; None where it is.

        `with_rows`: the transaction has other rows of the table.
        """
        claiming = self._claiming(topic)
        if claiming.startswith("^"):
            return f"its rules read several tables as {claiming}: give the topic an entry of its own in topics"
        if len(self.over[output]) > 1:
            return f"its rules read more than that table ({', '.join(sorted(self.over[output]))})"
        if with_rows and self.orders[output] != {_ORDER_TYPE}:
            return "the transaction has other rows of that table, and its rules do not select _order as the view has it"
        return None

    def _claiming(self, topic: str) -> str:
        """The config's topic that claims records of that one."""
        if topic in self.config.topics:
            return topic
        regexes = (one for one in self.config.topics if one.startswith("^"))
        return next((one for one in regexes if re.search(one, topic)), topic)


def _views(plan: Any) -> set[str]:
    """The temporary views that a plan (a JVM object) reads, in lower case, as Spark compares them."""
    found: set[str] = set()
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if node.getClass().getSimpleName() == "View":
            found.add(str(node.desc().identifier().table()).lower())
            continue
        for nodes in (node.children(), node.subqueries()):
            waiting += [nodes.apply(index) for index in range(nodes.length())]
    return found
