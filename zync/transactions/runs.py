"""Debezium transactions with rows that came twice: what was sent again, and where that is.

While a transaction's rows are of one run of its connector, each once, sums over them say all that its completion
depends on. When the connector was restarted in the middle, or its producer sent rows once more as it had no answer, the
transaction's rows are needed one by one, those that were sent again too: see sql/runs.sql.
"""

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from zync.transactions.debezium import NUMBERED, RECORD_ID, ROWS_TABLE, TORN, TOTAL_ORDER, with_body

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AGAIN = f"""CASE WHEN bool_or({TORN}) THEN
    CAST(arrays_zip(sort_array(collect_list(CASE WHEN NOT member AND opens_range THEN seqno END)),
                    sort_array(collect_list(CASE WHEN NOT member AND closes_range THEN seqno END)))
         AS array<struct<first: bigint, last: bigint>>) END"""
"""Where, of a transaction in flight, those records are that were sent again (in sql/in_flight.sql, not `member`)."""


def one_by_one(records: "DataFrame") -> "DataFrame":
    """The records with what tells a row from others, and from what was sent again of it."""
    from pyspark.sql import functions as sf  # noqa: PLC0415

    return (
        with_body(records)
        .withColumns(
            {
                "total_order": sf.expr(TOTAL_ORDER),
                "record_id": sf.expr(RECORD_ID),
                "numbered": sf.expr(NUMBERED),
                "collection": sf.expr(f"CASE WHEN {TOTAL_ORDER} IS NOT NULL THEN {ROWS_TABLE} END"),
            }
        )
        .drop("body")
    )


def sent_again(in_flight: pa.Table) -> pa.Table:
    """Where those records are that the transactions' `state`, if it is there, says were sent again: (first, last)."""
    states = in_flight["state"] if "state" in in_flight.column_names else pa.chunked_array([], pa.string())
    some = states.filter(pc.fill_null(pc.match_substring(states, '"again":[{'), False))  # noqa: FBT003 - Arrow's
    rows = [one for state in some.to_pylist() for one in json.loads(state)["done"]["again"]]
    return pa.Table.from_pylist(rows, schema=pa.schema([("first", pa.int64()), ("last", pa.int64())]))
