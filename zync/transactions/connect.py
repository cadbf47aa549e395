"""Values as Kafka Connect's JsonConverter writes them with `schemas.enable`: decoded as the schema beside each says.

`{"schema": …, "payload": …}`; types and their names as in org.apache.kafka.connect.json.JsonSchema, logical ones as in
org.apache.kafka.connect.data. Names that a connector makes up (io.debezium.time.…) change nothing, as in Avro.
"""

import json
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from zync.errors import DataError, UsageError, ZyncError
from zync.spark import message_of
from zync.sql import literal, name, try_eval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SCALARS = {
    "boolean": ("BOOLEAN", "BOOLEAN"),
    "int8": ("TINYINT", "BIGINT"),
    "int16": ("SMALLINT", "BIGINT"),
    "int32": ("INT", "BIGINT"),
    "int64": ("BIGINT", "BIGINT"),
    "float": ("FLOAT", None),
    "double": ("DOUBLE", None),
    "string": ("STRING", "STRING"),
}
"""Connect's types: Spark's, and what the JSON has to be, by `schema_of_variant`; NaN is text there."""

_LOGICAL = "org.apache.kafka.connect.data."
_DECIMAL_BYTES = 63
"""So long is what one byte of Avro can announce; 38 digits take 16."""

_DEPTH_MOST = 20
"""Levels of a schema: Spark takes two rounds of a hundred to understand each."""

_SCHEMAS_MOST = 1_000
"""Different schemas in one sync, beyond which they mean something else."""


@dataclass
class Connect:
    """What some rows' schemas make of them: a column by the text of the schema; or why it makes nothing."""

    columns: "dict[str, Column]" = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def schema_of(parsed: str) -> str:
    """The text of the schema in a column of parsed values; null where there is none."""
    return f"CAST(try_variant_get({parsed}, '$.schema', 'variant') AS STRING)"


def understand(spark: "SparkSession", rows: "DataFrame", parsed: str) -> Connect:
    """The schemas of those rows, whose parsed values are in the column `parsed`."""
    found = Connect()
    texts = [row[0] for row in rows.selectExpr(schema_of(parsed)).distinct().limit(_SCHEMAS_MOST + 1).collect()]
    if len(texts) > _SCHEMAS_MOST:
        msg = f"values have more than {_SCHEMAS_MOST:,} schemas beside them: is it Connect's JSON? Nothing was changed"
        raise DataError(msg)
    for text in sorted(filter(None, texts)):
        try:
            found.columns[text] = _column(spark, json.loads(text), parsed)
        except UsageError as error:
            found.problems[text] = f"the schema beside it cannot be used: {error}"
    return found


