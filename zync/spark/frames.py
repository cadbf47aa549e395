"""Rows in Spark: kept, read, brought together, or the driver's own; what zync asks of a DataFrame beyond its API."""

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from zync.spark.jvm import jvm_class

_ADAPTIVE = "spark.sql.adaptive.enabled"
_SEPARATOR = "\0,\0"


class Keeper:
    """Lets Spark keep rows that are used more than once, and the session its views, until this context ends.

    A view that stays holds the rows kept under it; so each sync would hold on to the one before.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._kept: list[Any] = []

    def __enter__(self) -> "Keeper":
        return self

    def __exit__(self, *_: object) -> None:
        while self._kept:
            self._kept.pop().unpersist(False)  # noqa: FBT003 - nobody waits for it
        self._spark._jsparkSession.sessionState().catalog().clearTempTables()  # noqa: SLF001

    def keep(self, frame: DataFrame, *, adaptive: bool = True) -> DataFrame:
        """The rows of `frame`, as a plan that begins at them; they are made when they are asked for, if not sooner.

        `adaptive`: Spark may change that plan as it goes, as pays where rules join. Where it may not, Spark knows
        which of the kept rows are together, and does not move them once more to group them.

        `persist` keeps plans, finds them by comparing, and packs rows by column, which costs more than it saves. A
        checkpoint keeps the rows themselves, but forgets where they came from: here it does not, so that what a lost
        executor kept is made anew.
        """
        with contextlib.nullcontext() if adaptive else setting(self._spark, _ADAPTIVE, "false"):
            kept = frame.localCheckpoint(eager=False)
        rows = kept._jdf.queryExecution().logical().rdd()  # noqa: SLF001
        getattr(rows, "checkpointData_$eq")(jvm_class(self._spark, "scala.Option").empty())
        self._kept.append(rows)
        return kept


@contextlib.contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Sets one of the session's properties, until this context ends."""
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def result_of(spark: SparkSession, text: str) -> DataFrame:
    """The rows of a statement: `spark.sql`, by one call to the JVM instead of six."""
    return ClassicDataFrame(spark._jsparkSession.sql(text), spark)  # noqa: SLF001


def select(rows: DataFrame, *expressions: str) -> DataFrame:
    """`rows.selectExpr`, by two calls to the JVM instead of one for each expression: a sync has hundreds of them."""
    texts = _separator(rows.sparkSession).split(_SEPARATOR.join(expressions))
    return ClassicDataFrame(rows._jdf.selectExpr(texts), rows.sparkSession)  # noqa: SLF001


@lru_cache(1)
def _separator(spark: SparkSession) -> Any:
    """A pattern of the JVM's, by which it splits texts that come as one."""
    return jvm_class(spark, "java.util.regex.Pattern").compile(_SEPARATOR)


def together(rows: DataFrame, column: str, tasks: int) -> DataFrame:
    """The rows, in so many tasks, those with an equal `column` in one."""
    return rows.repartition(tasks, column) if tasks > 1 else rows.coalesce(1)


def beside(rows: DataFrame, *, one_task: bool) -> DataFrame:
    """The rows, few enough for each task to have them all; `one_task`: for the one task that there is."""
    return rows.coalesce(1).hint("shuffle_hash") if one_task else rows.hint("broadcast")


def read_parquet(spark: SparkSession, files: list[str], schema: str | StructType) -> DataFrame:
    """The rows of exactly those files: a table's files at one version, as the caller found them in its log."""
    return spark.read.schema(schema).parquet(*files) if files else local(spark, [], schema)


def with_leaves(kind: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """The type with each type in it that holds no others as `change` says; all in it may be null."""
    if isinstance(kind, ArrayType):
        return ArrayType(with_leaves(kind.elementType, change))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, with_leaves(kind.valueType, change))
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, with_leaves(one.dataType, change)) for one in kind.fields])
    return change(kind)


def leaves(kind: DataType) -> list[DataType]:
    """The types in a type that hold no others: its own where it is such."""
    found: list[DataType] = []

    def keep(leaf: DataType) -> DataType:
        found.append(leaf)
        return leaf

    with_leaves(kind, keep)
    return found


def local(spark: SparkSession, rows: pa.Table | list[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
    """The driver's own rows as a DataFrame that is part of the plan itself.

    Spark's way for lists takes them through Python workers, which costs half a second a sync.
    """
    return _local(spark, rows, schema) if len(rows) or not isinstance(schema, str) else _nothing(spark, schema)


@lru_cache(32)
def _nothing(spark: SparkSession, schema: str) -> DataFrame:
    """No rows: the same each time, as there are several in each sync."""
    return _local(spark, [], schema)


def _local(spark: SparkSession, rows: pa.Table | list[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
    if not isinstance(rows, pa.Table):
        struct = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        arrow = to_arrow_schema(cast("StructType", struct), timezone="UTC")
        rows = pa.Table.from_pylist([dict(zip(arrow.names, row, strict=True)) for row in rows], schema=arrow)
    # In one chunk: Spark takes one that is empty for the end, and what comes after it is lost in silence.
    return spark.createDataFrame(rows.combine_chunks(), schema)


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark has it."""
    return from_arrow_schema(schema)
