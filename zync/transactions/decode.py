"""Stage decode: rows of raw to records with their transaction id, or with the reason why they have none."""

from typing import TYPE_CHECKING, cast

from zync.config import Config, Topic
from zync.spark import with_leaves
from zync.sql import expression, name, statement, try_eval
from zync.transactions.debezium import with_body
from zync.transactions.done import Done
from zync.transactions.formats import unpack
from zync.transactions.topics import any_of, by_topic, matches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

RAW_COLUMNS = (
    "seqno bigint, kafka struct<topic: string, partition: int, offset: bigint, timestamp: timestamp>, "
    "ingested timestamp, key binary, value binary, headers array<struct<key: string, value: binary>>"
)

_DECIDED = "variant_get(value, '$.txn', 'string')"
"""The transaction that an operator's decision is about."""

_DIGITS = 38
"""The most that a decimal of Spark can have."""


def decode(spark: "SparkSession", rows: "DataFrame", config: Config, done: Done) -> "DataFrame":
    """The rows of raw `rows`, decoded and identified.

    Columns: those of sql/decode.sql without value_text; `txn` (never null: a record by itself is called by its
    place in Kafka), `alone`, `fault` (why the record can be in no transaction; null if it can), `bad` (what is
    wrong with a record that has an id), `record_id`, `p0`… (what it brings to `done`), and for topics with a
    schema their struct, `as_<index>`.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415

    unpack(spark, rows, config).createOrReplaceTempView("new_records")
    decoded = spark.sql(statement("decode"))
    if done.preset:
        decoded = with_body(decoded)
    expressions = [
        ("id", by_topic(config, {t: _as_string(spark, one.id, t, "id") for t, one in config.topics.items()}, _DECIDED))
    ]
    if any(topic.record_id for topic in config.topics.values()):
        named = {
            t: _as_string(spark, one.record_id, t, "record_id") if one.record_id else "CAST(NULL AS STRING)"
            for t, one in config.topics.items()
        }
        expressions.append(("record_id", by_topic(config, named)))
    decoded = decoded.withColumn(
        "found", try_eval(spark, sf.struct(*(sf.expr(text).alias(column) for column, text in expressions)))
    )
    if done.parts:
        parts = [sf.expr(part).alias(column) for column, part in done.parts.items()]
        decoded = decoded.withColumn("parts", try_eval(spark, sf.struct(*parts)))
    else:
        decoded = decoded.withColumn("parts", sf.lit(True))
    structs = []
    for index, (topic, one) in enumerate(config.topics.items()):
        if one.schema:
            structs.append(f"as_{index}")
            text = config.format(one, "value") in ("json", "json-schema")
            decoded = decoded.withColumn(
                f"as_{index}", _struct(spark, topic, one) if text else _cast(spark, topic, one)
            )
    decoded.createOrReplaceTempView("decoded")
    return spark.sql(
        statement(
            "identify",
            configured=any_of(list(config.topics)),
            single=any_of([t for t, one in config.topics.items() if one.null_id == "single"]),
            record_id="found.record_id" if len(expressions) > 1 else "CAST(NULL AS STRING)",
            unfit=" OR ".join(f"{name(one)}.unfit" for one in structs) or "false",
            parts="".join(f", parts.{column}" for column in done.parts),
            structs="".join(f", {name(one)}.value AS {name(one)}" for one in structs),
        )
    )


def _as_string(spark: "SparkSession", text: str, topic: str, field: str) -> str:
    return f"CAST({expression(spark, text, f'topics.{topic}.{field}')} AS STRING)"


def _struct(spark: "SparkSession", topic: str, one: Topic) -> "Column":
    """The value of that topic's records as the struct its schema says, and whether it does not fit."""
    from pyspark.sql import functions as sf  # noqa: PLC0415
    from pyspark.sql.types import StringType, StructField, StructType  # noqa: PLC0415

    schema = schema_of(spark, topic, str(one.schema))

    def parsed(as_: StructType) -> "Column":
        whole = StructType([*as_.fields, StructField("_unfit", StringType())])
        found = sf.from_json("value_text", whole, {"columnNameOfCorruptRecord": "_unfit", "mode": "PERMISSIVE"})
        return sf.when(sf.expr(matches(topic)), found)

    mine, widest = parsed(schema), cast("StructType", _widest(schema))
    value = sf.struct(*(mine.getField(field.name).alias(field.name) for field in schema.fields))
    unfit = mine["_unfit"].isNotNull()
    if widest != schema:  # from_json rounds decimals in silence: compare with all the digits that there are
        wide = sf.struct(*(parsed(widest).getField(field.name).alias(field.name) for field in schema.fields))
        unfit = unfit | (sf.to_json(value.cast(widest)) != sf.to_json(wide))
    return sf.struct(unfit.alias("unfit"), sf.when(mine.isNotNull(), value).alias("value"))


def _cast(spark: "SparkSession", topic: str, one: Topic) -> "Column":
    """What `_struct` gives, of a value that was no text."""
    from pyspark.sql import functions as sf  # noqa: PLC0415

    schema = schema_of(spark, topic, str(one.schema))
    value = sf.when(sf.expr(matches(topic)), sf.try_variant_get("value", "$", schema.simpleString()))
    unfit = sf.expr(f"{matches(topic)} AND value IS NOT NULL") & value.isNull()
    return sf.struct(unfit.alias("unfit"), value.alias("value"))


def _widest(kind: "DataType") -> "DataType":
    """The type with decimals of all the fractional digits that leave room for as many others as it has."""
    from pyspark.sql.types import DecimalType  # noqa: PLC0415

    def wide(leaf: "DataType") -> "DataType":
        return DecimalType(_DIGITS, _DIGITS - leaf.precision + leaf.scale) if isinstance(leaf, DecimalType) else leaf

    return with_leaves(kind, wide)


def schema_of(spark: "SparkSession", topic: str, text: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """The struct type that a topic's `schema` says; UsageError where it is not DDL."""
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    from zync.errors import UsageError  # noqa: PLC0415
    from zync.spark import message_of  # noqa: PLC0415

    try:
        return StructType.fromDDL(text)
    except PySparkException as error:
        msg = f"topics.{topic}.schema: {text!r} is not a schema in DDL: {message_of(error)}"
        raise UsageError(msg) from error
