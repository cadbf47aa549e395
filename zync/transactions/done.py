"""The `done` condition taken apart: its aggregates, what each record brings to them, and how they are merged.

Spark's own parser finds the aggregates and their place in the text. Where all of them can be merged, the
state of a transaction in flight is one value for each, and its records need not be read again until it completes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config
from zync.debezium import completion, runs
from zync.errors import UsageError
from zync.spark.errors import message_of
from zync.spark.expressions import expression, parse
from zync.spark.jvm import jvm_class
from zync.transactions.envelopes import with_body

_MERGED_BY = {
    "count": "sum",
    "count_if": "sum",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "bool_or": "bool_or",
    "any": "bool_or",
    "some": "bool_or",
    "bool_and": "bool_and",
    "every": "bool_and",
}


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of `done`: `part` is what a record brings, `merge` the function over parts, `{over}` its window.

    Of a preset `part` is where in `Done.structs` that is.
    """

    text: str
    part: str
    merge: str
    mergeable: bool
    counts: bool = False

    def over(self, part: str, window: str = "") -> str:
        """The aggregate of that column, over a window if one is named."""
        return self.merge.format(part, over=window and f" OVER {window}")


@dataclass(frozen=True)
class Done:
    """`done` as `condition` over columns `a0`, `a1`, …, one for each of `aggregates`.

    A preset has more: columns `decoded` with each record, which all expressions see; `structs`, which have what the
    aggregates take, and columns `beside` that; and over all of them `known`, `torn` and `place` (see
    sql/judge/judge.sql), and `again` (see sql/bookkeeping/in_flight.sql).
    """

    text: str
    condition: str
    aggregates: tuple[Aggregate, ...] = ()
    preset: bool = False
    decoded: dict[str, str] = field(default_factory=dict)
    structs: dict[str, str] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)
    known: str = "CAST(NULL AS STRING)"
    torn: str = "false"
    place: str = "CAST(NULL AS BIGINT)"
    again: str | None = None

    @property
    def mergeable(self) -> bool:
        """Whether the state of a transaction in flight can be kept instead of reading its records again."""
        return all(one.mergeable for one in self.aggregates)

    @property
    def state_now(self) -> str:
        """The state of a transaction in flight over its rows in sql/bookkeeping/in_flight.sql, a struct by `parts`."""
        columns = {f"p{n}": f"max_by(a{n}, seqno) FILTER (WHERE member)" for n in range(len(self.aggregates))}
        if self.again:
            columns["again"] = self.again
        merged = ", ".join(f"'{column}', {text}" for column, text in columns.items())
        return f"named_struct({merged})" if merged else "named_struct('none', CAST(NULL AS STRING))"

    @property
    def brings(self) -> dict[str, str]:
        """What each record brings, by name."""
        parts = {f"p{number}": one.part for number, one in enumerate(self.aggregates)}
        return {**(self.structs or parts), **self.beside}

    @property
    def parts(self) -> dict[str, str]:
        """Columns p0, p1, … for the aggregates, and what is beside them: where each is in what a record brings."""
        parts = {f"p{number}": one.part if self.structs else f"p{number}" for number, one in enumerate(self.aggregates)}
        return {**parts, **{name: name for name in self.beside}}


_RECORD = (
    "topic string, partition int, offset bigint, timestamp timestamp, key variant, value variant, "
    "headers array<struct<key: string, value: binary>>"
)
"""What ids and `done` see of a record."""


def understand(spark: SparkSession, config: Config) -> Done:
    """`done` taken apart, once it and the config's ids can be evaluated; UsageError that says which cannot, and why."""
    record = spark.createDataFrame([], _RECORD)
    if config.transactions.preset:
        record = with_body(record)
    for topic, one in config.topics.items():
        if topic.startswith("^"):
            _check_regex(spark, topic)
        for what, text in (("id", one.id), ("record_id", one.record_id)):
            if text:
                _check_of_one(spark, record, text, f"topics.{topic}.{what}")
    if config.transactions.preset:
        return Done(
            config.transactions.preset,
            completion.DONE,
            tuple(Aggregate(merge, part, merge, mergeable=True) for part, merge in completion.aggregated(config)),
            preset=True,
            decoded=completion.decoded(config),
            structs=completion.brought(config),
            beside=completion.beside(config),
            known=completion.KNOWN,
            torn=completion.TORN,
            place=completion.PLACE_IN_ORDER if config.transactions.order == "commit" else Done.place,
            again=runs.AGAIN,
        )
    text = config.transactions.done
    done = take_apart(spark, text)
    kind = _type_of(spark, record, text, "transactions.done")
    if kind != "boolean":
        msg = f"transactions.done: {text!r} is {kind}, not boolean"
        raise UsageError(msg)
    if not done.aggregates and text.strip().lower() not in ("true", "false"):
        msg = f"transactions.done: {text!r} has no aggregate: it must say something of all records of a transaction"
        raise UsageError(msg)
    return done


