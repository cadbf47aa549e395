"""Stage read_new: reads and decodes the records after head."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from zync.spark.tuning import pace
from zync.staging.bookkeeping import records_in
from zync.sync.context import Sync
from zync.transactions.gather import read_with, recent


def read_new(sync: Sync) -> Sync:
    """The records after head, decoded with those that are in flight of transactions that began a short while ago.

    Those may well be whole now, and then their records are needed: to read them by themselves takes longer than to have
    their state. Where ids or `done` changed, all that is in flight is read again.
    """
    head, in_flight = sync.known.cursor.head, sync.known.in_flight
    again = pa.array([True] * in_flight.num_rows, pa.bool_()) if sync.changed else recent(in_flight, head)
    reread, others = in_flight.filter(again), in_flight.filter(pc.invert(again))
    sync = replace(sync, known=replace(sync.known, in_flight=others), reread=reread, earlier=records_in(reread))
    pace(sync.spark, sync.config.spark, sync.records)
    rows = read_with(sync.spark, sync.raw, reread, head, sync.head)
    return replace(sync, identified=sync.decoder.decode(rows))
