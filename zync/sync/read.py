"""Stage read: reads and decodes the records after head."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from zync.spark.tuning import pace
from zync.staging.bookkeeping import records_in
from zync.sync.context import Sync
from zync.transactions.gather import read_with, recent


def read(sync: Sync) -> Sync:
    """Reads and decodes the records after head, together with those of transactions in flight that began recently.

    Those transactions probably complete now, and then their records are needed: reading them in a second pass takes
    longer than using the state of their aggregates saves. If ids or `done` changed in the config, the records of all
    transactions in flight are read again.
    """
    head, in_flight = sync.bookkeeping.cursor.head, sync.bookkeeping.in_flight
    reread = pa.array([True] * in_flight.num_rows, pa.bool_()) if sync.rejudges_all else recent(in_flight, head)
    reread_in_flight, other_in_flight = in_flight.filter(reread), in_flight.filter(pc.invert(reread))
    sync = replace(
        sync,
        bookkeeping=replace(sync.bookkeeping, in_flight=other_in_flight),
        reread_in_flight=reread_in_flight,
        earlier_count=records_in(reread_in_flight),
    )
    pace(sync.spark, sync.config.spark, sync.record_count)
    rows = read_with(sync.spark, sync.raw, reread_in_flight, head, sync.head)
    return replace(sync, identified_records=sync.decoder.decode(rows))
