"""Avro, by Spark's own module for it: what the bytes mean by a schema."""

import json
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, IntegralType, MapType, NullType, StringType, StructType, TimeType

from zync.errors import UsageError, ZyncError
from zync.formats.decode.debezium_types import (
    CONNECT,
    CONNECT_UNITS,
    NAMED,
    VARIABLE_DECIMAL,
    time,
    time_of_day,
    variable_decimal,
)
from zync.formats.registry import Schema
from zync.spark.errors import message_of
from zync.spark.expressions import try_eval
from zync.spark.frames import with_leaves
from zync.spark.jvm import jvm_class
from zync.sql import aliased, literal, name

_DIGITS = 38
_DEPTH_MOST = 50
"""Levels of a schema: one that refers to itself has no end, and Spark refuses it."""
_HOLDS_TYPES = ("type", "fields", "items", "values")
"""What of a schema in Avro says types."""
_CONNECT_TIMES = {*CONNECT_UNITS, "Time"}
"""Connect's own types that are numbers in Avro."""
_CONNECT_TYPES = {"int": "int32", "long": "int64"}
"""Connect's names of Avro's types of whole numbers."""
_END = bytes.fromhex("5a1f9c44e03b47d28b6ed0a791c3f86d")
"""By chance in no value."""
_COLUMNS = ("key", "value", "unpacked", "key_with_header", "value_with_header")
"""The columns that bytes in Avro may be in."""
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
    """The schema, with decimals of no more digits than Spark has, and Connect's times as numbers.

    Connect says 64 digits where nobody said how many. The bytes are the same; a number that has more digits is no value
    of it. No time of Spark's is infinite, nor 24:00 (see `_meant`).
    """
    if isinstance(schema, list):
        return [_as_spark_has_it(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") == "decimal" and isinstance(schema.get("precision"), int):
        schema = {**schema, "precision": min(schema["precision"], _DIGITS)}
    if _connect_name(schema) in _CONNECT_TIMES:
        schema = {key: its for key, its in schema.items() if key != "logicalType"}
    return {key: _as_spark_has_it(its) if key in _HOLDS_TYPES else its for key, its in schema.items()}


def _connect_name(schema: dict[str, Any]) -> str | None:
    """The name of Connect's own type that a schema is of; None of others."""
    name = str(schema.get("connect.name"))
    return name.removeprefix(CONNECT) if name.startswith(CONNECT) else None


def _is_utf8(value: str, kind: DataType, depth: int = 0) -> str:
    """Whether all text in it is: VARIANT has text of letters, and what is none would become others."""
    item = f"u{depth}"
    found = "true"
    if isinstance(kind, StringType):
        found = f"is_valid_utf8({value})"
    elif isinstance(kind, StructType):
        parts = [_is_utf8(f"{value}.{name(one.name)}", one.dataType, depth) for one in kind.fields]
        found = " AND ".join(part for part in parts if part != "true") or "true"
    elif isinstance(kind, ArrayType):
        inner = _is_utf8(item, kind.elementType, depth + 1)
        found = f"forall({value}, {item} -> {inner})" if inner != "true" else inner
    elif isinstance(kind, MapType):
        inner = _is_utf8(item, kind.valueType, depth + 1)
        found = f"forall(map_keys({value}), {item} -> is_valid_utf8({item}))"
        found += f" AND forall(map_values({value}), {item} -> {inner})" if inner != "true" else ""
    return found if found == "true" else f"coalesce({found}, true)"


def _named_types(schema: Any, within: str = "") -> dict[str, Any]:
    """The named types in a schema, by the full names and the short ones that it may refer to them by."""
    if isinstance(schema, list):
        return {key: its for one in schema for key, its in _named_types(one, within).items()}
    if not isinstance(schema, dict):
        return {}
    found: dict[str, Any] = {}
    if isinstance(schema.get("name"), str) and schema.get("type") in ("record", "enum", "fixed"):
        within = schema.get("namespace", within)
        full = schema["name"] if "." in schema["name"] or not within else f"{within}.{schema['name']}"
        within = full.rpartition(".")[0]
        found = {schema["name"]: schema, full: schema}
    if schema.get("type") == "record":
        inner = [one.get("type") for one in schema.get("fields", ())]
    else:
        inner = [schema.get(key) for key in ("type", "items", "values")]
    return found | _named_types([one for one in inner if isinstance(one, dict | list)], within)


def _meant(schema: Any, value: str, kind: DataType, named: dict[str, Any], depth: int = 0) -> str | None:
    """SQL of what Debezium means by a value that Avro has as the type `kind`; None where it is the same."""
    if isinstance(schema, list):
        some = [one for one in schema if one != "null"]
        return _meant(some[0], value, kind, named, depth) if len(some) == 1 else None
    if isinstance(schema, str):
        return _meant(named[schema], value, kind, named, depth) if schema in named and depth < _DEPTH_MOST else None
    connect, type_ = schema.get("connect.name"), schema.get("type")
    if isinstance(type_, dict | list) or type_ in named:
        return _meant(type_, value, kind, named, depth)
    if unit := NAMED.get((str(connect), _CONNECT_TYPES.get(str(type_), ""))):
        return time(value, unit) if "logicalType" not in schema else None
    own = _connect_name(schema)
    if own in _CONNECT_TIMES and isinstance(kind, IntegralType):
        return time(value, CONNECT_UNITS[own], zoned=True) if own in CONNECT_UNITS else time_of_day(value)
    item = f"x{depth}"
    found = None
    if isinstance(kind, StructType) and connect == VARIABLE_DECIMAL and {"scale", "value"} <= {*kind.names}:
        found = f"IF({value} IS NULL, NULL, {variable_decimal(f'{value}.scale', f'{value}.value')})"
    elif isinstance(kind, StructType) and type_ == "record":
        types = {one["name"]: one["type"] for one in schema["fields"]}
        fields = {one.name: f"{value}.{name(one.name)}" for one in kind.fields}
        meant = {one.name: _meant(types[one.name], fields[one.name], one.dataType, named, depth + 1) for one in kind}
        if any(meant.values()):
            struct = ", ".join(aliased({one: meant[one] or its for one, its in fields.items()}))
            found = f"IF({value} IS NULL, NULL, struct({struct}))"
    elif isinstance(kind, ArrayType) and type_ == "array":
        inner = _meant(schema["items"], item, kind.elementType, named, depth + 1)
        found = inner and f"transform({value}, {item} -> {inner})"
    elif isinstance(kind, MapType) and type_ == "map":
        inner = _meant(schema["values"], item, kind.valueType, named, depth + 1)
        found = inner and f"transform_values({value}, (k{depth}, {item}) -> {inner})"
    return found


def _is_decimal(schema: Any) -> bool:
    """Whether a schema is that of a decimal with a scale of its own, or null."""
    some = [one for one in schema if one != "null"] if isinstance(schema, list) else [schema]
    return len(some) == 1 and isinstance(some[0], dict) and some[0].get("connect.name") == VARIABLE_DECIMAL


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
        kind = cast("StructType", with_leaves(kind, in_variant))
        inner = kind["v"].dataType
        types = str(jvm_class(spark, "org.apache.spark.sql.types.DataType").fromJson(kind.json()).sql())
        decoded = f"from_avro({data} || X'{_END.hex()}', {literal(around)}, map('mode', 'FAILFAST'))"
        meant = _meant(field["type"], "d.v", inner, _named_types(field["type"]))
        if isinstance(inner, StructType | ArrayType | MapType) and not (meant and _is_decimal(field["type"])):
            value = f"to_variant_object({meant or 'd.v'})"
        else:
            value = meant or "CAST(d.v AS VARIANT)"
        fits = f"{_is_utf8('d.v', inner)} AND d.behind = X'{_END.hex()}'"
        found_text = (  # decoded once, and used twice
            f"transform(array(CAST({decoded} AS {types})), d -> "
            f"IF({fits}, struct(coalesce({value}, parse_json('null')) AS v), NULL))[0]"
        )
        found = try_eval(spark, sf.expr(found_text), f"{data} IS NOT NULL")
        empty = [f"CAST(NULL AS BINARY) AS {column}" for column in _COLUMNS]
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
