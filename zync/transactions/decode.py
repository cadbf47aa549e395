"""Decodes rows of raw to records with their transaction id, or with the reason why they have none."""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple, cast

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
from zync.spark.functions import parsed_json, register
from zync.spark.jvm import jvm_class
from zync.spark.times import LAST_SECOND, TIME_OF_DAY
from zync.sql import literal, statement
from zync.transactions.done import Done
from zync.transactions.envelope_schema import UNFIT, convert, json_type, without_mode_types
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
_DECISION_TXN = "variant_get(value, '$.txn', 'string')"
"""SQL of the transaction id that an operator's decision is about."""


class Decoder:
    """Decodes rows of raw and identifies their transactions by the config; a Decoder serves any number of syncs."""

    def __init__(self, spark: SparkSession, config: Config, done: Done) -> None:
        """Prepares the SQL.

        Raises:
            UsageError: an id or a schema of the config is invalid, or a package that a format needs is not installed.
        """
        self.spark, self.config = spark, config
        register(spark)
        for name, topic in config.topics.items():
            for key_or_value in PARTS:
                if config.format(topic, key_or_value) == "protobuf":
                    require_protobuf(name, key_or_value)
        ids = {name: _as_string(spark, topic.id, name, "id") for name, topic in config.topics.items()}
        identities = [f"{by_topic(config, ids, _DECISION_TXN)} AS id"]
        has_record_ids = any(topic.record_id for topic in config.topics.values())
        if has_record_ids:
            record_ids = {
                name: _as_string(spark, topic.record_id, name, "record_id")
                if topic.record_id
                else "CAST(NULL AS STRING)"
                for name, topic in config.topics.items()
            }
            identities.append(f"{by_topic(config, record_ids)} AS record_id")
        parts = [sf.expr(part).alias(column) for column, part in done.contributions.items()]
        with_schema = [(number, name) for number, name in enumerate(config.topics) if config.topics[name].schema]
        structs = {f"as_{number}": _struct(spark, config, name, f"as_{number}") for number, name in with_schema}
        self._parsed = [column for struct in structs.values() for column in struct.parsed]
        typed = {
            f"as_{number}_json": (claimed_by(config, [name]), _parsed_type(config, name))
            for number, name in with_schema
            if config.is_text(config.topics[name])
        }
        self._evaluated = [
            try_eval(spark, sf.struct(*map(sf.expr, identities)), "seqno > 0").alias("found"),
            (try_eval(spark, sf.struct(*parts), "seqno > 0") if parts else sf.lit(True)).alias("contributions"),
            *(struct.checked.alias(column) for column, struct in structs.items()),
        ]
        placeholder_columns = _without_placeholders(config)
        added_columns = done.decoded | placeholder_columns
        self._decode = statement(
            "read/decode",
            more="".join(f", {text} AS {column}" for column, text in added_columns.items()),
            typed="".join(
                f", CASE WHEN {is_claimed} THEN {parsed_json('value_text', schema)} END AS {column}"
                for column, (is_claimed, schema) in typed.items()
            ),
            value_json=_without_type({column: is_claimed for column, (is_claimed, _) in typed.items()}),
            typed_columns="".join(f", {column}" for column in typed),
        )
        self._identify = statement(
            "read/identify",
            configured=configured(config),
            reserved=RESERVED,
            single=claimed_by(config, [name for name, topic in config.topics.items() if topic.null_id == "single"]),
            record_id="found.record_id" if has_record_ids else "CAST(NULL AS STRING)",
            unfit=f"coalesce({', '.join([*(f'{column}.unfit' for column in structs), 'CAST(NULL AS STRING)'])})",
            no_envelope=no_envelope(config),
            parts="".join(f", contributions.{path} AS {column}" for column, path in done.parts.items()),
            structs="".join(f", {column}.value AS {column}" for column in structs)
            + "".join(f", {column}" for column in placeholder_columns),
        )

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decodes rows of raw, and identifies the transaction of each.

        Returns:
            Of sql/read/decode.sql the columns `seqno`, `kafka`, `topic`, `ingested`, `headers`, `key` and `value`, and:

            - `txn`: the transaction id, never null: the id of a single record is topic/partition/offset.
            - `alone`: whether the record is in no transaction, or one by itself.
            - `record_error`: the error of a record that cannot be in any transaction; null if it can.
            - `transaction_error`: the error of a record that has an id.
            - `decision`: what an operator decided, of a record of zync's own topic.
            - `record_id`.
            - `from_state`, `has_row`: false (sql/read/identify.sql).
            - `p0`, `p1`, …: the record's contributions to `done`.
            - `as_<index>`: for each topic with a schema the value as its struct.
            - with the preset `as_left_out`, the names of fields left out, and `as_clean`, the envelope without them.
        """
        unpack(self.spark, rows, self.config).createOrReplaceTempView("new_records")
        decoded = result_of(self.spark, self._decode).select("*", *self._parsed).select("*", *self._evaluated)
        decoded.createOrReplaceTempView("decoded")
        return result_of(self.spark, self._identify)


def _without_placeholders(config: Config) -> dict[str, str]:
    """Returns SQL by column: of the envelope without the fields that Debezium left out, and of these fields' names."""
    envelopes = [name for name, topic in config.topics.items() if topic.envelope]
    if not envelopes:
        return {}
    condition = f"({has_placeholder(config, 'unpacked')}) AND ({claimed_by(config, envelopes)})"
    columns = {CLEAN: without_placeholders(config, "value"), LEFT_OUT: names_left_out(config, "value")}
    return {column: f"CASE WHEN {condition} THEN {text} END" for column, text in columns.items()}


