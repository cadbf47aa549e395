"""Stage recall: joins the new records with what staging knows of their transactions."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from zync.spark.frames import beside, local
from zync.spark.tuning import SMALL
from zync.staging.held import held, places
from zync.sync.context import Sync, require


def recall(sync: Sync) -> Sync:
    """Selects, for the transactions of the new records, when they were settled and which of them are in flight.

    A transaction that is whole and waits for its turn in the order of commit counts as settled.
    """
    settled, in_flight = sync.bookkeeping.settled, sync.bookkeeping.in_flight
    records = require(sync.identified_records)
    if sync.in_commit_order:
        is_waiting = held(in_flight)
        waiting, in_flight = in_flight.filter(is_waiting), in_flight.filter(pc.invert(is_waiting))
        settled = pa.concat_tables([settled, pa.table({"txn": waiting["txn"], "seqno": places(waiting)})])
    if sync.is_small and (settled.num_rows or in_flight.num_rows):
        records = sync.keeper.keep(records)
        ids = records.where("NOT alone").select("txn").toArrow()["txn"]
        settled = settled.filter(pc.is_in(settled["txn"], ids))
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], ids))
    newest = settled.group_by("txn").aggregate([("seqno", "max")]).rename_columns({"seqno_max": "settled_at"})
    settled_rows = local(sync.spark, newest.select(["txn", "settled_at"]), "txn string, settled_at bigint")
    if newest.num_rows <= SMALL:
        settled_rows = beside(settled_rows, one_task=sync.uses_single_task)
    return replace(sync, identified_records=records, matched_in_flight=in_flight, settled_transactions=settled_rows)
