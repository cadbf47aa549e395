"""Avro, by Spark's own module for it: what the bytes mean by a schema."""

import json
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructType, TimeType

from zync.errors import UsageError, ZyncError
from zync.formats.registry import Schema
from zync.spark.errors import message_of
from zync.spark.expressions import try_eval
from zync.spark.frames import with_leaves
from zync.spark.jvm import jvm_class

_DIGITS = 38
_HOLDS_TYPES = ("type", "fields", "items", "values")
"""What of a schema in Avro says types."""
_OF_DEBEZIUM = {
    "io.debezium.time.Date int": "date",
    "io.debezium.time.Timestamp long": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp long": "local-timestamp-micros",
}
"""Avro's logical types by Connect's name and Avro's type; without a zone, as the columns in the database are."""
_END = bytes.fromhex("5a1f9c44e03b47d28b6ed0a791c3f86d")
"""By chance in no value."""
_SAID_MOST = 200
_OF_AVRO = ("org.apache.avro.", "org.apache.spark.sql.avro.")
"""Where errors about a schema come from; others are of the surroundings."""


def avro_of_file(spark: SparkSession, column: str, path: Path, text: str) -> Column:
    """As `avro`, by the schema that the file at `path` has, its `text`."""
    try:
        return avro(spark, column, Schema("AVRO", text))
    except UsageError as error:
        msg = f"{path}: not a schema of Avro that Spark can use: {error}"
        raise UsageError(msg) from error


def _as_spark_has_it(schema: Any) -> Any:
    """The schema, with decimals of no more digits than Spark has: Connect says 64 where nobody said how many.

    And with Debezium's dates and times as such, which only Connect's name says. The bytes are the same; a number that
    has more digits is no value of it.
    """
    if isinstance(schema, list):
        return [_as_spark_has_it(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") == "decimal" and isinstance(schema.get("precision"), int):
        schema = {**schema, "precision": min(schema["precision"], _DIGITS)}
    elif logical := _OF_DEBEZIUM.get(f"{schema.get('connect.name')} {schema.get('type')}"):
        schema = {"logicalType": logical, **schema}
    return {key: _as_spark_has_it(its) if key in _HOLDS_TYPES else its for key, its in schema.items()}


def _is_utf8(value: Column, kind: DataType) -> Column:
    """Whether all text in it is: VARIANT has text of letters, and what is none would become others."""
    if isinstance(kind, StringType):
        found = sf.is_valid_utf8(value)
    elif isinstance(kind, StructType):
        found = reduce(and_, (_is_utf8(value[one.name], one.dataType) for one in kind.fields), sf.lit(True))
    elif isinstance(kind, ArrayType):
        found = sf.forall(value, lambda one: _is_utf8(one, kind.elementType))
    elif isinstance(kind, MapType):
        keys, values = sf.map_keys(value), sf.map_values(value)
        found = sf.forall(keys, sf.is_valid_utf8) & sf.forall(values, lambda one: _is_utf8(one, kind.valueType))
    else:
        return sf.lit(True)
    return sf.coalesce(found, sf.lit(True))


def avro(spark: SparkSession, data: str, schema: Schema) -> Column:
    """What Avro bytes mean: a struct whose `v` is that, as VARIANT; null where they are not as the schema says.

    UsageError where the schema cannot be used.
    """

    def in_variant(leaf: DataType) -> DataType:
        return StringType() if isinstance(leaf, TimeType | NullType) else leaf

    try:
        parser = jvm_class(spark, "org.apache.avro.Schema$Parser")()
        for _, text in schema.references:
            parser.parse(text)
        # As a field, so that a null that is meant is told from one that is not; and behind it what does not read as
        # that where the value ends sooner or later than its bytes.
        field = {"name": "v", "type": _as_spark_has_it(json.loads(parser.parse(schema.text).toString()))}
        behind = {"name": "behind", "type": {"type": "fixed", "name": "zync_end", "size": len(_END)}}
        around = json.dumps({"type": "record", "name": "zync_value", "fields": [field, behind]})
        kind = spark.range(0).select(from_avro(sf.lit(None).cast("binary"), around)).schema[0].dataType
        inner = cast("StructType", kind)["v"].dataType
        decoded = from_avro(sf.expr(f"{data} || X'{_END.hex()}'"), around, {"mode": "FAILFAST"})
        decoded = decoded.cast(with_leaves(kind, in_variant))
        nested = isinstance(inner, StructType | ArrayType | MapType)

        def meant(one: Column) -> Column:
            value = sf.to_variant_object(one["v"]) if nested else one["v"].cast("variant")
            found = sf.struct(sf.coalesce(value, sf.parse_json(sf.lit("null"))).alias("v"))
            return sf.when(_is_utf8(one["v"], inner) & (one["behind"] == sf.lit(_END)), found)

        decoded_once = sf.transform(sf.array(decoded), meant)[0]  # and used twice
        found = try_eval(spark, decoded_once, f"{data} IS NOT NULL")
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
        said = " ".join(error.java_exception.getMessage().split())  # of several lines, the schema at last
        raise UsageError(said[:_SAID_MOST]) from error
    return found
