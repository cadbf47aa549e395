"""`zync diff`: two stagings beside each other."""

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
    """How the rows of one output topic differ; `examples` are some of them, in order."""

    only_in_one: int = 0
    only_in_other: int = 0
    changed: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


def diff(spark: SparkSession, one: str, other: str, limit: int) -> dict[str, TopicDiff]:
    """By output topic, what is not the same in two stagings; at most `limit` examples each. Empty: nothing differs."""
    for name, location in (("one", one), ("other", other)):
        table = existing_staging(location)
        files = [file.uri for file in data_files(table, "seqno")]
        read_parquet(spark, files, spark_schema(STAGING_SCHEMA)).createOrReplaceTempView(name)
    different = spark.sql(statement("operate/diff"))
    found: dict[str, TopicDiff] = {}
    for row in different.groupBy("topic", "how").count().collect():
        setattr(found.setdefault(row["topic"], TopicDiff()), row["how"], row["count"])
    for topic, mine in found.items():
        rows = different.where(different["topic"] == topic).orderBy("seqno", "key", "one", "other").limit(limit)
        mine.examples = [_example(row.asDict()) for row in rows.collect()]
    return dict(sorted(found.items()))


def _example(row: dict[str, Any]) -> dict[str, Any]:
    one, other, key = (row[name] and json.loads(row[name], parse_float=_number) for name in ("one", "other", "key"))
    example = {"seqno": row["seqno"], "key": key, "how": row["how"]}
    if isinstance(one, dict) and isinstance(other, dict):
        columns = [*one, *(column for column in other if column not in one)]
        changed = [name for name in columns if name not in one or name not in other or one[name] != other[name]]
        return {**example, "columns": {column: [one.get(column), other.get(column)] for column in changed}}
    return {**example, "one": one, "other": other}


def _number(text: str) -> float | str:
    """A number that a float would say otherwise is shown, and compared, as its text."""
    return number if repr(number := float(text)) == text else text


def describe_diff(found: dict[str, TopicDiff]) -> str:
    """The differences as lines for people."""
    lines = []
    for topic, one in found.items():
        lines.append(
            f"{topic}: {one.changed:,} changed, {one.only_in_one:,} only in the first, "
            f"{one.only_in_other:,} only in the second"
        )
        for row in one.examples:
            what = (
                ", ".join(f"{column}: {was!r} -> {now!r}" for column, (was, now) in row["columns"].items())
                if "columns" in row
                else f"{row['how'].replace('_', ' ')}: {row['one'] if row['other'] is None else row['other']}"
            )
            lines.append(f"  seqno {row['seqno']}, key {row['key']}: {what}")
    return "\n".join(lines) or "the output rows are the same"
