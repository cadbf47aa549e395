"""Parses the `done` condition into its aggregates, each record's contribution to them, and functions that merge these.

Spark's own parser finds the aggregates and their position in the text. Where all aggregates can be merged, the state of
a transaction in flight is a single value for each aggregate, and its records are not read again until it completes.
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
    """An aggregate of `done`.

    Attributes:
        text: the call in the text of `done`.
        part: SQL of a record's contribution; of a preset its path in `Done.structs`.
        merge: SQL of the aggregate over contributions: `{}` stands for their column, `{over}` for the window.
        mergeable: whether the aggregate can go on from its value over earlier records.
        counts: whether it is a count, which is 0 over no rows.
    """

    text: str
    part: str
    merge: str
    mergeable: bool
    counts: bool = False

    def over(self, part: str, window: str = "") -> str:
        """Returns SQL of the aggregate over the column `part`, and over the named `window` if there is one."""
        return self.merge.format(part, over=window and f" OVER {window}")


@dataclass(frozen=True)
class Done:
    """The parsed `done` condition. All but the first three attributes are for presets.

    Attributes:
        text: the text of `done`, or the preset's name.
        condition: SQL of `done` over columns `a0`, `a1`, …, one for each of `aggregates`.
        aggregates: the aggregates, in their order in the text.
        preset: whether this is a preset.
        decoded: columns added to each record as it is decoded; all expressions can use them. SQL by column.
        structs: named structs that each record contributes; the aggregates take their fields. SQL by column.
        more_contributions: further columns that each record contributes. SQL by column.
        known: SQL over the aggregates, see sql/judge/judge.sql; so are `multi_run` and `end_seqno`.
        kept_state: SQL for the state of a transaction in flight, see sql/apply_rules/in_flight.sql; None without a
            preset.
    """

    text: str
    condition: str
    aggregates: tuple[Aggregate, ...] = ()
    preset: bool = False
    decoded: dict[str, str] = field(default_factory=dict)
    structs: dict[str, str] = field(default_factory=dict)
    more_contributions: dict[str, str] = field(default_factory=dict)
    known: str = "CAST(NULL AS STRING)"
    multi_run: str = "false"
    end_seqno: str = "CAST(NULL AS BIGINT)"
    kept_state: str | None = None

    @property
    def mergeable(self) -> bool:
        """Whether the state of a transaction in flight can be kept, so that its records are not read again."""
        return all(aggregate.mergeable for aggregate in self.aggregates)

    @property
    def state_now(self) -> str:
        """SQL of the state of a transaction in flight: a struct of each aggregate's field, and a preset's `kept_state`.

        It aggregates over the transaction's rows in sql/apply_rules/in_flight.sql.
        """
        columns = {
            f"p{number}": f"max_by(a{number}, seqno) FILTER (WHERE member)" for number in range(len(self.aggregates))
        }
        if self.kept_state:
            columns["again"] = self.kept_state
        fields = ", ".join(f"'{column}', {text}" for column, text in columns.items())
        return f"named_struct({fields})" if fields else "named_struct('none', CAST(NULL AS STRING))"

    @property
    def contributions(self) -> dict[str, str]:
        """SQL of each record's contributions, by column."""
        parts = {f"p{number}": aggregate.part for number, aggregate in enumerate(self.aggregates)}
        return {**(self.structs or parts), **self.more_contributions}

    @property
    def parts(self) -> dict[str, str]:
        """The paths within `contributions` of columns p0, p1, …, which the aggregates take, and of further columns."""
        parts = {
            f"p{number}": aggregate.part if self.structs else f"p{number}"
            for number, aggregate in enumerate(self.aggregates)
        }
        return {**parts, **{name: name for name in self.more_contributions}}


_RECORD = (
    "topic string, partition int, offset bigint, timestamp timestamp, key variant, value variant, "
    "headers array<struct<key: string, value: binary>>"
)
"""The columns of a record that ids and `done` can use."""


