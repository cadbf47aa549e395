"""One table that an output topic goes to: what it looks like, what belongs in it, and the one commit that brings it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from zync.config import DeliveredTable, OutputRule
from zync.errors import UsageError, ZyncError
from zync.etl.rules import DELETE, JSON_OPTIONS, ORDER, SEQNO
from zync.lake import app_transactions, data_files, open_table
from zync.places import locate
from zync.spark import Keeper, message_of, read_parquet
from zync.sql import literal, name, options, statement
from zync.staging.table import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

_APP = "zync/delivered/"
_OURS = ("_position", "_seqno")
"""Columns beside the rule's: where a row's transaction is in the source's order."""
_UPKEEP = ("OPTIMIZE", "VACUUM START", "VACUUM END", "REORG")
"""What others may do to a table: the rows are the same afterwards."""
_UNAVAILABLE = "__debezium_unavailable_value"
_FROM_JSON = {**JSON_OPTIONS, "mode": "FAILFAST"}


@dataclass(frozen=True)
class Target:
    """The table of an output topic. `columns`: the rules'; `key`: their key columns."""

    topic: str
    location: str
    columns: "StructType"
    key: tuple[str, ...]
    said: DeliveredTable

    @property
    def upserts(self) -> bool:
        """Whether it has one row for each key."""
        return (self.said.apply or ("upsert" if self.key else "append")) == "upsert"


def targets(
    made: "list[tuple[OutputRule, DataFrame]]", said: Mapping[str, DeliveredTable], folder: str
) -> dict[str, Target]:
    """The tables of all output topics, by what their rules make. UsageError where rules of a topic do not agree."""
    from pyspark.sql.types import StructType  # noqa: PLC0415

    found: dict[str, Target] = {}
    for rule, rows in made:
        of = f"output {rule.topic}: rule {rule.name}"
        columns = StructType([one for one in rows.schema.fields if one.name not in (SEQNO, ORDER, DELETE)])
        for one in columns.fields:
            one.nullable, one.metadata = True, {}
        if mine := set(columns.names) & set(_OURS):
            msg = f"{of} selects {mine.pop()!r}, which is a column of zync's own in tables: name it otherwise"
            raise UsageError(msg)
        if "/" in rule.topic or rule.topic.startswith(("_", ".")):
            msg = f"output {rule.topic!r} cannot be the name of a table's folder: name it otherwise"
            raise UsageError(msg)
        before = found.get(rule.topic)
        if before and before.key != rule.key:
            msg = f"{of} has the key {list(rule.key)} and another {list(before.key)}: a table has one"
            raise UsageError(msg)
        for one in before.columns.fields if before else ():
            if one.name in columns.names and columns[one.name].dataType != one.dataType:
                kinds = f"{columns[one.name].dataType.simpleString()} and another {one.dataType.simpleString()}"
                msg = f"{of} has column {one.name!r} as {kinds}: a table has one type for it"
                raise UsageError(msg)
        if before:
            more = [one for one in columns.fields if one.name not in before.columns.names]
            columns = StructType([*before.columns.fields, *more])
        table = said.get(rule.topic, DeliveredTable())
        if table.apply == "upsert" and not rule.key:
            msg = f"{of} has no key, which apply: upsert needs: say `key` in outputs"
            raise UsageError(msg)
        found[rule.topic] = Target(rule.topic, locate(f"{folder}/{rule.topic}", folder), columns, rule.key, table)
    return found


def through(target: Target, staging: str) -> int:
    """The sync of that staging (its table id) whose rows the table has; 0 where there is no table."""
    table = open_table(target.location)
    return (table.transaction_version(_APP + staging) or 0) if table else 0


def check(target: Target, staging: str, recorded: int | None) -> None:
    """Raises ZyncError where somebody else wrote to the table since the version that is on record, or took it away."""
    table = open_table(target.location)
    if table is None:
        if recorded is not None:
            msg = (
                f"the table of output {target.topic} is gone from {target.location}: put it back, or take the folder "
                "that it was in away whole, to have all tables made anew"
            )
            raise ZyncError(msg)
        return
    made_of = [app.removeprefix(_APP) for app in app_transactions(table) if app.startswith(_APP)]
    begun = not made_of and _is_ours(table.history()[-1].get("userMetadata"))
    if made_of != [staging] and not begun:
        of = f"of another staging (table id {made_of[0]})" if made_of else "not zync's"
        msg = f"the table at {target.location} is {of}: take it away, or give another lake"
        raise UsageError(msg)
    if recorded is None:
        return
    if table.version() < recorded:
        msg = f"the table at {target.location} is at version {table.version()}, and was at {recorded}: was it put back?"
        raise ZyncError(msg)
    for one in table.history(table.version() - recorded):
        if not _is_ours(one.get("userMetadata")) and one["operation"] not in _UPKEEP:
            msg = (
                f"somebody else changed the table at {target.location}: its version {one['version']} is "
                f"{one['operation']}. Take the folder of the tables away, to have all made anew, and write elsewhere"
            )
            raise ZyncError(msg)


