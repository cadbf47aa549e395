"""Plans the rules over no records, to learn the columns and types of their results."""

from pyspark.sql import DataFrame, SparkSession

from zync.config.model import Config, OutputRule
from zync.rules.run import bind_lookups, rule_texts, run_rules
from zync.rules.views import VIEW_COLUMNS, bind_views
from zync.spark.frames import read_parquet
from zync.transactions.decode import RAW_COLUMNS, Decoder
from zync.transactions.done import Done


def rules_over_nothing(
    spark: SparkSession, config: Config, done: Done
) -> tuple[DataFrame, list[tuple[OutputRule, DataFrame]]]:
    """Decodes no records and plans each rule over them.

    Args:
        spark: The session, whose temporary views are replaced.
        config: The config.
        done: The config's `done`.

    Returns:
        The empty decoded records, and each rule with its empty result.

    Raises:
        UsageError: A rule cannot be planned, or a lookup table cannot be read.
    """
    empty = Decoder(spark, config, done).decode(read_parquet(spark, [], RAW_COLUMNS))
    structs = [column for column in empty.columns if column.startswith("as_")]
    view_columns = [column for column in VIEW_COLUMNS if "seqno" not in column]
    bind_views(empty.selectExpr("seqno", "seqno AS record_seqno", *view_columns, *structs), config, rule_texts(config))
    bind_lookups(spark, config)
    return empty, run_rules(spark, config)
