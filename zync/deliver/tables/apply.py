"""What a table's rows become when more of its output topic arrive: upsert, append, history."""

from collections.abc import Callable
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

from zync.debezium import toast
from zync.debezium.unavailable import Placeholder
from zync.deliver.tables import moves, pruning, truncations
from zync.deliver.tables.places import bind_tombstones, place
from zync.deliver.tables.target import PLACE, VALIDITY, Target
from zync.deliver.tables.writer import Writer
from zync.errors import ZyncError
from zync.lake.files import data_files
from zync.lake.table import open_table
from zync.rules.json_text import JSON_OPTIONS
from zync.spark.errors import message_of, spark_errors
from zync.spark.frames import Keeper, local, read_parquet, result_of, select, spark_schema
from zync.sql import aliased, literal, name, options, statement
from zync.staging.outputs import Arrivals, Truncation, read_arrivals
from zync.staging.table import STAGING_SCHEMA

FROM_JSON = {**JSON_OPTIONS, "mode": "FAILFAST", "maxStringLen": str(2**31 - 1), "maxNestingDepth": "2000"}
"""How staging's JSON is read. Jackson's own limits are 20 MB for a text, and 1,000 levels: Spark writes more than that,
and a row that it wrote and cannot read would stop the delivery for good."""
_STATE = "'left_out ARRAY<STRING>, old_key STRING'"
_OF_PLACE = {"_position": "place.position", "_seqno": "place.seqno"}
_NEWER = "(s._position > t._position OR s._position = t._position AND s._seqno > t._seqno)"
_NULL_PARTITIONS = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that a partition cannot have: Delta reads them as null."""


class ConflictError(ZyncError):
    """Another process keeps committing to a delivered table, so that the delivery's own commits are refused.

    Find the other process and stop it, then run the command again: it goes on with the same rows.
    """

    code = "ZYNC-TABLE-CONFLICT"


def deliver(  # noqa: PLR0913 - each is a thing known by now
    spark: SparkSession, target: Target, staging: DeltaTable, after: int, upto: int, stands: Placeholder | None
) -> int:
    """Brings staging's rows of the syncs after the one up to the other into the table. How many there were.

    `stands`: rows come by Debezium's preset: positions are the source's, and values may be left out that had not
    changed, for which this stands.
    Raises ConflictError where somebody else was faster, and ZyncError where it cannot be done.
    """
    files = data_files(staging, "sync", above=after, upto=upto)
    mine = f"kind = 'output' AND kafka.topic = {literal(target.topic)}"
    if any(one.lowest <= after or one.highest > upto for one in files):
        mine += f" AND sync > {after} AND sync <= {upto}"  # numbers are compiled in, anew in each batch
    came, keyed = read_arrivals(staging, files, target.topic, after, upto), target.apply != "append"
    if came.truncations and keyed:
        mine += " AND reason IS NULL"
    read_parquet(spark, [one.uri for one in files], spark_schema(STAGING_SCHEMA)).where(mine).createOrReplaceTempView(
        "staged"
    )
    key = StructType([target.columns[one] for one in target.key]).toDDL() or "none INT"
    types = {"key_type": literal(key), "value_type": literal(target.columns.toDDL()), "options": options(FROM_JSON)}
    table = open_table(target.location)
    noted = toast.noted(table.metadata().configuration) if table else frozenset()
    writer = Writer(spark, target, str(staging.metadata().id), upto, noted | came.left_out)
    is_new = table is None or not table.version()  # or was made, and not filled
    with Keeper(spark) as keeper:
        try:
            dropped = writer.fit_columns() if table is not None else []
            placed = stands is not None and keyed
            remembered = truncations.recorded(target, came.truncations) if placed else []
            if came.without_position and placed:
                truncations.bind(spark, [*came.truncations, *remembered])
                place(spark, target, types, is_new=is_new)
            said = f"from_json(state, {_STATE})" if came.left_out else f"from_json(CAST(NULL AS STRING), {_STATE})"
            rows = result_of(spark, statement("tables/arrived", said=said, **types))
            rows.createOrReplaceTempView("arrived")
            apply = _Apply(writer, keeper, types, came, remembered, dropped, stands, is_new=is_new)
            count = {"upsert": apply.upsert, "append": apply.append, "history": apply.history}[target.apply]()
            if count:
                writer.compact()
            return count
        except spark_errors() as error:
            said = message_of(error)
            msg = f"output {target.topic} could not be delivered to {target.location}: {said}"
            raise (ConflictError if "DELTA_CONCURRENT" in said else ZyncError)(msg) from error


class _Apply:
    """The ways to do it, over the view `arrived` (sql/tables/arrived.sql). Each returns how many rows arrived."""

    def __init__(  # noqa: PLR0913 - each is a thing known by now
        self,
        writer: Writer,
        keeper: Keeper,
        types: dict[str, str],
        came: Arrivals,
        remembered: list[Truncation],
        dropped: list[str],
        stands: Placeholder | None,
        *,
        is_new: bool,
    ) -> None:
        """What is known by now.

        remembered: truncations that came before.
        dropped: columns of the table that rules do not select any more. stands: as in `deliver`.
        """
        self.writer, self.keeper, self.types, self.came, self.remembered = writer, keeper, types, came, remembered
        self.dropped, self.is_new, self.debezium = dropped, is_new, stands is not None
        self.spark, self.target = writer.spark, writer.target
        self.columns = self.target.columns.names
        self.may_be_left_out = (
            toast.may_be_left_out(self.target.columns, self.target.key, stands, came.left_out, writer.noted)
            if stands
            else {}
        )

    def kept(self, *without: str) -> tuple[DataFrame, int]:
        """What arrived, kept for several uses, `without` columns that none of them needs; and how much it is."""
        arrived = self.keeper.keep(self.spark.table("arrived").drop(*without))
        arrived.createOrReplaceTempView("arrived")
        return arrived, arrived.count()

    def append(self) -> int:
        """All rows, those of deletes too."""
        arrived, count = self.kept("value")
        columns = {one: self.value(one) for one in self.columns} | _OF_PLACE | {"_deleted": "deleted"}
        named = {one: its for one, its in self.may_be_left_out.items() if one in self.came.left_out}
        if self.writer.notes_left_out(some=bool(named)):
            columns |= toast.as_they_came(named)
        rows = select(arrived, *aliased(columns))
        if self.is_new:
            self.writer.fill(rows)
        elif count:
            self.writer.append(rows, self.target.location)
        return count

    def value(self, column: str) -> str:
        """A column of a row, of which a deleted one has only the key's."""
        found = f"v.{name(column)}"
        if column in self.target.key:
            found = f"CASE WHEN deleted THEN k.{name(column)} ELSE {found} END"
        if self.target.is_partition(column) and self.target.columns[column].dataType.typeName() == "string":
            why = f"column {column} is {{}} in a row, which partitions have as null: take it out of partition_by"
            cases = (
                f"WHEN {literal(one)} THEN raise_error({literal(why.format(repr(one)))})" for one in _NULL_PARTITIONS
            )
            found = f"CASE {found} {' '.join(cases)} ELSE {found} END"
        return found

    @property
    def some_left_out(self) -> str:
        """An aggregate: whether any row has a column that was left out."""
        return f"coalesce(bool_or({' OR '.join(self.may_be_left_out.values()) or 'false'}), false)"

    def remember_deleted(self, rows: DataFrame) -> None:
        """Puts on record what is deleted in `rows`, and truncations, so that what is older does not bring it back."""
        gone = select(rows.where("deleted"), "key", "struct(place.position, place.seqno) AS place")
        if self.came.truncations:
            gone = gone.unionByName(truncations.as_tombstones(self.spark, self.came.truncations))
        self.writer.append(gone, str(self.target.deleted))

    def upsert(self) -> int:
        """One row a key, the newest in the source's order."""
        position, seqno = self.came.first_place
        since = f"place.position > {position} OR place.position = {position} AND place.seqno >= {seqno}"
        bind_tombstones(self.spark, self.target, since)
        truncated, count = self.came.truncations, None
        if truncated or self.remembered:
            rows = self.spark.table("arrived").where(truncations.not_before(truncated, self.remembered))
            rows.createOrReplaceTempView("arrived")
        if self.came.with_old_key:
            _, count = self.kept()
            self.add_donors(moves.as_known)
        known = toast.newest_known(self.may_be_left_out, moved=self.came.with_old_key)
        newest = self.keeper.keep(result_of(self.spark, statement("tables/newest", known=known, **self.types)))
        newest.createOrReplaceTempView("newest")
        arrivals, deleted, some, *ends = self.ends("newest", "sum(arrivals)", "count_if(deleted)", self.some_left_out)
        if deleted or truncated:
            self.remember_deleted(newest)
        columns = {one: self.value(one) for one in self.columns} | _OF_PLACE
        updates = {one: f"s.{name(one)}" for one in columns} | dict.fromkeys(self.dropped, "NULL")
        matched = _NEWER
        noted = self.noted(some=some)
        if noted:
            columns |= toast.of_newest(noted)
            later, of_noted = toast.merged(noted, _NEWER)
            updates = {one: f"IF({_NEWER}, {its}, t.{name(one)})" for one, its in updates.items()} | of_noted
            matched = f"({_NEWER} OR {later})"
        if self.is_new:
            self.writer.fill(select(newest.where("NOT deleted"), *aliased(columns)))
        elif arrivals or truncated:
            changes = select(newest, *aliased(columns | toast.places(noted)), "deleted AS _deleted")
            gone = truncations.before(max(truncated), "t._position", "t._seqno") if truncated else ""
            slots = {"truncated": f"WHEN NOT MATCHED BY SOURCE AND {gone} THEN DELETE" if gone else ""}
            slots |= {"newer": _NEWER, "matched": matched}
            self.merge("upsert", changes, ends, list(columns), updates=updates, **slots)
        return ((arrivals or 0) if count is None else count) + len(truncated)

    def history(self) -> int:
        """All versions of a key, one a transaction, each with where it begins and where the next one does."""
        bind_tombstones(self.spark, self.target)
        truncated = [*self.came.truncations, *self.remembered]
        if truncated:
            truncations.bind(self.spark, truncated)
            in_transaction = "SELECT 1 FROM truncations t WHERE t.seqno = place.seqno AND t.offset > place.offset"
            rows = self.spark.table("arrived").where(f"NOT EXISTS ({in_transaction})")
            rows.createOrReplaceTempView("arrived")
        arrived, count = self.kept("value")
        if self.came.with_old_key:
            arrived = self.add_donors(moves.as_left_out)
        deleted, some, *ends = self.ends("arrived", "count_if(deleted)", self.some_left_out)
        if self.came.truncations:  # of all keys
            ends = [(None, None, 0) for _ in ends]
        if deleted or self.came.truncations:
            last = ("max_by(deleted, place) AS deleted", "max(place) AS place")
            self.remember_deleted(arrived.groupBy("key", "place.seqno").agg(*map(expr, last)))
        noted = self.noted(some=some)
        more = [toast.COLUMN] if noted else []
        self.bind_kept(arrived, ends, [*self.columns, *PLACE, *more])
        of_key = f"from_json(key, {self.types['key_type']}, {self.types['options']})"
        in_key = {one: f"{of_key}.{name(one)}" for one in self.target.key}
        text = statement(
            "tables/history",
            known=toast.newest_known(noted),
            changed=", ".join(aliased({one: self.value(one) for one in self.columns} | toast.in_transaction(noted))),
            missing=toast.missing(noted),
            kept=", ".join(map(name, self.columns)),
            missing_before=f"map_keys({toast.COLUMN})" if noted else "array()",
            tombstones=", ".join(in_key.get(one, "NULL") for one in self.columns),
            of_keys="key IS NOT NULL" if self.came.truncations else "key IN (SELECT key FROM arrived)",
            truncated=self.truncated_versions if truncated else "",
            filled=", ".join(aliased({one: name(one) for one in self.columns} | toast.filled(noted))),
            key=", ".join(map(name, self.target.key)),
            **{"from": "_position" if self.debezium else "_seqno"},
        )
        every = [*self.columns, *PLACE, *VALIDITY, *more]
        versions = self.keeper.keep(result_of(self.spark, text).where("NOT _deleted").select(*map(name, every)))
        count += len(self.came.truncations)
        if self.is_new:
            self.writer.fill(versions)
        elif count:
            same = ["t.valid_to <=> s.valid_to", *(f"to_json(t.{one}) <=> to_json(s.{one})" for one in more)]
            updates = {one: f"s.{name(one)}" for one in ("valid_to", "current", *noted, *more)}
            self.merge("versions", versions, ends, every, same=" AND ".join(same), updates=updates)
        return count

    @property
    def truncated_versions(self) -> str:
        """For sql/tables/history.sql: each truncation as what deletes each key."""
        keys = ", ".join(map(name, self.target.key))
        columns = ", ".join(f"d.{name(one)}" if one in self.target.key else "NULL" for one in self.columns)
        return (
            f"UNION ALL SELECT {columns}, array(), true, t.position, t.seqno "  # noqa: S608 - names are quoted
            f"FROM (SELECT DISTINCT {keys} FROM changes_of_keys) d CROSS JOIN truncations t"
        )

    def add_donors(self, add: Callable[[DataFrame, DataFrame, DataFrame], DataFrame]) -> DataFrame:
        """Adds to `arrived` what rows were before an update gave them another key; `add` is one of `moves`."""
        arrived = self.spark.table("arrived")
        of_key = f"from_json(old_key, {self.types['key_type']}, {self.types['options']})"
        moved = moves.moves(arrived, self.keeper)
        keys = select(moved, *aliased({one: f"{of_key}.{name(one)}" for one in self.target.key})).distinct()
        donors = moves.donors(moved, self.rows_of(keys, []), self.target, self.may_be_left_out)
        arrived = self.keeper.keep(add(arrived, moved, donors))
        arrived.createOrReplaceTempView("arrived")
        return arrived

    def noted(self, *, some: bool) -> dict[str, str]:
        """`may_be_left_out`, if the table has a column that says which are, or gets it as `some` are now; or none."""
        return self.may_be_left_out if self.may_be_left_out and self.writer.notes_left_out(some=some) else {}

    def bind_kept(self, arrived: DataFrame, ends: list[Any], columns: list[str]) -> None:
        """The table's rows of the keys that arrived, which have those `ends`, as the view `kept`."""
        keys = select(arrived, *aliased({one: self.value(one) for one in self.target.key})).distinct()
        if self.came.truncations:  # of all keys
            self.rows(ends).select(*map(name, columns)).createOrReplaceTempView("kept")
        else:
            self.rows_of(keys, ends).select(*map(name, columns)).createOrReplaceTempView("kept")

    def rows_of(self, keys: DataFrame, ends: list[Any]) -> DataFrame:
        """The table's rows of those keys, which have those `ends` (none: that is not known)."""
        rows = self.rows(ends)
        same = [rows[name(one)].eqNullSafe(keys[name(one)]) for one in self.target.key]
        return rows.join(keys, same, "left_semi")

    def rows(self, ends: list[Any]) -> DataFrame:
        """The table's rows, of which only those whose keys have those `ends` have to be there (none: all)."""
        if self.is_new:
            columns = f"{self.target.columns.toDDL()}, _position BIGINT, _seqno BIGINT, {toast.COLUMN} {toast.TYPE}"
            return local(self.spark, [], columns)
        rows = self.spark.read.format("delta").load(self.target.location).alias("t")
        return rows.where(" AND ".join((pruning.between(self.target, ends) if ends else []) or ["true"]))

    def merge(
        self, how: str, changes: DataFrame, ends: list[Any], columns: list[str], updates: dict[str, str], **slots: str
    ) -> None:
        """Merges `changes`, whose keys have those `ends`, into the table, by `sql/tables/<how>.sql`."""
        changes.createOrReplaceTempView("changes")
        same = [f"t.{name(one)} <=> s.{name(one)}" for one in self.target.key]
        self.writer.merge(
            statement(
                f"tables/{how}",
                target=name(self.target.location),
                same_key=" AND ".join(same + pruning.between(self.target, ends)),
                columns=", ".join(map(name, columns)),
                values=", ".join(f"s.{name(one)}" for one in columns),
                updates=", ".join(f"t.{name(one)} = {value}" for one, value in updates.items()),
                **slots,
            )
        )

    def ends(self, view: str, *more: str) -> list[Any]:
        """Of the rows in that view: `more`, and the ends of their keys (zync.deliver.tables.pruning)."""
        asked = pruning.ends(self.target, self.value)
        return list(select(self.spark.table(view), *more, *asked).collect()[0])