def _is_ours(metadata: str | None) -> bool:
    return bool(metadata) and str(metadata).startswith('{"zync":')


def deliver(  # noqa: PLR0913 - each is a thing known by now
    spark: "SparkSession", target: Target, staging: DeltaTable, after: int, upto: int, *, debezium: bool
) -> int:
    """Brings staging's rows of the syncs after the one up to the other into the table. How many there were.

    `debezium`: whether values may be left out that had not changed (TOAST).
    """
    files = [one.uri for one in data_files(staging, "sync", above=after, upto=upto)]
    rows = read_parquet(spark, files, spark_schema())
    mine = f"kind = 'output' AND kafka.topic = {literal(target.topic)} AND sync > {after} AND sync <= {upto}"
    rows.where(mine).createOrReplaceTempView("staged")
    table = open_table(target.location)
    with Keeper(spark) as keeper:
        try:
            if table is not None:
                _fit_columns(spark, target, upto)
            arrived = keeper.keep(spark.sql(_arrived(target)))
            count = arrived.count()
            is_new = table is None or not table.version()  # or was made, and not filled
            if count or is_new:
                arrived.createOrReplaceTempView("arrived")
                write = _upsert if target.upserts else _append
                write(spark, target, str(staging.metadata().id), upto, keeper, is_new=is_new, debezium=debezium)
        except Exception as error:
            from pyspark.errors import PySparkException  # noqa: PLC0415

            if not isinstance(error, PySparkException):
                raise
            msg = f"output {target.topic} could not be delivered to {target.location}: {message_of(error)}"
            raise ZyncError(msg) from error
    return count


def _arrived(target: Target) -> str:
    from pyspark.sql.types import StructType  # noqa: PLC0415

    key = StructType([target.columns[one] for one in target.key] or [])
    return statement(
        "arrived",
        key_type=literal(key.toDDL() or "none INT"),
        value_type=literal(target.columns.toDDL()),
        options=options(_FROM_JSON),
    )


def _append(  # noqa: PLR0913
    spark: "SparkSession",
    target: Target,
    staging: str,
    upto: int,
    _keeper: Keeper,
    *,
    is_new: bool,
    debezium: bool,  # noqa: ARG001 - one that is left out says so
) -> None:
    columns = [_column(target, one) for one in target.columns.names]
    rows = spark.table("arrived").selectExpr(*columns, *_PLACE, "deleted AS _deleted")
    if is_new:
        _create(spark, target, upto, rows.schema.toDDL())
    _writer(rows, staging, upto).mode("append").save(target.location)


_PLACE = ("place.position AS _position", "place.seqno AS _seqno")


def _column(target: Target, column: str) -> str:
    """A column of a row, of which a deleted one has only the key's."""
    of_key = f"CASE WHEN deleted THEN k.{name(column)} ELSE v.{name(column)} END"
    return f"{of_key if column in target.key else 'v.' + name(column)} AS {name(column)}"


def _upsert(  # noqa: PLR0913
    spark: "SparkSession", target: Target, staging: str, upto: int, keeper: Keeper, *, is_new: bool, debezium: bool
) -> None:
    texts = [one.name for one in target.columns.fields if debezium and one.dataType.typeName() == "string"]
    texts = [one for one in texts if one not in target.key]
    left_out = f"<=> {literal(_UNAVAILABLE)}"
    before = [
        f", max_by(named_struct('x', v.{name(column)}), place) FILTER (WHERE NOT deleted AND NOT v.{name(column)} "
        f"{left_out}) AS before_{index}"
        for index, column in enumerate(texts)
    ]
    gone = f"{target.location.rpartition('/')[0]}/_deleted/{target.topic}"
    there = open_table(gone)
    deleted = spark.read.format("delta").load(gone) if there else spark.createDataFrame([], _TOMBSTONE)
    deleted.createOrReplaceTempView("tombstones")
    newest = keeper.keep(spark.sql(statement("newest", before="".join(before))))
    tombstones = newest.where("deleted").selectExpr(
        "key", "named_struct('position', place.position, 'seqno', place.seqno) AS place"
    )
    if not tombstones.isEmpty():
        _writer(tombstones, staging, upto).mode("append").save(gone)
    columns = []
    for column in target.columns.names:
        text = _column(target, column)
        if column in texts:
            index = texts.index(column)
            text = f"CASE WHEN v.{name(column)} {left_out} THEN before_{index}.x ELSE v.{name(column)} END"
            columns.append(f"v.{name(column)} {left_out} AND before_{index} IS NULL AS _unknown_{index}")
            text += f" AS {name(column)}"
        columns.append(text)
    changes = newest.selectExpr(*columns, *_PLACE, "deleted AS _deleted")
    if is_new:
        unknown = [f"_unknown_{index}" for index in range(len(texts))]
        rows = changes.where("NOT _deleted").drop("_deleted", *unknown)
        _create(spark, target, upto, rows.schema.toDDL())
        _writer(rows, staging, upto).mode("append").save(target.location)
        return
    changes.createOrReplaceTempView("changes")
    every = [*target.columns.names, *_OURS]
    kept = {
        column: f"CASE WHEN s._unknown_{index} THEN t.{name(column)} ELSE s.{name(column)} END"
        for index, column in enumerate(texts)
    }
    with _tagged(spark, staging, upto):
        spark.sql(
            statement(
                "upsert",
                target=name(target.location),
                same_key=" AND ".join(
                    [f"t.{name(one)} <=> s.{name(one)}" for one in target.key] + _range(newest, target)
                ),
                newer="(s._position > t._position OR s._position = t._position AND s._seqno > t._seqno)",
                set=", ".join(f"t.{name(one)} = {kept.get(one, 's.' + name(one))}" for one in every),
                columns=", ".join(map(name, every)),
                values=", ".join(f"s.{name(one)}" for one in every),
            )
        ).collect()


