"""Checks changes of a column's type against the rows in staging and in delivered tables."""

from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructType

from zync.config.model import Config
from zync.errors import UsageError
from zync.lake.delivered import APP, table_of
from zync.lake.delta_log import app_transactions
from zync.lake.table import open_table
from zync.spark.frames import leaves
from zync.staging.outputs import recorded

_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""The most decimal digits of a value of each integer type."""
_EXACT_IN_DOUBLE = ("byte", "short", "integer")
"""The integer types whose values a double represents exactly."""
_DELTA_TYPES = (
    *("boolean", "binary", "string", "char", "varchar", "variant", "date", "timestamp", "timestamp_ntz"),
    *("byte", "short", "integer", "long", "float", "double", "decimal"),
)
"""The types that a column of a Delta table may have, and the elements of arrays, maps and structs."""


def is_wider(new_type: DataType, old_type: DataType, *, is_key: bool) -> bool:
    """Whether every value of the old type is the same value, written the same but for zeros, in the new type.

    Float to double is not wider: 0.1 becomes 0.10000000149. Structs may get more fields. A string holds any value as
    its text in staging's JSON.

    Args:
        new_type: The type that the column would get.
        old_type: The type that it has.
        is_key: Whether the column belongs to the key. A key's text must stay the same to the letter, because deleted
            rows are remembered by it: no decimal with more decimal places, and no string, whose text has quotes.
    """

    def digits(number_type: DataType) -> tuple[int, int] | None:
        """Returns the numbers of digits before and after the decimal point; None for other types."""
        if isinstance(number_type, DecimalType):
            return number_type.precision - number_type.scale, number_type.scale
        type_name = number_type.typeName()
        return (_INTEGER_DIGITS[type_name], 0) if type_name in _INTEGER_DIGITS else None

    def holds(new_inner: DataType, old_inner: DataType) -> bool:
        return new_inner == old_inner or is_wider(new_inner, old_inner, is_key=False)

    if isinstance(new_type, StructType) and isinstance(old_type, StructType):
        fields = {field.name: field.dataType for field in new_type.fields}
        return not is_key and all(
            field.name in fields and holds(fields[field.name], field.dataType) for field in old_type.fields
        )
    if isinstance(new_type, ArrayType) and isinstance(old_type, ArrayType):
        return holds(new_type.elementType, old_type.elementType)
    if isinstance(new_type, MapType) and isinstance(old_type, MapType):
        return new_type.keyType == old_type.keyType and holds(new_type.valueType, old_type.valueType)
    if new_type.typeName() in ("double", "string"):
        return not is_key and (isinstance(new_type, StringType) or old_type.typeName() in _EXACT_IN_DOUBLE)
    new_digits, old_digits = digits(new_type), digits(old_type)
    if (
        new_digits is None
        or old_digits is None
        or (isinstance(old_type, DecimalType) and not isinstance(new_type, DecimalType))
    ):
        return False
    return new_digits[0] >= old_digits[0] and (
        new_digits[1] == old_digits[1] if is_key else new_digits[1] >= old_digits[1]
    )


def check_has_tables(column_type: DataType, column: str, subject: str) -> None:
    """Checks that a Delta table can have a column of that type.

    Args:
        column_type: The column's type.
        column: The column's name.
        subject: The output and its rules, for the error's text.

    Raises:
        UsageError: No Delta table can have it.
    """
    for leaf in leaves(column_type):
        if leaf.typeName().split("(")[0] not in _DELTA_TYPES:
            msg = (
                f"{subject}: column {column!r} is {column_type.simpleString()}, and no Delta table has "
                f"{leaf.simpleString()}: cast it, to string say"
            )
            raise UsageError(msg)


def check_types(spark: SparkSession, config: Config, staging: DeltaTable, before: str | None, now: str) -> None:
    """Checks that delivered tables can take the rules' rows, before any of these rows are in staging.

    Tables are read only if the columns changed. A table is checked if the config names `deliver.tables`, or if the
    lake has a table that was made from this staging.

    Args:
        spark: The session.
        config: The config.
        staging: Staging.
        before: The columns of all outputs as JSON (zync/rules/schema.py) after the previous sync.
        now: The same for this sync.

    Raises:
        UsageError: A column has a type that no Delta table has, or changed to a type that is not wider.
    """
    if before == now:
        return
    old_outputs = recorded(before)
    for topic, columns in recorded(now).items():
        location = table_of(topic, config.lake)
        try:
            table = open_table(location)
        except UsageError:  # no table can have that name, which matters only if the config asks for tables
            if config.deliver.tables is not None:
                raise
            continue
        is_delivered = table is not None and APP + str(staging.metadata().id) in app_transactions(table)
        if config.deliver.tables is None and not is_delivered:
            continue
        subject = f"output {topic}: {_rules(config, topic)}"
        for field in StructType.fromJson(columns["value"]).fields:
            check_has_tables(field.dataType, field.name, subject)
        if topic in old_outputs:
            staged_columns = StructType.fromJson(old_outputs[topic]["value"])
            _check_columns(columns, staged_columns, subject, "the rows in staging have it")
        if is_delivered:
            table_columns = spark.read.format("delta").load(location).schema
            _check_columns(columns, table_columns, subject, f"the table at {location} has it")


def _rules(config: Config, topic: str) -> str:
    names = [rule.name for rule in config.outputs if rule.topic == topic]
    return f"rule{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _check_columns(columns: Mapping[str, Any], old_columns: StructType, subject: str, where: str) -> None:
    """Raises UsageError if a column's type changed to a type that is not wider.

    Args:
        columns: The output's present columns as JSON: those of `value` and those of `key`.
        old_columns: The columns as they were.
        subject: The output and its rules, for the error's text.
        where: Where the old columns are, for the error's text.
    """
    key = {field.name for field in StructType.fromJson(columns["key"]).fields}
    old_types = {field.name: field.dataType for field in old_columns.fields}
    for field in StructType.fromJson(columns["value"]).fields:
        old_type = old_types.get(field.name, field.dataType)
        if field.dataType == old_type or is_wider(field.dataType, old_type, is_key=field.name in key):
            continue
        can_be_text = not isinstance(old_type, StringType) and field.name not in key
        to_text = f", or to string ({field.name}::string), which holds what there is as text" if can_be_text else ""
        msg = (
            f"{subject}: column {field.name!r} is {field.dataType.simpleString()} now, and {where} as "
            f"{old_type.simpleString()}. Nothing was committed. Cast it to {old_type.simpleString()}{to_text}, or give "
            "it another name"
        )
        raise UsageError(msg)
