"""Rows of Debezium's in plain JSON, as the struct that the topic's `schema` says: times and decimals by its modes.

Plain JSON does not say in which unit a number counts time, nor that text is a decimal's bytes. The connector's options
`time.precision.mode` and `decimal.handling.mode` do, which the config repeats under `debezium`.
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
_OF_MODE = {"connect": "millis", "microseconds": "micros", "nanoseconds": "nanos"}
"""The unit of timestamps in the modes where it is one."""
_ADAPTIVE = ("adaptive", "adaptive_time_microseconds")
_ZONE = "[0-9]T?.*[+-][0-9]{2}:[0-9]{2}$"


class Typed(NamedTuple):
    """SQL of a column's value, and of the reasons why it is none; what it is read from is null where they have none."""

    value: str
    problems: list[str]


def read_as(kind: DataType, modes: DebeziumModes) -> DataType:
    """The type as which Spark is to read JSON: what needs the modes comes as its text."""
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, read_as(one.dataType, modes)) for one in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(read_as(kind.elementType, modes))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, read_as(kind.valueType, modes))
    return StringType() if _needs_modes(kind, modes) else kind


def without_moded(kind: DataType, modes: DebeziumModes) -> DataType | None:
    """The type without what needs the modes; None where nothing is left."""
    if isinstance(kind, StructType):
        kept = ((one.name, without_moded(one.dataType, modes)) for one in kind.fields)
        fields = [StructField(one, its) for one, its in kept if its]
        return StructType(fields) if fields else None
    if isinstance(kind, ArrayType):
        inner = without_moded(kind.elementType, modes)
        return inner and ArrayType(inner)
    if isinstance(kind, MapType):
        inner = without_moded(kind.valueType, modes)
        return inner and MapType(kind.keyType, inner)
    return None if _needs_modes(kind, modes) else kind


def typed(kind: DataType, text: str, modes: DebeziumModes, column: str = "", said: str = "", depth: int = 0) -> Typed:
    """What `text`, of type `read_as(kind)`, is as `kind`. `column`: its path; `said`: its comment in the schema."""
    if kind == read_as(kind, modes):
        return Typed(text, [])
    if isinstance(kind, StructType):
        parts = {
            one.name: typed(
                one.dataType,
                f"{text}.{name(one.name)}",
                modes,
                f"{column}.{one.name}" if column else one.name,
                str(one.metadata.get("comment", "")),
                depth,
            )
            for one in kind.fields
        }
        fields = ", ".join(f"{part.value} AS {name(one)}" for one, part in parts.items())
        return Typed(
            f"IF({text} IS NULL, NULL, struct({fields}))", [why for part in parts.values() for why in part.problems]
        )
    item = f"x{depth}"
    if isinstance(kind, ArrayType | MapType):
        inner_kind = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
        inner = typed(inner_kind, item, modes, column, said, depth + 1)
        is_list = isinstance(kind, ArrayType)
        value = f"transform({text}, {item} -> {inner.value})"
        if not is_list:
            value = f"transform_values({text}, (k{depth}, {item}) -> {inner.value})"
        values = text if is_list else f"map_values({text})"
        first = f"coalesce({', '.join([*inner.problems, 'NULL'])})"
        return Typed(
            value, [f"get(filter(transform({values}, {item} -> {first}), p{depth} -> p{depth} IS NOT NULL), 0)"]
        )
    return _leaf(kind, text, modes, column, said)


def _needs_modes(kind: DataType, modes: DebeziumModes) -> bool:
    if isinstance(kind, DecimalType):
        return modes.decimal_handling_mode == "precise"
    return type(kind) in YEARS


def _leaf(kind: DataType, text: str, modes: DebeziumModes, column: str, said: str) -> Typed:
    if isinstance(kind, DecimalType):
        value = _decimal(kind, text)
        why = f"{UNFIT}: {column} is no {kind.simpleString()} as decimal.handling.mode: precise has it"
        return Typed(value, [f"IF({text} IS NOT NULL AND {value} IS NULL, {literal(why)}, NULL)"])
    mode = modes.time_precision_mode
    if isinstance(kind, DateType):
        unit = "days"
    else:
        unit = said if mode in _ADAPTIVE and said in ("millis", "micros", "nanos") else _OF_MODE.get(str(mode), "")
    if mode is None or mode == "isostring":
        unit = ""
    number = f"try_cast({text} AS BIGINT)"
    is_number = f"{text} RLIKE '^-?[0-9.]+([eE][-+]?[0-9]+)?$'"
    value = f"CASE WHEN {is_number} THEN {_counted(kind, number, unit)} ELSE {_written(kind, text)} END"
    in_years = f"({value}) BETWEEN {YEARS[type(kind)]}"
    tell = {
        None: "say debezium.time_precision_mode in the config, as the connector has it",
        "isostring": "with time.precision.mode: isostring there are none",
    }.get(mode, f"say its unit in the schema: COMMENT 'millis', 'micros' or 'nanos', as mode {mode} goes by the column")
    counts = "is a number that no unit is known of" if not unit else f"is no time of the years 1 to 9999 in {unit}"
    numbered = f"{UNFIT}: {column} {counts}" + (f": {tell}" if not unit else "")
    written = f"{UNFIT}: {column} is no {kind.simpleString()} of the years 1 to 9999"
    why = f"IF({is_number}, {literal(numbered)}, {literal(written)})"
    return Typed(value, [f"IF({text} IS NOT NULL AND NOT coalesce({in_years}, false), {why}, NULL)"])


def _counted(kind: DataType, number: str, unit: str) -> str:
    """The time that a number counts; null where no unit is known, or it is out of range."""
    if not unit:
        return "NULL"
    its = UNITS[unit]
    in_range = f"{number} BETWEEN {its.first}L AND {its.last}L"
    return f"IF({in_range}, CAST({its.time.format(v=number)} AS {kind.simpleString()}), NULL)"


def _written(kind: DataType, text: str) -> str:
    """The time that a text is; null where it is none."""
    if isinstance(kind, TimestampType):
        return f"IF({text} RLIKE {literal(TIME_OF_DAY)}, NULL, try_cast({text} AS TIMESTAMP))"
    if isinstance(kind, TimestampNTZType):  # which has no zone, and drops one in silence
        return f"IF({text} RLIKE '{_ZONE}', NULL, try_cast({text} AS TIMESTAMP_NTZ))"
    return f"try_cast(trim(TRAILING 'Z' FROM {text}) AS DATE)"


def _decimal(kind: DecimalType, text: str) -> str:
    """The decimal whose bytes a text is, in base64; with a scale of its own where it is an object."""
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
