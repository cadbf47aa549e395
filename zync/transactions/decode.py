"""Stage decode: rows of raw to records with their transaction id, or with the reason why they have none."""

from collections.abc import Callable
from functools import reduce
from typing import cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from zync.config.model import PARTS, Config, DebeziumModes, Topic
from zync.config.topics import RESERVED, by_topic, claimed_by, configured
from zync.debezium.envelope import around, no_envelope
from zync.debezium.unavailable import (
    CLEAN,
    LEFT_OUT,
    has_envelopes,
    has_placeholder,
    names_left_out,
    without_placeholders,
)
from zync.errors import UsageError
from zync.formats.extras import require_protobuf
from zync.spark.errors import message_of
from zync.spark.expressions import expression, try_eval
from zync.spark.frames import leaves, result_of, with_leaves
from zync.spark.jvm import jvm_class
from zync.spark.times import LAST_SECOND, TIME_OF_DAY
from zync.sql import literal, statement
from zync.transactions.done import Done
from zync.transactions.envelope_schema import UNFIT, read_as, typed, without_moded
from zync.transactions.unpack import unpack

RAW_COLUMNS = (
    "seqno bigint, kafka struct<topic: string, partition: int, offset: bigint, timestamp: timestamp>, "
    "ingested timestamp, key binary, value binary, headers array<struct<key: string, value: binary>>"
)

_TOO_FAR = (
    f"{UNFIT}: a number is no timestamp, as it counts seconds to beyond the year 9999. Say BIGINT for milliseconds or "
    "microseconds, and timestamp_millis or timestamp_micros in the rule"
)
_NO_DATE = f"{UNFIT}: a time of day without a date is no timestamp"
_FROM_JSON = {
    "columnNameOfCorruptRecord": "_unfit",
    "mode": "PERMISSIVE",
    "enableDateTimeParsingFallback": "false",  # else the text "202601" would be so many days after 1970
}
"""How the values of a topic with a schema are read: what does not fit says so."""
_DECIDED = "variant_get(value, '$.txn', 'string')"
"""The transaction that an operator's decision is about."""


class Decoder:
    """Decodes and identifies rows of raw as the config says: once made, for as many syncs as there are."""

    def __init__(self, spark: SparkSession, config: Config, done: Done) -> None:
        """UsageError where an id or a schema of the config is none, or what a format needs is not installed."""
        self.spark, self.config = spark, config
        for topic, one in config.topics.items():
            for part in PARTS:
                if config.format(one, part) == "protobuf":
                    require_protobuf(topic, part)
        ids = {t: _as_string(spark, one.id, t, "id") for t, one in config.topics.items()}
        found = [f"{by_topic(config, ids, _DECIDED)} AS id"]
        recorded = any(topic.record_id for topic in config.topics.values())
        if recorded:
            named = {
                t: _as_string(spark, one.record_id, t, "record_id") if one.record_id else "CAST(NULL AS STRING)"
                for t, one in config.topics.items()
            }
            found.append(f"{by_topic(config, named)} AS record_id")
        brings = [sf.expr(part).alias(column) for column, part in done.brings.items()]
        with_schema = [(number, topic) for number, topic in enumerate(config.topics) if config.topics[topic].schema]
        structs = {f"as_{number}": _struct(spark, config, topic) for number, topic in with_schema}
        self._asked = [
            try_eval(spark, sf.struct(*map(sf.expr, found)), "seqno > 0").alias("found"),
            (try_eval(spark, sf.struct(*brings), "seqno > 0") if brings else sf.lit(True)).alias("brings"),
            *(struct.alias(column) for column, struct in structs.items()),
        ]
        own = _without_placeholders(config)
        more = done.decoded | own
        clean_text = "value_text"
        if own and any(one.schema for one in config.topics.values()):
            clean_text = f"CASE WHEN value_found IS NULL THEN coalesce(to_json({own[CLEAN]}), value_text) END"
        self._decode = statement(
            "decode/decode",
            more="".join(f", {text} AS {column}" for column, text in more.items()),
            clean_text=clean_text,
            **{f"{part}_changed": statement("decode/changed", text=f"{part}_text") for part in PARTS},
        )
        self._identify = statement(
            "decode/identify",
            configured=configured(config),
            reserved=RESERVED,
            single=claimed_by(config, [t for t, one in config.topics.items() if one.null_id == "single"]),
            record_id="found.record_id" if recorded else "CAST(NULL AS STRING)",
            unfit=f"coalesce({', '.join([*(f'{one}.unfit' for one in structs), 'CAST(NULL AS STRING)'])})",
            no_envelope=no_envelope(config),
            parts="".join(f", brings.{where} AS {column}" for column, where in done.parts.items()),
            structs="".join(f", {one}.value AS {one}" for one in structs) + "".join(f", {one}" for one in own),
        )

    def decode(self, rows: DataFrame) -> DataFrame:
        """The rows of raw `rows`, decoded and identified.

        Columns: those of sql/decode/decode.sql without value_text; `txn` (never null: a record by itself is called by
        its place in Kafka), `alone`, `fault` (why the record can be in no transaction; null if it can), `bad` (what is
        wrong with a record that has an id), `record_id`, `p0`… (what it brings to `done`), and for topics with a
        schema their struct, `as_<index>`; with the preset the names of fields left out, `as_left_out`, and
        the envelope without them, `as_clean`.
        """
        unpack(self.spark, rows, self.config).createOrReplaceTempView("new_records")
        result_of(self.spark, self._decode).select("*", *self._asked).createOrReplaceTempView("decoded")
        return result_of(self.spark, self._identify)