def _without_type(claimed: dict[str, str]) -> str:
    """Returns SQL of what `zync_json` says of a value, but for the struct: of one of these columns, or parsed here.

    Args:
        claimed: By the column with the struct as well: SQL that tells the records of the column's topic.
    """
    plain = parsed_json("value_text")
    cases = "".join(
        f" WHEN {is_claimed} THEN named_struct('value', {column}.value, 'error', {column}.error, "
        f"'decimals', {column}.decimals, 'odd_time', {column}.odd_time)"
        for column, is_claimed in claimed.items()
    )
    return f"CASE{cases} ELSE {plain} END" if cases else plain


def _as_string(spark: SparkSession, text: str, topic: str, field: str) -> str:
    return f"CAST({expression(spark, text, f'topics.{topic}.{field}')} AS STRING)"


class _Struct(NamedTuple):
    """A topic's values as the struct of its schema.

    Attributes:
        parsed: Columns that `checked` reads several times: the struct, and the texts that it is checked against.
        checked: A struct of the `value` and of the error `unfit`, null where it fits.
    """

    parsed: list[Column]
    checked: Column


def _parsed_type(config: Config, name: str) -> StructType:
    """Returns the type that the texts of a topic with a schema are parsed to."""
    topic = config.topics[name]
    schema = schema_of(name, topic)
    return cast("StructType", json_type(schema, config.debezium)) if topic.envelope else schema


