"""Stage recall: joins the new records with what staging knows of their transactions."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from zync.spark.frames import from_rows, small_side
from zync.spark.sizing import Sizing
from zync.staging.held import awaits_turn, end_seqnos
from zync.sync.context import Sync
from zync.sync.read import Read


@dataclass(frozen=True)
class Recalled:
    """A sync after stage recall.

    Attributes:
        sync: The running sync.
        records: As of `Read`.
        reread_in_flight: As of `Read`.
        other_in_flight: As of `Read`.
        matched_in_flight: Those of `other_in_flight` that the new records may belong to.
        settled: (txn, settled_at) of the records' transactions that earlier syncs settled.
        sizing: How Spark works on `records`.
    """

    sync: Sync
    records: DataFrame
    reread_in_flight: pa.Table
    other_in_flight: pa.Table
    matched_in_flight: pa.Table
    settled: DataFrame
    sizing: Sizing


def recall(read: Read) -> Recalled:
    """Selects, for the transactions of the new records, when they were settled and which of them are in flight.

    A transaction that is whole and waits for its turn in the order of commit counts as settled.
    """
    sync, records, sizing = read.sync, read.records, read.sizing
    settled, in_flight = sync.bookkeeping.settled, read.other_in_flight
    if sync.in_commit_order:
        is_waiting = awaits_turn(in_flight)
        waiting, in_flight = in_flight.filter(is_waiting), in_flight.filter(pc.invert(is_waiting))
        settled = pa.concat_tables([settled, pa.table({"txn": waiting["txn"], "seqno": end_seqnos(waiting)})])
    if sizing.is_small and (settled.num_rows or in_flight.num_rows):
        records = sync.row_cache.keep(records)
        ids = records.where("NOT alone").select("txn").toArrow()["txn"]
        settled = settled.filter(pc.is_in(settled["txn"], ids))
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], ids))
    newest = settled.group_by("txn").aggregate([("seqno", "max")]).rename_columns({"seqno_max": "settled_at"})
    settled_rows = from_rows(sync.spark, newest.select(["txn", "settled_at"]), "txn string, settled_at bigint")
    if Sizing(newest.num_rows).is_small:
        settled_rows = small_side(settled_rows, single_task=sizing.is_single_task)
    return Recalled(sync, records, read.reread_in_flight, read.other_in_flight, in_flight, settled_rows, sizing)
