"""Values as Kafka Connect's JsonConverter writes them with `schemas.enable`: decoded as the schema beside each says.

`{"schema": …, "payload": …}`; types and their names as in org.apache.kafka.connect.json.JsonSchema, logical ones as in
org.apache.kafka.connect.data, and Debezium's dates, timestamps and decimals with a scale of their own
(zync.formats.decode.debezium_types). Other names change nothing.
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
"""Connect's types, and as what Spark is to read them."""

_DEPTH_MOST = 20
"""Levels of a schema: Spark takes some rounds of a hundred to understand each."""

_BEFORE = '{"schema":'
_COMPARED_MOST = 32
"""So many schemas values are compared with before they are read to find theirs."""

_SCHEMAS_MOST = 1_000
"""Different schemas in one sync, beyond which they mean something else."""


@dataclass
class Connect:
    """What some rows' schemas make of them: a column by the text of the schema; or why it makes nothing."""

    columns: dict[str, Column] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def schema_of(self, text: str) -> str:
        """As the function, sooner where values begin with one of these as Connect itself writes them."""
        known = [one for one in (*self.columns, *self.problems) if one.startswith("{")][:_COMPARED_MOST]
        cases = " ".join(f"WHEN startswith({text}, {literal(_BEFORE + one)}) THEN {literal(one)}" for one in known)
        return f"CASE {cases} ELSE {schema_of(text)} END" if cases else schema_of(text)


def schema_of(text: str) -> str:
    """The schema's text in a column of values; null where there is none."""
    return f"from_json({text}, 'schema STRING').schema"


def without_schema(text: str, schema: str) -> str:
    """The values in a column, with {} for the schema where they begin with it; it is longer than most payloads."""
    before = f"{literal(_BEFORE)} || {schema}"
    rest = f"CAST(substring(CAST({text} AS BINARY), octet_length({before}) + 1) AS STRING)"  # counted in bytes: sooner
    begins = f"startswith({text}, {literal(_BEFORE + '{')}) AND startswith({text}, {before})"
    return f"CASE WHEN {begins} THEN {literal(_BEFORE + '{}')} || {rest} ELSE {text} END"


def understand(spark: SparkSession, rows: DataFrame, text: str, rest: str) -> Connect:
    """The schemas of those rows, whose values are in the column `text`; decoded from `rest` (see `without_schema`)."""
    found = Connect()
    there = [row[0] for row in rows.selectExpr(schema_of(text)).distinct().limit(_SCHEMAS_MOST + 1).collect()]
    if len(there) > _SCHEMAS_MOST:
        msg = f"values have more than {_SCHEMAS_MOST:,} schemas beside them: is it Connect's JSON? Nothing was changed"
        raise DataError(msg)
    for schema in sorted(filter(None, there)):
        try:
            found.columns[schema] = _column(spark, _read(schema), rest)
        except (UsageError, ValueError, RecursionError) as error:
            found.problems[schema] = f"the schema beside it cannot be used: {error}"
    return found


def _read(schema: str) -> Any:
    """The schema that the text is; ValueError where it is none, or says a key twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [one for one, _ in pairs]
        if twice := [one for one in names if names.count(one) > 1]:
            msg = f"it has {twice[0]!r} twice"
            raise ValueError(msg)
        return dict(pairs)

    return json.loads(schema, object_pairs_hook=once)


def _column(spark: SparkSession, schema: Any, text: str) -> Column:
    """A struct whose `v` is what the payload means, as VARIANT; null where it is not as the schema says."""
    kind = f"payload {_kind(schema)}"
    meant = _meant(schema, f"from_json({text}, {literal(kind)}, map('mode', 'FAILFAST')).payload", count())
    try:
        made = spark.range(0).selectExpr(f"CAST(NULL AS STRING) AS {text}").selectExpr(meant).schema[0].dataType
    except AnalysisException as error:
        if "NOT_LOADED" in (error.getCondition() or ""):
            msg = "decimals need Spark's module for Avro: add org.apache.spark:spark-avro_2.13 to this cluster's jars"
            raise ZyncError(msg) from error
        raise UsageError(message_of(error)) from error
    value = sf.expr(meant)
    if isinstance(made, StructType | ArrayType | MapType):
        value = sf.to_variant_object(value)
    elif not isinstance(made, VariantType):
        value = value.cast("variant")
    found = sf.struct(sf.coalesce(value, sf.parse_json(sf.lit("null"))).alias("v"))
    return try_eval(spark, found, f"{text} IS NOT NULL")


def _kind(schema: Any, depth: int = 0) -> str:
    """The type as which Spark is to read JSON of that schema."""
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
        return f"ARRAY<{_kind(schema.get('items'), depth + 1)}>"
    if kind == "struct":
        return f"STRUCT<{', '.join(f'{name(one)}: {_kind(its, depth + 1)}' for one, its in _fields(schema))}>"
    if kind == "map":
        values = _kind(schema.get("values"), depth + 1)
        return f"MAP<STRING, {values}>" if _kind(schema.get("keys"), depth + 1) == "STRING" else "VARIANT"  # of pairs
    msg = f"it has no type {json.dumps(kind)[:60]}"
    raise UsageError(msg)


def _fields(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    fields = schema.get("fields") or []
    if not all(isinstance(one, dict) and isinstance(one.get("field"), str) for one in fields):
        msg = "a field of a struct has no name"
        raise UsageError(msg)
    return [(one["field"], one) for one in fields]


def _meant(schema: dict[str, Any], value: str, numbers: "count[int]") -> str:
    """SQL for what a `value` of that schema means; it fails where it cannot be. The schema is one that has a kind."""
    kind, logical = schema["type"], str(schema.get("name") or "")
    text = value
    if logical.startswith(CONNECT) and kind in ("bytes", "int32", "int64"):
        text = _logical(logical.removeprefix(CONNECT), schema, value)
    elif (logical, kind) in NAMED:
        text = time(value, NAMED[logical, kind])
    elif logical == VARIABLE_DECIMAL and {"scale", "value"} <= {one for one, _ in _fields(schema)}:
        text = f"IF({value} IS NULL, NULL, {variable_decimal(f'{value}.scale', f'{value}.value')})"
    elif kind == "int8":
        text = f"CAST({value} AS TINYINT)"
    elif kind == "struct" and schema.get("fields"):
        there = f"s{next(numbers)}"
        fields = (f"{_meant(its, f'{there}.{name(one)}', numbers)} AS {name(one)}" for one, its in _fields(schema))
        text = f"transform(array({value}), {there} -> IF({there} IS NULL, NULL, struct({', '.join(fields)})))[0]"
    elif kind == "array":
        one = f"x{next(numbers)}"
        text = f"transform({value}, {one} -> {_meant(schema['items'], one, numbers)})"
    elif kind == "map" and _kind(schema["keys"]) == "STRING":
        key, one = f"k{next(numbers)}", f"x{next(numbers)}"
        text = f"transform_values({value}, ({key}, {one}) -> {_meant(schema['values'], one, numbers)})"
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
    if not scale.isdecimal() or int(scale) > 38:  # noqa: PLR2004 - digits that Spark has
        msg = f"a decimal of scale {scale[:20] or 'null'}, and Spark has 0 to 38"
        raise UsageError(msg)
    data = f"to_binary(CAST({value} AS STRING), 'base64')"
    of_bytes = decimal_of_bytes(data, int(scale))
    of_number = f"CAST({value} AS DECIMAL(38, {scale}))"
    null = f"{value} IS NULL OR is_variant_null({value})"
    return f"IF({null}, NULL, IF(schema_of_variant({value}) = 'STRING', {of_bytes}, {of_number}))"
