"""What the bytes of keys and values are, by topic: text that is JSON, or what another format makes of them."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from zync.config import Config
from zync.errors import DataError, UsageError, ZyncError
from zync.registry import Schema, registry
from zync.spark import jvm_class, message_of, with_leaves
from zync.sql import literal, try_eval
from zync.transactions.connect import Connect, schema_of, understand
from zync.transactions.topics import by_topic, claimed_by

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

Part = Literal["key", "value"]

_FRAMED = {"avro": "AVRO", "json-schema": "JSON"}
"""Formats of a schema registry's clients, who write a zero byte and the schema's id first; the registry's names."""

_UNPACKED_MOST = 256 * 1024 * 1024
"""What a compressed value may have at most when it is unpacked, in bytes."""

_IDS_END = 2**31
"""Registries count so far: a number beyond is no schema's, and not asked for."""

_UNKNOWN_MOST = 1_000
"""Schema ids that the registry does not know, beyond which it is not asked on: the bytes mean something else."""

_OF_AVRO = ("org.apache.avro.", "org.apache.spark.sql.avro.")
"""Where errors about a schema come from; others are of the surroundings."""


@dataclass(frozen=True)
class _Decoding:
    """Expressions: text that is yet to be parsed as JSON; what was decoded (VARIANT); why nothing can be."""

    text: str = "CAST(NULL AS STRING)"
    found: str = "CAST(NULL AS VARIANT)"
    fault: str = "CAST(NULL AS STRING)"


@dataclass
class _Schemas:
    """The schemas of one kind that some rows name: what decodes by each id, or why none can."""

    columns: "dict[int, Column]" = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)


def unpack(spark: "SparkSession", rows: "DataFrame", config: Config) -> "DataFrame":
    """The rows of raw with what their topics' formats make of `key` and `value`.

    For each of the two, columns `…_text` (text that is yet to be parsed as JSON; null where another format decodes),
    `…_found` (VARIANT: what another format decoded) and `…_fault` (why it cannot be decoded). ZyncError where the
    schema registry does not answer.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415

    rows = rows.withColumns({"topic": sf.col("kafka.topic"), "unpacked": sf.col("value")})
    packed = [topic for topic, one in config.topics.items() if one.compression == "gzip"]
    if packed:
        mine = sf.expr(claimed_by(config, packed))  # within: Spark gives Python every row, whatever is around it
        rows = rows.withColumn(
            "unpacked", sf.when(mine, _gunzip(sf.when(mine, sf.col("value")))).otherwise(sf.col("value"))
        )
    return _decoded(spark, _decoded(spark, rows, config, "key", "key"), config, "value", "unpacked")


def _decoded(spark: "SparkSession", rows: "DataFrame", config: Config, part: Part, column: str) -> "DataFrame":
    """The rows with the columns of `part`, whose bytes are in `column`."""
    columns, decodings = rows.columns, dict[str, _Decoding]()
    framed: dict[str, list[str]] = {}
    connect: list[str] = []
    for number, (topic, one) in enumerate(config.topics.items()):
        kind, avro = config.format(one, part), f"found_{number}"
        if kind == "avro" and part == "value" and one.avro_schema:
            rows = rows.withColumn(avro, _avro_of_file(spark, column, one.avro_schema))
            says = literal(f"value is not Avro as {one.avro_schema.name} says")
            decodings[topic] = _Decoding(
                found=f"CASE WHEN {column} IS NOT NULL THEN {avro}.v END",
                fault=f"CASE WHEN {column} IS NOT NULL AND {avro} IS NULL THEN {says} END",
            )
        elif kind in _FRAMED:
            framed.setdefault(kind, []).append(topic)
        elif kind == "connect-json":
            connect.append(topic)
        else:
            decodings[topic] = _plain(kind, part, column)
    for registered, topics in framed.items():
        schemas = _schemas(spark, rows.where(claimed_by(config, topics)), config, registered, column)
        rows = rows.withColumn("found_by_id", _by_id(schemas, column)) if registered == "avro" else rows
        decodings |= dict.fromkeys(topics, _framed(schemas, registered, part, column))
    if connect:
        mine = claimed_by(config, connect)
        rows = rows.selectExpr("*", f"CASE WHEN {mine} THEN CAST({column} AS STRING) END AS connect_text")
        rows = rows.selectExpr("*", f"{schema_of('connect_text')} AS connect_schema")
        rows, decoding = _connect(rows, understand(spark, rows.where(mine), "connect_text"), part)
        decodings |= dict.fromkeys(connect, decoding)
    for topic, one in config.topics.items() if part == "value" else ():
        if one.compression == "gzip":
            at = decodings[topic]
            fault = f"CASE WHEN value IS NOT NULL AND {column} IS NULL THEN 'value is not gzip' ELSE {at.fault} END"
            decodings[topic] = replace(at, fault=fault)
    expressions = {
        "text": by_topic(config, {topic: one.text for topic, one in decodings.items()}, f"CAST({column} AS STRING)"),
        "found": by_topic(config, {topic: one.found for topic, one in decodings.items()}),
        "fault": by_topic(config, {topic: one.fault for topic, one in decodings.items()}),
    }
    if set(decodings.values()) <= {_plain("json", part, column)}:  # as most are: nothing to tell apart
        expressions = vars(_plain("json", part, column))
    return rows.selectExpr(*columns, *(f"{text} AS {part}_{what}" for what, text in expressions.items()))


def _plain(kind: str, part: Part, column: str) -> _Decoding:
    """Of bytes that say themselves what they are."""
    text = f"CAST({column} AS STRING)"
    if kind == "bytes":
        return _Decoding(found=f"CAST({column} AS VARIANT)")
    if kind == "string":
        valid = f"is_valid_utf8({text})"
        return _Decoding(
            found=f"CASE WHEN {valid} THEN CAST({text} AS VARIANT) END",
            fault=f"CASE WHEN NOT {valid} THEN '{part} is not UTF-8' END",
        )
    return _Decoding(text=text)


def _framed(schemas: _Schemas, kind: str, part: Part, column: str) -> _Decoding:
    """Of bytes that a schema registry's clients wrote."""
    problems = "".join(f" WHEN {number} THEN {literal(why)}" for number, why in schemas.problems.items())
    unframed = f"{part} does not begin with a zero byte and a schema's id, as a schema registry's clients write it"
    not_so = f"CASE WHEN found_by_id IS NULL THEN concat('{part} is not Avro as schema ', {_id(column)}, ' says') END"
    fault = (
        f"CASE WHEN {column} IS NULL THEN NULL WHEN NOT ({_is_framed(column)}) THEN {literal(unframed)} "
        f"ELSE coalesce(CASE {_id(column)} WHEN -1 THEN NULL{problems} END, {not_so if kind == 'avro' else 'NULL'}) END"
    )
    if kind == "avro":
        return _Decoding(found=f"CASE WHEN {column} IS NOT NULL THEN found_by_id.v END", fault=fault)
    return _Decoding(text=f"CAST({_body(column)} AS STRING)", fault=fault)


