"""Stage judge: what becomes of each record, and of each transaction that waited for it."""

from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame

from zync.debezium.unavailable import LEFT_OUT, has_envelopes
from zync.errors import UsageError, ZyncError
from zync.spark.causes import is_of_surroundings
from zync.spark.errors import message_of, spark_errors
from zync.spark.frames import local, select
from zync.spark.tuning import pace
from zync.staging.bookkeeping import IN_FLIGHT_COLUMNS, read_settled, records_in
from zync.staging.held import held, places
from zync.sync.context import Sync, there
from zync.sync.redrive import revisit
from zync.transactions.assemble import Assembled, assemble, instead, late_before, look_again, with_state, without_state
from zync.transactions.commit_order import decided
from zync.transactions.gather import gather, places_in
from zync.transactions.quarantine import Failure, check_limit
from zync.transactions.summary import REVISITING, Finishing


def judge(sync: Sync) -> Sync:
    """Each record's fate; and the earlier records of transactions that complete now after having been in flight."""
    read_again = 0 if sync.stateful else records_in(there(sync.met))
    assembled = _assemble(sync, _with_met(sync), read_again)
    _check_all_came(sync, assembled.summary.records, sync.new + places_in(there(sync.reread)) + read_again)
    if assembled.summary.torn:
        assembled = _by_run(sync, assembled)
    if sync.done.preset and assembled.summary.late_before:
        assembled = _look_again(sync, assembled)
    settling = assembled.rows
    if any(one.action in REVISITING and not one.flying for one in assembled.summary.decisions):
        assembled, redriven = revisit(sync, assembled)
        settling = settling.unionByName(redriven, allowMissingColumns=True)
    revisiting = any(one.action in REVISITING for one in assembled.summary.decisions)
    documents = assembled.summary.documents or revisiting
    sync = replace(sync, assembled=assembled, settling=settling, documents=documents)
    if sync.in_order:
        sync = _in_turn(sync)
    summary, settling = there(sync.assembled).summary, there(sync.settling)
    going = settling.where("completes_at IS NOT NULL")
    redrives = any(one.acts and one.action == "redrive" for one in summary.decisions)
    truncating = sync.done.preset and (summary.truncating > 0 or redrives)
    finishing = {one.txn: one.completes_at for one in summary.finishing}
    if finishing:
        in_flight = sync.known.in_flight
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], pa.array(finishing)))
        completes_at = pa.array([finishing[txn] for txn in in_flight["txn"].to_pylist()], pa.int64())
        wanted = _wanted(in_flight, completes_at)
        sync = replace(sync, earlier=sync.earlier + records_in(in_flight))
        pace(sync.spark, sync.config.spark, sync.records)
        gathered = sync.keeper.keep(gather(sync.spark, sync.raw, wanted, sync.decoder))
        came = _count(gathered, sync)
        _check_all_came(sync, came.records, records_in(in_flight))
        truncating = truncating or came.truncates
        summary = replace(summary, left_out=summary.left_out or came.left_out)
        assembled = replace(there(sync.assembled), summary=summary)
        sync = replace(sync, assembled=assembled, documents=sync.documents or came.documents)
        going = going.unionByName(gathered, allowMissingColumns=True)
    if sync.one_task:
        settling, going = settling.coalesce(1), going.coalesce(1)
    discarded = set(summary.discarded)
    failures = tuple(Failure(seqno, reason) for seqno, reason in summary.tainted if seqno not in discarded)
    check_limit(sync.limit, failures, summary.faulty, lambda: _first_faulty(there(sync.assembled)))
    return replace(sync, settling=settling, going=going, failures=failures, truncating=truncating)


def _check_all_came(sync: Sync, found: int, wanted: int) -> None:
    """ZyncError unless all records came that were to be read: those that did not would be lost without a word."""
    if found != wanted:
        msg = (
            f"{found:,} records came of the {wanted:,} that {sync.raw.table_uri} should have, new ones or of "
            "transactions in flight: `zync verify` says whether it is damaged; if not, `zync replay` makes staging "
            "anew. Nothing was committed"
        )
        raise ZyncError(msg)


