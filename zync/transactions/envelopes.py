"""Debezium's envelopes as DataFrames: the expressions of `zync.debezium`, applied by Spark."""

from pyspark.sql import DataFrame

from zync.debezium.completion import COUNTED, ROWS_TABLE
from zync.debezium.envelope import BODY, NUMBERED, RECORD_ID, RUN, TOTAL_ORDER
from zync.spark.frames import select


def with_body(records: DataFrame) -> DataFrame:
    """The records with `body`, which all expressions here see.

    It is the envelope, or BEGIN or END, with or without the JSON converter's `schema` and `payload` around it.
    """
    return select(records, "*", f"{BODY} AS body")


def one_by_one(records: DataFrame) -> DataFrame:
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
