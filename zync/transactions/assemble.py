"""Assembles records by transaction: finds complete transactions, late records and transactions still in flight."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from zync.config.model import Config
from zync.lake.ranges import RANGES_DDL
from zync.spark.expressions import try_eval
from zync.spark.frames import RowCache, co_partition, from_rows, result_of, select
from zync.sql import literal, statement
from zync.transactions.done import Done
from zync.transactions.envelopes import with_row_identity
from zync.transactions.summary import Summary, summarize, total

_PAYLOAD = (
    *("kafka", "headers", "key", "value", "ingested", "record_error", "transaction_error"),
    *("has_row", "earlier", "earlier_count", "truncates"),
)
"""Columns that no window function reads. `_packed` puts them and the topics' structs into one struct column, because
Spark copies every column once per window."""
_CLASHING = (
    "a row of another transaction that has the same id: its number, or its commit's time, is one that an earlier row "
    "contradicts (was the database made anew?)"
)
"""The error of a row that sql/judge/runs.sql marks as `clashing`."""
_DUPLICATE_KEY = ("topic", "record_id")
"""Columns that identify duplicates. Windows read them by run, or if a topic has a `record_id`; else they are packed."""


@dataclass(frozen=True)
class Assembled:
    """The result of assembling.

    Attributes:
        rows: every record with its fate (see sql/judge/judge.sql).
        summary: counts and lists over these rows.
    """

    rows: DataFrame
    summary: Summary


def with_state(spark: SparkSession, identified: DataFrame, in_flight: DataFrame, done: Done) -> DataFrame:
    """Returns the records, plus one row for each transaction in flight with the state of its aggregates.

    Args:
        spark: the session.
        identified: new records, from `Decoder.decode`.
        in_flight: transactions in flight, with the columns of `zync.staging.bookkeeping.Bookkeeping.in_flight`.
        done: the parsed `done` condition.
    """
    types = state_types(spark, identified, done)
    if types:
        replaced = ", ".join(types)
        casts = (f"CAST({column} AS {state_type}) AS {column}" for column, state_type in types.items())
        identified = select(identified, f"* EXCEPT ({replaced})", *casts)
    state_fields = ", ".join(f"{column}: {state_type}" for column, state_type in types.items()) or "none: string"
    from_state = select(
        in_flight,
        "txn",
        "seqno",
        "since AS ingested",
        "reason AS transaction_error",
        "false AS alone",
        "true AS from_state",
        "records AS earlier",
        "count AS earlier_count",
        f"from_json(state, {literal(f'done struct<{state_fields}>')}).done AS done",
    )
    from_state = select(from_state, "* EXCEPT (done)", *(f"done.{column}" for column in types))
    return identified.unionByName(from_state, allowMissingColumns=True)


def without_state(identified: DataFrame) -> DataFrame:
    """Returns the records with the columns of `with_state`, without transactions in flight."""
    return select(
        identified,
        "*",
        f"CAST(NULL AS {RANGES_DDL}) AS earlier",
        "CAST(NULL AS BIGINT) AS earlier_count",
    )


def state_types(spark: SparkSession, identified: DataFrame, done: Done) -> dict[str, str]:
    """Returns the SQL type of each aggregate's state, keyed by its column (`p0`, `p1`, …)."""
    if not done.aggregates:
        return {}
    merged = [f"{aggregate.over(f'p{number}')} AS p{number}" for number, aggregate in enumerate(done.aggregates)]
    return {field.name: field.dataType.simpleString() for field in identified.selectExpr(*merged).schema.fields}


