"""`zync query`: runs Spark SQL over raw, staging, the decoded views or the delivered tables."""

from collections import Counter
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from zync.config.model import Config
from zync.deliver.tables import snapshots
from zync.errors import UsageError, ZyncError
from zync.lake.files import data_files
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.rules.json_text import as_json
from zync.rules.run import bind_lookups
from zync.rules.views import VIEW_COLUMNS, bind_views
from zync.spark.causes import causes, is_environment_error
from zync.spark.errors import message_of, spark_errors
from zync.spark.frames import read_parquet, spark_schema
from zync.sql import literal, name, statement
from zync.staging.kinds import SETTLED_KINDS
from zync.staging.table import STAGING_SCHEMA
from zync.transactions.decode import RAW_COLUMNS, Decoder
from zync.transactions.done import understand


def query(spark: SparkSession, config: Config, text: str) -> DataFrame:
    """Runs a SELECT over raw, staging and the views that rules see, and returns its result.

    The tables are `raw` and `staging`; the views are `records` and that of each topic. In the views `seqno` is that of
    the record's transaction if it is settled, and null otherwise; `record_seqno` is the record's own.

    Args:
        spark: A session made by `zync.spark_session`, whose temporary views are replaced.
        config: The config, whose lake is read.
        text: The SELECT.

    Raises:
        UsageError: the text is not a single query, or Spark cannot analyze it.

    Example:
        >>> zync.query(spark, config, "SELECT count(*) AS records FROM raw").collect()
        [Row(records=3)]
    """
    raw = _bind(spark, "raw", config, RAW_COLUMNS)
    _bind(spark, "staging", config, spark_schema(STAGING_SCHEMA))
    if config.topics:
        decoded = Decoder(spark, config, understand(spark, config)).decode(raw)
        structs = [column for column in decoded.columns if column.startswith("as_")]
        columns = [column for column in VIEW_COLUMNS if "seqno" not in column]
        members = spark.sql(statement("operate/members", settled_kinds=", ".join(map(literal, SETTLED_KINDS))))
        records = decoded.join(members, decoded["seqno"] == members["member"], "left").selectExpr(
            "settled_at AS seqno", "seqno AS record_seqno", *columns, *structs
        )
        bind_views(records, config, [text])
        bind_lookups(spark, config)
    return _run(spark, text)


def query_tables(spark: SparkSession, config: Config, text: str) -> DataFrame:
    """Runs a SELECT over the delivered tables, at the versions in the newest snapshot, and returns its result.

    Args:
        spark: A session made by `zync.spark_session`, whose temporary views are replaced.
        config: The config, whose lake is read.
        text: The SELECT.

    Raises:
        UsageError: the text is not a single query, or nothing was delivered yet.
        ZyncError: a table cannot be read at its version.

    Example:
        >>> zync.query_tables(spark, config, "SELECT customerID FROM `order` ORDER BY 1").collect()
        [Row(customerID=1)]
    """
    folder = locate(snapshots.FOLDER, config.lake)
    for topic, version in snapshots.at(f"{folder}/{snapshots.NAME}", None).versions.items():
        try:
            rows = spark.read.format("delta").option("versionAsOf", version).load(f"{folder}/{topic}")
        except spark_errors() as error:
            msg = f"version {version} of {folder}/{topic}, which the newest snapshot names: {message_of(error)}"
            raise ZyncError(msg) from error
        rows.createOrReplaceTempView(name(topic))
    return _run(spark, text)


def _run(spark: SparkSession, text: str) -> DataFrame:
    """Runs the text, which must be a query: `parseQuery` rejects other statements."""
    try:
        spark._jsparkSession.sessionState().sqlParser().parseQuery(text.strip().rstrip(";"))  # noqa: SLF001
        return spark.sql(text.strip().rstrip(";"))
    except spark_errors() as error:
        msg = f"the query cannot run: {message_of(error)}"
        raise UsageError(msg) from error


def _bind(spark: SparkSession, table_name: str, config: Config, columns: str | StructType) -> DataFrame:
    """Makes a temporary view of a table's rows; the view is empty if the table does not exist."""
    table = open_table(locate(table_name, config.lake))
    files = [file.uri for file in data_files(table, "seqno")] if table else []
    rows = read_parquet(spark, files, columns)
    rows.createOrReplaceTempView(table_name)
    return rows


def rows_of(result: DataFrame) -> list[str]:
    """Returns the result's rows, each as the text of a JSON object.

    Raises:
        UsageError: several columns have the same name, or the query fails on a value.
        ZyncError: the query fails for another reason.
    """
    duplicates = [column for column, count in Counter(map(str.lower, result.columns)).items() if count > 1]
    if duplicates:
        msg = f"{duplicates[0]!r} is the name of several columns: give each its own (AS) for --json"
        raise UsageError(msg)
    return [row[0] for row in _collect(result, as_json([*map(name, result.columns)]))]


def table_of(result: DataFrame) -> str:
    """Returns the result as a table for people.

    Raises:
        UsageError: the query fails on a value.
        ZyncError: the query fails for another reason.
    """
    rows: list[list[Any]] = [result.columns]
    numbered = result.toDF(*map(str, range(len(result.columns))))  # several columns may have the same name
    texts = [f"CAST({name(column)} AS STRING)" for column in numbered.columns]
    rows += [["null" if value is None else value for value in row] for row in _collect(numbered, *texts)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(result.columns))]
    lines = ["  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _collect(result: DataFrame, *columns: str) -> list[Row]:
    try:
        return result.selectExpr(*columns).collect()
    except spark_errors() as error:
        error_text = message_of(error)
        if any((cause.condition or "").endswith("FILE_NOT_EXIST") for cause in causes(error)):
            error_text = (
                f"a file of a table is gone ({error_text.partition('. ')[0]}): if somebody vacuumed a delivered table, "
                "`zync sync-to tables staging` names newer versions; `zync verify` says what is damaged"
            )
        msg = f"the query failed: {error_text}"
        raise (ZyncError if is_environment_error(error) else UsageError)(msg) from error
