"""Stage assemble: which transaction completes with which record, what is late, and what stays in flight."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from zync.config.model import Config
from zync.spark.expressions import try_eval
from zync.spark.frames import Keeper, local, result_of, select, together
from zync.sql import literal, statement
from zync.transactions.done import Done
from zync.transactions.envelopes import one_by_one
from zync.transactions.summary import Summary, summarize, total

_PAYLOAD = (
    *("kafka", "headers", "key", "value", "ingested", "fault", "bad", "judged", "earlier", "earlier_count"),
    "truncates",
)
"""What no window looks at of a record; and its structs. As one column: each window copies each column by itself."""
_CLASHING = (
    "a row of another transaction that has the same id: its number, or its commit's time, is one that an earlier row "
    "contradicts (was the database made anew?)"
)
"""What is wrong with a row that sql/judge/runs.sql calls so."""
_REPEATED = ("topic", "record_id")
"""What tells which record is the same as which: only there to look at where something does."""


@dataclass(frozen=True)
class Assembled:
    """`rows`: every record with its fate, and their summary."""

    rows: DataFrame
    summary: Summary


def with_state(spark: SparkSession, identified: DataFrame, in_flight: DataFrame, done: Done) -> DataFrame:
    """The records and, as one row each, the transactions in flight with the state of their aggregates.

    `in_flight` has the columns of `zync.staging.bookkeeping.Known.in_flight`.
    """
    types = state_types(spark, identified, done)
    if types:
        kept = ", ".join(types)
        identified = select(
            identified, f"* EXCEPT ({kept})", *(f"CAST({one} AS {t}) AS {one}" for one, t in types.items())
        )
    of_done = ", ".join(f"{column}: {kind}" for column, kind in types.items()) or "none: string"
    carried = select(
        in_flight,
        "txn",
        "seqno",
        "since AS ingested",
        "reason AS bad",
        "false AS alone",
        "true AS carried",
        "records AS earlier",
        "count AS earlier_count",
        f"from_json(state, {literal(f'done struct<{of_done}>')}).done AS done",
    )
    carried = select(carried, "* EXCEPT (done)", *(f"done.{column}" for column in types))
    return identified.unionByName(carried, allowMissingColumns=True)


def without_state(identified: DataFrame) -> DataFrame:
    """The records alone, with the columns that `with_state` gives."""
    return select(
        identified,
        "*",
        "CAST(NULL AS array<struct<first: bigint, last: bigint>>) AS earlier",
        "CAST(NULL AS BIGINT) AS earlier_count",
    )


def state_types(spark: SparkSession, identified: DataFrame, done: Done) -> dict[str, str]:
    """The type of each aggregate's state, by the column of its part."""
    if not done.aggregates:
        return {}
    merged = [f"{one.over(f'p{number}')} AS p{number}" for number, one in enumerate(done.aggregates)]
    return {field.name: field.dataType.simpleString() for field in identified.selectExpr(*merged).schema.fields}


def assemble(  # noqa: PLR0913 - each is a thing known by now
    spark: SparkSession,
    rows: DataFrame,
    settled: DataFrame,
    config: Config,
    done: Done,
    keeper: Keeper,
    *,
    decided: bool,
    tasks: int,
    by_run: bool = False,
) -> Assembled:
    """Every record of `rows` (from `with_state` or `without_state`) with its fate; see sql/judge/judge.sql.

    `settled`: (txn, settled_at), one row a transaction. `decided`: there may be decisions of operators among the rows.
    `tasks`: so many do it. `by_run`: by sql/judge/runs.sql, of a preset's transactions that are `torn`, all of whose
    records are among `rows`.
    The records of an id that was forgotten within this very sync are assembled once more, until none is left.
    """
    rounds: list[DataFrame] = []
    summaries: list[Summary] = []
    again = 1
    while again:
        one = _assemble_once(spark, rows, settled, config, done, decided=decided, tasks=tasks, by_run=by_run)
        one = _unpacked(keeper.keep(one, adaptive=False))
        rounds.append(_with_clashes(one) if by_run else one)
        summary, again = summarize(spark, rounds[-1], config, one_task=tasks == 1)
        summaries.append(summary)
        if again:
            settled = settled.limit(0)
            rows = one.where("fate = 'again'").select(*rows.columns)
    whole = rounds[0].where("fate <> 'again'") if len(rounds) > 1 else rounds[0]
    for one in rounds[1:]:
        whole = whole.unionByName(one.where("fate <> 'again'"))
    return Assembled(whole, total(summaries))


def instead(spark: SparkSession, assembled: Assembled, others: Assembled, config: Config) -> Assembled:
    """`assembled`, where the transactions that are torn are as `others` says."""
    torn = local(spark, [(txn,) for txn in assembled.summary.torn], "txn string").hint("broadcast")
    rest = assembled.rows.join(torn, "txn", "left_anti")
    summary, _ = summarize(spark, rest, config, one_task=False)
    return Assembled(rest.unionByName(others.rows, allowMissingColumns=True), total([summary, others.summary]))