def understand(spark: SparkSession, config: Config) -> Done:
    """Parses `done`, and checks that Spark can evaluate it and the config's ids.

    Raises:
        UsageError: an expression cannot be evaluated; says which and why.
    """
    record = spark.createDataFrame([], _RECORD)
    if config.transactions.preset:
        record = with_body(record)
    for name, topic in config.topics.items():
        if name.startswith("^"):
            _check_regex(spark, name)
        for field_name, text in (("id", topic.id), ("record_id", topic.record_id)):
            if text:
                _check_scalar(spark, record, text, f"topics.{name}.{field_name}")
    if config.transactions.preset:
        return Done(
            config.transactions.preset,
            completion.DONE,
            tuple(Aggregate(merge, part, merge, mergeable=True) for part, merge in completion.aggregated(config)),
            preset=True,
            decoded=completion.decoded(config),
            structs=completion.brought(config),
            more_contributions=completion.more_contributions(config),
            known=completion.KNOWN,
            multi_run=completion.MULTI_RUN,
            end_seqno=completion.END_SEQNO if config.transactions.order == "commit" else Done.end_seqno,
            kept_state=runs.KEPT_STATE,
        )
    text = config.transactions.done
    done = take_apart(spark, text)
    type_name = _type_of(spark, record, text, "transactions.done")
    if type_name != "boolean":
        msg = f"transactions.done: {text!r} is {type_name}, not boolean"
        raise UsageError(msg)
    if not done.aggregates and text.strip().lower() not in ("true", "false"):
        msg = f"transactions.done: {text!r} has no aggregate: it must say something of all records of a transaction"
        raise UsageError(msg)
    return done


def _check_regex(spark: SparkSession, text: str) -> None:
    """Raises UsageError where Java, which `sync` uses, cannot compile a regex; `sync-from` uses Python's regexes."""
    try:
        jvm_class(spark, "java.util.regex.Pattern").compile(text)
    except PySparkException as error:
        msg = (
            f"topics: {text!r} is no regular expression that Java knows, which `sync` reads it by: {message_of(error)}"
        )
        raise UsageError(msg) from error


def _check_scalar(spark: SparkSession, record: DataFrame, text: str, where: str) -> None:
    """Raises UsageError where `text` is no expression over a single record; a WHERE clause takes no other."""
    _schema(spark, text, where, lambda checked: record.where(f"{checked} IS NOT NULL"))


def _type_of(spark: SparkSession, record: DataFrame, text: str, where: str) -> str:
    schema = _schema(spark, text, where, lambda checked: record.selectExpr(f"{checked} AS it"))
    return str(schema["it"].dataType.simpleString())


def _schema(spark: SparkSession, text: str, where: str, use: Callable[[str], DataFrame]) -> Any:
    """Returns the schema of what `use` makes of the expression; UsageError where Spark cannot evaluate it."""
    checked = expression(spark, text, where)
    try:
        return use(checked).schema
    except spark_errors() as error:
        msg = f"{where}: {text!r} cannot be evaluated: {message_of(error)}"
        raise UsageError(msg) from error


def take_apart(spark: SparkSession, text: str) -> Done:
    """Parses a `done` condition.

    Raises:
        UsageError: the text is no expression, or has an aggregate that does not take exactly one argument.
    """
    where = "transactions.done"
    nodes = {_span(node): node for node in _aggregates(spark, parse(spark, text, where))}
    words = tokens(spark, text)
    aggregates: list[Aggregate] = []
    pieces: list[str] = []
    end_of_last = 0
    for (start, end), node in sorted(nodes.items(), key=lambda item: item[0]):
        call = Call.of(text, [word for word in words if start <= word.start < end], distinct=node.isDistinct())
        _check_call(call, node)
        pieces.append(f"{text[end_of_last:start]}a{len(aggregates)}")
        aggregates.append(aggregate(call, _name(node)))
        end_of_last = end
    pieces.append(text[end_of_last:])
    return Done(text, "".join(pieces), tuple(aggregates))


