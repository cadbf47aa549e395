"""Decodes Avro to VARIANT by a schema, with Spark's module for Avro."""

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
"""The most digits of a Spark decimal."""
_DEPTH_MOST = 50
"""The most levels of a schema. A schema that refers to itself has no end; Spark refuses it."""
_TYPE_KEYS = ("type", "fields", "items", "values")
"""The keys of an Avro schema that hold types."""
_CONNECT_TIMES = {*CONNECT_UNITS, "Time"}
"""Connect's logical types that are numbers in Avro."""
_CONNECT_TYPES = {"int": "int32", "long": "int64"}
"""Connect's names of Avro's integer types."""
_END = bytes.fromhex("5a1f9c44e03b47d28b6ed0a791c3f86d")
"""A random trailer that is appended to the value and declared as a second field.

If it does not come back intact, the value is shorter or longer than its schema says."""
_COLUMNS = ("key", "value", "unpacked", "key_with_header", "value_with_header")
"""The columns that Avro bytes may be in."""
_MESSAGE_MOST = 200
"""The most characters of a Java error's message that zync's own error repeats."""
_AVRO_PACKAGES = ("org.apache.avro.", "org.apache.spark.sql.avro.")
"""Java packages of errors about the schema. Other errors have other causes, like a lost cluster."""


def avro_of_file(spark: SparkSession, column: str, path: Path, text: str) -> Column:
    """Returns `avro` by the schema in the file at `path`, which has the `text`."""
    try:
        return avro(spark, column, Schema("AVRO", text))
    except UsageError as error:
        msg = f"{path}: not a schema of Avro that Spark can use: {error}"
        raise UsageError(msg) from error


