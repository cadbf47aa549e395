"""Keeps track of rows that Debezium sent again within a transaction in flight.

While all rows of a transaction come from a single run of its connector, each row once, sums over them decide whether it
is complete. If the connector was restarted inside the transaction, or its producer repeated rows because it got no
answer, each row is needed individually, the repeated ones included: see sql/judge/runs.sql.
"""

import json

import pyarrow as pa
import pyarrow.compute as pc

from zync.debezium.completion import MULTI_RUN
from zync.lake.ranges import RANGES_DDL, SeqnoRanges

KEPT_STATE = f"""CASE WHEN bool_or({MULTI_RUN}) THEN
    CAST(arrays_zip(sort_array(collect_list(CASE WHEN NOT member AND opens_range THEN seqno END)),
                    sort_array(collect_list(CASE WHEN NOT member AND closes_range THEN seqno END)))
         AS {RANGES_DDL}) END"""
"""SQL for the ranges of seqnos, in a transaction in flight, of records that were sent again.

They are the records that are not `member` in sql/apply_rules/in_flight.sql."""


def has_sent_again(in_flight: pa.Table) -> pa.ChunkedArray:
    """Whether the `state` of each transaction in flight lists records that were sent again, in addition to its own."""
    return pc.fill_null(pc.match_substring(in_flight["state"], '"again":[{'), False)  # noqa: FBT003 - Arrow's


def sent_again(in_flight: pa.Table) -> SeqnoRanges:
    """Returns the records that were sent again, from the transactions' `state`.

    Without the column `state` the result is empty.
    """
    transactions = in_flight.filter(has_sent_again(in_flight)) if "state" in in_flight.column_names else None
    states = transactions["state"].to_pylist() if transactions else []
    return SeqnoRanges.concat(SeqnoRanges.of_structs(json.loads(state)["done"]["again"]) for state in states)