def _column(spark: "SparkSession", schema: Any, parsed: str) -> "Column":
    """A struct whose `v` is what the payload means, as VARIANT; null where it is not as the schema says."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415
    from pyspark.sql import functions as sf  # noqa: PLC0415
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType  # noqa: PLC0415

    text = _typed(schema, f"try_variant_get({parsed}, '$.payload', 'variant')", count())
    try:
        kind = spark.range(0).selectExpr(f"CAST(NULL AS VARIANT) AS {parsed}").selectExpr(text).schema[0].dataType
    except AnalysisException as error:
        if error.getCondition() and "NOT_LOADED" in str(error.getCondition()):
            msg = "decimals need Spark's module for Avro: add org.apache.spark:spark-avro_2.13 to this cluster's jars"
            raise ZyncError(msg) from error
        raise UsageError(message_of(error)) from error
    value = sf.expr(text)
    if isinstance(kind, StructType | ArrayType | MapType):
        value = sf.to_variant_object(value)
    elif not isinstance(kind, VariantType):
        value = value.cast("variant")
    return try_eval(spark, sf.struct(sf.coalesce(value, sf.parse_json(sf.lit("null"))).alias("v")))


def _typed(schema: Any, value: str, numbers: "count[int]", depth: int = 0) -> str:
    """SQL that gives the VARIANT `value` the type that the schema says; it fails where that cannot be."""
    if depth > _DEPTH_MOST:
        msg = f"it is nested more than {_DEPTH_MOST} deep"
        raise UsageError(msg)
    if not isinstance(schema, dict):
        msg = f"{json.dumps(schema)[:60]} is no schema"
        raise UsageError(msg)
    kind, logical = schema.get("type"), str(schema.get("name") or "")
    if logical.startswith(_LOGICAL) and kind in ("bytes", "int32", "int64"):
        text = _logical(logical.removeprefix(_LOGICAL), schema, value)
    elif kind in _SCALARS:
        text = _scalar(value, *_SCALARS[kind])
    elif kind == "bytes":
        text = f"to_binary({_scalar(value, 'STRING', 'STRING')}, 'base64')"
    elif kind == "struct":
        text = _struct(schema, value, numbers, depth)
    elif kind == "array":
        one = f"x{next(numbers)}"
        inner = _typed(schema.get("items"), one, numbers, depth + 1)
        text = f"transform(CAST({value} AS ARRAY<VARIANT>), {one} -> {inner})"
    elif kind == "map" and _type(schema.get("keys")) == "string":
        key, one = f"k{next(numbers)}", f"x{next(numbers)}"
        inner = _typed(schema.get("values"), one, numbers, depth + 1)
        text = f"transform_values(CAST({value} AS MAP<STRING, VARIANT>), ({key}, {one}) -> {inner})"
    elif kind == "map":  # as an array of pairs
        text = value
    else:
        msg = f"it has no type {json.dumps(kind)[:60]}"
        raise UsageError(msg)
    if schema.get("optional") is not True:
        text = f"coalesce({text}, raise_error('null'))"
    return text


def _type(schema: Any) -> Any:
    return schema.get("type") if isinstance(schema, dict) else None


def _scalar(value: str, kind: str, of: str | None) -> str:
    null = f"{value} IS NULL OR is_variant_null({value})"
    cast = f"CAST({value} AS {kind})"
    fits = cast if of is None else f"IF(schema_of_variant({value}) = '{of}', {cast}, raise_error('type'))"
    return f"IF({null}, NULL, {fits})"


def _struct(schema: dict[str, Any], value: str, numbers: "count[int]", depth: int) -> str:
    there = f"m{next(numbers)}"
    fields = []
    for one in schema.get("fields") or ():
        if not isinstance(one, dict) or not isinstance(one.get("field"), str):
            msg = "a field of a struct has no name"
            raise UsageError(msg)
        its = f"{there}[{literal(one['field'])}]"
        fields.append(f"{_typed(one, its, numbers, depth + 1)} AS {name(one['field'])}")
    made = f"struct({', '.join(fields)})" if fields else "parse_json('{}')"
    return f"transform(array(CAST({value} AS MAP<STRING, VARIANT>)), {there} -> IF({there} IS NULL, NULL, {made}))[0]"


def _logical(logical: str, schema: dict[str, Any], value: str) -> str:
    whole = _scalar(value, "BIGINT", "BIGINT")
    if logical == "Date":
        return f"date_from_unix_date(CAST({whole} AS INT))"
    if logical == "Timestamp":
        return f"timestamp_millis({whole})"
    if logical == "Time":
        return f"date_format(timestamp_millis({whole}), 'HH:mm:ss.SSS')"
    if logical != "Decimal":
        msg = f"Connect has no logical type {logical[:60]!r}"
        raise UsageError(msg)
    parameters = schema.get("parameters")
    scale = str(parameters.get("scale")) if isinstance(parameters, dict) else ""
    if not scale.isdigit() or int(scale) > 38:  # noqa: PLR2004 - digits that Spark has
        msg = f"a decimal of scale {scale[:20] or 'null'}, and Spark has 0 to 38"
        raise UsageError(msg)
    data = f"to_binary({_scalar(value, 'STRING', 'STRING')}, 'base64')"
    avro = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": int(scale)})
    announced = f"concat(unhex(lpad(hex(2 * length({data})), 2, '0')), {data})"
    decoded = f"from_avro({announced}, {literal(avro)}, map('mode', 'FAILFAST'))"
    of_bytes = f"IF(length({data}) BETWEEN 1 AND {_DECIMAL_BYTES}, {decoded}, raise_error('length'))"
    of_number = f"CAST({value} AS DECIMAL(38, {scale}))"  # decimal.format: NUMERIC
    null = f"{value} IS NULL OR is_variant_null({value})"
    return f"IF({null}, NULL, IF(schema_of_variant({value}) = 'STRING', {of_bytes}, {of_number}))"
