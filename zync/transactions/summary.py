"""What the driver must know of a sync's records once each has its fate: counts, and what is looked at by itself."""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config
from zync.debezium.unavailable import LEFT_OUT, has_envelopes
from zync.spark.frames import result_of
from zync.sql import statement
from zync.staging.set_aside import REVISITS, Ranges

_LISTED = "fate IN ('decision', 'void') OR carried OR bad IS NOT NULL OR torn"
"""What sql/judge/lists.sql looks at, one by one; in the order of commit also what completes."""
_NONE_LISTED: dict[str, Any] = {"decisions": [], "finishing": [], "tainted": [], "torn": [], "turns": []}


@dataclass(frozen=True)
class Finishing:
    """A transaction that was in flight before and completes now: its earlier records have to be read again."""

    txn: str
    first: int
    completes_at: int


@dataclass(frozen=True)
class Decision:
    """What an operator decided of a transaction; it acts at `seqno`, the decision's own.

    `acts`: whether it does. `flying`: whether the transaction is in flight there, so that it cannot be about one of
    that id which is in quarantine. `settles`: the seqno of the transaction that it settles. `records`, of a redrive or
    drop: those that it is about, as ranges; null until it is known which those in quarantine are. `refused`: why it
    does not act, where that is not that there is nothing for it to act on.
    """

    acts: bool
    flying: bool
    settles: int | None
    txn: str
    seqno: int
    action: str
    who: str
    why: str
    records: Ranges | None = None
    refused: str | None = None

    @property
    def revisits(self) -> str | None:
        """`records`, as the state of staging's row has them."""
        return None if self.records is None else json.dumps({REVISITS: self.records})


@dataclass(frozen=True)
class Summary:
    """Counts of records by fate, and what else decides how the sync goes on. `ingested` is in microseconds.

    `records`: all that there are; `flying`: in flight after this sync; `single`: those that
    have a row of their own in staging, unless ignored. `late_before`: those of the late ones whose transaction an
    earlier sync settled. `torn`: transactions whose state is not enough (see sql/judge/runs.sql). `open`: where in the
    order of commit the first stands that is not whole; `turns`: of those that are, where they do. `truncating`: records
    that say that a table was truncated. `documents`: whether some are of MongoDB's. `left_out`: whether the connector
    left fields out of any.
    """

    records: int = 0
    flying: int = 0
    single: int = 0
    late: int = 0
    late_before: int = 0
    duplicate: int = 0
    ignored: int = 0
    faulty: int = 0
    completed: int = 0
    truncating: int = 0
    ingested: int | None = None
    finishing: tuple[Finishing, ...] = ()
    tainted: tuple[tuple[int, str], ...] = ()
    torn: tuple[str, ...] = ()
    open: int | None = None
    turns: tuple[int, ...] = ()
    decisions: tuple[Decision, ...] = ()
    documents: bool = False
    left_out: bool = False

    @property
    def discarded(self) -> list[int]:
        """The seqnos of transactions that are not to go out."""
        return [one.settles for one in self.decisions if one.acts and one.settles and one.action in ("discard", "drop")]


def summarize(spark: SparkSession, rows: DataFrame, config: Config, *, one_task: bool) -> tuple[Summary, int]:
    """The summary of records with their fates (sql/judge/judge.sql), and how many are to be assembled once more.

    `one_task`: they are so few that to ask once is quicker than to ask for what is seldom there only when it is.
    """
    rows.createOrReplaceTempView("assembled")
    in_order = config.transactions.order == "commit"
    listed = _LISTED + (" OR completing" if in_order else "")
    lists = statement("judge/lists", in_order=str(in_order).lower())
    said = ("truncates", "document") if config.transactions.preset else ("false", "false")
    left_out = f"{LEFT_OUT} IS NOT NULL" if has_envelopes(config) else "false"
    slots = {"listed": listed, "truncating": said[0], "documents": said[1], "left_out": left_out}
    counts = statement("judge/counts", **slots, lists=f",\n{lists}" if one_task else "")
    row = _NONE_LISTED | _only_row(result_of(spark, counts))
    if row["listed"] and not one_task:
        row |= _only_row(result_of(spark, f"SELECT\n{lists}FROM assembled WHERE {listed}"))
    return Summary(
        records=row["records"],
        flying=row["flying"],
        single=row["single"],
        late=row["late"],
        late_before=row["late_before"],
        duplicate=row["duplicate"],
        ignored=row["ignored"],
        faulty=row["faulty"],
        completed=row["completed"],
        truncating=row["truncating"],
        ingested=row["ingested"],
        finishing=tuple(Finishing(**one) for one in row["finishing"]),
        tainted=tuple(sorted((one["seqno"], one["error"]) for one in row["tainted"])),
        torn=tuple(row["torn"]),
        open=row["open"],
        turns=tuple(row["turns"]),
        decisions=tuple(Decision(**one) for one in row["decisions"]),
        documents=row["documents"],
        left_out=row["left_out"],
    ), row["again"]


def _only_row(frame: DataFrame) -> dict[str, Any]:
    (row,) = frame.collect()
    return row.asDict(recursive=True)


def total(summaries: list[Summary]) -> Summary:
    """One summary of the records of all of them."""
    return Summary(
        records=sum(one.records for one in summaries),
        flying=sum(one.flying for one in summaries),
        single=sum(one.single for one in summaries),
        late=sum(one.late for one in summaries),
        late_before=sum(one.late_before for one in summaries),
        duplicate=sum(one.duplicate for one in summaries),
        ignored=sum(one.ignored for one in summaries),
        faulty=sum(one.faulty for one in summaries),
        completed=sum(one.completed for one in summaries),
        truncating=sum(one.truncating for one in summaries),
        ingested=max((one.ingested for one in summaries if one.ingested), default=None),
        finishing=tuple(finishing for one in summaries for finishing in one.finishing),
        tainted=tuple(tainted for one in summaries for tainted in one.tainted),
        torn=tuple(torn for one in summaries for torn in one.torn),
        open=min((one.open for one in summaries if one.open), default=None),
        turns=tuple(turn for one in summaries for turn in one.turns),
        decisions=tuple(decision for one in summaries for decision in one.decisions),
        documents=any(one.documents for one in summaries),
        left_out=any(one.left_out for one in summaries),
    )


REVISITING = ("redrive", "drop")
"""Decisions about what is set aside."""
