"""Decodes values that Kafka Connect's JsonConverter writes with `schemas.enable`, each by the schema beside it.

A value is `{"schema": …, "payload": …}`. Types have the names of org.apache.kafka.connect.json.JsonSchema. Logical
types are those of org.apache.kafka.connect.data, and Debezium's dates, timestamps and decimals with a variable scale
(zync.formats.decode.debezium_types). Other names of schemas have no effect.
"""

import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from zync.errors import DataError, UsageError, ZyncError
from zync.formats.decode.debezium_types import (
    CONNECT,
    CONNECT_UNITS,
    NAMED,
    VARIABLE_DECIMAL,
    decimal_of_bytes,
    time,
    time_of_day,
    variable_decimal,
)
from zync.spark.errors import message_of
from zync.spark.expressions import try_eval
from zync.sql import literal, name
from zync.text import strict_json

_SCALARS = {
    "boolean": "BOOLEAN",
    "int8": "SMALLINT",  # as TINYINT Spark takes 128 for -128
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bytes": "BINARY",
}
"""The types that Spark parses Connect's types as."""

_DEPTH_MOST = 20
"""The most levels of a schema: of the hundred rounds that Spark has to resolve a statement each level takes some."""

_PREFIX = '{"schema":'
"""The text before the schema, as Connect writes it."""
_COMPARED_MOST = 32
"""A value is compared with at most so many known schemas before it is parsed to find its own."""

_SCHEMAS_MOST = 1_000
"""The most different schemas in a sync: with more, the values are most likely no JSON of Connect's."""


@dataclass
class ConnectSchemas:
    """The schemas beside the values of some rows.

    Attributes:
        columns: by the schema's text a Column that decodes by it.
        problems: by the schema's text the error text, where it cannot be used.
    """

    columns: dict[str, Column] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def schema_of(self, text: str) -> str:
        """Returns SQL like the function `schema_of`, but quicker for values that begin with a schema in this object."""
        known = [schema for schema in (*self.columns, *self.problems) if schema.startswith("{")][:_COMPARED_MOST]
        cases = " ".join(
            f"WHEN startswith({text}, {literal(_PREFIX + schema)}) THEN {literal(schema)}" for schema in known
        )
        return f"CASE {cases} ELSE {schema_of(text)} END" if cases else schema_of(text)


def schema_of(text: str) -> str:
    """Returns SQL of the schema's text within a value's text; null where it has no schema."""
    return f"from_json({text}, 'schema STRING').schema"


def without_schema(text: str, schema: str) -> str:
    """Returns SQL of a value's text with {} in place of its schema, which is longer than most payloads.

    A value that does not begin with its schema stays as it is.
    """
    prefix = f"{literal(_PREFIX)} || {schema}"
    # substring takes less time on bytes than on characters.
    rest = f"CAST(substring(CAST({text} AS BINARY), octet_length({prefix}) + 1) AS STRING)"
    has_prefix = f"startswith({text}, {literal(_PREFIX + '{')}) AND startswith({text}, {prefix})"
    return f"CASE WHEN {has_prefix} THEN {literal(_PREFIX + '{}')} || {rest} ELSE {text} END"


def read_schemas(spark: SparkSession, rows: DataFrame, text: str, rest: str) -> ConnectSchemas:
    """Returns the schemas of values in the column `text`; their Columns decode the column `rest` (`without_schema`).

    Raises:
        DataError: the values have more than 1,000 different schemas.
    """
    schemas = ConnectSchemas()
    texts = [row[0] for row in rows.selectExpr(schema_of(text)).distinct().limit(_SCHEMAS_MOST + 1).collect()]
    if len(texts) > _SCHEMAS_MOST:
        msg = f"values have more than {_SCHEMAS_MOST:,} schemas beside them: is it Connect's JSON? Nothing was changed"
        raise DataError(msg)
    for schema in sorted(filter(None, texts)):
        try:
            schemas.columns[schema] = _column(spark, strict_json(schema), rest)
        except (UsageError, ValueError, RecursionError) as error:
            schemas.problems[schema] = f"the schema beside it cannot be used: {error}"
    return schemas


def _column(spark: SparkSession, schema: Any, text: str) -> Column:
    """Returns a struct whose `v` is the decoded payload (VARIANT); null where the payload does not fit the schema."""
    payload_type = f"payload {_parsed_type(schema)}"
    parsed = f"from_json({text}, {literal(payload_type)}, map('mode', 'FAILFAST')).payload"
    decoded = _decoded(schema, parsed, count())
    try:
        kind = spark.range(0).selectExpr(f"CAST(NULL AS STRING) AS {text}").selectExpr(decoded).schema[0].dataType
    except AnalysisException as error:
        if "NOT_LOADED" in (error.getCondition() or ""):
            msg = "decimals need Spark's module for Avro: add org.apache.spark:spark-avro_2.13 to this cluster's jars"
            raise ZyncError(msg) from error
        raise UsageError(message_of(error)) from error
    value = sf.expr(decoded)
    if isinstance(kind, StructType | ArrayType | MapType):
        value = sf.to_variant_object(value)
    elif not isinstance(kind, VariantType):
        value = value.cast("variant")
    struct = sf.struct(sf.coalesce(value, sf.parse_json(sf.lit("null"))).alias("v"))
    return try_eval(spark, struct, f"{text} IS NOT NULL")