def _without_placeholders(config: Config) -> dict[str, str]:
    """Of a record in which the preset's connector may have left fields out: its envelope without, and their names."""
    envelopes = [name for name, topic in config.topics.items() if topic.envelope]
    if not envelopes:
        return {}
    mine = f"({has_placeholder(config, 'unpacked')}) AND ({claimed_by(config, envelopes)})"
    found = {CLEAN: without_placeholders(config, "value"), LEFT_OUT: names_left_out(config, "value")}
    return {column: f"CASE WHEN {mine} THEN {text} END" for column, text in found.items()}


def _as_string(spark: SparkSession, text: str, topic: str, field: str) -> str:
    return f"CAST({expression(spark, text, f'topics.{topic}.{field}')} AS STRING)"


def _struct(spark: SparkSession, config: Config, topic: str) -> Column:
    """The value of that topic's records as the struct its schema says, and why it does not fit; null where it does."""
    one, its_own = config.topics[topic], claimed_by(config, [topic])
    claimed = sf.expr(its_own)
    schema, text = schema_of(topic, one), config.is_text(one)
    checked: DataType | None = schema

    decoded = sf.expr(f"coalesce({CLEAN}, value)" if has_envelopes(config) else "value")

    def cast_to(kind: StructType) -> Column:
        return try_eval(spark, sf.variant_get(decoded, "$", _sql(spark, kind)), its_own)

    if text and one.envelope and (by_modes := _by_modes(spark, schema, config.debezium, its_own)) is not None:
        mine = by_modes["value"]
        why = sf.when(claimed & sf.expr("value_text IS NOT NULL"), sf.coalesce(by_modes["unfit"], sf.lit(UNFIT)))
        why = sf.nullif(why, sf.lit(""))
        checked = without_moded(schema, config.debezium)
    elif text:
        whole = StructType([*schema.fields, StructField("_unfit", StringType())])
        found = sf.from_json("value_text", whole, _FROM_JSON)
        mine = sf.when(claimed, found)
        why = sf.when(mine["_unfit"].isNotNull(), sf.lit(UNFIT))
    else:
        mine = cast_to(schema)
        why = sf.when(claimed & sf.expr("value IS NOT NULL") & mine.isNull(), sf.lit(UNFIT))
    value = sf.struct(*(mine.getField(field.name).alias(field.name) for field in schema.fields))
    if checked is not None and (texts := _texts(checked, integers=not text)):
        exact, kinds = cast_to(cast("StructType", texts)), leaves(checked)
        for check, of, reason in (
            (_is_rounded, DecimalType | IntegralType, UNFIT),
            (_counts_too_far, TimestampType, _TOO_FAR),
            (_has_no_date, TimestampType, _NO_DATE),
        ):
            if any(isinstance(kind, of) for kind in kinds):
                why = sf.coalesce(why, sf.when(_any(check, schema, texts, mine, exact), sf.lit(reason)))
    return sf.struct(why.alias("unfit"), sf.when(mine.isNotNull(), value).alias("value"))


def _by_modes(spark: SparkSession, schema: StructType, modes: DebeziumModes, its_own: str) -> Column | None:
    """A struct of the row's `value` and why it is `unfit`, empty where it fits; None where the modes do not matter."""
    wanted = cast("StructType", read_as(schema, modes))
    if wanted == with_leaves(schema, lambda leaf: leaf):
        return None
    whole = StructType([*wanted.fields, StructField("_unfit", StringType())])
    read = (
        f"from_json(value_text, {literal(whole.toDDL())}, "
        "map('columnNameOfCorruptRecord', '_unfit', 'mode', 'PERMISSIVE'))"
    )
    found = typed(schema, "w", modes)
    unfit = f"IF(w._unfit IS NOT NULL, {literal(UNFIT)}, coalesce({', '.join([*found.problems, literal('')])}))"
    both = f"transform(array({read}), w -> named_struct('unfit', {unfit}, 'value', {found.value}))[0]"
    return try_eval(spark, sf.expr(both), its_own)


