"""What operators decided about what is set aside: which of it goes out anew, and which decisions do not act."""

import logging
from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from zync.spark.frames import local, select
from zync.staging.set_aside import read_set_aside, seqnos
from zync.sync.context import Sync
from zync.text import amount
from zync.transactions.assemble import Assembled, assemble, without_state
from zync.transactions.gather import regather
from zync.transactions.summary import REVISITING, Decision

log = logging.getLogger(__name__)


def revisit(sync: Sync, assembled: Assembled) -> tuple[Assembled, DataFrame]:
    """Decisions about what is set aside: those that act; and the records of what is to go out anew."""
    asked = [one for one in assembled.summary.decisions if one.action in REVISITING and not one.flying]
    aside = read_set_aside(sync.staging, {one.txn for one in asked})
    acting: dict[int, Decision] = {}
    by_themselves: set[int] = set()
    for one in sorted(asked, key=lambda one: one.seqno):
        row = aside.late.get(one.txn)
        if one.records is None:  # the first that no other decision of this sync is about
            row = next((each for each in aside.quarantined.get(one.txn, ()) if each["records"]), None)
        set_aside = row["records"] if row else []
        records = set_aside if one.records is None else one.records
        if row and records and seqnos(records) <= seqnos(set_aside):
            row["records"] = [part for part in set_aside if part not in records]
            acting[one.seqno] = replace(one, acts=True, settles=one.seqno, records=records)
            if row["txn"] is None:
                by_themselves.add(one.seqno)
    ranges = [
        (one.txn, one.seqno, part["first"], part["last"])
        for one in acting.values()
        if one.action == "redrive"
        for part in one.records or ()
    ]
    records = sync.keeper.keep(regather(sync.spark, sync.raw, ranges, sync.decoder))
    refused: dict[int, Decision] = {}
    for seqno, txn in sorted(_torn(sync, assembled, records, by_themselves).items()):
        why = f"it is of transaction {txn} by now, and not all of it: `zync replay` makes a staging with that whole"
        refused[seqno] = replace(acting.pop(seqno), acts=False, settles=None, refused=why)
    if refused:
        first = next(iter(refused.values()))
        log.warning("not redriven: %s; the first, %s: %s", amount(len(refused), "record"), first.txn, first.refused)
        records = records.join(_decisions(sync, refused), "completes_at", "left_anti")
    judged = acting | refused
    decisions = tuple(judged.get(one.seqno, one) for one in assembled.summary.decisions)
    bad = [(row["completes_at"], row["bad"]) for row in records.where("bad IS NOT NULL").toLocalIterator()]
    summary = replace(
        assembled.summary,
        decisions=decisions,
        ignored=assembled.summary.ignored - len(acting),
        completed=assembled.summary.completed + len(acting),
        tainted=(*assembled.summary.tainted, *dict(sorted(bad)).items()),
    )
    return replace(assembled, summary=summary), records.drop("own")


def _torn(sync: Sync, assembled: Assembled, records: DataFrame, by_themselves: set[int]) -> dict[int, str]:
    """Of the decisions to redrive a record those about a part of a transaction: the transaction's id, by their seqnos.

    `by_themselves`: those about a record that was set aside without a transaction, and may have one since the config
    was mended. What is all of its transaction is no part: `done` holds of it alone, and no other record is known.
    """
    if not by_themselves:
        return {}
    mine = records.where("own IS NOT NULL").join(_decisions(sync, by_themselves), "completes_at", "left_semi")
    found = mine.select("completes_at", "txn", "own").collect()
    if not found:
        return {}
    rows = select(mine, "* EXCEPT (own, completes_at, fate, opens_range, closes_range, judged)", "false AS judged")
    nothing = local(sync.spark, [], "txn string, settled_at bigint")
    alone = assemble(
        sync.spark, without_state(rows), nothing, sync.config, sync.done, sync.keeper, decided=False, tasks=1
    )
    whole = {row["txn"] for row in alone.rows.where("fate = 'whole'").select("txn").collect()}
    ids = sorted({row["own"] for row in found})
    there = assembled.rows.join(local(sync.spark, [(one,) for one in ids], "txn string"), "txn", "left_semi")
    known = {row["txn"] for row in there.select("txn").distinct().collect()}
    for table in (sync.known.in_flight, sync.known.settled):
        known |= set(table["txn"].filter(pc.is_in(table["txn"], pa.array(ids))).to_pylist())
    return {row["completes_at"]: row["own"] for row in found if row["own"] in known or row["txn"] not in whole}


def _decisions(sync: Sync, seqnos: Collection[int]) -> DataFrame:
    return local(sync.spark, [(one,) for one in seqnos], "completes_at bigint").hint("broadcast")
