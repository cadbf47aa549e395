"""Converts Debezium's rows in plain JSON to the struct of the topic's `schema`: times and decimals by Debezium's modes.

Plain JSON does not say in which unit a number counts time, nor that a text is a decimal's bytes. The connector options
`time.precision.mode` and `decimal.handling.mode` do, and the config repeats them under `debezium`.
"""

from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from zync.config.model import DebeziumModes
from zync.formats.decode.debezium_types import UNITS, decimal_of_bytes, variable_decimal_text
from zync.spark.times import TIME_OF_DAY, YEARS
from zync.sql import literal, name

UNFIT = "value does not fit the schema"
_UNIT_BY_MODE = {"connect": "millis", "microseconds": "micros", "nanoseconds": "nanos"}
"""The unit of timestamps in modes that use the same unit for every column."""
_ADAPTIVE = ("adaptive", "adaptive_time_microseconds")
"""Modes in which the unit depends on the column; the schema gives it in the column's comment."""
_ZONE = "[0-9]T?.*[+-][0-9]{2}:[0-9]{2}$"
"""A timestamp's text that ends with a time zone offset."""


class Conversion(NamedTuple):
    """SQL that converts a value.

    Attributes:
        value: SQL of the converted value.
        problems: SQL expressions of error texts; each is null where the value is null or converts.
    """

    value: str
    problems: list[str]


