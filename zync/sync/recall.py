"""Stage recall: joins the new records with what staging knows of their transactions."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from zync.spark.frames import beside, local
from zync.spark.tuning import SMALL
from zync.staging.held import held, places
from zync.sync.context import Sync, there


def recall(sync: Sync) -> Sync:
    """What staging knows of these records' transactions: when they were settled, and which of them are in flight."""
    settled, in_flight, identified = sync.known.settled, sync.known.in_flight, there(sync.identified)
    if sync.in_order:
        whole = held(in_flight)
        waiting, in_flight = in_flight.filter(whole), in_flight.filter(pc.invert(whole))
        settled = pa.concat_tables([settled, pa.table({"txn": waiting["txn"], "seqno": places(waiting)})])
    if sync.small and (settled.num_rows or in_flight.num_rows):
        identified = sync.keeper.keep(identified)
        ids = identified.where("NOT alone").select("txn").toArrow()["txn"]
        settled = settled.filter(pc.is_in(settled["txn"], ids))
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], ids))
    newest = settled.group_by("txn").aggregate([("seqno", "max")]).rename_columns({"seqno_max": "settled_at"})
    settled_rows = local(sync.spark, newest.select(["txn", "settled_at"]), "txn string, settled_at bigint")
    if newest.num_rows <= SMALL:
        settled_rows = beside(settled_rows, one_task=sync.one_task)
    return replace(sync, identified=identified, met=in_flight, settled=settled_rows)
