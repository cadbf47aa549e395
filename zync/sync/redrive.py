"""Redrive and drop: applies operators' decisions about what is set aside in staging."""

import logging
from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from zync.lake.ranges import SeqnoRanges
from zync.spark.frames import from_rows, select
from zync.staging.set_aside import read_set_aside
from zync.sync.context import Sync
from zync.sync.recall import Recalled
from zync.text import amount
from zync.transactions.assemble import Assembled, assemble, without_state
from zync.transactions.gather import regather
from zync.transactions.summary import REVISITING, Decision

log = logging.getLogger(__name__)


def revisit(recalled: Recalled, assembled: Assembled) -> tuple[Assembled, DataFrame]:
    """Applies the decisions about what is set aside, and reads the records to redrive.

    A decision acts if all records that it is about are still set aside, unless it would redrive a part of a
    transaction.

    Returns:
        `assembled` with the outcome of each decision in its summary, and the records that go out again.
    """
    sync = recalled.sync
    revisiting = [
        decision for decision in assembled.summary.decisions if decision.action in REVISITING and not decision.in_flight
    ]
    set_aside = read_set_aside(sync.staging, {decision.txn for decision in revisiting})
    acting: dict[int, Decision] = {}
    about_single_records: set[int] = set()
    for decision in sorted(revisiting, key=lambda decision: decision.seqno):
        row = set_aside.late.get(decision.txn)
        if decision.records is None:  # then it is about the first row that no other decision of this sync has taken
            quarantined = set_aside.quarantined.get(decision.txn, ())
            row = next((candidate for candidate in quarantined if candidate["records"]), None)
        row_ranges = row["records"] if row else SeqnoRanges()
        ranges = row_ranges if decision.records is None else decision.records
        if row and ranges and row_ranges.covers(ranges):
            row["records"] = row_ranges.without(ranges)
            acting[decision.seqno] = replace(decision, acts=True, settles=decision.seqno, records=ranges)
            if row["txn"] is None:
                about_single_records.add(decision.seqno)
    redriven = [
        (decision.txn, decision.seqno, decision.records)
        for decision in acting.values()
        if decision.action == "redrive" and decision.records
    ]
    records = sync.row_cache.keep(regather(sync.spark, sync.raw, redriven, sync.decoder))
    refused: dict[int, Decision] = {}
    for seqno, txn in sorted(_incomplete(recalled, assembled, records, about_single_records).items()):
        why = f"it is of transaction {txn} by now, and not all of it: `zync replay` makes a staging with that whole"
        refused[seqno] = replace(acting.pop(seqno), acts=False, settles=None, refused=why)
    if refused:
        first = next(iter(refused.values()))
        log.warning("not redriven: %s; the first, %s: %s", amount(len(refused), "record"), first.txn, first.refused)
        records = records.join(_by_decision(sync, refused), "completes_at", "left_anti")
    judged = acting | refused
    decisions = tuple(judged.get(decision.seqno, decision) for decision in assembled.summary.decisions)
    errors = [
        (row["completes_at"], row["transaction_error"])
        for row in records.where("transaction_error IS NOT NULL").toLocalIterator()
    ]
    summary = replace(
        assembled.summary,
        decisions=decisions,
        ignored=assembled.summary.ignored - len(acting),
        completed=assembled.summary.completed + len(acting),
        bad_transactions=(*assembled.summary.bad_transactions, *dict(sorted(errors)).items()),
    )
    return replace(assembled, summary=summary), records.drop("own")


def _incomplete(
    recalled: Recalled, assembled: Assembled, records: DataFrame, decision_seqnos: set[int]
) -> dict[int, str]:
    """Returns the redrives of a single record that would send out only a part of its transaction.

    A record set aside without a transaction id may have got an id when the config was corrected. It is the whole
    transaction if `done` holds of that record alone, and neither this sync nor staging knows another record of the id.

    Args:
        recalled: The sync after stage recall.
        assembled: The new records of this sync.
        records: The records to redrive, with the id by the present config in `own`.
        decision_seqnos: The decisions about single records that were set aside without a transaction id.

    Returns:
        The transaction's id by the decision's seqno.
    """
    sync = recalled.sync
    if not decision_seqnos:
        return {}
    single = records.where("own IS NOT NULL").join(_by_decision(sync, decision_seqnos), "completes_at", "left_semi")
    single_rows = single.select("completes_at", "txn", "own").collect()
    if not single_rows:
        return {}
    rows = select(single, "* EXCEPT (own, completes_at, fate, opens_range, closes_range, has_row)", "false AS has_row")
    no_settled = from_rows(sync.spark, [], "txn string, settled_at bigint")
    alone = assemble(
        sync.spark, without_state(rows), no_settled, sync.config, sync.done, sync.row_cache, decided=False, tasks=1
    )
    whole = {row["txn"] for row in alone.rows.where("fate = 'whole'").select("txn").collect()}
    ids = sorted({row["own"] for row in single_rows})
    new_records = assembled.rows.join(from_rows(sync.spark, [(txn,) for txn in ids], "txn string"), "txn", "left_semi")
    known = {row["txn"] for row in new_records.select("txn").distinct().collect()}
    for table in (recalled.other_in_flight, sync.bookkeeping.settled):
        known |= set(table["txn"].filter(pc.is_in(table["txn"], pa.array(ids))).to_pylist())
    return {row["completes_at"]: row["own"] for row in single_rows if row["own"] in known or row["txn"] not in whole}


def _by_decision(sync: Sync, decision_seqnos: Collection[int]) -> DataFrame:
    """Returns the decisions' seqnos as a broadcast column `completes_at`, to join redriven records with."""
    return from_rows(sync.spark, [(seqno,) for seqno in decision_seqnos], "completes_at bigint").hint("broadcast")
