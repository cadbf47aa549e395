"""Runs the rules over whole transactions, and numbers their rows by output topic."""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config
from zync.errors import UsageError
from zync.rules.failures import without
from zync.rules.left_out import ORDER
from zync.rules.run import guarded_rules, output_rows, rule_texts, run_rules
from zync.rules.schema import Made, columns_as_json
from zync.rules.truncations import Truncated, rows_of
from zync.rules.views import bind_views
from zync.spark.frames import RowCache, from_rows, result_of, select
from zync.spark.functions import constant
from zync.spark.sizing import Sizing
from zync.sql import literal, statement
from zync.staging.outputs import TRUNCATED
from zync.transactions.quarantine import Failure

_BUCKET = 1 << 12
"""The number of consecutive turns whose rows are numbered by the same task, where several tasks number them.

Buckets are assigned to tasks by their hash: of a million turns in buckets of 65,536 the busiest of eight tasks had
twice its share, in buckets of 4,096 a seventh more.
"""
_ROW = (
    "'output' AS kind",
    "seqno",
    "named_struct('topic', topic, 'partition', 0, 'offset', first + row_number - 1) AS kafka",
    "key",
    "value",
    "head",
    "position",
    "state",
)
"""Staging's columns of an output row, computed from its row number in the bucket and the bucket's first offset."""


def transform(  # noqa: PLR0913 - each is a thing known by now
    spark: SparkSession,
    records: DataFrame,
    config: Config,
    offsets: dict[str, int],
    failures: tuple[Failure, ...],
    positions: DataFrame | None,
    truncated: tuple[Truncated, ...] = (),
    *,
    row_cache: RowCache,
    some_left_out: bool,
    sizing: Sizing,
    documents: bool = True,
) -> tuple[DataFrame | None, str]:
    """Runs the rules and returns staging's output rows, numbered by topic.

    Rows are ordered by turn, transaction, `_order`, rule, and their JSON.

    Args:
        spark: The session.
        records: The records of whole transactions.
        config: The config with the rules.
        offsets: The next offset of each topic.
        failures: The transactions that go to quarantine, which get no output rows.
        positions: Each transaction's (seqno) `position` and `turn` (sql/apply_rules/positions.sql), or None.
        truncated: Truncations; each gets a row without key and value, of the reason TRUNCATED.
        row_cache: Checkpoints rows.
        some_left_out: Whether the connector may have left fields out of the records.
        sizing: The number of records of the sync. If it is not small, several tasks number the rows, each a bucket of
            turns, and the rows of each bucket are counted first.
        documents: Whether some records may be MongoDB documents.

    Returns:
        The output rows, or None if the config has no outputs; and the columns of all outputs as JSON
        (zync/rules/schema.py).

    Raises:
        UsageError: A rule is invalid.
    """
    records = without(spark, records, failures, row_cache)
    if some_left_out:
        rules = guarded_rules(spark, records, config, documents=documents)
    else:
        bind_views(records, config, rule_texts(config), documents=documents)
        rules = run_rules(spark, config)
    numbered: DataFrame | None = None
    failed_seqnos = {failure.seqno for failure in failures}
    remaining = [truncation for truncation in truncated if truncation.seqno not in failed_seqnos]
    marked = f", CASE WHEN rule < 0 THEN {literal(TRUNCATED)} END AS reason" if truncated else ""
    for results in union_by_order_type(rules, spark, config if some_left_out else None, remaining):
        rows = _with_turns(results.coalesce(1) if sizing.is_single_task else results, positions)
        rows = select(rows, "*", f"{'0L' if sizing.is_small else f'turn DIV {_BUCKET}'} AS bucket")
        (rows if sizing.is_small else rows.repartition("bucket")).createOrReplaceTempView("made")
        rows = result_of(spark, statement("apply_rules/number", marked=marked))
        if sizing.is_small:
            topics = dict.fromkeys(rule.topic for rule, _ in rules)
            firsts = " ".join(f"WHEN {literal(topic)} THEN {constant(offsets.get(topic, 0))}" for topic in topics)
            rows = select(rows, "*", f"CASE topic {firsts} END AS first")
        else:
            rows = row_cache.keep(rows)
            first_offsets = from_rows(spark, _first_offsets(rows, offsets), "topic string, bucket bigint, first bigint")
            rows = rows.join(first_offsets.hint("broadcast"), ["topic", "bucket"])
        rows = select(rows, *_ROW, *(["reason"] if truncated else []))
        numbered = rows if numbered is None else numbered.unionAll(rows)
    return numbered, columns_as_json(rules)


def _with_turns(rows: DataFrame, positions: DataFrame | None) -> DataFrame:
    """Adds each row's `turn`, which is its seqno if `positions` has none, and its `position`."""
    if positions is None:
        return select(rows, "*", "seqno AS turn", "CAST(NULL AS BIGINT) AS position")
    return select(rows.join(positions, "seqno", "left"), "* EXCEPT (turn)", "coalesce(turn, seqno) AS turn")


def _first_offsets(rows: DataFrame, offsets: dict[str, int]) -> list[tuple[str, int, int]]:
    """Counts the rows of each bucket and returns (topic, bucket, the offset of the bucket's first row)."""
    first_offsets, next_offsets = [], dict(offsets)
    for topic, bucket, count in sorted(rows.groupBy("topic", "bucket").count().collect()):
        first_offset = next_offsets.get(topic, 0)
        first_offsets.append((topic, bucket, first_offset))
        next_offsets[topic] = first_offset + count
    return first_offsets


def union_by_order_type(
    rules: Made, spark: SparkSession, config: Config | None = None, truncated: Sequence[Truncated] = ()
) -> list[DataFrame]:
    """Returns the rules' output rows, those whose `_order` has the same type in a single DataFrame.

    A single plan then numbers them all.

    Args:
        rules: Rules, each with its result.
        spark: The session.
        config: As `output_rows` takes it.
        truncated: Truncations, whose rows are added to those of their output.

    Raises:
        UsageError: The types of `_order` of an output's rules do not go together.
    """
    by_topic: dict[str, DataFrame] = {}
    for number, (rule, result) in enumerate(rules):
        rows = output_rows(result, rule, number, config)
        try:
            by_topic[rule.topic] = by_topic[rule.topic].unionAll(rows) if rule.topic in by_topic else rows
            by_topic[rule.topic].schema  # noqa: B018 - analysed now, so that the error names the rule
        except AnalysisException as error:
            msg = f"rule {rule.name}: its _order does not go with that of the other rules of output {rule.topic}"
            raise UsageError(msg) from error
    by_order_type: dict[str, DataFrame] = {}
    for topic, topic_rows in by_topic.items():
        rows, order_type = topic_rows, topic_rows.schema[ORDER].dataType.simpleString()
        if truncations := [truncation for truncation in truncated if truncation.output == topic]:
            rows = rows.unionAll(rows_of(spark, truncations, order_type))
        by_order_type[order_type] = by_order_type[order_type].unionAll(rows) if order_type in by_order_type else rows
    if "void" in by_order_type and len(by_order_type) > 1:  # rows without an order fit with any type of it
        unordered = by_order_type.pop("void")
        order_type, rows = next(iter(by_order_type.items()))
        by_order_type[order_type] = rows.unionAll(unordered)
    return list(by_order_type.values())