class _Came(NamedTuple):
    """How many records came, and whether some are documents of MongoDB's, truncate a table, have fields left out."""

    records: int
    documents: bool = False
    truncates: bool = False
    left_out: bool = False


def _count(records: DataFrame, sync: Sync) -> _Came:
    if not sync.done.preset:
        return _Came(records.count())
    conditions = ("document", "truncates", f"{LEFT_OUT} IS NOT NULL" if has_envelopes(sync.config) else "false")
    any_of = (f"coalesce(bool_or({condition}), false)" for condition in conditions)
    (row,) = select(records, "count(*)", *any_of).collect()
    return _Came(*row)


def _first_faulty(assembled: Assembled) -> Failure:
    """The first record by itself with which something is wrong: there is one."""
    faulty = assembled.rows.where("fate = 'alone' AND fault <> 'ignored'")
    (row,) = faulty.selectExpr("min(struct(seqno, fault)) AS first").collect()
    return Failure(row["first"]["seqno"], row["first"]["fault"])


def _in_turn(sync: Sync) -> Sync:
    """Holds what is whole behind the first in the order of commit that is not; what was held till then goes out."""
    assembled, in_flight = there(sync.assembled), sync.known.in_flight
    summary, whole = assembled.summary, held(in_flight)
    others = in_flight.filter(pc.invert(pc.or_(whole, pc.is_in(in_flight["txn"], there(sync.met)["txn"]))))
    first_open = min((one for one in (summary.open, pc.min(places(others)).as_py()) if one), default=sync.head + 1)
    waiting = in_flight.filter(whole)
    going = waiting.filter(pc.less(places(waiting), first_open))
    at_once = {one.settles for one in summary.decisions if one.acts and one.action != "release"}
    newly = sum(turn > first_open and turn not in at_once for turn in summary.turns)
    settling = there(sync.settling)
    if newly:
        late = (
            f"fate = 'whole' AND completes_at > {first_open} "
            f"AND completes_at NOT IN ({', '.join(map(str, [0, *at_once]))})"
        )
        settling = select(
            settling,
            "* EXCEPT (fate, completes_at)",
            f"CASE WHEN {late} THEN 'held' ELSE fate END AS fate",
            f"CASE WHEN NOT coalesce({late}, false) THEN completes_at END AS completes_at",
        )
    if going.num_rows:
        settling = settling.unionByName(_carried(sync, going), allowMissingColumns=True)
    firsts = zip(going["txn"].to_pylist(), going["seqno"].to_pylist(), places(going).to_pylist(), strict=True)
    bad = zip(places(going).to_pylist(), going["reason"].to_pylist(), strict=True)
    summary = replace(
        summary,
        flying=summary.flying + newly,
        completed=summary.completed - newly + going.num_rows,
        finishing=(
            *(one for one in summary.finishing if one.completes_at < first_open or one.completes_at in at_once),
            *(Finishing(*one) for one in firsts),
        ),
        tainted=(
            *((at, why) for at, why in summary.tainted if at < first_open or at in at_once),
            *((at, why) for at, why in bad if why),
        ),
        decisions=(*summary.decisions, *decided(going)),
    )
    return replace(sync, assembled=replace(assembled, summary=summary), settling=settling)


def _carried(sync: Sync, going: pa.Table) -> DataFrame:
    """The rows of transactions that were held and go out now: what is known of their records."""
    # sql/bookkeeping/whole.sql puts its record where it was, at the end
    by_decision = {one.seqno for one in decided(going)}
    records = [
        [one for one in ranges if one["first"] not in by_decision or one["first"] < one["last"]]
        for ranges in going["records"].to_pylist()
    ]
    rows = pa.table(
        {
            "txn": going["txn"],
            "seqno": going["seqno"],
            "completes_at": places(going),
            "earlier": pa.array(records, going.schema.field("records").type),
            "earlier_count": going["count"],
        }
    )
    columns = (
        "txn string, seqno bigint, completes_at bigint, "
        "earlier array<struct<first: bigint, last: bigint>>, earlier_count bigint"
    )
    return select(local(sync.spark, rows, columns), "*", "'whole' AS fate", "true AS carried", "false AS alone")


