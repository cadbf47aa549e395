"""`zync diff`: compares the output rows of two stagings."""

import json
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from zync.lake.files import data_files
from zync.spark.frames import read_parquet, spark_schema
from zync.sql import statement
from zync.staging.table import STAGING_SCHEMA, existing_staging


@dataclass
class TopicDiff:
    """How the rows of an output topic differ between two stagings.

    Attributes:
        only_in_one: number of rows that only the first staging has.
        only_in_other: number of rows that only the second has.
        changed: number of rows whose values differ.
        examples: some of these rows, in order of seqno and key.
    """

    only_in_one: int = 0
    only_in_other: int = 0
    changed: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


def diff(spark: SparkSession, one: str, other: str, limit: int = 20) -> dict[str, TopicDiff]:
    """Compares the output rows of two stagings.

    Args:
        spark: the session to run in.
        one: the location of the first staging.
        other: the location of the second.
        limit: the number of examples for each topic, at most.

    Returns:
        The differences by output topic; topics without differences are left out.

    Example:
        >>> zync.diff(spark, "lake/staging", "lake/again")
        {}
    """
    for view, location in (("one", one), ("other", other)):
        table = existing_staging(location)
        files = [file.uri for file in data_files(table, "seqno")]
        read_parquet(spark, files, spark_schema(STAGING_SCHEMA)).createOrReplaceTempView(view)
    differences = spark.sql(statement("operate/diff"))
    topics: dict[str, TopicDiff] = {}
    for row in differences.groupBy("topic", "how").count().collect():
        setattr(topics.setdefault(row["topic"], TopicDiff()), row["how"], row["count"])
    for topic, topic_diff in topics.items():
        rows = differences.where(differences["topic"] == topic).orderBy("seqno", "key", "one", "other").limit(limit)
        topic_diff.examples = [_example(row.asDict()) for row in rows.collect()]
    return dict(sorted(topics.items()))


def _example(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row of the comparison as an example; of two JSON objects only the columns that differ."""
    first, second, key = (row[name] and json.loads(row[name], parse_float=_number) for name in ("one", "other", "key"))
    example = {"seqno": row["seqno"], "key": key, "how": row["how"]}
    if isinstance(first, dict) and isinstance(second, dict):
        columns = [*first, *(column for column in second if column not in first)]
        changed = [name for name in columns if name not in first or name not in second or first[name] != second[name]]
        return {**example, "columns": {column: [first.get(column), second.get(column)] for column in changed}}
    return {**example, "one": first, "other": second}


def _number(text: str) -> float | str:
    """Parses a decimal number; keeps it as text where a float would print it otherwise, so that digits compare."""
    return number if repr(number := float(text)) == text else text


def describe_diff(topics: dict[str, TopicDiff]) -> str:
    """Returns the differences as lines for people."""
    lines = []
    for topic, topic_diff in topics.items():
        lines.append(
            f"{topic}: {topic_diff.changed:,} changed, {topic_diff.only_in_one:,} only in the first, "
            f"{topic_diff.only_in_other:,} only in the second"
        )
        for row in topic_diff.examples:
            change = (
                ", ".join(f"{column}: {before!r} -> {after!r}" for column, (before, after) in row["columns"].items())
                if "columns" in row
                else f"{row['how'].replace('_', ' ')}: {row['one'] if row['other'] is None else row['other']}"
            )
            lines.append(f"  seqno {row['seqno']}, key {row['key']}: {change}")
    return "\n".join(lines) or "the output rows are the same"
