"""The columns and types of output topics, as their rules produce them."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from zync.config.model import OutputRule
from zync.errors import UsageError
from zync.rules.left_out import RESERVED
from zync.spark.frames import with_leaves

Made = Sequence[tuple[OutputRule, "DataFrame"]]
"""Rules, each with its result."""


class Columns(NamedTuple):
    """The columns of an output topic; all of them are nullable.

    Attributes:
        value: The columns of its rows, in the order selected.
        key: The columns of its key.
    """

    value: StructType
    key: StructType


def columns_by_topic(made: Made) -> dict[str, Columns]:
    """Returns the columns of each output topic.

    Args:
        made: Rules, each with its result.

    Raises:
        UsageError: Rules of the same topic do not agree.
    """
    return {topic: _columns_of_topic(results) for topic, results in _by_topic(made).items()}


def columns_as_json(made: Made) -> str:
    """Returns the columns of all output topics as JSON, which staging's cursor row stores in `state`.

    `zync.staging.outputs.recorded` reads it. Topics whose rules do not agree are left out.

    Args:
        made: Rules, each with its result.
    """
    topic_columns = {}
    for topic, results in _by_topic(made).items():
        try:
            columns = _columns_of_topic(results)
        except UsageError:  # a delivery that needs these columns raises it
            continue
        topic_columns[topic] = {part: getattr(columns, part).jsonValue() for part in Columns._fields}
    return json.dumps({"columns": topic_columns}, separators=(",", ":"))


def _by_topic(made: Made) -> dict[str, list[tuple[OutputRule, DataFrame]]]:
    results: dict[str, list[tuple[OutputRule, DataFrame]]] = {}
    for rule, rows in made:
        results.setdefault(rule.topic, []).append((rule, rows))
    return results


def _columns_of_topic(results: list[tuple[OutputRule, DataFrame]]) -> Columns:
    """Returns the columns of a topic from the results of its rules; UsageError if they do not agree."""
    first_rule, fields = results[0][0], dict[str, StructField]()
    for rule, rows in results:
        subject = f"output {rule.topic}: rule {rule.name}"
        if rule.key != first_rule.key:
            msg = f"{subject} has the key {list(rule.key)} and another {list(first_rule.key)}: an output has one"
            raise UsageError(msg)
        for column in rows.schema.fields:
            if column.name in RESERVED:
                continue
            column_type = with_leaves(column.dataType, lambda leaf: leaf)
            first_field = fields.setdefault(column.name, StructField(column.name, column_type))
            if first_field.dataType != column_type:
                types = f"{first_field.dataType.simpleString()} and another {column_type.simpleString()}"
                msg = f"{subject} has column {column.name!r} as {types}: an output has one type for it"
                raise UsageError(msg)
    return Columns(StructType(list(fields.values())), StructType([fields[name] for name in first_rule.key]))
