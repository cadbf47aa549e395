"""What a table's rows become when more of its output topic arrive: upsert, append, history."""

from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from zync.deliver.staged import first_place
from zync.deliver.target import PLACE, VALIDITY, Target
from zync.deliver.writer import Writer
from zync.errors import ZyncError
from zync.etl.rules import JSON_OPTIONS
from zync.frames import Keeper, local, read_parquet
from zync.lake import data_files, open_table
from zync.spark import message_of, spark_errors
from zync.sql import literal, name, options, statement
from zync.staging.table import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FROM_JSON = {**JSON_OPTIONS, "mode": "FAILFAST"}
_LEFT_OUT = "<=> '__debezium_unavailable_value'"
"""What Debezium says of a value that had not changed, and that it did not look up (TOAST)."""
_TOMBSTONE = "key STRING, place STRUCT<position: BIGINT, seqno: BIGINT>"
_OF_PLACE = ("place.position AS _position", "place.seqno AS _seqno")
_PRUNED_BY = ("byte", "short", "integer", "long", "date", "timestamp", "string", "decimal")


def deliver(  # noqa: PLR0913 - each is a thing known by now
    spark: "SparkSession", target: Target, staging: DeltaTable, after: int, upto: int, *, debezium: bool
) -> int:
    """Brings staging's rows of the syncs after the one up to the other into the table. How many there were.

    `debezium`: rows come by its preset: positions are the source's, and values may be left out that had not changed.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415

    files = data_files(staging, "sync", above=after, upto=upto)
    mine = f"kind = 'output' AND kafka.topic = {literal(target.topic)} AND sync > {after} AND sync <= {upto}"
    read_parquet(spark, [one.uri for one in files], spark_schema()).where(mine).createOrReplaceTempView("staged")
    key = StructType([target.columns[one] for one in target.key]).toDDL() or "none INT"
    types = {"key_type": literal(key), "value_type": literal(target.columns.toDDL()), "options": options(_FROM_JSON)}
    writer = Writer(spark, target, str(staging.metadata().id), upto)
    table = open_table(target.location)
    is_new = table is None or not table.version()  # or was made, and not filled
    with Keeper(spark) as keeper:
        try:
            if table is not None:
                writer.fit_columns()
            spark.sql(statement("arrived", **types)).createOrReplaceTempView("arrived")
            begin = first_place(staging, files, target.topic)
            apply = _Apply(writer, keeper, types, begin, is_new=is_new, debezium=debezium)
            count = {"upsert": apply.upsert, "append": apply.append, "history": apply.history}[target.apply]()
            if count:
                writer.compact()
            return count
        except spark_errors() as error:
            msg = f"output {target.topic} could not be delivered to {target.location}: {message_of(error)}"
            raise ZyncError(msg) from error


class _Apply:
    """The ways to do it, over the view `arrived` (sql/arrived.sql). Each returns how many rows arrived."""

    def __init__(  # noqa: PLR0913 - each is a thing known by now
        self,
        writer: Writer,
        keeper: Keeper,
        types: dict[str, str],
        begin: tuple[int, int],
        *,
        is_new: bool,
        debezium: bool,
    ) -> None:
        """`begin`: a place (position, seqno) in the source's order that none of the rows is before."""
        self.writer, self.keeper, self.types, self.begin = writer, keeper, types, begin
        self.is_new, self.debezium = is_new, debezium
        self.spark, self.target = writer.spark, writer.target
        self.columns = self.target.columns.names

    def kept(self) -> "tuple[DataFrame, int]":
        """What arrived, kept for several uses, and how much it is."""
        arrived = self.keeper.keep(self.spark.table("arrived").drop("value"))
        arrived.createOrReplaceTempView("arrived")
        return arrived, arrived.count()

    def append(self) -> int:
        """All rows, those of deletes too."""
        arrived, count = self.kept()
        columns = [f"{self.value(one)} AS {name(one)}" for one in self.columns]
        rows = arrived.selectExpr(*columns, *_OF_PLACE, "deleted AS _deleted")
        if self.is_new:
            self.writer.fill(rows)
        elif count:
            self.writer.append(rows, self.target.location)
        return count

    def value(self, column: str) -> str:
        """A column of a row, of which a deleted one has only the key's."""
        of_key = f"CASE WHEN deleted THEN k.{name(column)} ELSE v.{name(column)} END"
        return of_key if column in self.target.key else f"v.{name(column)}"

    def may_be_left_out(self) -> list[str]:
        """Columns whose values Debezium may have left out."""
        fields = self.target.columns.fields if self.debezium else ()
        return [one.name for one in fields if one.dataType.typeName() == "string" and one.name not in self.target.key]

    def remember_deleted(self, rows: "DataFrame") -> None:
        """Puts on record what is deleted in `rows`, so that what is older does not bring it back."""
        gone = rows.where("deleted").selectExpr("key", "struct(place.position, place.seqno) AS place")
        self.writer.append(gone, self.writer.deleted)

    def bind_tombstones(self, where: str = "true") -> None:
        """What was deleted before, as far as it counts; where nothing was, an empty table that plans leave out."""
        there = open_table(self.writer.deleted) is not None
        reader = self.spark.read.format("delta")
        found = reader.load(self.writer.deleted).where(where) if there else local(self.spark, [], _TOMBSTONE)
        found.createOrReplaceTempView("tombstones")

    def upsert(self) -> int:
        """One row a key, the newest in the source's order."""
        position, seqno = self.begin
        self.bind_tombstones(f"place.position > {position} OR place.position = {position} AND place.seqno >= {seqno}")
        before, columns, keep = [], [], {}
        for index, column in enumerate(self.may_be_left_out()):
            given, known = f"v.{name(column)}", f"before_{index}"
            there = f"NOT deleted AND NOT {given} {_LEFT_OUT}"
            before.append(f", max_by(named_struct('x', {given}), place) FILTER (WHERE {there}) AS {known}")
            columns.append(f"{given} {_LEFT_OUT} AND {known} IS NULL AS _unknown_{index}")
            columns.append(f"CASE WHEN {given} {_LEFT_OUT} THEN {known}.x ELSE {given} END AS {name(column)}")
            keep[column] = f"CASE WHEN s._unknown_{index} THEN t.{name(column)} ELSE s.{name(column)} END"
        columns += [f"{self.value(one)} AS {name(one)}" for one in self.columns if one not in keep]
        newest = self.keeper.keep(self.spark.sql(statement("newest", before="".join(before), **self.types)))
        newest.createOrReplaceTempView("newest")
        arrivals, deleted, *ends = self.ends("newest", "sum(arrivals)", "count_if(deleted)")
        if deleted:
            self.remember_deleted(newest)
        every = [*self.columns, *PLACE]
        changes = newest.selectExpr(*columns, *_OF_PLACE, "deleted AS _deleted")
        if self.is_new:
            self.writer.fill(changes.where("NOT _deleted").select(*map(name, every)))
        elif arrivals:
            changes.createOrReplaceTempView("changes")
            updates = ", ".join(f"t.{name(one)} = {keep.get(one, 's.' + name(one))}" for one in every)
            self.merge("upsert", ends, set=updates)
        return arrivals or 0

    def history(self) -> int:
        """All versions of a key, one a transaction, each with where it begins and where the next one does."""
        from pyspark.sql.functions import expr  # noqa: PLC0415

        self.bind_tombstones()
        arrived, count = self.kept()
        deleted, *ends = self.ends("arrived", "count_if(deleted)")
        if deleted:
            last = ("max_by(deleted, place) AS deleted", "max(place) AS place")
            self.remember_deleted(arrived.groupBy("key", "place.seqno").agg(*map(expr, last)))
        keys = arrived.selectExpr(*(f"k.{name(one)}" for one in self.target.key)).distinct()
        kept = local(self.spark, [], self.target.columns.toDDL() + ", _position BIGINT, _seqno BIGINT")
        if not self.is_new:
            rows = self.spark.read.format("delta").load(self.target.location)
            same = [rows[one].eqNullSafe(keys[one]) for one in self.target.key]
            kept = rows.join(keys, same, "left_semi")
        kept.createOrReplaceTempView("kept")
        of_key = [
            f"from_json(key, {self.types['key_type']}, {self.types['options']}).{name(one)}" for one in self.target.key
        ]
        left_out, filled = self.may_be_left_out(), []
        for column in map(name, self.columns):
            known = f"last_value(CASE WHEN NOT {column} {_LEFT_OUT} THEN struct({column}) END, true) OVER later"
            is_text = column in map(name, left_out)
            filled.append(
                f"CASE WHEN {column} {_LEFT_OUT} THEN ({known}).{column} ELSE {column} END AS {column}"
                if is_text
                else column
            )
        text = statement(
            "history",
            changed=", ".join(f"{self.value(one)} AS {name(one)}" for one in self.columns),
            columns=", ".join(map(name, self.columns)),
            tombstones=", ".join(
                of_key[self.target.key.index(one)] if one in self.target.key else "NULL" for one in self.columns
            ),
            filled=", ".join(filled),
            key=", ".join(map(name, self.target.key)),
            **{"from": "_position" if self.debezium else "_seqno"},
        )
        every = [*self.columns, *PLACE, *VALIDITY]
        changes = self.keeper.keep(self.spark.sql(text).where("NOT _deleted").select(*map(name, every)))
        if self.is_new:
            self.writer.fill(changes)
        elif count:
            changes.createOrReplaceTempView("changes")
            values = ", ".join(f"s.{name(one)}" for one in every)
            self.merge("versions", ends, columns=", ".join(map(name, every)), values=values)
        return count

    def merge(self, how: str, ends: list[Any], **slots: str) -> None:
        """Merges the view `changes`, whose keys have those `ends`, into the table, by `sql/<how>.sql`."""
        same = [f"t.{name(one)} <=> s.{name(one)}" for one in self.target.key]
        every = [*self.columns, *PLACE]
        self.writer.merge(
            statement(
                how,
                **{
                    "target": name(self.target.location),
                    "same_key": " AND ".join(same + self.key_range(ends)),
                    "newer": "(s._position > t._position OR s._position = t._position AND s._seqno > t._seqno)",
                    "columns": ", ".join(map(name, every)),
                    "values": ", ".join(f"s.{name(one)}" for one in every),
                    **slots,
                },
            )
        )

    def ends(self, view: str, *more: str) -> list[Any]:
        """Of the rows in that view: `more`; and of each key column that files are pruned by least, most, and nulls."""
        asked = [
            f"struct(CAST(min(k.{one}) AS STRING), CAST(max(k.{one}) AS STRING), count_if(k.{one} IS NULL))"
            for one in map(name, self.pruned_by())
        ]
        return list(self.spark.table(view).selectExpr(*more, *asked).collect()[0])

    def pruned_by(self) -> list[str]:
        return [one for one in self.target.key if self.target.columns[one].dataType.typeName() in _PRUNED_BY]

    def key_range(self, ends: list[Any]) -> list[str]:
        """Between what the keys that arrived are, as conditions that spare the table's other files."""
        conditions = []
        for column, (low, high, nulls) in zip(self.pruned_by(), ends, strict=True):
            kind = self.target.columns[column].dataType.simpleString()
            if low is not None and not nulls:
                between = " AND ".join(f"CAST({literal(end)} AS {kind})" for end in (low, high))
                conditions.append(f"t.{name(column)} BETWEEN {between}")
        return conditions
