"""Debezium transactions with rows that came twice: what was sent again, and where that is.

While a transaction's rows are of one run of its connector, each once, sums over them say all that its completion
depends on. When the connector was restarted in the middle, or its producer sent rows once more as it had no answer, the
transaction's rows are needed one by one, those that were sent again too: see sql/runs.sql.
"""

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from zync.frames import select
from zync.transactions.debezium.completion import COUNTED, ROWS_TABLE, TORN
from zync.transactions.debezium.envelope import NUMBERED, RECORD_ID, RUN, TOTAL_ORDER, with_body

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AGAIN = f"""CASE WHEN bool_or({TORN}) THEN
    CAST(arrays_zip(sort_array(collect_list(CASE WHEN NOT member AND opens_range THEN seqno END)),
                    sort_array(collect_list(CASE WHEN NOT member AND closes_range THEN seqno END)))
         AS array<struct<first: bigint, last: bigint>>) END"""
"""Where, of a transaction in flight, those records are that were sent again (in sql/in_flight.sql, not `member`)."""


def one_by_one(records: "DataFrame") -> "DataFrame":
    """The records: rows with what tells one from others and from what was sent again of it, ENDs with what they say."""
    own = {
        "run": RUN,
        "total_order": TOTAL_ORDER,
        "record_id": RECORD_ID,
        "numbered": NUMBERED,
        "collection": ROWS_TABLE,
    }
    of_rows = (f"CASE WHEN p0 IS NOT NULL THEN {text} END AS {column}" for column, text in own.items())
    said = f"named_struct('seqno', seqno, 'count', p3, 'total', coalesce({COUNTED}, 0L))"
    of_ends = f"CASE WHEN p3 IS NOT NULL THEN {said} END AS said"
    return select(with_body(records), "* EXCEPT (body, record_id)", *of_rows, of_ends)


def has_sent_again(in_flight: pa.Table) -> pa.ChunkedArray:
    """Whether each transaction in flight has records, by its `state`, that were sent again, beside its own."""
    return pc.fill_null(pc.match_substring(in_flight["state"], '"again":[{'), False)  # noqa: FBT003 - Arrow's


def sent_again(in_flight: pa.Table) -> pa.Table:
    """Where those records are that the transactions' `state`, if it is there, says were sent again: (first, last)."""
    some = in_flight.filter(has_sent_again(in_flight)) if "state" in in_flight.column_names else None
    states = some["state"].to_pylist() if some else []
    rows = [one for state in states for one in json.loads(state)["done"]["again"]]
    return pa.Table.from_pylist(rows, schema=pa.schema([("first", pa.int64()), ("last", pa.int64())]))