def _check_regex(spark: SparkSession, text: str) -> None:
    """UsageError where Java, by which `sync` looks, does not know what Python does, by which `sync-from` looks."""
    try:
        jvm_class(spark, "java.util.regex.Pattern").compile(text)
    except PySparkException as error:
        msg = (
            f"topics: {text!r} is no regular expression that Java knows, which `sync` reads it by: {message_of(error)}"
        )
        raise UsageError(msg) from error


def _check_of_one(spark: SparkSession, record: DataFrame, text: str, where: str) -> None:
    """UsageError where it is no expression over one record: where rows are filtered, no other may stand."""
    _schema(spark, text, where, lambda checked: record.where(f"{checked} IS NOT NULL"))


def _type_of(spark: SparkSession, record: DataFrame, text: str, where: str) -> str:
    schema = _schema(spark, text, where, lambda checked: record.selectExpr(f"{checked} AS it"))
    return str(schema["it"].dataType.simpleString())


def _schema(spark: SparkSession, text: str, where: str, use: Callable[[str], DataFrame]) -> Any:
    """The columns of what makes use of the expression; UsageError where it cannot be evaluated there."""
    checked = expression(spark, text, where)
    try:
        return use(checked).schema
    except PySparkException as error:
        msg = f"{where}: {text!r} cannot be evaluated: {message_of(error)}"
        raise UsageError(msg) from error


def take_apart(spark: SparkSession, text: str) -> Done:
    """The parts of a `done` condition; UsageError where it is not a boolean over aggregates of one argument."""
    where = "transactions.done"
    nodes = list(_aggregates(spark, parse(spark, text, where)))
    spans = sorted({_span(node) for node in nodes})
    aggregates: list[Aggregate] = []
    pieces: list[str] = []
    at = 0
    for start, end in spans:
        node = next(node for node in nodes if _span(node) == (start, end))
        pieces.append(f"{text[at:start]}a{len(aggregates)}")
        aggregates.append(_aggregate(text[start:end], _name(node), distinct=node.isDistinct()))
        at = end
    pieces.append(text[at:])
    return Done(text, "".join(pieces), tuple(aggregates))


def _aggregates(spark: SparkSession, node: Any) -> Any:
    """The outermost aggregate functions below a parse tree's node."""
    if node.getClass().getSimpleName() == "UnresolvedFunction":
        registry = jvm_class(spark, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry")
        known = registry.expressions().get(_name(node))
        if known.isDefined() and known.get()._1().getGroup() == "agg_funcs":  # noqa: SLF001 - Scala's pair
            yield node
            return
    if node.getClass().getSimpleName() == "AggregateExpression":  # of functions with a grammar of their own: first, …
        yield node
        return
    children = node.children()
    for index in range(children.length()):
        yield from _aggregates(spark, children.apply(index))


def _name(node: Any) -> str:
    if node.getClass().getSimpleName() == "AggregateExpression":
        return str(node.aggregateFunction().prettyName())
    parts = node.nameParts()
    return str(parts.apply(parts.length() - 1)).lower()


def _span(node: Any) -> tuple[int, int]:
    origin = node.origin()
    return int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1


def _aggregate(text: str, function: str, *, distinct: bool) -> Aggregate:
    inside, rest = _argument(text)
    condition = re.fullmatch(r"\s*filter\s*\(\s*where\b(.*)\)\s*", rest, re.IGNORECASE | re.DOTALL)
    if rest.strip() and not condition:
        msg = f"transactions.done: {text!r} is more than an aggregate with a FILTER, which is all that done can hold"
        raise UsageError(msg)
    when = f"WHEN {condition[1]}\n " if condition else ""
    if distinct:
        inside = re.sub(r"^\s*distinct\b", "", inside, flags=re.IGNORECASE)
        merge = "size(collect_set({}){over})" if function == "count" else f"{function}(DISTINCT {{}}){{over}}"
        return Aggregate(text, f"CASE {when or 'WHEN true '}THEN {inside}\n END", merge, mergeable=False)
    if function == "count" and inside.strip() == "*":
        part = f"CASE {when}THEN 1L END" if when else "1L"
    elif function == "count":
        also = f"({condition[1]}\n) AND " if condition else ""
        part = f"CASE WHEN {also}({inside}\n) IS NOT NULL THEN 1L END"
    elif function == "count_if":
        also = f"({condition[1]}\n) AND " if condition else ""
        part = f"CASE WHEN {also}({inside}\n) THEN 1L END"
    else:
        part = f"CASE {when}THEN ({inside}\n) END" if when else f"({inside}\n)"
    counts = function in ("count", "count_if")
    merged_by = _MERGED_BY.get(function)
    return Aggregate(
        text, part, f"{merged_by or function}({{}}){{over}}", mergeable=merged_by is not None, counts=counts
    )


def _argument(text: str) -> tuple[str, str]:
    """What stands between an aggregate's parentheses, and what comes after them."""
    start = text.index("(") + 1
    depth, quote, index = 1, "", start
    while depth:
        char = text[index]
        if quote:
            if char == "\\" and quote != "`":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "'\"`":
            quote = char
        elif char == "," and depth == 1:
            msg = f"transactions.done: {text!r} has several arguments: only aggregates of one argument can stand there"
            raise UsageError(msg)
        else:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(char, 0)
        index += 1
    return text[start : index - 1], text[index:]
