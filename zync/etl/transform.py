"""Stage transform: the rules over whole transactions; those that a rule fails on are found and left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zync.config import Config
from zync.errors import DataError, UsageError
from zync.etl.columns import Made, on_record
from zync.etl.rules import ORDER, RaisedError, RuleError, bind_views, output_rows, rule_texts, run_rule, run_rules
from zync.frames import Keeper, local, result_of, select
from zync.output import amount
from zync.spark_errors import is_data_error
from zync.sql import literal, statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MANY_PIECES = 8
_BUCKET = 1 << 12
"""Turns whose rows are numbered by one task, where there is more than one to do it.

Buckets are dealt to tasks by their hash: of a million turns in runs of 65,536 the busiest of eight tasks had twice its
share, in runs of 4,096 a seventh more.
"""
_ROW = (
    "'output' AS kind",
    "seqno",
    "named_struct('topic', topic, 'partition', 0, 'offset', first + place - 1) AS kafka",
    "key",
    "value",
    "head",
    "position",
)
"""Staging's columns of an output row, by its place in its bucket and the bucket's first offset."""


@dataclass(frozen=True)
class Failure:
    """A transaction (by its seqno) that goes to quarantine, with the reason and, where one is at fault, the rule."""

    seqno: int
    reason: str
    rule: str | None = None


def transform(  # noqa: PLR0913 - each is a thing known by now
    spark: "SparkSession",
    records: "DataFrame",
    config: Config,
    offsets: dict[str, int],
    left_out: tuple[Failure, ...],
    places: "DataFrame | None",
    *,
    keeper: Keeper,
    spread: bool,
    tiny: bool,
) -> "tuple[DataFrame | None, str]":
    """Staging's output rows of the whole transactions in `records`, numbered by topic from `offsets` on.

    In order of transaction, `_order`, rule, and their JSON. Transactions in `left_out` have none. `places`: of
    transactions (seqno) their position in the source, and when those come that wait (turn; sql/places.sql). `spread`:
    several tasks number them, each its run of turns; how many rows come before each run has to be counted first.
    `tiny`: one task does all.

    Returns None for them where the config has no outputs; and their columns, on record (zync/etl/columns.py).
    UsageError where a rule is no rule.
    """
    bind_views(_without(spark, records, left_out, keeper), config, rule_texts(config))
    numbered: DataFrame | None = None
    rules = run_rules(spark, config)
    for made in made_alike(rules):
        rows = _placed(made.coalesce(1) if tiny else made, places)
        rows = select(rows, "*", f"{f'turn DIV {_BUCKET}' if spread else '0L'} AS bucket")
        (rows.repartition("bucket") if spread else rows).createOrReplaceTempView("made")
        rows = result_of(spark, statement("number"))
        if spread:
            rows = keeper.keep(rows)
            bound = local(spark, _first_offsets(rows, offsets), "topic string, bucket bigint, first bigint")
            rows = rows.join(bound.hint("broadcast"), ["topic", "bucket"])
        else:
            topics = dict.fromkeys(rule.topic for rule, _ in rules)
            firsts = " ".join(f"WHEN {literal(topic)} THEN {offsets.get(topic, 0)}L" for topic in topics)
            rows = select(rows, "*", f"CASE topic {firsts} END AS first")
        rows = select(rows, *_ROW)
        numbered = rows if numbered is None else numbered.unionAll(rows)
    return numbered, on_record(rules)


def _placed(made: "DataFrame", places: "DataFrame | None") -> "DataFrame":
    if places is None:
        return select(made, "*", "seqno AS turn", "CAST(NULL AS BIGINT) AS position")
    return select(made.join(places, "seqno", "left"), "* EXCEPT (turn)", "coalesce(turn, seqno) AS turn")


def _first_offsets(made: "DataFrame", offsets: dict[str, int]) -> list[tuple[str, int, int]]:
    """(topic, bucket, the offset at which it begins)."""
    firsts, following = [], dict(offsets)
    for topic, bucket, count in sorted(made.groupBy("topic", "bucket").count().collect()):
        first = following.get(topic, 0)
        firsts.append((topic, bucket, first))
        following[topic] = first + count
    return firsts


def find_failures(  # noqa: PLR0913 - each is a thing known by now
    spark: "SparkSession",
    records: "DataFrame",
    config: Config,
    known: tuple[Failure, ...],
    faulty: int,
    limit: int,
    keeper: Keeper,
) -> tuple[Failure, ...]:
    """`known`, and the other transactions that a rule fails on: found by trying smaller and smaller parts.

    Raises DataError when they are more than `limit`, together with `faulty` records; RaisedError where a rule's
    function raises whatever there is.
    """
    broken = _try_rules(spark, records.limit(0), config)
    if broken is not None and isinstance(broken.cause, RaisedError):
        raise broken.cause
    records = _without(spark, records, known, keeper)
    seqnos = sorted(row.seqno for row in records.select("seqno").distinct().collect())
    found = list(known)

    def look(some: list[int]) -> None:
        error = _try_rules(spark, records.where(f"seqno BETWEEN {some[0]} AND {some[-1]}"), config)
        if error is None:
            return
        if len(some) == 1:
            found.append(Failure(some[0], str(error), error.rule.name))
            check_limit(limit, found, faulty)
            return
        step = -(-len(some) // _MANY_PIECES)
        for start in range(0, len(some), step):
            look(some[start : start + step])

    if seqnos:
        look(seqnos)
    return tuple(found)


def check_limit(limit: int, failures: Sequence[Failure], faulty: int = 0) -> None:
    """DataError when one sync would set aside more than `limit`.

    `failures`: transactions; `faulty`: records that belong to none, counted beside them.
    """
    if len(failures) + faulty <= limit:
        return
    what = f"{amount(faulty, 'record')} and at least {amount(len(failures), 'transaction')}"
    first = failures[0] if failures else None
    by = f" by rule {first.rule}" if first and first.rule else ""
    example = f"; the first transaction, of seqno {first.seqno}{by}: {first.reason}" if first else ""
    msg = (
        f"more than {limit} would go to quarantine ({what}), so nothing was committed{example}. Mend the rule or "
        "the config (`zync check`), or raise limits.max_quarantined"
    )
    raise DataError(msg)


def _without(spark: "SparkSession", records: "DataFrame", failures: tuple[Failure, ...], keeper: Keeper) -> "DataFrame":
    """What is left is kept: Spark would move parts of a rule below a mere join, on to what was left out."""
    if not failures:
        return records
    left_out = local(spark, [(one.seqno,) for one in failures], "seqno bigint")
    return keeper.keep(records.join(left_out.hint("broadcast"), "seqno", "left_anti"))


def made_alike(rules: Made) -> "list[DataFrame]":
    """What rules make as output rows: together where their `_order` is of one type, for one plan to number them all."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    by_topic: dict[str, DataFrame] = {}
    for number, (rule, columns) in enumerate(rules):
        made = output_rows(columns, rule, number)
        try:
            by_topic[rule.topic] = by_topic[rule.topic].unionAll(made) if rule.topic in by_topic else made
            by_topic[rule.topic].schema  # noqa: B018 - analysed now, so that the error names the rule
        except AnalysisException as error:
            msg = f"rule {rule.name}: its _order does not go with that of the other rules of output {rule.topic}"
            raise UsageError(msg) from error
    alike: dict[str, DataFrame] = {}
    for made in by_topic.values():
        kind = made.schema[ORDER].dataType.simpleString()
        alike[kind] = alike[kind].unionAll(made) if kind in alike else made
    if "void" in alike and len(alike) > 1:  # no order goes with any
        without = alike.pop("void")
        kind, made = next(iter(alike.items()))
        alike[kind] = made.unionAll(without)
    return list(alike.values())


def _try_rules(spark: "SparkSession", records: "DataFrame", config: Config) -> RuleError | None:
    """Runs every rule over these records for nothing but its error, if that is one of data."""
    bind_views(records, config, rule_texts(config))
    for number, rule in enumerate(config.outputs):
        try:
            output_rows(run_rule(spark, rule), rule, number).write.format("noop").mode("overwrite").save()
        except Exception as error:
            if not (is_data_error(error) or isinstance(error, RaisedError)):
                raise
            return RuleError(rule, error)
    return None