def _parsed_type(schema: Any, depth: int = 0) -> str:
    """Returns the SQL type that Spark parses JSON of this schema as."""
    if depth > _DEPTH_MOST:
        msg = f"it is nested more than {_DEPTH_MOST} deep"
        raise UsageError(msg)
    if not isinstance(schema, dict):
        msg = f"{json.dumps(schema)[:60]} is no schema"
        raise UsageError(msg)
    kind = schema.get("type")
    if kind == "bytes" and str(schema.get("name")) == f"{CONNECT}Decimal":
        return "VARIANT"  # text in base64, or a number by `decimal.format`
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind == "array":
        return f"ARRAY<{_parsed_type(schema.get('items'), depth + 1)}>"
    if kind == "struct":
        types = (f"{name(field)}: {_parsed_type(field_schema, depth + 1)}" for field, field_schema in _fields(schema))
        return f"STRUCT<{', '.join(types)}>"
    if kind == "map":
        values = _parsed_type(schema.get("values"), depth + 1)
        has_text_keys = _parsed_type(schema.get("keys"), depth + 1) == "STRING"
        return f"MAP<STRING, {values}>" if has_text_keys else "VARIANT"  # other maps are arrays of pairs in JSON
    msg = f"it has no type {json.dumps(kind)[:60]}"
    raise UsageError(msg)


def _fields(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    fields = schema.get("fields") or []
    if not all(isinstance(field, dict) and isinstance(field.get("field"), str) for field in fields):
        msg = "a field of a struct has no name"
        raise UsageError(msg)
    return [(field["field"], field) for field in fields]


def _decoded(schema: dict[str, Any], value: str, numbers: "count[int]") -> str:
    """Returns SQL that decodes `value`, parsed as `_parsed_type` of the schema; it fails where the value does not fit.

    `numbers` gives each lambda function's parameter a number of its own.
    """
    kind, logical = schema["type"], str(schema.get("name") or "")
    text = value
    if logical.startswith(CONNECT) and kind in ("bytes", "int32", "int64"):
        text = _logical(logical.removeprefix(CONNECT), schema, value)
    elif (logical, kind) in NAMED:
        text = time(value, NAMED[logical, kind])
    elif logical == VARIABLE_DECIMAL and {"scale", "value"} <= {field for field, _ in _fields(schema)}:
        text = f"IF({value} IS NULL, NULL, {variable_decimal(f'{value}.scale', f'{value}.value')})"
    elif kind == "int8":
        text = f"CAST({value} AS TINYINT)"
    elif kind == "struct" and schema.get("fields"):
        struct = f"s{next(numbers)}"
        fields = (
            f"{_decoded(field_schema, f'{struct}.{name(field)}', numbers)} AS {name(field)}"
            for field, field_schema in _fields(schema)
        )
        text = f"transform(array({value}), {struct} -> IF({struct} IS NULL, NULL, struct({', '.join(fields)})))[0]"
    elif kind == "array":
        item = f"x{next(numbers)}"
        text = f"transform({value}, {item} -> {_decoded(schema['items'], item, numbers)})"
    elif kind == "map" and _parsed_type(schema["keys"]) == "STRING":
        key, item = f"k{next(numbers)}", f"x{next(numbers)}"
        text = f"transform_values({value}, ({key}, {item}) -> {_decoded(schema['values'], item, numbers)})"
    return text if schema.get("optional") is True else f"coalesce({text}, raise_error('null'))"


def _logical(logical: str, schema: dict[str, Any], value: str) -> str:
    if logical in CONNECT_UNITS:
        return time(value, CONNECT_UNITS[logical], zoned=True)
    if logical == "Time":
        return time_of_day(value)
    if logical != "Decimal":
        msg = f"Connect has no logical type {logical[:60]!r}"
        raise UsageError(msg)
    parameters = schema.get("parameters")
    scale = str(parameters.get("scale")) if isinstance(parameters, dict) else ""
    if not scale.isdecimal() or int(scale) > 38:  # noqa: PLR2004 - the digits of a Spark decimal
        msg = f"a decimal of scale {scale[:20] or 'null'}, and Spark has 0 to 38"
        raise UsageError(msg)
    data = f"to_binary(CAST({value} AS STRING), 'base64')"
    from_bytes = decimal_of_bytes(data, int(scale))
    from_number = f"CAST({value} AS DECIMAL(38, {scale}))"
    is_null = f"{value} IS NULL OR is_variant_null({value})"
    return f"IF({is_null}, NULL, IF(schema_of_variant({value}) = 'STRING', {from_bytes}, {from_number}))"
