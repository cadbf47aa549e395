"""Debezium transactions with rows that came twice: what was sent again, and where that is.

While a transaction's rows are of one run of its connector, each once, sums over them say all that its completion
depends on. When the connector was restarted in the middle, or its producer sent rows once more as it had no answer, the
transaction's rows are needed one by one, those that were sent again too: see sql/judge/runs.sql.
"""

import json

import pyarrow as pa
import pyarrow.compute as pc

from zync.debezium.completion import TORN

AGAIN = f"""CASE WHEN bool_or({TORN}) THEN
    CAST(arrays_zip(sort_array(collect_list(CASE WHEN NOT member AND opens_range THEN seqno END)),
                    sort_array(collect_list(CASE WHEN NOT member AND closes_range THEN seqno END)))
         AS array<struct<first: bigint, last: bigint>>) END"""
"""Where, of a transaction in flight, those records are that were sent again (not `member` in
sql/bookkeeping/in_flight.sql)."""


def has_sent_again(in_flight: pa.Table) -> pa.ChunkedArray:
    """Whether each transaction in flight has records, by its `state`, that were sent again, beside its own."""
    return pc.fill_null(pc.match_substring(in_flight["state"], '"again":[{'), False)  # noqa: FBT003 - Arrow's


def sent_again(in_flight: pa.Table) -> pa.Table:
    """Where those records are that the transactions' `state`, if it is there, says were sent again: (first, last)."""
    some = in_flight.filter(has_sent_again(in_flight)) if "state" in in_flight.column_names else None
    states = some["state"].to_pylist() if some else []
    rows = [one for state in states for one in json.loads(state)["done"]["again"]]
    return pa.Table.from_pylist(rows, schema=pa.schema([("first", pa.int64()), ("last", pa.int64())]))
