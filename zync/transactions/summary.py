"""The summary of a sync's judged records for the driver: counts by fate, and lists of what needs a closer look."""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config
from zync.debezium.unavailable import LEFT_OUT, has_envelopes
from zync.lake.ranges import SeqnoRanges
from zync.spark.frames import result_of
from zync.sql import statement
from zync.staging.set_aside import REVISITS

_LISTED = "fate IN ('decision', 'no_effect') OR from_state OR transaction_error IS NOT NULL OR multi_run"
"""The rows that sql/judge/lists.sql lists; with `order: commit` it lists completing transactions, too."""
_EMPTY_LISTS: dict[str, Any] = {"decisions": [], "finishing": [], "bad_transactions": [], "multi_run": [], "turns": []}


@dataclass(frozen=True)
class Finishing:
    """A transaction that was in flight before and completes now. Its earlier records have to be read again.

    Attributes:
        txn: the transaction id.
        first: the seqno of its first record.
        completes_at: the seqno at which it completes.
    """

    txn: str
    first: int
    completes_at: int


@dataclass(frozen=True)
class Decision:
    """An operator's decision about a transaction.

    Attributes:
        acts: whether the decision has an effect.
        in_flight: whether the transaction is in flight at that seqno. The decision is then not about a quarantined
            transaction of the same id.
        settles: the seqno of the transaction that the decision settles.
        txn: the transaction id.
        seqno: the decision's own seqno, at which it acts.
        action: release, discard, redrive or drop.
        who: the operator.
        why: the operator's reason.
        records: of a redrive or drop the seqno ranges of the records that it is about; None until it is known which
            records of that id are in quarantine.
        refused: the reason why the decision does not act; None where it acts, or finds nothing to act on.
    """

    acts: bool
    in_flight: bool
    settles: int | None
    txn: str
    seqno: int
    action: str
    who: str
    why: str
    records: SeqnoRanges | None = None
    refused: str | None = None

    @property
    def revisits(self) -> str | None:
        """`records` as JSON, for the column `state` of staging."""
        return None if self.records is None else json.dumps({REVISITS: self.records.to_structs()})


@dataclass(frozen=True)
class Summary:
    """Counts of records by fate, and what else decides how the sync goes on.

    Attributes:
        records: the number of all records.
        in_flight: records in flight after this sync.
        single: records with a row of their own in staging, unless they are ignored.
        late: late records.
        late_to_earlier: late records whose transaction an earlier sync settled.
        duplicate: duplicate records.
        ignored: records of topics that the config does not name, BEGINs and ENDs that add nothing to a settled
            transaction, and decisions without effect.
        bad_records: bad records that belong to no transaction.
        completed: the number of transactions that complete.
        truncating: records that say that a table was truncated.
        ingested: when the newest record was ingested, in microseconds since 1970.
        finishing: transactions that complete now and were in flight before.
        bad_transactions: complete transactions with a bad record, as (seqno, error).
        multi_run: ids of transactions with rows of several connector runs: they are judged by all their records, not by
            their state (see sql/judge/runs.sql).
        open: the position in commit order of the first incomplete transaction.
        turns: the positions in commit order of the complete transactions.
        decisions: operators' decisions, including those without effect.
        documents: whether there are documents of MongoDB.
        left_out: whether the connector left fields out of some record.
    """

    records: int = 0
    in_flight: int = 0
    single: int = 0
    late: int = 0
    late_to_earlier: int = 0
    duplicate: int = 0
    ignored: int = 0
    bad_records: int = 0
    completed: int = 0
    truncating: int = 0
    ingested: int | None = None
    finishing: tuple[Finishing, ...] = ()
    bad_transactions: tuple[tuple[int, str], ...] = ()
    multi_run: tuple[str, ...] = ()
    open: int | None = None
    turns: tuple[int, ...] = ()
    decisions: tuple[Decision, ...] = ()
    documents: bool = False
    left_out: bool = False

    @property
    def discarded(self) -> list[int]:
        """The seqnos of transactions that a decision settles without output."""
        dropping = [decision for decision in self.decisions if decision.acts and decision.action in ("discard", "drop")]
        return [decision.settles for decision in dropping if decision.settles]


