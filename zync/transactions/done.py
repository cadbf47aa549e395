"""The `done` condition taken apart: its aggregates, what each record brings to them, and how they are merged.

Spark's own parser finds the aggregates and their place in the text. Where all of them can be merged, the
state of a transaction in flight is one value for each, and its records need not be read again until it completes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config
from zync.debezium import completion, runs
from zync.errors import UsageError
from zync.spark.errors import message_of, spark_errors
from zync.spark.expressions import Token, expression, parse, tokens
from zync.spark.jvm import jvm_class
from zync.text import amount
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
    except spark_errors() as error:
        msg = f"{where}: {text!r} cannot be evaluated: {message_of(error)}"
        raise UsageError(msg) from error


def take_apart(spark: SparkSession, text: str) -> Done:
    """The parts of a `done` condition; UsageError where it is not a boolean over aggregates of one argument."""
    where = "transactions.done"
    nodes = {_span(node): node for node in _aggregates(spark, parse(spark, text, where))}
    words = tokens(spark, text)
    aggregates: list[Aggregate] = []
    pieces: list[str] = []
    at = 0
    for (start, end), node in sorted(nodes.items(), key=lambda item: item[0]):
        call = Call.of(text, [word for word in words if start <= word.start < end], distinct=node.isDistinct())
        _check_call(call, node)
        pieces.append(f"{text[at:start]}a{len(aggregates)}")
        aggregates.append(aggregate(call, _name(node)))
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


@dataclass(frozen=True)
class Call:
    """The text of an aggregate function's call: all of it, its argument, and the condition of its FILTER, if any.

    `more`: whether there is more than that, like OVER, WITHIN GROUP or IGNORE NULLS.
    """

    text: str
    argument: str
    condition: str | None = None
    distinct: bool = False
    more: bool = False

    @classmethod
    def of(cls, text: str, words: list[Token], *, distinct: bool = False) -> "Call":
        """The call whose tokens in `text` are `words`. `distinct`: whether its argument has DISTINCT before it."""
        opening = next(index for index, word in enumerate(words) if word.text == "(")
        closing = _closing(words, opening)
        inside, rest = words[opening + 1 : closing], words[closing + 1 :]
        if distinct or (len(inside) > 1 and inside[0].text.upper() == "ALL"):
            inside = inside[1:]
        condition = None
        if [word.text.upper() for word in rest[:3]] == ["FILTER", "(", "WHERE"]:
            end = _closing(rest, 1)
            condition, rest = _between(text, rest[3:end]), rest[end + 1 :]
        nulls = [word.text.upper() for word in inside[-2:]] in (["IGNORE", "NULLS"], ["RESPECT", "NULLS"])
        return cls(_between(text, words), _between(text, inside), condition, distinct, more=bool(rest) or nulls)


def _closing(words: list[Token], opening: int) -> int:
    """The index of the parenthesis that closes the one at that index."""
    depth = 0
    for index in range(opening, len(words)):
        depth += {"(": 1, ")": -1}.get(words[index].text, 0)
        if not depth:
            return index
    raise AssertionError(words)  # Spark's parser takes no such text


def _between(text: str, words: list[Token]) -> str:
    """The text from the first of those tokens to the last."""
    return text[words[0].start : words[-1].end] if words else ""


def _check_call(call: Call, node: Any) -> None:
    """UsageError where a call, of that node of Spark's parse tree, is more than an aggregate of one value."""
    where = f"transactions.done: {call.text!r}"
    if call.more:
        msg = f"{where} is more than an aggregate with a FILTER, which is all that done can hold"
        raise UsageError(msg)
    if node.getClass().getSimpleName() == "AggregateExpression":  # which has a grammar with one argument
        return
    arguments = node.arguments()
    if arguments.length() != 1:
        msg = f"{where} has {amount(arguments.length(), 'argument')}: only aggregates of one can stand there"
        raise UsageError(msg)
    if arguments.apply(0).getClass().getSimpleName() in ("UnresolvedStar", "NamedArgumentExpression"):
        msg = f"{where}: its argument must be one value, as in count(value:id) or count(*)"
        raise UsageError(msg)


def aggregate(call: Call, function: str) -> Aggregate:
    """What each record brings to that call of that aggregate function, and how that is merged."""
    inside, condition = call.argument, call.condition
    when = f"WHEN {condition}\n " if condition else ""
    if call.distinct:
        merge = "size(collect_set({}){over})" if function == "count" else f"{function}(DISTINCT {{}}){{over}}"
        return Aggregate(call.text, f"CASE {when or 'WHEN true '}THEN {inside}\n END", merge, mergeable=False)
    also = f"({condition}\n) AND " if condition else ""
    if function == "count" and inside == "*":
        part = f"CASE {when}THEN 1L END" if when else "1L"
    elif function == "count":
        part = f"CASE WHEN {also}({inside}\n) IS NOT NULL THEN 1L END"
    elif function == "count_if":
        part = f"CASE WHEN {also}({inside}\n) THEN 1L END"
    else:
        part = f"CASE {when}THEN ({inside}\n) END" if when else f"({inside}\n)"
    counts = function in ("count", "count_if")
    merged_by = _MERGED_BY.get(function)
    return Aggregate(
        call.text, part, f"{merged_by or function}({{}}){{over}}", mergeable=merged_by is not None, counts=counts
    )