def _struct(spark: SparkSession, config: Config, name: str, column: str) -> _Struct:
    """Returns the columns of a topic with a schema; their names begin with `column`.

    A value is compared with its text only where the parser saw a number or a time that a cast may change.
    """
    topic, is_claimed = config.topics[name], claimed_by(config, [name])
    schema, is_text = schema_of(name, topic), config.is_text(topic)
    checked: DataType | None = schema

    decoded = sf.expr(f"coalesce({CLEAN}, value)" if has_envelopes(config) else "value")

    def cast_to(kind: StructType) -> Column:
        return try_eval(spark, sf.variant_get(decoded, "$", _sql(spark, kind)), is_claimed)

    struct = sf.col(f"{column}_parsed")
    unfit = sf.when(struct.isNull(), sf.lit(UNFIT))
    if not is_text:
        parsed = cast_to(schema)
    else:
        parsed_type, text = _parsed_type(config, name), f"{column}_json.typed"
        if topic.envelope:
            clean = parsed_json(f"to_json({CLEAN})", parsed_type)
            text = f"CASE WHEN {CLEAN} IS NOT NULL THEN {clean}.typed ELSE {text} END"
        parsed = sf.expr(text)
        if topic.envelope and parsed_type != with_leaves(schema, lambda leaf: leaf):
            parsed = _by_modes(spark, schema, config.debezium, text, is_claimed)
            struct, by_modes = struct["value"], struct
            unfit = sf.nullif(sf.coalesce(by_modes["unfit"], sf.lit(UNFIT)), sf.lit(""))
            checked = without_mode_types(schema, config.debezium)
    unfit = sf.when(sf.expr(f"{is_claimed} AND value IS NOT NULL"), unfit)
    columns = [parsed.alias(f"{column}_parsed")]
    if checked is not None and (texts := _texts(checked, integers=not is_text)):
        kinds, suspicious = leaves(checked), sf.lit(True)
        if is_text:
            scales = [kind.scale for kind in kinds if isinstance(kind, DecimalType)]
            looks = [f"decimals > {min(scales)}"] if scales else []
            looks += ["odd_time"] if any(isinstance(kind, TimestampType) for kind in kinds) else []
            suspicious = sf.expr(" OR ".join(looks))
        text_struct = sf.col(f"{column}_texts")
        columns.append(sf.when(suspicious, cast_to(cast("StructType", texts))).alias(f"{column}_texts"))
        for check, checked_types, reason in (
            (_is_rounded, DecimalType | IntegralType, UNFIT),
            (_counts_too_far, TimestampType, _TOO_FAR),
            (_has_no_date, TimestampType, _NO_DATE),
        ):
            if any(isinstance(kind, checked_types) for kind in kinds):
                fails = text_struct.isNotNull() & _any_leaf(check, schema, texts, struct, text_struct)
                unfit = sf.coalesce(unfit, sf.when(fails, sf.lit(reason)))
    return _Struct(columns, sf.struct(unfit.alias("unfit"), struct.alias("value")))


def _by_modes(spark: SparkSession, schema: StructType, modes: DebeziumModes, parsed: str, is_claimed: str) -> Column:
    """Returns a struct of the `value` by Debezium's modes and of the error `unfit`, which is empty where it fits.

    Args:
        spark: The session.
        schema: The topic's schema.
        modes: Debezium's modes.
        parsed: SQL of the value as `json_type(schema, modes)`, null where it does not fit.
        is_claimed: SQL that tells the topic's records.
    """
    conversion = convert(schema, "w", modes)
    unfit = f"IF(w IS NULL, {literal(UNFIT)}, coalesce({', '.join([*conversion.problems, literal('')])}))"
    struct = f"transform(array({parsed}), w -> named_struct('unfit', {unfit}, 'value', {conversion.value}))[0]"
    return try_eval(spark, sf.expr(struct), is_claimed)


def _sql(spark: SparkSession, kind: StructType) -> str:
    """Returns the type in SQL, with quoted names."""
    return str(jvm_class(spark, "org.apache.spark.sql.types.DataType").fromJson(kind.json()).sql())


def _texts(kind: DataType, *, integers: bool) -> DataType | None:
    """Returns `kind` with text in place of the types that a cast can change in silence; None where it has none.

    Casts round decimals, and wrap around timestamps. `integers`: whether casts also round to whole numbers; `from_json`
    refuses to.
    """
    if isinstance(kind, StructType):
        types = ((field.name, _texts(field.dataType, integers=integers)) for field in kind.fields)
        fields = [StructField(name, text_type) for name, text_type in types if text_type]
        return StructType(fields) if fields else None
    if isinstance(kind, ArrayType):
        element_type = _texts(kind.elementType, integers=integers)
        return element_type and ArrayType(element_type)
    if isinstance(kind, MapType):
        value_type = _texts(kind.valueType, integers=integers)
        return value_type and MapType(StringType(), value_type)
    changing = (DecimalType, TimestampType, IntegralType) if integers else (DecimalType, TimestampType)
    return StringType() if isinstance(kind, changing) else None


