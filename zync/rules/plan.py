"""The rules' columns and types, found by planning them over no records."""

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
    """No records, decoded, and what each rule makes of them: the columns that it has, and their types."""
    empty = Decoder(spark, config, done).decode(read_parquet(spark, [], RAW_COLUMNS))
    structs = [column for column in empty.columns if column.startswith("as_")]
    same = [column for column in VIEW_COLUMNS if "seqno" not in column]
    bind_views(empty.selectExpr("seqno", "seqno AS record_seqno", *same, *structs), config, rule_texts(config))
    bind_lookups(spark, config)
    return empty, run_rules(spark, config)
