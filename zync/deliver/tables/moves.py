"""Rows that an update gave another key: what Debezium left out of them is what they were by the old one.

Debezium sends such an update as the deletion of the row by its old key and a new row by the new one. So what it left
out is not what the new key had before, if it had anything: that was another row.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

from zync.debezium import toast
from zync.deliver.tables.target import Target
from zync.rules.json_text import JSON_OPTIONS
from zync.spark.frames import Keeper, result_of, select
from zync.sql import literal, name, options, statement

_NO_NAMES = "CAST(NULL AS ARRAY<STRING>)"


def moves(arrived: DataFrame, keeper: Keeper) -> DataFrame:
    """Rows that got another key, with each key that they had: (key, place, old_key, after, before).

    By sql/tables/moves.sql, once for each key that a row had in this batch.
    """
    spark = arrived.sparkSession
    own = keeper.keep(select(arrived.where("old_key IS NOT NULL"), "key", "place", "old_key"))
    own.createOrReplaceTempView("moved")
    found, level = [], select(own, "*", "place AS before")
    while not level.isEmpty():
        level.createOrReplaceTempView("level")
        found.append(keeper.keep(result_of(spark, statement("tables/moves"))))
        earlier = ("key", "place", "earlier.old_key AS old_key", "earlier.place AS before")
        level = select(found[-1].where("earlier IS NOT NULL"), *earlier)
    if not found:  # only of other rows that came in the same files
        level.createOrReplaceTempView("level")
        found = [result_of(spark, statement("tables/moves"))]
    return reduce(DataFrame.unionByName, found).drop("earlier")


def donors(moved: DataFrame, old_rows: DataFrame, target: Target, columns: dict[str, str]) -> DataFrame:
    """What those rows were before, as rows of the key that they got (sql/tables/donors.sql), over the view `arrived`.

    old_rows: the table's rows of the keys that they had. columns: those that may be left out, with the condition that
    they are.
    """
    spark, key = moved.sparkSession, ", ".join(map(name, target.key))
    if toast.COLUMN not in old_rows.columns:
        old_rows = select(old_rows, "*", f"CAST(NULL AS {toast.TYPE}) AS {toast.COLUMN}")
    old_rows = select(old_rows, "*", f"to_json(struct({key}), {options(JSON_OPTIONS)}) AS _key")
    old_rows.createOrReplaceTempView("old_rows")
    moved.createOrReplaceTempView("moves")
    known = (
        f", max_by(named_struct('x', v.{name(one)}), {toast.origin(one)}) "
        f"FILTER (WHERE v IS NOT NULL AND NOT {condition} AND {toast.is_known(one)}) AS {toast.known(one)}"
        for one, condition in columns.items()
    )
    names = target.columns.names
    values = (f"{literal(one)}, {f'{toast.known(one)}.x' if one in columns else 'NULL'}" for one in names)
    missing = (f"CASE WHEN {toast.known(one)} IS NULL THEN {literal(one)} END" for one in columns)
    text = statement(
        "tables/donors",
        noted=toast.TYPE,
        row=f"named_struct({', '.join(f'{literal(one)}, o.{name(one)}' for one in names)})",
        known="".join(known),
        values=f"named_struct({', '.join(values)})",
        type=f"STRUCT<{target.columns.toDDL()}>",
        key_type=f"STRUCT<{StructType([target.columns[one] for one in target.key]).toDDL()}>",
        unresolved=f"array_except(array({', '.join(missing)}), array(CAST(NULL AS STRING)))",
    )
    return result_of(spark, text)


def as_known(arrived: DataFrame, moved: DataFrame, donors: DataFrame) -> DataFrame:
    """`arrived` with the donors, for an upsert: without what their keys had before, which is of other rows.

    What is not known of a row is null, and its column is `unresolved`.
    """
    last = moved.groupBy("key").agg(expr("max(place) AS moved_at"))
    arrived = arrived.join(last, "key", "left").where("moved_at IS NULL OR place >= moved_at").drop("moved_at")
    return arrived.unionByName(select(donors, "*", f"{_NO_NAMES} AS left_out"), allowMissingColumns=True)


def as_left_out(arrived: DataFrame, moved: DataFrame, donors: DataFrame) -> DataFrame:  # noqa: ARG001 - as `as_known`
    """`arrived` with the donors, for a history: what is not known of a row is left out of it."""
    donors = select(donors, "* EXCEPT (unresolved)", "unresolved AS left_out")
    return arrived.unionByName(donors, allowMissingColumns=True)
