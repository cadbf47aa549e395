"""What is kept of a Debezium transaction in flight, so that its rows need not be read again with each that comes.

While its rows are of one run of the connector, sums over them say all that completion depends on. Where they are of
several (the connector was restarted in the middle), the rows are read again, those that were sent again too.
"""

import json

import pyarrow as pa
import pyarrow.compute as pc

STATE = {
    "rows": "bigint",
    "run": "string",
    "total_order": "bigint",
    "collection": "bigint",
    "ends": "array<struct<seqno: bigint, count: bigint, total: bigint>>",
}
"""What is kept of a transaction in flight while its rows are of one run: of all of them what `parts` is of one."""

_RUN = "CASE WHEN rows > 0 THEN run END"

STATE_NOW = f"""named_struct(
  'rows', sum(rows), 'run', min({_RUN}), 'total_order', max(total_order), 'collection', sum(collection),
  'ends', flatten(collect_list(ends)),
  'again', CASE WHEN min({_RUN}) <> max({_RUN}) THEN
    zip_with(array_sort(collect_list(CASE WHEN NOT member AND opens_range THEN seqno END)),
             array_sort(collect_list(CASE WHEN NOT member AND closes_range THEN seqno END)),
             (a, b) -> named_struct('first', a, 'last', b)) END)"""
"""That state over a transaction's rows in sql/bookkeep.sql.

`again`: where those are that were sent again (not `member`); null while all are of one run.
"""


def torn(states: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether each state is of several runs, so that the rows are needed one by one."""
    return pc.fill_null(pc.match_substring(states, '"again":['), False)  # noqa: FBT003 - Arrow's


def sent_again(states: pa.ChunkedArray) -> pa.Table:
    """Where those records are that the states say were sent again: (first, last)."""
    said = [json.loads(state)["again"] for state in states.filter(torn(states)).to_pylist()]
    rows = [one for each in said for one in each]
    return pa.Table.from_pylist(rows, schema=pa.schema([("first", pa.int64()), ("last", pa.int64())]))
