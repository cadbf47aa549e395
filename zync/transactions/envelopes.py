"""Debezium's envelopes as DataFrames: the expressions of `zync.debezium`, applied by Spark."""

from pyspark.sql import DataFrame

from zync.config.model import Config
from zync.debezium.completion import counted, rows_table
from zync.debezium.envelope import BODY, COMMON, NUMBERED, RECORD_ID, RUN, TOTAL_ORDER
from zync.spark.frames import select


def with_body(records: DataFrame) -> DataFrame:
    """The records with `body`, which all expressions here see.

    It is the envelope, or BEGIN or END, with or without the JSON converter's `schema` and `payload` around it.
    """
    return select(records, "*", f"{BODY} AS body")


def one_by_one(records: DataFrame, config: Config) -> DataFrame:
    """The records: rows with what tells one from others and from what was sent again of it, ENDs with what they say.

    The `total` of an END is null where it does not count by table: then its `count` is all that it says.
    """
    own = {
        "run": RUN,
        "total_order": TOTAL_ORDER,
        "record_id": RECORD_ID,
        "numbered": NUMBERED,
        "common": COMMON,
        "collection": rows_table(config),
    }
    of_rows = (f"CASE WHEN p0 IS NOT NULL THEN {text} END AS {column}" for column, text in own.items())
    said = f"named_struct('seqno', seqno, 'count', p3, 'total', {counted(config)})"
    of_ends = f"CASE WHEN p3 IS NOT NULL THEN {said} END AS said"
    return select(with_body(records), "* EXCEPT (body, record_id)", *of_rows, of_ends)