def json_type(kind: DataType, modes: DebeziumModes) -> DataType:
    """Returns the type that Spark parses JSON as: `kind` with text in place of types that need the modes."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, json_type(field.dataType, modes)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(json_type(kind.elementType, modes))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, json_type(kind.valueType, modes))
    return StringType() if _needs_modes(kind, modes) else kind


def without_mode_types(kind: DataType, modes: DebeziumModes) -> DataType | None:
    """Returns `kind` without the fields and elements that need the modes; None where nothing is left."""
    if isinstance(kind, StructType):
        types = ((field.name, without_mode_types(field.dataType, modes)) for field in kind.fields)
        fields = [StructField(field_name, field_type) for field_name, field_type in types if field_type]
        return StructType(fields) if fields else None
    if isinstance(kind, ArrayType):
        inner = without_mode_types(kind.elementType, modes)
        return inner and ArrayType(inner)
    if isinstance(kind, MapType):
        inner = without_mode_types(kind.valueType, modes)
        return inner and MapType(kind.keyType, inner)
    return None if _needs_modes(kind, modes) else kind


def convert(
    kind: DataType, text: str, modes: DebeziumModes, column: str = "", comment: str = "", depth: int = 0
) -> Conversion:
    """Returns SQL that converts `text` from the type `json_type(kind)` to `kind`.

    Args:
        kind: the type to convert to.
        text: SQL of the parsed JSON value.
        modes: Debezium's modes.
        column: the path of the column, for errors.
        comment: the column's comment in the schema, which may give a unit of time.
        depth: how many arrays and maps the value is in; it numbers the parameters of lambda functions.
    """
    if kind == json_type(kind, modes):
        return Conversion(text, [])
    if isinstance(kind, StructType):
        parts = {
            field.name: convert(
                field.dataType,
                f"{text}.{name(field.name)}",
                modes,
                f"{column}.{field.name}" if column else field.name,
                str(field.metadata.get("comment", "")),
                depth,
            )
            for field in kind.fields
        }
        fields = ", ".join(f"{part.value} AS {name(field_name)}" for field_name, part in parts.items())
        problems = [problem for part in parts.values() for problem in part.problems]
        return Conversion(f"IF({text} IS NULL, NULL, struct({fields}))", problems)
    item = f"x{depth}"
    if isinstance(kind, ArrayType | MapType):
        inner_kind = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
        inner = convert(inner_kind, item, modes, column, comment, depth + 1)
        is_list = isinstance(kind, ArrayType)
        value = f"transform({text}, {item} -> {inner.value})"
        if not is_list:
            value = f"transform_values({text}, (k{depth}, {item}) -> {inner.value})"
        values = text if is_list else f"map_values({text})"
        first_problem = f"coalesce({', '.join([*inner.problems, 'NULL'])})"
        problems_of_items = f"transform({values}, {item} -> {first_problem})"
        return Conversion(value, [f"get(filter({problems_of_items}, p{depth} -> p{depth} IS NOT NULL), 0)"])
    return _leaf(kind, text, modes, column, comment)


def _needs_modes(kind: DataType, modes: DebeziumModes) -> bool:
    if isinstance(kind, DecimalType):
        return modes.decimal_handling_mode == "precise"
    return type(kind) in YEARS


def _leaf(kind: DataType, text: str, modes: DebeziumModes, column: str, comment: str) -> Conversion:
    if isinstance(kind, DecimalType):
        value = _decimal(kind, text)
        error_text = f"{UNFIT}: {column} is no {kind.simpleString()} as decimal.handling.mode: precise has it"
        return Conversion(value, [f"IF({text} IS NOT NULL AND {value} IS NULL, {literal(error_text)}, NULL)"])
    mode = modes.time_precision_mode
    if isinstance(kind, DateType):
        unit = "days"
    else:
        from_comment = mode in _ADAPTIVE and comment in ("millis", "micros", "nanos")
        unit = comment if from_comment else _UNIT_BY_MODE.get(str(mode), "")
    if mode is None or mode == "isostring":
        unit = ""
    number = f"try_cast({text} AS BIGINT)"
    is_number = f"{text} RLIKE '^-?[0-9.]+([eE][-+]?[0-9]+)?$'"
    value = f"CASE WHEN {is_number} THEN {_time_of_number(kind, number, unit)} ELSE {_time_of_text(kind, text)} END"
    in_years = f"({value}) BETWEEN {YEARS[type(kind)]}"
    advice = {
        None: "say debezium.time_precision_mode in the config, as the connector has it",
        "isostring": "with time.precision.mode: isostring there are none",
    }.get(mode, f"say its unit in the schema: COMMENT 'millis', 'micros' or 'nanos', as mode {mode} goes by the column")
    problem = "is a number that no unit is known of" if not unit else f"is no time of the years 1 to 9999 in {unit}"
    number_error = f"{UNFIT}: {column} {problem}" + (f": {advice}" if not unit else "")
    text_error = f"{UNFIT}: {column} is no {kind.simpleString()} of the years 1 to 9999"
    error = f"IF({is_number}, {literal(number_error)}, {literal(text_error)})"
    return Conversion(value, [f"IF({text} IS NOT NULL AND NOT coalesce({in_years}, false), {error}, NULL)"])


def _time_of_number(kind: DataType, number: str, unit: str) -> str:
    """Returns SQL of the time that a number counts; null where the unit is unknown or the number out of range."""
    if not unit:
        return "NULL"
    limits = UNITS[unit]
    in_range = f"{number} BETWEEN {limits.first}L AND {limits.last}L"
    return f"IF({in_range}, CAST({limits.time.format(v=number)} AS {kind.simpleString()}), NULL)"


def _time_of_text(kind: DataType, text: str) -> str:
    """Returns SQL of the time that a text has; null where it has none."""
    if isinstance(kind, TimestampType):
        return f"IF({text} RLIKE {literal(TIME_OF_DAY)}, NULL, try_cast({text} AS TIMESTAMP))"
    if isinstance(kind, TimestampNTZType):  # the type has no zone: the cast drops a zone in silence
        return f"IF({text} RLIKE '{_ZONE}', NULL, try_cast({text} AS TIMESTAMP_NTZ))"
    return f"try_cast(trim(TRAILING 'Z' FROM {text}) AS DATE)"


def _decimal(kind: DecimalType, text: str) -> str:
    """Returns SQL of the decimal whose unscaled bytes a text has in base64.

    An object's text has the scale beside the bytes (Debezium's VariableScaleDecimal).
    """
    own = variable_decimal_text(
        f"CAST(get_json_object({text}, '$.scale') AS INT)",
        f"try_to_binary(get_json_object({text}, '$.value'), 'base64')",
    )
    decimals = "length(trim(TRAILING '0' FROM split_part(t, '.', 2)))"
    digits = f"transform(array({own}), t -> IF({decimals} > {kind.scale}, NULL, t))[0]"
    data = f"try_to_binary({text}, 'base64')"
    as_kind = f"AS {kind.simpleString()}"
    return (
        f"CASE WHEN {text} LIKE '{{%' THEN try_cast({digits} {as_kind}) "
        f"WHEN length({data}) > 0 THEN try_cast({decimal_of_bytes(data, kind.scale)} {as_kind}) END"
    )