def _connect(rows: "DataFrame", schemas: Connect, part: Part) -> "tuple[DataFrame, _Decoding]":
    """The rows with what their column `connect_text` means by the schemas in it, and how to decode by that."""
    from pyspark.sql import functions as sf  # noqa: PLC0415

    payload = "try_variant_get(try_parse_json(connect_text), '$.payload', 'variant')"
    found = sf.expr(f"CASE WHEN connect_schema IS NULL AND {payload} IS NOT NULL THEN struct({payload} AS v) END")
    for text, decoded in schemas.columns.items():
        found = sf.when(sf.expr(f"connect_schema = {literal(text)}"), decoded).otherwise(found)
    found = sf.when(sf.expr("is_valid_utf8(connect_text)"), found)
    problems = "".join(f" WHEN {literal(text)} THEN {literal(why)}" for text, why in schemas.problems.items())
    fault = (
        "CASE WHEN connect_text IS NULL OR connect_found IS NOT NULL THEN NULL "
        f"WHEN try_parse_json(connect_text) IS NULL THEN '{part} is not one JSON value' "
        f"WHEN {payload} IS NULL THEN '{part} is not an object with schema and payload, as Connect writes it' "
        f"ELSE CASE connect_schema WHEN '' THEN NULL{problems} ELSE '{part} is not as the schema beside it says' END "
        "END"
    )
    decoding = _Decoding(found="CASE WHEN connect_text IS NOT NULL THEN connect_found.v END", fault=fault)
    return rows.withColumn("connect_found", found), decoding


def _is_framed(column: str) -> str:
    return f"length({column}) >= 5 AND substring({column}, 1, 1) = X'00'"


def _id(column: str) -> str:
    return f"CAST(conv(hex(substring({column}, 2, 4)), 16, 10) AS BIGINT)"


def _body(column: str) -> str:
    return f"substring({column}, 6)"


def _schemas(spark: "SparkSession", rows: "DataFrame", config: Config, kind: str, column: str) -> _Schemas:
    """The schemas that those rows name, from the registry."""
    if config.registry is None:
        msg = f"topics of format {kind} need a schema registry: say registry.url in the config"
        raise UsageError(msg)
    asked, found, unknown = registry(config.registry), _Schemas(), 0
    for row in rows.where(_is_framed(column)).selectExpr(f"{_id(column)} AS id").distinct().collect():
        number = row["id"]
        schema = asked.schema(number) if number < _IDS_END else None
        if schema is None:
            found.problems[number] = f"the schema registry knows no schema {number}"
            unknown += 1
        elif schema.kind != _FRAMED[kind]:
            found.problems[number] = f"schema {number} is one of {schema.kind}, not {_FRAMED[kind]}"
        elif kind == "avro":
            try:
                found.columns[number] = _avro(spark, _body(column), schema)
            except UsageError as error:
                found.problems[number] = f"schema {number} cannot be used: {error}"
        if unknown > _UNKNOWN_MOST:
            msg = (
                f"the schema registry knows none of more than {_UNKNOWN_MOST:,} schema ids: are all the topics that "
                f"should be {kind} really so? Nothing was changed"
            )
            raise DataError(msg)
    return found