def _with_met(sync: Sync) -> DataFrame:
    """The new records with what is in flight of their transactions: as one row with its state, or record by record."""
    met, identified = there(sync.met), there(sync.identified)
    if not met.num_rows:
        return without_state(identified)
    if sync.stateful:
        return with_state(sync.spark, identified, local(sync.spark, met, IN_FLIGHT_COLUMNS), sync.done)
    return without_state(identified.unionByName(_records_of(sync, met)))


def _records_of(sync: Sync, in_flight: pa.Table) -> DataFrame:
    """The records of those transactions that are in flight, read again."""
    wanted = _wanted(in_flight, pa.nulls(in_flight.num_rows, pa.int64()))
    earlier = gather(sync.spark, sync.raw, wanted, sync.decoder)
    return earlier.drop("completes_at")


def _assemble(sync: Sync, rows: DataFrame, read_again: int, *, by_run: bool = False) -> Assembled:
    """Of `rows`, as many as `read_again` are records of earlier syncs.

    UsageError where an aggregate of `done` fails, which it does over several records only.
    """
    try:
        return assemble(
            sync.spark,
            rows,
            there(sync.settled),
            sync.config,
            sync.done,
            sync.keeper,
            decided=sync.decided,
            tasks=sync.tasks(read_again),
            by_run=by_run,
        )
    except spark_errors() as error:
        others = (AnalysisException, PythonException)  # Python decodes, and `done` has none of it
        if isinstance(error, others) or is_of_surroundings(error):
            raise
        msg = (
            f"transactions.done: {sync.done.text!r} fails on several records of a transaction together: "
            f"{message_of(error)} (an aggregate that does not fail so is try_sum for sum, try_avg for avg)"
        )
        raise UsageError(msg) from error


def _by_run(sync: Sync, assembled: Assembled) -> Assembled:
    """Transactions with rows of several runs of their connector, judged by all of their records."""
    met, torn = there(sync.met), assembled.summary.torn
    ids = local(sync.spark, [(txn,) for txn in torn], "txn string").hint("broadcast")
    rows = there(sync.identified).join(ids, "txn", "left_semi")
    met = met.filter(pc.is_in(met["txn"], pa.array(torn, pa.string())))
    if met.num_rows:
        rows = rows.unionByName(_records_of(sync, met))
    others = _assemble(sync, without_state(rows), records_in(met), by_run=True)
    return instead(sync.spark, assembled, others, sync.config)


def _look_again(sync: Sync, assembled: Assembled) -> Assembled:
    """Late records beside their transactions' own, which are read again: does what comes late repeat what is there?"""
    txns = late_before(assembled).select("txn").distinct().toArrow()["txn"]
    wanted = read_settled(sync.staging, sync.known.settled.filter(pc.is_in(sync.known.settled["txn"], txns)))
    if sync.in_order:
        waiting = sync.known.in_flight.filter(held(sync.known.in_flight))
        waiting = waiting.filter(pc.is_in(waiting["txn"], txns))
        wanted = pa.concat_tables([wanted, _wanted(waiting, places(waiting)).select(wanted.column_names)])
    earlier = gather(sync.spark, sync.raw, wanted, sync.decoder)
    earlier = earlier.drop("completes_at")
    return look_again(sync.spark, assembled, earlier, sync.config, sync.done, sync.keeper, tasks=sync.tasks())


def _wanted(in_flight: pa.Table, completes_at: pa.Array) -> pa.Table:
    """What `gather` takes, of transactions in flight."""
    columns = {"txn": in_flight["txn"], "completes_at": completes_at}
    return pa.table({**columns, "records": in_flight["records"], "state": in_flight["state"]})