def _sql(spark: SparkSession, kind: StructType) -> str:
    """The type as SQL, names quoted."""
    return str(jvm_class(spark, "org.apache.spark.sql.types.DataType").fromJson(kind.json()).sql())


def _texts(kind: DataType, *, integers: bool) -> DataType | None:
    """Of a type those that change in silence, as text; null where it has none: rounded numbers, seconds that overflow.

    `integers`: whether those of whole numbers are, too, and not refused.
    """
    if isinstance(kind, StructType):
        found = ((one.name, _texts(one.dataType, integers=integers)) for one in kind.fields)
        fields = [StructField(name, its) for name, its in found if its]
        return StructType(fields) if fields else None
    if isinstance(kind, ArrayType):
        its = _texts(kind.elementType, integers=integers)
        return its and ArrayType(its)
    if isinstance(kind, MapType):
        its = _texts(kind.valueType, integers=integers)
        return its and MapType(StringType(), its)
    changing = (DecimalType, TimestampType, IntegralType) if integers else (DecimalType, TimestampType)
    return StringType() if isinstance(kind, changing) else None


_Check = Callable[[DataType, Column, Column], Column | None]
"""Whether a value of a type is not what its text says; None where that cannot be."""


def _any(check: _Check, kind: DataType, texts: DataType, mine: Column, text: Column) -> Column:
    """Whether `check` holds for any leaf of `mine`, of type `kind`, and of `text`, of type `texts` (`_texts`)."""
    if isinstance(kind, StructType) and isinstance(texts, StructType):
        fields = (
            _any(check, kind[one.name].dataType, one.dataType, mine.getField(one.name), text.getField(one.name))
            for one in texts.fields
        )
        return reduce(lambda some, more: some | more, fields)
    if isinstance(kind, ArrayType) and isinstance(texts, ArrayType):
        of, its = kind.elementType, texts.elementType
        found = sf.exists(sf.zip_with(mine, text, lambda one, same: _any(check, of, its, one, same)), lambda one: one)
    elif isinstance(kind, MapType) and isinstance(texts, MapType):
        of, its = kind.valueType, texts.valueType
        found = sf.exists(sf.map_keys(mine), lambda key: _any(check, of, its, mine[key], text[key]))
    else:
        leaf = check(kind, mine, text)
        if leaf is None:
            return sf.lit(False)
        found = leaf
    return sf.coalesce(found, sf.lit(False))


def _is_rounded(kind: DataType, mine: Column, text: Column) -> Column | None:
    """Whether a number lost a digit that its text has."""
    if not isinstance(kind, DecimalType | IntegralType):
        return None
    most = kind.scale if isinstance(kind, DecimalType) else 0
    digits = sf.length(sf.rtrim(sf.regexp_extract(text, r"\.([0-9]*)", 1), sf.lit("0")))
    return sf.when(text.rlike("[eE]"), text.try_cast("double") != mine.cast("double")).otherwise(digits > most)


def _counts_too_far(kind: DataType, mine: Column, text: Column) -> Column | None:
    """Whether a timestamp comes of a number that is no second of the years 1 to 9999: Spark's wraps round."""
    if not isinstance(kind, TimestampType):
        return None
    beyond = sf.abs(text.try_cast("double")) > sf.lit(LAST_SECOND)
    return text.rlike(r"^-?[0-9.]+([eE][-+]?[0-9]+)?$") & beyond


def _has_no_date(kind: DataType, mine: Column, text: Column) -> Column | None:
    """Whether a timestamp comes of a time of day: Spark takes that of the day on which it is asked."""
    return text.rlike(TIME_OF_DAY) if isinstance(kind, TimestampType) else None


def schema_of(name: str, topic: Topic) -> StructType:
    """The struct type of that topic's values, by its `schema`; UsageError where that is not DDL."""
    text = str(topic.schema)
    try:
        schema = cast("StructType", StructType.fromDDL(text))
    except PySparkException as error:
        msg = f"topics.{name}.schema: {text!r} is not a schema in DDL: {message_of(error)}"
        raise UsageError(msg) from error
    names = [one.lower() for one in schema.names]
    if twice := sorted({one for one in names if names.count(one) > 1}):
        msg = f"topics.{name}.schema: {text!r} has {twice[0]!r} twice"
        raise UsageError(msg)
    return cast("StructType", StructType.fromDDL(around(text))) if topic.envelope else schema
