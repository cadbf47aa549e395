"""Stage judge: decides the fate of each record, and reads the earlier records of transactions that complete now."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame

from zync.debezium.unavailable import LEFT_OUT, has_envelopes
from zync.errors import UsageError, ZyncError
from zync.lake.ranges import RANGES_DDL, SeqnoRanges
from zync.spark.causes import is_environment_error
from zync.spark.errors import message_of, spark_errors
from zync.spark.frames import from_rows, select
from zync.spark.sizing import Sizing, tune
from zync.staging.bookkeeping import IN_FLIGHT_COLUMNS, read_settled, records_in
from zync.staging.held import awaits_turn, end_seqnos
from zync.sync.context import Sync
from zync.sync.recall import Recalled
from zync.sync.redrive import revisit
from zync.transactions.assemble import (
    Assembled,
    assemble,
    late_to_earlier,
    rejudge_late,
    replace_multi_run,
    with_state,
    without_state,
)
from zync.transactions.commit_order import decided
from zync.transactions.gather import gather, raw_record_count
from zync.transactions.quarantine import Failure, check_limit
from zync.transactions.summary import REVISITING, Finishing, Summary


@dataclass(frozen=True)
class Judged:
    """A sync after stage judge.

    Attributes:
        sync: The running sync.
        summary: What `records` came to.
        records: Each record with its fate, and with what is known of earlier records of the same transaction.
        outgoing_records: All records of the transactions that this sync settles, records of earlier syncs included.
        failures: The transactions that go to quarantine.
        has_documents: Whether `outgoing_records` may contain MongoDB documents.
        has_truncations: Whether `outgoing_records` may contain TRUNCATE records.
        sizing: How Spark works on the new records and the earlier ones that were read again.
    """

    sync: Sync
    summary: Summary
    records: DataFrame
    outgoing_records: DataFrame
    failures: tuple[Failure, ...]
    has_documents: bool
    has_truncations: bool
    sizing: Sizing


def judge(recalled: Recalled) -> Judged:
    """Decides each record's fate, and reads the earlier records of transactions that were in flight and complete now.

    Raises:
        DataError: More would go to quarantine than the config allows.
        UsageError: An aggregate of `done` fails.
        ZyncError: Raw lacks records that it should have.
    """
    sync, sizing = recalled.sync, recalled.sizing
    assembled, has_documents = _decide_fates(recalled)
    if sync.in_commit_order:
        assembled = _hold_back(recalled, assembled)
    summary, records = assembled.summary, assembled.rows
    outgoing = records.where("completes_at IS NOT NULL")
    has_redrives = any(decision.acts and decision.action == "redrive" for decision in summary.decisions)
    has_truncations = sync.done.preset and (summary.truncating > 0 or has_redrives)
    finishing = {transaction.txn: transaction.completes_at for transaction in summary.finishing}
    if finishing:
        in_flight = recalled.other_in_flight
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], pa.array(finishing)))
        completes_at = pa.array([finishing[txn] for txn in in_flight["txn"].to_pylist()], pa.int64())
        sizing += records_in(in_flight)
        tune(sync.spark, sync.config.spark, sizing)
        gathered = sync.row_cache.keep(gather(sync.spark, sync.raw, _for_gather(in_flight, completes_at), sync.decoder))
        content = _content_of(gathered, sync)
        _check_complete(sync, content.record_count, records_in(in_flight))
        summary = replace(summary, left_out=summary.left_out or content.has_left_out)
        has_documents |= content.has_documents
        has_truncations |= content.has_truncations
        outgoing = outgoing.unionByName(gathered, allowMissingColumns=True)
    if sizing.is_single_task:
        records, outgoing = records.coalesce(1), outgoing.coalesce(1)
    discarded = set(summary.discarded)
    failures = tuple(Failure(seqno, reason) for seqno, reason in summary.bad_transactions if seqno not in discarded)
    check_limit(sync.quarantine_limit(summary), failures, summary.bad_records, lambda: _first_bad_record(assembled))
    return Judged(sync, summary, records, outgoing, failures, has_documents, has_truncations, sizing)


def _decide_fates(recalled: Recalled) -> tuple[Assembled, bool]:
    """Returns each record with its fate, redriven records included, and whether MongoDB documents may be among them."""
    sync = recalled.sync
    reread_count = 0 if sync.keeps_state else records_in(recalled.matched_in_flight)
    assembled = _assemble(recalled, _with_in_flight(recalled), reread_count)
    expected_count = sync.new_count + raw_record_count(recalled.reread_in_flight) + reread_count
    _check_complete(sync, assembled.summary.records, expected_count)
    if assembled.summary.multi_run:
        assembled = _by_run(recalled, assembled)
    if sync.done.preset and assembled.summary.late_to_earlier:
        assembled = _judge_late(recalled, assembled)
    revisiting = [decision for decision in assembled.summary.decisions if decision.action in REVISITING]
    records = assembled.rows
    if any(not decision.in_flight for decision in revisiting):
        assembled, redriven = revisit(recalled, assembled)
        records = records.unionByName(redriven, allowMissingColumns=True)
    return Assembled(records, assembled.summary), assembled.summary.documents or bool(revisiting)


def _check_complete(sync: Sync, record_count: int, expected_count: int) -> None:
    """Raises ZyncError unless raw returned as many records as it should: missing ones would be lost in silence."""
    if record_count != expected_count:
        msg = (
            f"{record_count:,} records came of the {expected_count:,} that {sync.raw.table_uri} should have, new ones "
            "or of transactions in flight: `zync verify` says whether it is damaged; if not, `zync replay` makes "
            "staging anew. Nothing was committed"
        )
        raise ZyncError(msg)


class _Content(NamedTuple):
    """The number of some records, and whether MongoDB documents, TRUNCATEs or left-out fields are among them."""

    record_count: int
    has_documents: bool = False
    has_truncations: bool = False
    has_left_out: bool = False


def _content_of(records: DataFrame, sync: Sync) -> _Content:
    if not sync.done.preset:
        return _Content(records.count())
    conditions = ("document", "truncates", f"{LEFT_OUT} IS NOT NULL" if has_envelopes(sync.config) else "false")
    any_of = (f"coalesce(bool_or({condition}), false)" for condition in conditions)
    (row,) = select(records, "count(*)", *any_of).collect()
    return _Content(*row)


def _first_bad_record(assembled: Assembled) -> Failure:
    """Returns the first record without a transaction that goes to quarantine; the caller knows that it exists."""
    bad_records = assembled.rows.where("fate = 'alone' AND record_error <> 'ignored'")
    (row,) = bad_records.selectExpr("min(struct(seqno, record_error)) AS first").collect()
    return Failure(row["first"]["seqno"], row["first"]["record_error"])


def _hold_back(recalled: Recalled, assembled: Assembled) -> Assembled:
    """Holds whole transactions behind the first open transaction in the order of commit, and lets others out.

    An open transaction is one that is not whole. Transactions that earlier syncs held go out now if they come before
    that transaction. Transactions that a decision other than a release settles do not wait.
    """
    sync, in_flight = recalled.sync, recalled.other_in_flight
    summary, is_held = assembled.summary, awaits_turn(in_flight)
    is_matched = pc.is_in(in_flight["txn"], recalled.matched_in_flight["txn"])
    open_before = in_flight.filter(pc.invert(pc.or_(is_held, is_matched)))
    open_end_seqnos = (summary.open, pc.min(end_seqnos(open_before)).as_py())
    first_open = min((end_seqno for end_seqno in open_end_seqnos if end_seqno), default=sync.head + 1)
    held_before = in_flight.filter(is_held)
    outgoing = held_before.filter(pc.less(end_seqnos(held_before), first_open))
    exempt = {decision.settles for decision in summary.decisions if decision.acts and decision.action != "release"}
    held_count = sum(turn > first_open and turn not in exempt for turn in summary.turns)
    records = assembled.rows
    if held_count:
        is_after_open = (
            f"fate = 'whole' AND completes_at > {first_open} "
            f"AND completes_at NOT IN ({', '.join(map(str, [0, *exempt]))})"
        )
        records = select(
            records,
            "* EXCEPT (fate, completes_at)",
            f"CASE WHEN {is_after_open} THEN 'held' ELSE fate END AS fate",
            f"CASE WHEN NOT coalesce({is_after_open}, false) THEN completes_at END AS completes_at",
        )
    if outgoing.num_rows:
        records = records.unionByName(_rows_of_held(sync, outgoing), allowMissingColumns=True)
    firsts = zip(
        outgoing["txn"].to_pylist(), outgoing["seqno"].to_pylist(), end_seqnos(outgoing).to_pylist(), strict=True
    )
    errors = zip(end_seqnos(outgoing).to_pylist(), outgoing["reason"].to_pylist(), strict=True)
    summary = replace(
        summary,
        in_flight=summary.in_flight + held_count,
        completed=summary.completed - held_count + outgoing.num_rows,
        finishing=(
            *(
                transaction
                for transaction in summary.finishing
                if transaction.completes_at < first_open or transaction.completes_at in exempt
            ),
            *(Finishing(*first) for first in firsts),
        ),
        bad_transactions=(
            *((seqno, error) for seqno, error in summary.bad_transactions if seqno < first_open or seqno in exempt),
            *((seqno, error) for seqno, error in errors if error),
        ),
        decisions=(*summary.decisions, *decided(outgoing)),
    )
    return Assembled(records, summary)


def _rows_of_held(sync: Sync, held_rows: pa.Table) -> DataFrame:
    """Returns a row for each held transaction that goes out now, which stands for its earlier records."""
    # sql/apply_rules/whole.sql appends the decision's own record again, so it must not be among these.
    own = {decision.txn: SeqnoRanges([decision.seqno], [decision.seqno]) for decision in decided(held_rows)}
    records = [
        SeqnoRanges.of_structs(structs).without(own[txn]).to_structs() if txn in own else structs
        for txn, structs in zip(held_rows["txn"].to_pylist(), held_rows["records"].to_pylist(), strict=True)
    ]
    rows = pa.table(
        {
            "txn": held_rows["txn"],
            "seqno": held_rows["seqno"],
            "completes_at": end_seqnos(held_rows),
            "earlier": pa.array(records, held_rows.schema.field("records").type),
            "earlier_count": held_rows["count"],
        }
    )
    columns = f"txn string, seqno bigint, completes_at bigint, earlier {RANGES_DDL}, earlier_count bigint"
    return select(from_rows(sync.spark, rows, columns), "*", "'whole' AS fate", "true AS from_state", "false AS alone")


def _with_in_flight(recalled: Recalled) -> DataFrame:
    """Returns the new records with what is in flight of their transactions: a row with its state, or its records."""
    sync, in_flight, records = recalled.sync, recalled.matched_in_flight, recalled.records
    if not in_flight.num_rows:
        return without_state(records)
    if sync.keeps_state:
        return with_state(sync.spark, records, from_rows(sync.spark, in_flight, IN_FLIGHT_COLUMNS), sync.done)
    return without_state(records.unionByName(_records_of(sync, in_flight)))


def _records_of(sync: Sync, in_flight: pa.Table) -> DataFrame:
    """Reads the records of those transactions in flight from raw again."""
    wanted = _for_gather(in_flight, pa.nulls(in_flight.num_rows, pa.int64()))
    records = gather(sync.spark, sync.raw, wanted, sync.decoder)
    return records.drop("completes_at")


def _assemble(recalled: Recalled, rows: DataFrame, reread_count: int, *, by_run: bool = False) -> Assembled:
    """Assembles `rows` into transactions.

    Args:
        recalled: The sync after stage recall.
        rows: Records, from `with_state` or `without_state`.
        reread_count: How many of `rows` are records of earlier syncs.
        by_run: Whether to assemble by connector run (sql/judge/runs.sql).

    Raises:
        UsageError: An aggregate of `done` fails, which can only happen over several records.
    """
    sync = recalled.sync
    try:
        return assemble(
            sync.spark,
            rows,
            recalled.settled,
            sync.config,
            sync.done,
            sync.row_cache,
            decided=sync.has_decisions,
            tasks=(recalled.sizing + reread_count).task_count,
            by_run=by_run,
        )
    except spark_errors() as error:
        not_of_done = (AnalysisException, PythonException)  # decoding runs Python, `done` never does
        if isinstance(error, not_of_done) or is_environment_error(error):
            raise
        msg = (
            f"transactions.done: {sync.done.text!r} fails on several records of a transaction together: "
            f"{message_of(error)} (an aggregate that does not fail so is try_sum for sum, try_avg for avg)"
        )
        raise UsageError(msg) from error


def _by_run(recalled: Recalled, assembled: Assembled) -> Assembled:
    """Judges transactions with rows of several connector runs again, by all of their records (sql/judge/runs.sql)."""
    sync, in_flight, multi_run = recalled.sync, recalled.matched_in_flight, assembled.summary.multi_run
    ids = from_rows(sync.spark, [(txn,) for txn in multi_run], "txn string").hint("broadcast")
    rows = recalled.records.join(ids, "txn", "left_semi")
    in_flight = in_flight.filter(pc.is_in(in_flight["txn"], pa.array(multi_run, pa.string())))
    if in_flight.num_rows:
        rows = rows.unionByName(_records_of(sync, in_flight))
    by_run = _assemble(recalled, without_state(rows), records_in(in_flight), by_run=True)
    return replace_multi_run(sync.spark, assembled, by_run, sync.config)


def _judge_late(recalled: Recalled, assembled: Assembled) -> Assembled:
    """Tells late records that only repeat a record of their settled transaction from those that add something.

    The records of those transactions are read again for the comparison.
    """
    txns = late_to_earlier(assembled).select("txn").distinct().toArrow()["txn"]
    sync = recalled.sync
    settled = sync.bookkeeping.settled
    wanted = read_settled(sync.staging, settled.filter(pc.is_in(settled["txn"], txns)))
    if sync.in_commit_order:
        waiting = recalled.other_in_flight.filter(awaits_turn(recalled.other_in_flight))
        waiting = waiting.filter(pc.is_in(waiting["txn"], txns))
        wanted = pa.concat_tables([wanted, _for_gather(waiting, end_seqnos(waiting)).select(wanted.column_names)])
    records = gather(sync.spark, sync.raw, wanted, sync.decoder)
    records = records.drop("completes_at")
    return rejudge_late(
        sync.spark, assembled, records, sync.config, sync.done, sync.row_cache, tasks=recalled.sizing.task_count
    )


def _for_gather(in_flight: pa.Table, completes_at: pa.Array) -> pa.Table:
    """Returns transactions in flight with the columns that `gather` takes."""
    columns = {"txn": in_flight["txn"], "completes_at": completes_at}
    return pa.table({**columns, "records": in_flight["records"], "state": in_flight["state"]})
