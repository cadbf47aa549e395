"""Which delivered tables delta-rs writes as Spark does."""

import json
from collections.abc import Sequence

from deltalake import DeltaTable
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from zync.lake.delivered import has_plain_protocol

_KEY_TYPES = (BinaryType, BooleanType, DateType, IntegralType, StringType)
"""Types by which delta-rs finds a row as Spark does. It leaves out files by their statistics, and so it must not be by
decimals or timestamps, whose statistics are rounded."""
_TYPES = (*_KEY_TYPES, TimestampType, TimestampNTZType)
"""Types of other columns, beside decimals of few digits. Of more digits, delta-rs writes statistics as doubles, and of
floating point numbers without NaN: Spark would then leave out files that a query needs. Doubles that are appended are
looked at; a merge writes others again, which may be NaN."""
_DECIMAL_DIGITS = 15
"""The digits of a decimal that a double holds."""
_PROPERTIES = (
    "delta.checkpointInterval",
    "delta.dataSkipping",
    "delta.deletedFileRetentionDuration",
    "delta.enableExpiredLogCleanup",
    "delta.feature.",
    "delta.logRetentionDuration",
)
"""The beginnings of Delta's properties that a table may have. By others Spark does more, like writing a manifest."""


def is_plain(table: DeltaTable) -> bool:
    """Returns whether delta-rs writes to a table as Spark does: no partitions, few features and properties of Delta."""
    metadata = table.metadata()
    properties = [name for name in metadata.configuration if name.startswith("delta.")]
    has_few_properties = all(name.startswith(_PROPERTIES) for name in properties)
    return has_plain_protocol(table) and has_few_properties and not metadata.partition_columns


def has_flat_columns(schema: StructType, key: Sequence[str] = (), *, is_appended: bool = False) -> bool:
    """Returns whether delta-rs writes columns of these types, and finds rows by those of the key, as Spark does.

    Args:
        schema: The columns of the table.
        key: The names of the columns by which rows are found.
        is_appended: Whether rows are only appended to the table.
    """
    keys = {column.lower() for column in key}
    return all(
        _is_flat(field, is_key=field.name.lower() in keys) or (is_appended and isinstance(field.dataType, DoubleType))
        for field in schema.fields
    )


def _is_flat(field: StructField, *, is_key: bool) -> bool:
    kind = field.dataType
    if any("CHAR_VARCHAR" in name for name in field.metadata):
        return False
    if isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():  # whose texts are equal by other rules
        return False
    has_few_digits = isinstance(kind, DecimalType) and kind.precision <= _DECIMAL_DIGITS
    return isinstance(kind, _KEY_TYPES) if is_key else has_few_digits or isinstance(kind, _TYPES)


def spark_schema_of(table: DeltaTable) -> StructType:
    """Returns the table's columns as Spark has them, without Spark's reading its log."""
    return StructType.fromJson(json.loads(table.schema().to_json()))