def assemble(  # noqa: PLR0913 - the inputs of the whole stage
    spark: SparkSession,
    rows: DataFrame,
    settled: DataFrame,
    config: Config,
    done: Done,
    row_cache: RowCache,
    *,
    decided: bool,
    tasks: int,
    by_run: bool = False,
) -> Assembled:
    """Gives every record its fate; see sql/judge/judge.sql.

    A sync can be so long that it forgets an id (`transactions.remember`) that it has settled itself. Later records with
    that id are a new transaction: they are assembled in another round, until none is left.

    Args:
        spark: the session.
        rows: records, from `with_state` or `without_state`.
        settled: settled transactions, one row each: (txn, settled_at).
        config: the config.
        done: the parsed `done` condition.
        row_cache: keeps the result of each round.
        decided: whether the rows may contain operators' decisions.
        tasks: the number of Spark tasks.
        by_run: whether to judge by sql/judge/runs.sql. It is for a preset's `multi_run` transactions, and all of their
            records must be among `rows`.
    """
    rounds: list[DataFrame] = []
    summaries: list[Summary] = []
    again = 1
    while again:
        judged = _assemble_once(spark, rows, settled, config, done, decided=decided, tasks=tasks, by_run=by_run)
        judged = _unpacked(row_cache.keep(judged, adaptive=False))
        rounds.append(_with_clashes(judged) if by_run else judged)
        summary, again = summarize(spark, rounds[-1], config, single_task=tasks == 1)
        summaries.append(summary)
        if again:
            settled = settled.limit(0)
            rows = judged.where("fate = 'reassemble'").select(*rows.columns)
    all_judged = rounds[0].where("fate <> 'reassemble'") if len(rounds) > 1 else rounds[0]
    for judged in rounds[1:]:
        all_judged = all_judged.unionByName(judged.where("fate <> 'reassemble'"))
    return Assembled(all_judged, total(summaries))


def replace_multi_run(spark: SparkSession, assembled: Assembled, others: Assembled, config: Config) -> Assembled:
    """Returns `assembled` with its transactions of several runs replaced by those of `others`."""
    multi_run = from_rows(spark, [(txn,) for txn in assembled.summary.multi_run], "txn string").hint("broadcast")
    rest = assembled.rows.join(multi_run, "txn", "left_anti")
    summary, _ = summarize(spark, rest, config, single_task=False)
    return Assembled(rest.unionByName(others.rows, allowMissingColumns=True), total([summary, others.summary]))


def late_to_earlier(assembled: Assembled) -> DataFrame:
    """Returns the late records whose transaction an earlier sync settled."""
    return assembled.rows.where("fate = 'late' AND settled_at IS NULL")


def rejudge_late(  # noqa: PLR0913 - the inputs of the whole stage
    spark: SparkSession,
    assembled: Assembled,
    earlier: DataFrame,
    config: Config,
    done: Done,
    row_cache: RowCache,
    *,
    tasks: int,
) -> Assembled:
    """Returns `assembled` with the late records of `late_to_earlier` judged again: a repeat is a duplicate, not late.

    Args:
        spark: the session.
        assembled: the result of `assemble`.
        earlier: the records of those transactions from earlier syncs, also those that came late or as duplicates.
        config: the config.
        done: the parsed `done` condition.
        row_cache: keeps the result.
        tasks: the number of Spark tasks.
    """
    late = late_to_earlier(assembled)
    rows = without_state(select(earlier, "* EXCEPT (has_row)", "true AS has_row"))
    shared_columns = (column for column in rows.columns if column in late.columns)
    rows = rows.unionByName(late.select(*shared_columns), allowMissingColumns=True)
    no_settled = from_rows(spark, [], "txn string, settled_at bigint")
    judged = _assemble_once(spark, rows, no_settled, config, done, tasks=tasks, by_run=True)
    judged = judged.where("NOT payload.has_row").withColumns(
        {
            "fate": sf.expr("coalesce(known, 'late')"),
            "completes_at": sf.lit(None).cast("bigint"),
            "completing": sf.lit(False),
            "settled_at": sf.lit(0),  # by an earlier sync
        }
    )
    judged = _with_clashes(_unpacked(row_cache.keep(judged)))
    fates = {row["fate"]: row["count"] for row in judged.groupBy("fate").count().collect()}
    others = assembled.rows.where("NOT (fate = 'late' AND settled_at IS NULL)")
    summary = replace(
        assembled.summary,
        late=assembled.summary.late - assembled.summary.late_to_earlier + fates.get("late", 0),
        duplicate=assembled.summary.duplicate + fates.get("duplicate", 0),
        ignored=assembled.summary.ignored + fates.get("repeated_marker", 0),
    )
    return Assembled(others.unionByName(judged, allowMissingColumns=True), summary)


