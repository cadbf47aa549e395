"""`zync replay` and `zync diff`: staging made anew from raw, and two stagings beside each other."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.config import Config
from zync.errors import UsageError
from zync.files import data_files, dataset
from zync.frames import read_parquet
from zync.ingest.raw import existing_raw, first_seqno, next_seqno
from zync.lake import open_table
from zync.sql import statement
from zync.staging.commit import owned
from zync.staging.table import STAGING_SCHEMA, existing_staging, spark_schema
from zync.sync import Outcome, Syncer
from zync.transactions.decisions import decisions
from zync.transactions.revisit import REVISITING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STEP = 2_000_000
"""Records of raw that one sync of a replay takes."""


@dataclass(frozen=True)
class Replayed:
    """What a replay made. `different`: what of the config is not as it was in the staging compared with.

    start: from there on raw has all records.
    """

    cursor: int
    head: int
    syncs: int
    transactions: int
    outputs: dict[str, int]
    different: list[str]
    start: int


def replay(
    spark: "SparkSession",
    config: Config,
    raw: str,
    into: str,
    upto: int | None,
    beside: str,
    on_sync: Callable[[Outcome], None],
) -> Replayed:
    """Makes the staging `into` anew from raw, up to seqno `upto`; compares digests with those of staging `beside`.

    UsageError where `into` is a staging already.
    """
    if open_table(into) is not None:
        msg = f"{into} is there already: a replay makes a staging anew, name one that is not there"
        raise UsageError(msg)
    raw_table = existing_raw(raw)
    last = next_seqno(raw_table) - 1
    last = last if upto is None else min(upto, last)
    outputs: dict[str, int] = {}
    trimmed = first_seqno(raw_table) - 1
    cuts = [*_before_revisits(raw_table), last]
    syncs = transactions = head = cursor = 0
    with owned(into):
        syncer = Syncer(config.without_limit(), raw, into, spark)  # as syncs are larger than they were
        while head < last:
            step = max(head + _STEP, trimmed)
            outcome = syncer.sync(upto=min(step, next(cut for cut in cuts if cut > head), last))
            on_sync(outcome)
            syncs, transactions = syncs + 1, transactions + outcome.transactions
            head, cursor = outcome.head, outcome.cursor
            for topic, count in outcome.outputs.items():
                outputs[topic] = outputs.get(topic, 0) + count
    return Replayed(cursor, head, syncs, transactions, outputs, _different(into, beside), trimmed + 1)


def _before_revisits(raw: DeltaTable) -> list[int]:
    """Where a sync has to end, for what an operator redrove or dropped to be set aside in staging before that.

    Decisions that follow each other need one such end, up to the second about one id.
    """
    cuts, last, together = [], 0, set[str]()
    for seqno, one in decisions(raw):
        if one.get("decision") in REVISITING:
            txn = str(one.get("txn"))
            if seqno != last + 1 or txn in together:
                cuts.append(seqno - 1)
                together.clear()
            last = seqno
            together.add(txn)
    return cuts


def _different(one: str, other: str) -> list[str]:
    """Names of digests that the syncs of two stagings do not all share."""
    tables = [open_table(one), open_table(other)]
    if any(table is None for table in tables):
        return []
    found = [digests for table in tables if table is not None for digests in _digests(table)]
    return sorted(name for name in {*chain(*found)} if len({digests.get(name) for digests in found}) > 1)


def _digests(table: DeltaTable) -> list[dict[str, str]]:
    """Those of each sync."""
    rows = dataset(table, [one.path for one in data_files(table, "sync")], STAGING_SCHEMA)
    cursors = rows.to_table(columns=["digests"], filter=ds.field("kind") == "cursor")
    return [dict(one) for one in cursors["digests"].to_pylist()]


@dataclass
class TopicDiff:
    """How the rows of one output topic differ; `examples` are some of them, in order."""

    only_in_one: int = 0
    only_in_other: int = 0
    changed: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


def diff(spark: "SparkSession", one: str, other: str, limit: int) -> dict[str, TopicDiff]:
    """By output topic, what is not the same in two stagings; at most `limit` examples each. Empty: nothing differs."""
    for name, location in (("one", one), ("other", other)):
        table = existing_staging(location)
        files = [file.uri for file in data_files(table, "seqno")]
        read_parquet(spark, files, spark_schema()).createOrReplaceTempView(name)
    different = spark.sql(statement("diff"))
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