def late_before(assembled: Assembled) -> DataFrame:
    """The records whose transaction an earlier sync settled."""
    return assembled.rows.where("fate = 'late' AND settled_at IS NULL")


def look_again(  # noqa: PLR0913 - each is a thing known by now
    spark: SparkSession,
    assembled: Assembled,
    earlier: DataFrame,
    config: Config,
    done: Done,
    keeper: Keeper,
    *,
    tasks: int,
) -> Assembled:
    """`assembled`, where late records that only repeat what their transaction has are told from those that do not.

    `earlier`: the records of those transactions, as they were when they were settled.
    """
    late = late_before(assembled)
    rows = without_state(select(earlier, "* EXCEPT (judged)", "true AS judged"))
    rows = rows.unionByName(
        late.select(*(one for one in rows.columns if one in late.columns)), allowMissingColumns=True
    )
    nothing = local(spark, [], "txn string, settled_at bigint")
    judged = _assemble_once(spark, rows, nothing, config, done, tasks=tasks, by_run=True)
    judged = judged.where("NOT payload.judged").withColumns(
        {
            "fate": sf.expr("coalesce(known, 'late')"),
            "completes_at": sf.lit(None).cast("bigint"),
            "completing": sf.lit(False),
            "settled_at": sf.lit(0),  # by an earlier sync
        }
    )
    judged = _with_clashes(_unpacked(keeper.keep(judged)))
    fates = {row["fate"]: row["count"] for row in judged.groupBy("fate").count().collect()}
    others = assembled.rows.where("NOT (fate = 'late' AND settled_at IS NULL)")
    summary = replace(
        assembled.summary,
        late=assembled.summary.late - assembled.summary.late_before + fates.get("late", 0),
        duplicate=assembled.summary.duplicate + fates.get("duplicate", 0),
        ignored=assembled.summary.ignored + fates.get("said", 0),
    )
    return Assembled(others.unionByName(judged, allowMissingColumns=True), summary)


def _assemble_once(  # noqa: PLR0913 - each is a thing known by now
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
    recorded = any(topic.record_id for topic in config.topics.values())
    rows = _packed(
        one_by_one(rows, config) if by_run else rows, _PAYLOAD if by_run or recorded else (*_PAYLOAD, *_REPEATED)
    )
    together(rows, "txn", tasks).createOrReplaceTempView("identified")
    settled.createOrReplaceTempView("settled")
    remember = str(config.transactions.remember)
    first = "min(CASE WHEN lane = 'txn' THEN {} END) OVER (PARTITION BY txn)"
    began = first.format("seqno") if decided else "CAST(NULL AS BIGINT)"
    place = first.format("place") if config.transactions.order == "commit" else "CAST(NULL AS BIGINT)"
    if by_run:
        aggregated = result_of(spark, statement("judge/runs", remember=remember))
        aggregated.createOrReplaceTempView("aggregated")
        return result_of(spark, statement("judge/judge", remember=remember, began=began, place=place))
    repeated = (
        "record_id IS NOT NULL AND NOT alone AND "
        "row_number() OVER (PARTITION BY txn, alone, late, topic, record_id ORDER BY seqno) > 1"
        if recorded
        else "false"
    )
    aggregated = result_of(
        spark, statement("judge/aggregate", remember=remember, repeated=repeated, aggregates="".join(_windowed(done)))
    )
    more = {"known": done.known, "torn": done.torn, "place": done.place}
    condition = sf.expr(f"coalesce(({done.condition}\n), false)")
    holds = sf.coalesce(try_eval(spark, condition, "seqno > 0"), sf.lit(False))
    aggregated = aggregated.select(
        "*",
        (holds & sf.expr("lane = 'txn' AND NOT carried")).alias("done"),
        *(sf.expr(text).alias(column) for column, text in more.items()),
    )
    aggregated.createOrReplaceTempView("aggregated")
    return result_of(spark, statement("judge/judge", remember=remember, began=began, place=place))


def _packed(rows: DataFrame, payload: tuple[str, ...]) -> DataFrame:
    payload = tuple(one for one in rows.columns if one in payload or one.startswith("as_"))
    return select(
        rows, *(one for one in rows.columns if one not in payload), f"struct({', '.join(payload)}) AS payload"
    )


def _unpacked(rows: DataFrame) -> DataFrame:
    return select(rows, "* EXCEPT (payload)", "payload.*")


def _with_clashes(rows: DataFrame) -> DataFrame:
    """The rows, from sql/judge/runs.sql, of which those that are `clashing` are `bad`, too."""
    bad = f"coalesce(bad, CASE WHEN clashing THEN {literal(_CLASHING)} END) AS bad"
    return select(rows, "* EXCEPT (bad, clashing)", bad)


def _windowed(done: Done) -> Iterator[str]:
    for number, one in enumerate(done.aggregates):
        over = one.over(f"p{number}", "so_far")
        yield f"coalesce({over}, 0) AS a{number}, " if one.counts else f"{over} AS a{number}, "