def _by_id(schemas: _Schemas, column: str) -> "Column":
    """What the schema of its id makes of each row, as `_avro`; null where that fails."""
    from pyspark.sql import functions as sf  # noqa: PLC0415

    found = None
    for number, decoded in schemas.columns.items():
        its = sf.expr(f"{_is_framed(column)} AND {_id(column)} = {number}")
        found = sf.when(its, decoded) if found is None else found.when(its, decoded)
    return sf.expr("CAST(NULL AS STRUCT<v: VARIANT>)") if found is None else found


def _avro_of_file(spark: "SparkSession", column: str, path: Path) -> "Column":
    try:
        return _avro(spark, column, Schema("AVRO", path.read_text(encoding="utf-8")))
    except UsageError as error:
        msg = f"{path}: not a schema of Avro that Spark can use: {error}"
        raise UsageError(msg) from error


def _avro(spark: "SparkSession", data: str, schema: Schema) -> "Column":
    """What Avro bytes mean: a struct whose `v` is that, as VARIANT; null where they are not as the schema says.

    UsageError where the schema cannot be used.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import AnalysisException  # noqa: PLC0415
    from pyspark.sql import functions as sf  # noqa: PLC0415
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415
    from pyspark.sql.types import ArrayType, MapType, NullType, StringType, StructType, TimeType  # noqa: PLC0415

    def in_variant(leaf: "DataType") -> "DataType":
        return StringType() if isinstance(leaf, TimeType | NullType) else leaf

    try:
        parser = jvm_class(spark, "org.apache.avro.Schema$Parser")()
        for text in schema.references:
            parser.parse(text)
        # A field around it: the same bytes, and a null that is meant is told from one that is not.
        field = {"name": "v", "type": json.loads(parser.parse(schema.text).toString())}
        around = json.dumps({"type": "record", "name": "zync_value", "fields": [field]})
        kind = spark.range(0).select(from_avro(sf.lit(None).cast("binary"), around)).schema[0].dataType
        inner = cast("StructType", kind)["v"].dataType
        decoded = from_avro(sf.expr(data), around, {"mode": "FAILFAST"}).cast(with_leaves(kind, in_variant))
        nested = isinstance(inner, StructType | ArrayType | MapType)
        value = sf.to_variant_object(decoded["v"]) if nested else decoded["v"].cast("variant")
        found = try_eval(spark, sf.struct(sf.coalesce(value, sf.parse_json(sf.lit("null"))).alias("v")))
        empty = [f"CAST(NULL AS BINARY) AS {column}" for column in ("key", "value", "unpacked")]
        spark.range(0).selectExpr(*empty).select(found)  # so that what is wrong with the schema is known here
    except TypeError as error:  # PySpark's way to say that the class is not there
        msg = "Avro needs Spark's own module for it: add org.apache.spark:spark-avro_2.13 to this cluster's jars"
        raise ZyncError(msg) from error
    except AnalysisException as error:
        raise UsageError(message_of(error)) from error
    except Py4JJavaError as error:
        if not error.java_exception.getClass().getName().startswith(_OF_AVRO):
            raise
        raise UsageError(error.java_exception.getMessage().splitlines()[0]) from error
    return found


def _gunzip(column: "Column") -> "Column":
    """What was compressed by gzip; null for what was not, or would be too large. In Python: Spark has no way."""
    import zlib  # noqa: PLC0415

    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415

    most, of_gzip = _UNPACKED_MOST, 16 + zlib.MAX_WBITS

    def gunzip(values: pa.Array) -> pa.Array:  # sent to where there may be no zync, so all it needs is in here

        def one(data: bytes) -> bytes | None:
            found = b""
            try:
                while len(found) <= most:  # members may stand behind each other, zeroes behind them: RFC 1952, 2.2
                    member = zlib.decompressobj(of_gzip)
                    found += member.decompress(data, most + 1 - len(found))
                    data = member.unused_data.lstrip(b"\0")
                    if not (member.eof and data):
                        return found if member.eof and len(found) <= most else None
            except zlib.error:
                pass
            return None

        return pa.array([None if value is None else one(value) for value in values.to_pylist()], pa.binary())

    return cast("Column", arrow_udf(gunzip, "binary")(column))  # type: ignore[call-overload]
