"""Stage transform: the rules over whole transactions."""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config
from zync.errors import UsageError
from zync.rules.bisect import without
from zync.rules.left_out import ORDER
from zync.rules.run import guarded_rules, output_rows, rule_texts, run_rules
from zync.rules.schema import Made, on_record
from zync.rules.truncations import Truncated, rows_of
from zync.rules.views import bind_views
from zync.spark.frames import Keeper, local, result_of, select
from zync.sql import literal, statement
from zync.staging.outputs import TRUNCATED
from zync.transactions.quarantine import Failure

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
    "state",
)
"""Staging's columns of an output row, by its place in its bucket and the bucket's first offset."""


def transform(  # noqa: PLR0913 - each is a thing known by now
    spark: SparkSession,
    records: DataFrame,
    config: Config,
    offsets: dict[str, int],
    left_out: tuple[Failure, ...],
    places: DataFrame | None,
    truncated: tuple[Truncated, ...] = (),
    *,
    keeper: Keeper,
    some_left_out: bool,
    spread: bool,
    one_task: bool,
    documents: bool = True,
) -> tuple[DataFrame | None, str]:
    """Staging's output rows of the whole transactions in `records`, numbered by topic from `offsets` on.

    In order of transaction, `_order`, rule, and their JSON. Transactions in `left_out` have none. `places`: of
    transactions (seqno) their position in the source, and when those come that wait (turn; sql/rules/places.sql).
    `truncated`: outputs get a row for each of these, without key and value, of the reason TRUNCATED.
    `some_left_out`: the connector may have left fields out of them. `spread`: several tasks number them, each its run
    of turns; how many rows come before each run has to be counted first. `one_task`: one task does all. `documents`:
    some records may be MongoDB's.

    Returns None for them where the config has no outputs; and their columns, on record (zync/rules/schema.py).
    UsageError where a rule is no rule.
    """
    records = without(spark, records, left_out, keeper)
    if some_left_out:
        rules = guarded_rules(spark, records, config, documents=documents)
    else:
        bind_views(records, config, rule_texts(config), documents=documents)
        rules = run_rules(spark, config)
    numbered: DataFrame | None = None
    gone = {one.seqno for one in left_out}
    rest = [one for one in truncated if one.seqno not in gone]
    marked = f", CASE WHEN rule < 0 THEN {literal(TRUNCATED)} END AS reason" if truncated else ""
    for made in made_alike(rules, spark, config if some_left_out else None, rest):
        rows = _placed(made.coalesce(1) if one_task else made, places)
        rows = select(rows, "*", f"{f'turn DIV {_BUCKET}' if spread else '0L'} AS bucket")
        (rows.repartition("bucket") if spread else rows).createOrReplaceTempView("made")
        rows = result_of(spark, statement("rules/number", marked=marked))
        if spread:
            rows = keeper.keep(rows)
            bound = local(spark, _first_offsets(rows, offsets), "topic string, bucket bigint, first bigint")
            rows = rows.join(bound.hint("broadcast"), ["topic", "bucket"])
        else:
            topics = dict.fromkeys(rule.topic for rule, _ in rules)
            firsts = " ".join(f"WHEN {literal(topic)} THEN {offsets.get(topic, 0)}L" for topic in topics)
            rows = select(rows, "*", f"CASE topic {firsts} END AS first")
        rows = select(rows, *_ROW, *(["reason"] if truncated else []))
        numbered = rows if numbered is None else numbered.unionAll(rows)
    return numbered, on_record(rules)


def _placed(made: DataFrame, places: DataFrame | None) -> DataFrame:
    if places is None:
        return select(made, "*", "seqno AS turn", "CAST(NULL AS BIGINT) AS position")
    return select(made.join(places, "seqno", "left"), "* EXCEPT (turn)", "coalesce(turn, seqno) AS turn")


def _first_offsets(made: DataFrame, offsets: dict[str, int]) -> list[tuple[str, int, int]]:
    """(topic, bucket, the offset at which it begins)."""
    firsts, following = [], dict(offsets)
    for topic, bucket, count in sorted(made.groupBy("topic", "bucket").count().collect()):
        first = following.get(topic, 0)
        firsts.append((topic, bucket, first))
        following[topic] = first + count
    return firsts


def made_alike(
    rules: Made, spark: SparkSession, config: Config | None = None, truncated: Sequence[Truncated] = ()
) -> list[DataFrame]:
    """What rules make as output rows: together where their `_order` is of one type, for one plan to number them all.

    With the rows of truncations beside those of their output. `config`: as `output_rows` takes it.
    """
    by_topic: dict[str, DataFrame] = {}
    for number, (rule, columns) in enumerate(rules):
        made = output_rows(columns, rule, number, config)
        try:
            by_topic[rule.topic] = by_topic[rule.topic].unionAll(made) if rule.topic in by_topic else made
            by_topic[rule.topic].schema  # noqa: B018 - analysed now, so that the error names the rule
        except AnalysisException as error:
            msg = f"rule {rule.name}: its _order does not go with that of the other rules of output {rule.topic}"
            raise UsageError(msg) from error
    alike: dict[str, DataFrame] = {}
    for topic, made in by_topic.items():
        kind = made.schema[ORDER].dataType.simpleString()
        if mine := [one for one in truncated if one.output == topic]:
            made = made.unionAll(rows_of(spark, mine, kind))  # noqa: PLW2901 - with the rest of its rows
        alike[kind] = alike[kind].unionAll(made) if kind in alike else made
    if "void" in alike and len(alike) > 1:  # no order goes with any
        without = alike.pop("void")
        kind, made = next(iter(alike.items()))
        alike[kind] = made.unionAll(without)
    return list(alike.values())