def _aggregates(spark: SparkSession, node: Any) -> Any:
    """Yields the outermost aggregate functions at and below a node of Spark's parse tree."""
    if node.getClass().getSimpleName() == "UnresolvedFunction":
        registry = jvm_class(spark, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry")
        function = registry.expressions().get(_name(node))
        if function.isDefined() and function.get()._1().getGroup() == "agg_funcs":  # noqa: SLF001 - Scala's pair
            yield node
            return
    if node.getClass().getSimpleName() == "AggregateExpression":  # a function with its own grammar: first, …
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
    """The text of an aggregate function's call.

    Attributes:
        text: the whole call.
        argument: its argument.
        condition: the condition of its FILTER clause; None without such a clause.
        distinct: whether DISTINCT stands before the argument.
        more: whether the call has other clauses, like OVER, WITHIN GROUP or IGNORE NULLS.
    """

    text: str
    argument: str
    condition: str | None = None
    distinct: bool = False
    more: bool = False

    @classmethod
    def of(cls, text: str, words: list[Token], *, distinct: bool = False) -> "Call":
        """Returns the call whose tokens in `text` are `words`; `distinct` as the attribute."""
        opening = next(index for index, word in enumerate(words) if word.text == "(")
        closing = _closing(words, opening)
        argument, rest = words[opening + 1 : closing], words[closing + 1 :]
        if distinct or (len(argument) > 1 and argument[0].text.upper() == "ALL"):
            argument = argument[1:]
        condition = None
        if [word.text.upper() for word in rest[:3]] == ["FILTER", "(", "WHERE"]:
            end = _closing(rest, 1)
            condition, rest = _between(text, rest[3:end]), rest[end + 1 :]
        nulls = [word.text.upper() for word in argument[-2:]] in (["IGNORE", "NULLS"], ["RESPECT", "NULLS"])
        return cls(_between(text, words), _between(text, argument), condition, distinct, more=bool(rest) or nulls)


def _closing(words: list[Token], opening: int) -> int:
    """Returns the index of the parenthesis that closes the parenthesis at index `opening`."""
    depth = 0
    for index in range(opening, len(words)):
        depth += {"(": 1, ")": -1}.get(words[index].text, 0)
        if not depth:
            return index
    raise AssertionError(words)  # Spark's parser accepts no such text


def _between(text: str, words: list[Token]) -> str:
    """Returns the text from the first of the tokens to the last."""
    return text[words[0].start : words[-1].end] if words else ""


def _check_call(call: Call, node: Any) -> None:
    """Raises UsageError where a call, at `node` of Spark's parse tree, is more than an aggregate of a single value."""
    where = f"transactions.done: {call.text!r}"
    if call.more:
        msg = f"{where} is more than an aggregate with a FILTER, which is all that done can hold"
        raise UsageError(msg)
    if node.getClass().getSimpleName() == "AggregateExpression":  # its grammar has a single argument
        return
    arguments = node.arguments()
    if arguments.length() != 1:
        msg = f"{where} has {amount(arguments.length(), 'argument')}: only aggregates of one can stand there"
        raise UsageError(msg)
    if arguments.apply(0).getClass().getSimpleName() in ("UnresolvedStar", "NamedArgumentExpression"):
        msg = f"{where}: its argument must be one value, as in count(value:id) or count(*)"
        raise UsageError(msg)


def aggregate(call: Call, function: str) -> Aggregate:
    """Returns the aggregate for a call of `function`: each record's contribution, and how these are merged."""
    argument, condition = call.argument, call.condition
    when = f"WHEN {condition}\n " if condition else ""
    if call.distinct:
        merge = "size(collect_set({}){over})" if function == "count" else f"{function}(DISTINCT {{}}){{over}}"
        return Aggregate(call.text, f"CASE {when or 'WHEN true '}THEN {argument}\n END", merge, mergeable=False)
    condition_and = f"({condition}\n) AND " if condition else ""
    if function == "count" and argument == "*":
        part = f"CASE {when}THEN 1L END" if when else "1L"
    elif function == "count":
        part = f"CASE WHEN {condition_and}({argument}\n) IS NOT NULL THEN 1L END"
    elif function == "count_if":
        part = f"CASE WHEN {condition_and}({argument}\n) THEN 1L END"
    else:
        part = f"CASE {when}THEN ({argument}\n) END" if when else f"({argument}\n)"
    counts = function in ("count", "count_if")
    merged_by = _MERGED_BY.get(function)
    return Aggregate(
        call.text, part, f"{merged_by or function}({{}}){{over}}", mergeable=merged_by is not None, counts=counts
    )
