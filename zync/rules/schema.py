"""What output topics hold: the columns of their rows and keys with their types, by their rules."""

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
"""Rules, and what each makes."""


class Columns(NamedTuple):
    """Of an output topic: the columns of its rows in the order selected; its key's. All that is in them may be null."""

    value: StructType
    key: StructType


def columns_by_topic(made: Made) -> dict[str, Columns]:
    """Those of all output topics. UsageError where rules of one do not agree."""
    return {topic: _of_topic(its) for topic, its in _by_topic(made).items()}


def on_record(made: Made) -> str:
    """Those of all output topics whose rules agree, as staging's cursor row has them in `state` (`recorded` reads)."""
    found = {}
    for topic, its in _by_topic(made).items():
        try:
            columns = _of_topic(its)
        except UsageError:  # which matters to those alone that need them, and say so
            continue
        found[topic] = {part: getattr(columns, part).jsonValue() for part in Columns._fields}
    return json.dumps({"columns": found}, separators=(",", ":"))


def _by_topic(made: Made) -> dict[str, list[tuple[OutputRule, DataFrame]]]:
    found: dict[str, list[tuple[OutputRule, DataFrame]]] = {}
    for rule, rows in made:
        found.setdefault(rule.topic, []).append((rule, rows))
    return found


def _of_topic(made: list[tuple[OutputRule, DataFrame]]) -> Columns:
    first, fields = made[0][0], dict[str, StructField]()
    for rule, rows in made:
        of = f"output {rule.topic}: rule {rule.name}"
        if rule.key != first.key:
            msg = f"{of} has the key {list(rule.key)} and another {list(first.key)}: an output has one"
            raise UsageError(msg)
        for one in rows.schema.fields:
            if one.name in RESERVED:
                continue
            kind = with_leaves(one.dataType, lambda leaf: leaf)
            before = fields.setdefault(one.name, StructField(one.name, kind))
            if before.dataType != kind:
                kinds = f"{before.dataType.simpleString()} and another {kind.simpleString()}"
                msg = f"{of} has column {one.name!r} as {kinds}: an output has one type for it"
                raise UsageError(msg)
    return Columns(StructType(list(fields.values())), StructType([fields[name] for name in first.key]))
