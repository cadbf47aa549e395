"""Helpers for DataFrames: checkpoints, repartitioning, join hints, rows from the driver, and calls beyond the API."""

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


class RowCache:
    """A context that caches rows which are used more than once, and drops them and the session's views at its end.

    A temporary view refers to the cached rows under it, so without that a sync would hold the rows of the sync before.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._kept: list[Any] = []

    def __enter__(self) -> "RowCache":
        return self

    def __exit__(self, *_: object) -> None:
        while self._kept:
            self._kept.pop().unpersist(False)  # noqa: FBT003 - blocking=False
        self._spark._jsparkSession.sessionState().catalog().clearTempTables()  # noqa: SLF001

    def keep(self, frame: DataFrame, *, adaptive: bool = True) -> DataFrame:
        """Returns a DataFrame that reads the cached rows of `frame`. They are computed when they are first used.

        It uses `localCheckpoint`: `persist` would keep plans, find them by comparison, and store rows by column, which
        costs more than it saves. A checkpoint cuts the RDD's lineage; this one keeps it, so that Spark can compute the
        rows of a lost executor again.

        Args:
            frame: The rows to cache.
            adaptive: Whether adaptive execution may change the plan, which pays where rules join. If it may not, Spark
                knows the partitioning of the cached rows, and needs no further shuffle to group them.
        """
        with contextlib.nullcontext() if adaptive else setting(self._spark, _ADAPTIVE, "false"):
            cached = frame.localCheckpoint(eager=False)
        rdd = cached._jdf.queryExecution().logical().rdd()  # noqa: SLF001
        getattr(rdd, "checkpointData_$eq")(jvm_class(self._spark, "scala.Option").empty())
        self._kept.append(rdd)
        return cached


@contextlib.contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Sets a property of the session until this context ends."""
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def result_of(spark: SparkSession, text: str) -> DataFrame:
    """Returns the rows of a statement, like `spark.sql`, by a single call to the JVM instead of six."""
    return ClassicDataFrame(spark._jsparkSession.sql(text), spark)  # noqa: SLF001


def select(rows: DataFrame, *expressions: str) -> DataFrame:
    """Selects SQL expressions, like `rows.selectExpr`.

    It makes two calls to the JVM instead of a call for each expression: a sync has hundreds of them.
    """
    texts = _separator(rows.sparkSession).split(_SEPARATOR.join(expressions))
    return ClassicDataFrame(rows._jdf.selectExpr(texts), rows.sparkSession)  # noqa: SLF001


@lru_cache(1)
def _separator(spark: SparkSession) -> Any:
    """Returns a compiled pattern of the JVM, which splits a joined text into the expressions."""
    return jvm_class(spark, "java.util.regex.Pattern").compile(_SEPARATOR)


def co_partition(rows: DataFrame, column: str, tasks: int) -> DataFrame:
    """Repartitions rows into `tasks` partitions, so that rows with an equal `column` are in the same partition."""
    return rows.repartition(tasks, column) if tasks > 1 else rows.coalesce(1)


def small_side(rows: DataFrame, *, single_task: bool) -> DataFrame:
    """Marks the small side of a join with a hint: broadcast it, or hash it without a shuffle.

    Args:
        rows: Rows that fit into the memory of every task.
        single_task: Whether the join runs in a single task, so that no broadcast is needed.
    """
    return rows.coalesce(1).hint("shuffle_hash") if single_task else rows.hint("broadcast")


def read_parquet(spark: SparkSession, files: list[str], schema: str | StructType) -> DataFrame:
    """Reads exactly these Parquet files, which the caller lists from a table's log at some version."""
    return spark.read.schema(schema).parquet(*files) if files else from_rows(spark, [], schema)


def with_leaves(kind: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """Returns a type with `change` applied to each leaf type (no array, map or struct); all its parts are nullable."""
    if isinstance(kind, ArrayType):
        return ArrayType(with_leaves(kind.elementType, change))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, with_leaves(kind.valueType, change))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, with_leaves(field.dataType, change)) for field in kind.fields])
    return change(kind)


def leaves(kind: DataType) -> list[DataType]:
    """Returns the leaf types of a type (no array, map or struct): the type itself if it is a leaf."""
    leaf_types: list[DataType] = []

    def collect(leaf: DataType) -> DataType:
        leaf_types.append(leaf)
        return leaf

    with_leaves(kind, collect)
    return leaf_types


def from_rows(spark: SparkSession, rows: pa.Table | list[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
    """Converts rows of the driver to a DataFrame whose plan contains them (LocalRelation).

    Spark sends a list through Python workers instead, which takes half a second in each sync.
    """
    return _local(spark, rows, schema) if len(rows) or not isinstance(schema, str) else _empty(spark, schema)


@lru_cache(32)
def _empty(spark: SparkSession, schema: str) -> DataFrame:
    """Returns an empty DataFrame, cached as each sync needs several of them."""
    return _local(spark, [], schema)


def _local(spark: SparkSession, rows: pa.Table | list[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
    if not isinstance(rows, pa.Table):
        struct = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        arrow = to_arrow_schema(cast("StructType", struct), timezone="UTC")
        rows = pa.Table.from_pylist([dict(zip(arrow.names, row, strict=True)) for row in rows], schema=arrow)
    # Spark takes an empty chunk for the end and silently loses the chunks after it, so combine all.
    return spark.createDataFrame(rows.combine_chunks(), schema)


def spark_schema(schema: pa.Schema) -> StructType:
    """Converts an Arrow schema to Spark's."""
    return from_arrow_schema(schema)
