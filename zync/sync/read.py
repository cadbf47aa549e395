"""Stage read: reads and decodes the records after head."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from zync.spark.sizing import Sizing, tune
from zync.staging.bookkeeping import records_in
from zync.sync.context import Sync
from zync.transactions.gather import read_with, recent


@dataclass(frozen=True)
class Read:
    """A sync after stage read.

    Attributes:
        sync: The running sync.
        records: The new records and those of `reread_in_flight`, decoded, with their transaction ids.
        reread_in_flight: Transactions in flight whose records are judged again with the new records.
        other_in_flight: The other transactions in flight.
        sizing: How Spark works on `records`.
    """

    sync: Sync
    records: DataFrame
    reread_in_flight: pa.Table
    other_in_flight: pa.Table
    sizing: Sizing


def read(sync: Sync) -> Read:
    """Reads and decodes the records after head, together with those of transactions in flight that began recently.

    Those transactions probably complete now, and then their records are needed: reading them in a second pass takes
    longer than using the state of their aggregates saves. If ids or `done` changed in the config, the records of all
    transactions in flight are read again.
    """
    head, in_flight = sync.bookkeeping.cursor.head, sync.bookkeeping.in_flight
    reread = pa.array([True] * in_flight.num_rows, pa.bool_()) if sync.rejudges_all else recent(in_flight, head)
    reread_in_flight = in_flight.filter(reread)
    sizing = Sizing(sync.new_count + records_in(reread_in_flight))
    tune(sync.spark, sync.config.spark, sizing)
    rows = read_with(sync.spark, sync.raw, reread_in_flight, head, sync.head)
    return Read(sync, sync.decoder.decode(rows), reread_in_flight, in_flight.filter(pc.invert(reread)), sizing)