_Check = Callable[[DataType, Column, Column], Column | None]
"""Returns whether a value of a type differs from its text (type, value, text); None where it cannot differ."""


def _any_leaf(check: _Check, kind: DataType, texts: DataType, value: Column, text: Column) -> Column:
    """Returns whether `check` holds for any leaf of `value`, of type `kind`, and `text`, of type `texts` (`_texts`)."""
    if isinstance(kind, StructType) and isinstance(texts, StructType):
        fields = (
            _any_leaf(
                check, kind[field.name].dataType, field.dataType, value.getField(field.name), text.getField(field.name)
            )
            for field in texts.fields
        )
        return reduce(lambda left, right: left | right, fields)
    if isinstance(kind, ArrayType) and isinstance(texts, ArrayType):
        item_type, item_texts = kind.elementType, texts.elementType
        checks = sf.zip_with(
            value, text, lambda item, item_text: _any_leaf(check, item_type, item_texts, item, item_text)
        )
        condition = sf.exists(checks, lambda fails: fails)
    elif isinstance(kind, MapType) and isinstance(texts, MapType):
        item_type, item_texts = kind.valueType, texts.valueType
        condition = sf.exists(
            sf.map_keys(value), lambda key: _any_leaf(check, item_type, item_texts, value[key], text[key])
        )
    else:
        leaf_condition = check(kind, value, text)
        if leaf_condition is None:
            return sf.lit(False)
        condition = leaf_condition
    return sf.coalesce(condition, sf.lit(False))


def _is_rounded(kind: DataType, value: Column, text: Column) -> Column | None:
    """Returns whether a number lost a digit that its text has."""
    if not isinstance(kind, DecimalType | IntegralType):
        return None
    scale = kind.scale if isinstance(kind, DecimalType) else 0
    digits = sf.length(sf.rtrim(sf.regexp_extract(text, r"\.([0-9]*)", 1), sf.lit("0")))
    return sf.when(text.rlike("[eE]"), text.try_cast("double") != value.cast("double")).otherwise(digits > scale)


def _counts_too_far(kind: DataType, value: Column, text: Column) -> Column | None:
    """Returns whether a timestamp comes from a number of seconds outside the years 1 to 9999: it overflows in Spark."""
    if not isinstance(kind, TimestampType):
        return None
    beyond = sf.abs(text.try_cast("double")) > sf.lit(LAST_SECOND)
    return text.rlike(r"^-?[0-9.]+([eE][-+]?[0-9]+)?$") & beyond


def _has_no_date(kind: DataType, value: Column, text: Column) -> Column | None:
    """Returns whether a timestamp comes from a time of day, to which Spark adds the current date."""
    return text.rlike(TIME_OF_DAY) if isinstance(kind, TimestampType) else None


def schema_of(name: str, topic: Topic) -> StructType:
    """Returns the struct type of a topic's values by its `schema`.

    Raises:
        UsageError: the schema is not DDL, or has a name twice.
    """
    text = str(topic.schema)
    try:
        schema = cast("StructType", StructType.fromDDL(text))
    except PySparkException as error:
        msg = f"topics.{name}.schema: {text!r} is not a schema in DDL: {message_of(error)}"
        raise UsageError(msg) from error
    columns = [column.lower() for column in schema.names]
    if repeated := sorted({column for column in columns if columns.count(column) > 1}):
        msg = f"topics.{name}.schema: {text!r} has {repeated[0]!r} twice"
        raise UsageError(msg)
    return cast("StructType", StructType.fromDDL(around(text))) if topic.envelope else schema
