"""Debezium's envelopes as DataFrames: the expressions of `zync.debezium`, applied by Spark."""

from pyspark.sql import DataFrame

from zync.config.model import Config
from zync.debezium.completion import counted, rows_table
from zync.debezium.envelope import BODY, COMMON, NUMBERED, RECORD_ID, RUN, TOTAL_ORDER
from zync.spark.frames import select


def with_body(records: DataFrame) -> DataFrame:
    """Returns the records with the column `body`, which the expressions of `zync.debezium` read.

    `body` is the envelope, or the BEGIN or END message, without the `schema` and `payload` that the JSON converter may
    have put around it.
    """
    return select(records, "*", f"{BODY} AS body")


def with_row_identity(records: DataFrame, config: Config) -> DataFrame:
    """Returns the records with the columns by which sql/judge/runs.sql tells rows from repeats of them.

    Rows of tables get their run, total_order, record_id and so on. ENDs get `end_counts`: their seqno, their `count` of
    rows and their `total` by table. `total` is null where the END has no counts by table.
    """
    row_columns = {
        "run": RUN,
        "total_order": TOTAL_ORDER,
        "record_id": RECORD_ID,
        "numbered": NUMBERED,
        "common": COMMON,
        "collection": rows_table(config),
    }
    of_rows = (f"CASE WHEN p0 IS NOT NULL THEN {text} END AS {column}" for column, text in row_columns.items())
    end_counts = f"named_struct('seqno', seqno, 'count', p3, 'total', {counted(config)})"
    of_ends = f"CASE WHEN p3 IS NOT NULL THEN {end_counts} END AS end_counts"
    return select(with_body(records), "* EXCEPT (body, record_id)", *of_rows, of_ends)
