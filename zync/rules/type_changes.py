"""What may become of a column's type, once rows of it are in staging or in a delivered table."""

from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructType

from zync.config.model import Config
from zync.errors import UsageError
from zync.lake.delivered import APP, table_of
from zync.lake.table import app_transactions, open_table
from zync.spark.frames import leaves
from zync.staging.outputs import recorded

_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_EXACT_IN_DOUBLE = ("byte", "short", "integer")
_OF_TABLES = (
    *("boolean", "binary", "string", "char", "varchar", "variant", "date", "timestamp", "timestamp_ntz"),
    *("byte", "short", "integer", "long", "float", "double", "decimal"),
)
"""The types of Delta's columns; lists, maps and structs are of these."""


def is_wider(to: DataType, was: DataType, *, is_key: bool) -> bool:
    """Whether all values of type `was`, and how they are written, are the same in the type `to`, but for zeros.

    So not float to double: 0.1 becomes 0.10000000149. Structs may have more fields. A key's text has to be the same to
    the letter, for it is what deleted rows are remembered by: no decimal of more decimals. A string holds any value as
    the text that it is in staging's JSON, but a key's text would have quotes.
    """

    def digits(kind: DataType) -> tuple[int, int] | None:
        """How many before and after the point."""
        if isinstance(kind, DecimalType):
            return kind.precision - kind.scale, kind.scale
        return (_DIGITS[kind.typeName()], 0) if kind.typeName() in _DIGITS else None

    def holds(to: DataType, was: DataType) -> bool:
        return to == was or is_wider(to, was, is_key=False)

    if isinstance(to, StructType) and isinstance(was, StructType):
        fields = {one.name: one.dataType for one in to.fields}
        return not is_key and all(one.name in fields and holds(fields[one.name], one.dataType) for one in was.fields)
    if isinstance(to, ArrayType) and isinstance(was, ArrayType):
        return holds(to.elementType, was.elementType)
    if isinstance(to, MapType) and isinstance(was, MapType):
        return to.keyType == was.keyType and holds(to.valueType, was.valueType)
    if to.typeName() in ("double", "string"):
        return not is_key and (isinstance(to, StringType) or was.typeName() in _EXACT_IN_DOUBLE)
    more, less = digits(to), digits(was)
    if more is None or less is None or (isinstance(was, DecimalType) and not isinstance(to, DecimalType)):
        return False
    return more[0] >= less[0] and (more[1] == less[1] if is_key else more[1] >= less[1])


def check_has_tables(kind: DataType, column: str, of: str) -> None:
    """UsageError where no Delta table can have a column of that type."""
    for leaf in leaves(kind):
        if leaf.typeName().split("(")[0] not in _OF_TABLES:
            msg = f"{of}: column {column!r} is {kind.simpleString()}, and no Delta table has {leaf.simpleString()}: "
            raise UsageError(msg + "cast it, to string say")


def check_types(spark: SparkSession, config: Config, staging: DeltaTable, before: str | None, now: str) -> None:
    """UsageError where rules make what a delivered table cannot take, before anything of it is in staging.

    `before`, `now`: the columns of all outputs, on record (zync/rules/schema.py), of the sync before, and of this one.
    The tables are looked at only where the columns are others than before. A table is delivered where the config names
    `deliver.tables`, or where the lake has one that was made of this staging.
    """
    if before == now:
        return
    was = recorded(before)
    for topic, made in recorded(now).items():
        location = table_of(topic, config.lake)
        try:
            table = open_table(location)
        except UsageError:  # no table can be called so, and none is asked for
            if config.deliver.tables is not None:
                raise
            continue
        mine = table is not None and APP + str(staging.metadata().id) in app_transactions(table)
        if config.deliver.tables is None and not mine:
            continue
        of = f"output {topic}: {_rules(config, topic)}"
        for one in StructType.fromJson(made["value"]).fields:
            check_has_tables(one.dataType, one.name, of)
        if topic in was:
            _check_columns(made, StructType.fromJson(was[topic]["value"]), of, "the rows in staging have it")
        if mine:
            there = spark.read.format("delta").load(location).schema
            _check_columns(made, there, of, f"the table at {location} has it")


def _rules(config: Config, topic: str) -> str:
    names = [rule.name for rule in config.outputs if rule.topic == topic]
    return f"rule{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _check_columns(made: Mapping[str, Any], was: StructType, of: str, where: str) -> None:
    """UsageError where a column has another type than it had, and not a wider one."""
    key = {one.name for one in StructType.fromJson(made["key"]).fields}
    types = {one.name: one.dataType for one in was.fields}
    for one in StructType.fromJson(made["value"]).fields:
        before = types.get(one.name, one.dataType)
        if one.dataType == before or is_wider(one.dataType, before, is_key=one.name in key):
            continue
        text = isinstance(before, StringType) or one.name in key
        to_text = "" if text else f", or to string ({one.name}::string), which holds what there is as text"
        msg = (
            f"{of}: column {one.name!r} is {one.dataType.simpleString()} now, and {where} as {before.simpleString()}. "
            f"Nothing was committed. Cast it to {before.simpleString()}{to_text}, or give it another name"
        )
        raise UsageError(msg)