_TOMBSTONE = "key STRING, place STRUCT<position: BIGINT, seqno: BIGINT>"
_PRUNED_BY = ("byte", "short", "integer", "long", "date", "timestamp", "string", "decimal")


def _range(newest: "DataFrame", target: Target) -> list[str]:
    """Between what the keys are, as conditions that need not read the table's other files."""
    columns = [one for one in target.key if target.columns[one].dataType.typeName() in _PRUNED_BY]
    if not columns:
        return []
    ends = [f"CAST({end}(k.{name(one)}) AS STRING)" for one in columns for end in ("min", "max")]
    found = list(newest.selectExpr(*ends).collect()[0])
    conditions = []
    for index, column in enumerate(columns):
        low, high = found[2 * index : 2 * index + 2]
        kind = target.columns[column].dataType.simpleString()
        if low is not None and newest.where(f"k.{name(column)} IS NULL").isEmpty():
            conditions.append(
                f"t.{name(column)} BETWEEN CAST({literal(low)} AS {kind}) AND CAST({literal(high)} AS {kind})"
            )
    return conditions


def _fit_columns(spark: "SparkSession", target: Target, upto: int) -> None:
    """Gives the table the columns that rules select by now. UsageError where types differ, or that is not wanted."""
    there = {one.name: one.dataType for one in spark.read.format("delta").load(target.location).schema.fields}
    more = []
    for one in target.columns.fields:
        if one.name not in there:
            more.append(one)
        elif there[one.name] != one.dataType:
            msg = (
                f"the rules of output {target.topic} make {one.name!r} a {one.dataType.simpleString()}, and the table "
                f"at {target.location} has it as {there[one.name].simpleString()}: cast it in the rule, or take the "
                "folder of the tables away, to have all made anew"
            )
            raise UsageError(msg)
    if more and target.said.schema_changes == "fail":
        msg = (
            f"the rules of output {target.topic} select {more[0].name!r}, which the table at {target.location} does "
            "not have, and schema_changes is fail"
        )
        raise UsageError(msg)
    if more:
        from pyspark.sql.types import StructType  # noqa: PLC0415

        with _metadata(spark, upto):
            spark.sql(f"ALTER TABLE delta.{name(target.location)} ADD COLUMNS ({StructType(more).toDDL()})")


def _create(spark: "SparkSession", target: Target, upto: int, columns: str) -> None:
    """Makes the table, without rows."""
    laid_out = ""
    for clause, said in (("PARTITIONED BY", target.said.partition_by), ("CLUSTER BY", target.said.cluster_by)):
        if said:
            laid_out += f" {clause} ({', '.join(map(name, said))})"
    if open_table(target.location):
        return
    with _metadata(spark, upto):
        spark.sql(f"CREATE TABLE delta.{name(target.location)} ({columns}) USING DELTA{laid_out}")


def _writer(rows: "DataFrame", staging: str, upto: int) -> "DataFrameWriter":
    options = {"txnAppId": _APP + staging, "txnVersion": str(upto), "userMetadata": _tag(upto)}
    return rows.write.format("delta").options(**options)


def _tag(upto: int) -> str:
    """What each commit to a table says of itself: the sync that it is through."""
    return json.dumps({"zync": {"sync": upto}})


@contextmanager
def _metadata(spark: "SparkSession", upto: int, **more: str) -> Iterator[None]:
    settings = {"spark.databricks.delta.commitInfo.userMetadata": _tag(upto), **more}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)


@contextmanager
def _tagged(spark: "SparkSession", staging: str, upto: int) -> Iterator[None]:
    """Statements in here commit with the sync as their `txn`, which MERGE takes from the session alone."""
    write = "spark.databricks.delta.write.txn"
    with _metadata(spark, upto, **{f"{write}AppId": _APP + staging, f"{write}Version": str(upto)}):
        yield
