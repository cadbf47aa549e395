"""Rows that an update gave another key: the columns that Debezium left out of them have the values of the old key.

Debezium sends such an update as a deletion of the old key and a row of the new key. So the values that it left out are
not those that the new key had before, which were of another row.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

from zync.debezium import toast
from zync.deliver.tables.target import TableTarget
from zync.rules.json_text import JSON_OPTIONS
from zync.spark.frames import RowCache, result_of, select
from zync.sql import literal, name, options, statement

_NO_NAMES = "CAST(NULL AS ARRAY<STRING>)"


def moves(arrived: DataFrame, row_cache: RowCache) -> DataFrame:
    """Returns the rows that got another key, with each key that they had: (key, place, old_key, after, before).

    A row that got several keys in this batch has a row for each. Runs sql/tables/moves.sql once for each of these
    steps.
    """
    spark = arrived.sparkSession
    direct_moves = row_cache.keep(select(arrived.where("old_key IS NOT NULL"), "key", "place", "old_key"))
    direct_moves.createOrReplaceTempView("moved")
    levels, level = [], select(direct_moves, "*", "place AS before")
    while not level.isEmpty():
        level.createOrReplaceTempView("level")
        levels.append(row_cache.keep(result_of(spark, statement("tables/moves"))))
        earlier_columns = ("key", "place", "earlier.old_key AS old_key", "earlier.place AS before")
        level = select(levels[-1].where("earlier IS NOT NULL"), *earlier_columns)
    if not levels:  # the old keys were of other rows in the same files
        level.createOrReplaceTempView("level")
        levels = [result_of(spark, statement("tables/moves"))]
    return reduce(DataFrame.unionByName, levels).drop("earlier")


def donors(moved: DataFrame, old_rows: DataFrame, target: TableTarget, columns: dict[str, str]) -> DataFrame:
    """Returns what the moved rows were before, as rows of their new keys (sql/tables/donors.sql).

    Needs the view `arrived`.

    Args:
        moved: The result of `moves`.
        old_rows: The table's rows of the old keys.
        target: The table.
        columns: The columns that may be left out, each with the condition that it is.
    """
    spark, key = moved.sparkSession, ", ".join(map(name, target.key))
    if toast.COLUMN not in old_rows.columns:
        old_rows = select(old_rows, "*", f"CAST(NULL AS {toast.TYPE}) AS {toast.COLUMN}")
    old_rows = select(old_rows, "*", f"to_json(struct({key}), {options(JSON_OPTIONS)}) AS _key")
    old_rows.createOrReplaceTempView("old_rows")
    moved.createOrReplaceTempView("moves")
    known_values = (
        f", max_by(named_struct('x', v.{name(column)}), {toast.origin(column)}) "
        f"FILTER (WHERE v IS NOT NULL AND NOT {condition} AND {toast.is_known(column)}) AS {toast.known(column)}"
        for column, condition in columns.items()
    )
    names = target.columns.names
    values = (f"{literal(column)}, {f'{toast.known(column)}.x' if column in columns else 'NULL'}" for column in names)
    unresolved = (f"CASE WHEN {toast.known(column)} IS NULL THEN {literal(column)} END" for column in columns)
    text = statement(
        "tables/donors",
        noted=toast.TYPE,
        row=f"named_struct({', '.join(f'{literal(column)}, o.{name(column)}' for column in names)})",
        known="".join(known_values),
        values=f"named_struct({', '.join(values)})",
        type=f"STRUCT<{target.columns.toDDL()}>",
        key_type=f"STRUCT<{StructType([target.columns[column] for column in target.key]).toDDL()}>",
        unresolved=f"array_except(array({', '.join(unresolved)}), array(CAST(NULL AS STRING)))",
    )
    return result_of(spark, text)


def with_donors_for_upsert(arrived: DataFrame, moved: DataFrame, donors: DataFrame) -> DataFrame:
    """Adds the donors to `arrived`, and drops earlier rows of their new keys, which are of other rows.

    A column whose value is unknown is null, and `unresolved` names it.
    """
    last_moves = moved.groupBy("key").agg(expr("max(place) AS moved_at"))
    arrived = arrived.join(last_moves, "key", "left").where("moved_at IS NULL OR place >= moved_at").drop("moved_at")
    return arrived.unionByName(select(donors, "*", f"{_NO_NAMES} AS left_out"), allowMissingColumns=True)


def with_donors_for_history(
    arrived: DataFrame,
    moved: DataFrame,  # noqa: ARG001 - the signature of `with_donors_for_upsert`
    donors: DataFrame,
) -> DataFrame:
    """Adds the donors to `arrived`; `left_out` names the columns whose values are unknown."""
    donors = select(donors, "* EXCEPT (unresolved)", "unresolved AS left_out")
    return arrived.unionByName(donors, allowMissingColumns=True)