def summarize(spark: SparkSession, rows: DataFrame, config: Config, *, single_task: bool) -> tuple[Summary, int]:
    """Summarizes judged records (sql/judge/judge.sql).

    Args:
        spark: the session.
        rows: the records with their fates.
        config: the config.
        single_task: whether one task handles all rows. Then one query for counts and lists is quicker. Otherwise the
            lists get a query of their own, and only where the counts show that there is something to list.

    Returns:
        The summary, and the number of records that must be assembled once more.
    """
    rows.createOrReplaceTempView("assembled")
    in_order = config.transactions.order == "commit"
    listed = _LISTED + (" OR completing" if in_order else "")
    lists = statement("judge/lists", in_order=str(in_order).lower())
    flags = ("truncates", "document") if config.transactions.preset else ("false", "false")
    left_out = f"{LEFT_OUT} IS NOT NULL" if has_envelopes(config) else "false"
    slots = {"listed": listed, "truncating": flags[0], "documents": flags[1], "left_out": left_out}
    counts = statement("judge/counts", **slots, lists=f",\n{lists}" if single_task else "")
    row = _EMPTY_LISTS | _only_row(result_of(spark, counts))
    if row["listed"] and not single_task:
        row |= _only_row(result_of(spark, f"SELECT\n{lists}FROM assembled WHERE {listed}"))
    return Summary(
        records=row["records"],
        in_flight=row["in_flight"],
        single=row["single"],
        late=row["late"],
        late_to_earlier=row["late_to_earlier"],
        duplicate=row["duplicate"],
        ignored=row["ignored"],
        bad_records=row["bad_records"],
        completed=row["completed"],
        truncating=row["truncating"],
        ingested=row["ingested"],
        finishing=tuple(Finishing(**transaction) for transaction in row["finishing"]),
        bad_transactions=tuple(
            sorted((transaction["seqno"], transaction["error"]) for transaction in row["bad_transactions"])
        ),
        multi_run=tuple(row["multi_run"]),
        open=row["open"],
        turns=tuple(row["turns"]),
        decisions=tuple(map(_decision, row["decisions"])),
        documents=row["documents"],
        left_out=row["left_out"],
    ), row["again"]


def _decision(fields: dict[str, Any]) -> Decision:
    """Returns a decision as sql/judge/lists.sql lists it."""
    records = None if fields["records"] is None else SeqnoRanges.of_structs(fields["records"])
    return Decision(**{**fields, "records": records})


def _only_row(frame: DataFrame) -> dict[str, Any]:
    (row,) = frame.collect()
    return row.asDict(recursive=True)


def total(summaries: list[Summary]) -> Summary:
    """Returns one summary over the records of all `summaries`."""
    return Summary(
        records=sum(summary.records for summary in summaries),
        in_flight=sum(summary.in_flight for summary in summaries),
        single=sum(summary.single for summary in summaries),
        late=sum(summary.late for summary in summaries),
        late_to_earlier=sum(summary.late_to_earlier for summary in summaries),
        duplicate=sum(summary.duplicate for summary in summaries),
        ignored=sum(summary.ignored for summary in summaries),
        bad_records=sum(summary.bad_records for summary in summaries),
        completed=sum(summary.completed for summary in summaries),
        truncating=sum(summary.truncating for summary in summaries),
        ingested=max((summary.ingested for summary in summaries if summary.ingested), default=None),
        finishing=tuple(finishing for summary in summaries for finishing in summary.finishing),
        bad_transactions=tuple(
            bad_transactions for summary in summaries for bad_transactions in summary.bad_transactions
        ),
        multi_run=tuple(multi_run for summary in summaries for multi_run in summary.multi_run),
        open=min((summary.open for summary in summaries if summary.open), default=None),
        turns=tuple(turn for summary in summaries for turn in summary.turns),
        decisions=tuple(decision for summary in summaries for decision in summary.decisions),
        documents=any(summary.documents for summary in summaries),
        left_out=any(summary.left_out for summary in summaries),
    )


REVISITING = ("redrive", "drop")
"""Actions of decisions about records that are set aside."""