def _for_spark(schema: Any) -> Any:
    """Returns the schema with decimals of at most 38 digits, and with Connect's times as numbers.

    Connect declares 64 digits where the source declares none, and Spark's decimals have 38. The bytes are the same; a
    number with more digits fails. Times stay numbers, as Spark has no infinite time and no 24:00 (see `_converted`).
    """
    if isinstance(schema, list):
        return [_for_spark(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") == "decimal" and isinstance(schema.get("precision"), int):
        schema = {**schema, "precision": min(schema["precision"], _DIGITS)}
    if _connect_name(schema) in _CONNECT_TIMES:
        schema = {key: value for key, value in schema.items() if key != "logicalType"}
    return {key: _for_spark(value) if key in _TYPE_KEYS else value for key, value in schema.items()}


def _connect_name(schema: dict[str, Any]) -> str | None:
    """Returns the name of the schema's Connect logical type; None for other schemas."""
    name = str(schema.get("connect.name"))
    return name.removeprefix(CONNECT) if name.startswith(CONNECT) else None


def _is_utf8(value: str, kind: DataType, depth: int = 0) -> str:
    """Returns SQL: whether all text in `value` is UTF-8. VARIANT would turn other bytes into other characters."""
    item = f"u{depth}"
    condition = "true"
    if isinstance(kind, StringType):
        condition = f"is_valid_utf8({value})"
    elif isinstance(kind, StructType):
        parts = [_is_utf8(f"{value}.{name(field.name)}", field.dataType, depth) for field in kind.fields]
        condition = " AND ".join(part for part in parts if part != "true") or "true"
    elif isinstance(kind, ArrayType):
        inner = _is_utf8(item, kind.elementType, depth + 1)
        condition = f"forall({value}, {item} -> {inner})" if inner != "true" else inner
    elif isinstance(kind, MapType):
        inner = _is_utf8(item, kind.valueType, depth + 1)
        condition = f"forall(map_keys({value}), {item} -> is_valid_utf8({item}))"
        condition += f" AND forall(map_values({value}), {item} -> {inner})" if inner != "true" else ""
    return condition if condition == "true" else f"coalesce({condition}, true)"


def _named_types(schema: Any, namespace: str = "") -> dict[str, Any]:
    """Returns the named types in a schema, by their full and their short names; the schema may refer to both."""
    if isinstance(schema, list):
        return {key: named for branch in schema for key, named in _named_types(branch, namespace).items()}
    if not isinstance(schema, dict):
        return {}
    types: dict[str, Any] = {}
    if isinstance(schema.get("name"), str) and schema.get("type") in ("record", "enum", "fixed"):
        namespace = schema.get("namespace", namespace)
        full_name = schema["name"] if "." in schema["name"] or not namespace else f"{namespace}.{schema['name']}"
        namespace = full_name.rpartition(".")[0]
        types = {schema["name"]: schema, full_name: schema}
    if schema.get("type") == "record":
        inner_types = [field.get("type") for field in schema.get("fields", ())]
    else:
        inner_types = [schema.get(key) for key in ("type", "items", "values")]
    return types | _named_types([inner for inner in inner_types if isinstance(inner, dict | list)], namespace)


def _converted(schema: Any, value: str, kind: DataType, named: dict[str, Any], depth: int = 0) -> str | None:
    """Returns SQL that converts a value, of type `kind`, from Connect's and Debezium's types; None where it needs none.

    `named` are the schema's named types.
    """
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        return _converted(branches[0], value, kind, named, depth) if len(branches) == 1 else None
    if isinstance(schema, str):
        return _converted(named[schema], value, kind, named, depth) if schema in named and depth < _DEPTH_MOST else None
    connect, type_ = schema.get("connect.name"), schema.get("type")
    if isinstance(type_, dict | list) or type_ in named:
        return _converted(type_, value, kind, named, depth)
    if unit := NAMED.get((str(connect), _CONNECT_TYPES.get(str(type_), ""))):
        return time(value, unit) if "logicalType" not in schema else None
    logical = _connect_name(schema)
    if logical in _CONNECT_TIMES and isinstance(kind, IntegralType):
        return time(value, CONNECT_UNITS[logical], zoned=True) if logical in CONNECT_UNITS else time_of_day(value)
    item = f"x{depth}"
    converted = None
    if isinstance(kind, StructType) and connect == VARIABLE_DECIMAL and {"scale", "value"} <= {*kind.names}:
        converted = f"IF({value} IS NULL, NULL, {variable_decimal(f'{value}.scale', f'{value}.value')})"
    elif isinstance(kind, StructType) and type_ == "record":
        types = {field["name"]: field["type"] for field in schema["fields"]}
        fields = {field.name: f"{value}.{name(field.name)}" for field in kind.fields}
        conversions = {
            field.name: _converted(types[field.name], fields[field.name], field.dataType, named, depth + 1)
            for field in kind
        }
        if any(conversions.values()):
            values = aliased({field: conversions[field] or original for field, original in fields.items()})
            converted = f"IF({value} IS NULL, NULL, struct({', '.join(values)}))"
    elif isinstance(kind, ArrayType) and type_ == "array":
        inner = _converted(schema["items"], item, kind.elementType, named, depth + 1)
        converted = inner and f"transform({value}, {item} -> {inner})"
    elif isinstance(kind, MapType) and type_ == "map":
        inner = _converted(schema["values"], item, kind.valueType, named, depth + 1)
        converted = inner and f"transform_values({value}, (k{depth}, {item}) -> {inner})"
    return converted


def _is_variable_decimal(schema: Any) -> bool:
    """Returns whether a schema is that of a decimal with a variable scale, with null or without."""
    branches = [branch for branch in schema if branch != "null"] if isinstance(schema, list) else [schema]
    return len(branches) == 1 and isinstance(branches[0], dict) and branches[0].get("connect.name") == VARIABLE_DECIMAL


def avro(spark: SparkSession, data: str, schema: Schema) -> Column:
    """Decodes Avro.

    Args:
        spark: the session.
        data: SQL of the bytes.
        schema: the schema that they were written by.

    Returns:
        A struct whose `v` is the decoded value (VARIANT); null where the bytes do not fit the schema.

    Raises:
        UsageError: the schema cannot be used.
        ZyncError: Spark's module for Avro is missing.
    """

    def in_variant(leaf: DataType) -> DataType:
        return StringType() if isinstance(leaf, TimeType | NullType) else leaf

    try:
        parser = jvm_class(spark, "org.apache.avro.Schema$Parser")()
        for _, text in schema.references:
            parser.parse(text)
        # The value is a record's field, so that a null value differs from a failure. The trailer in the second field
        # differs from _END where the value ends before or after its bytes.
        field = {"name": "v", "type": _for_spark(json.loads(parser.parse(schema.text).toString()))}
        trailer = {"name": "behind", "type": {"type": "fixed", "name": "zync_end", "size": len(_END)}}
        record_schema = json.dumps({"type": "record", "name": "zync_value", "fields": [field, trailer]})
        kind = spark.range(0).select(from_avro(sf.lit(None).cast("binary"), record_schema)).schema[0].dataType
        kind = cast("StructType", with_leaves(kind, in_variant))
        value_type = kind["v"].dataType
        types = str(jvm_class(spark, "org.apache.spark.sql.types.DataType").fromJson(kind.json()).sql())
        decoded = f"from_avro({data} || X'{_END.hex()}', {literal(record_schema)}, map('mode', 'FAILFAST'))"
        converted = _converted(field["type"], "d.v", value_type, _named_types(field["type"]))
        is_variant = converted and _is_variable_decimal(field["type"])
        if isinstance(value_type, StructType | ArrayType | MapType) and not is_variant:
            value = f"to_variant_object({converted or 'd.v'})"
        else:
            value = converted or "CAST(d.v AS VARIANT)"
        fits = f"{_is_utf8('d.v', value_type)} AND d.behind = X'{_END.hex()}'"
        struct = (  # `transform` binds the decoded bytes to d, as they are used twice
            f"transform(array(CAST({decoded} AS {types})), d -> "
            f"IF({fits}, struct(coalesce({value}, parse_json('null')) AS v), NULL))[0]"
        )
        column = try_eval(spark, sf.expr(struct), f"{data} IS NOT NULL")
        empty_columns = [f"CAST(NULL AS BINARY) AS {column_name}" for column_name in _COLUMNS]
        spark.range(0).selectExpr(*empty_columns).select(column)  # so that an unusable schema raises here
    except TypeError as error:  # PySpark raises it where a Java class is missing
        msg = "Avro needs Spark's own module for it: add org.apache.spark:spark-avro_2.13 to this cluster's jars"
        raise ZyncError(msg) from error
    except AnalysisException as error:
        raise UsageError(message_of(error)) from error
    except Py4JJavaError as error:
        if not error.java_exception.getClass().getName().startswith(_AVRO_PACKAGES):
            raise
        message = " ".join(error.java_exception.getMessage().split())  # of several lines; it ends with the schema
        raise UsageError(message[:_MESSAGE_MOST]) from error
    return column