def _assemble_once(  # noqa: PLR0913 - the inputs of the whole stage
    spark: SparkSession,
    rows: DataFrame,
    settled: DataFrame,
    config: Config,
    done: Done,
    *,
    tasks: int,
    decided: bool = False,
    by_run: bool = False,
) -> DataFrame:
    has_record_ids = any(topic.record_id for topic in config.topics.values())
    rows = _packed(
        with_row_identity(rows, config) if by_run else rows,
        _PAYLOAD if by_run or has_record_ids else (*_PAYLOAD, *_DUPLICATE_KEY),
    )
    co_partition(rows, "txn", tasks).createOrReplaceTempView("identified")
    settled.createOrReplaceTempView("settled")
    remember = str(config.transactions.remember)
    first_value = "min(CASE WHEN lane = 'txn' THEN {} END) OVER (PARTITION BY txn)"
    began = first_value.format("seqno") if decided else "CAST(NULL AS BIGINT)"
    end_seqno = first_value.format("end_seqno") if config.transactions.order == "commit" else "CAST(NULL AS BIGINT)"
    if by_run:
        aggregated = result_of(spark, statement("judge/runs", remember=remember))
        aggregated.createOrReplaceTempView("aggregated")
        return result_of(spark, statement("judge/judge", remember=remember, began=began, end_seqno=end_seqno))
    repeated = (
        "record_id IS NOT NULL AND NOT alone AND "
        "row_number() OVER (PARTITION BY txn, alone, late, topic, record_id ORDER BY seqno) > 1"
        if has_record_ids
        else "false"
    )
    aggregated = result_of(
        spark, statement("judge/aggregate", remember=remember, repeated=repeated, aggregates="".join(_windowed(done)))
    )
    preset_columns = {"known": done.known, "multi_run": done.multi_run, "end_seqno": done.end_seqno}
    condition = sf.expr(f"coalesce(({done.condition}\n), false)")
    is_done = sf.coalesce(try_eval(spark, condition, "seqno > 0"), sf.lit(False))
    aggregated = aggregated.select(
        "*",
        (is_done & sf.expr("lane = 'txn' AND NOT from_state")).alias("done"),
        *(sf.expr(text).alias(column) for column, text in preset_columns.items()),
    )
    aggregated.createOrReplaceTempView("aggregated")
    return result_of(spark, statement("judge/judge", remember=remember, began=began, end_seqno=end_seqno))


def _packed(rows: DataFrame, payload: tuple[str, ...]) -> DataFrame:
    payload = tuple(column for column in rows.columns if column in payload or column.startswith("as_"))
    others = (column for column in rows.columns if column not in payload)
    return select(rows, *others, f"struct({', '.join(payload)}) AS payload")


def _unpacked(rows: DataFrame) -> DataFrame:
    return select(rows, "* EXCEPT (payload)", "payload.*")


def _with_clashes(rows: DataFrame) -> DataFrame:
    """Returns the rows of sql/judge/runs.sql with an error in `transaction_error` for those that are `clashing`."""
    error = f"coalesce(transaction_error, CASE WHEN clashing THEN {literal(_CLASHING)} END)"
    return select(rows, "* EXCEPT (transaction_error, clashing)", f"{error} AS transaction_error")


def _windowed(done: Done) -> Iterator[str]:
    for number, aggregate in enumerate(done.aggregates):
        over = aggregate.over(f"p{number}", "so_far")
        yield f"coalesce({over}, 0) AS a{number}, " if aggregate.counts else f"{over} AS a{number}, "
