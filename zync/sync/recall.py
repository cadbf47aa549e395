"""Stage recall: joins the new records with what staging knows of their transactions."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.functions import max as max_of

from zync.lake.files import data_files
from zync.spark.frames import from_rows, read_parquet, small_side
from zync.spark.sizing import Sizing
from zync.sql import literal
from zync.staging.held import awaits_turn, end_seqnos
from zync.staging.kinds import SETTLED_KINDS
from zync.sync.context import Sync
from zync.sync.read import Read

MOST_SENT = 250_000
"""Settled transactions, or ones in flight, that are sent to Spark, whose JVM holds them. If there are more of the
first, Spark reads them from staging; if there are more of the other, those are sent that the new records may belong
to."""


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
    as_settled = settled.slice(0, 0)
    if sync.in_commit_order:
        is_waiting = awaits_turn(in_flight)
        waiting, in_flight = in_flight.filter(is_waiting), in_flight.filter(pc.invert(is_waiting))
        as_settled = pa.table({"txn": waiting["txn"], "seqno": end_seqnos(waiting)})
    if sizing.is_small and (settled.num_rows or as_settled.num_rows or in_flight.num_rows):
        records = sync.row_cache.keep(records)
        ids = _ids(records).toArrow()["txn"]
        settled = settled.filter(pc.is_in(settled["txn"], ids))
    elif in_flight.num_rows + as_settled.num_rows > MOST_SENT:
        ids = _ids(records).distinct().toArrow()["txn"]  # by decoding them once more
    else:
        ids = None
    if ids is not None:
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], ids))
        as_settled = as_settled.filter(pc.is_in(as_settled["txn"], ids))
    if settled.num_rows > MOST_SENT and not sizing.is_small:
        rows = _stored(sync).unionByName(from_rows(sync.spark, as_settled, "txn string, seqno bigint"))
        newest_rows = rows.groupBy("txn").agg(max_of("seqno").alias("settled_at"))
    else:
        newest = pa.concat_tables([settled, as_settled]).group_by("txn").aggregate([("seqno", "max")])
        newest = newest.rename_columns({"seqno_max": "settled_at"}).select(["txn", "settled_at"])
        newest_rows = from_rows(sync.spark, newest, "txn string, settled_at bigint")
        if Sizing(newest.num_rows).is_small:
            newest_rows = small_side(newest_rows, single_task=sizing.is_single_task)
    return Recalled(sync, records, read.reread_in_flight, read.other_in_flight, in_flight, newest_rows, sizing)


def _ids(records: DataFrame) -> DataFrame:
    """Returns the ids of the transactions of records, as a column `txn`."""
    return records.where("NOT alone").select("txn")


def _stored(sync: Sync) -> DataFrame:
    """Returns the rows (txn, seqno) of `Bookkeeping.settled`, as Spark reads them from staging."""
    above = sync.bookkeeping.cursor.head - sync.config.transactions.remember
    files = [file.uri for file in data_files(sync.staging, "seqno", above=above)]
    rows = read_parquet(sync.spark, files, "kind string, txn string, seqno bigint, state string")
    kinds = ", ".join(map(literal, SETTLED_KINDS))
    return rows.where(f"kind IN ({kinds}) AND txn IS NOT NULL AND state IS NULL AND seqno > {above}").select(
        "txn", "seqno"
    )
