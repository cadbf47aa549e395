"""Applies a batch of output rows to a delivered table: upsert, append or history."""

from collections.abc import Callable
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from zync.debezium import toast
from zync.debezium.unavailable import Placeholder
from zync.deliver.tables import delta_rs, moves, pruning, tombstones, truncations, without_spark
from zync.deliver.tables.fence import FencedSession, check_planned
from zync.deliver.tables.others import advice
from zync.deliver.tables.positions import NEWER, assign_positions
from zync.deliver.tables.target import VALIDITY, TableTarget
from zync.deliver.tables.writer import Writer
from zync.errors import ConflictError, ZyncError
from zync.lake.delivered import PLACE
from zync.lake.files import data_files
from zync.lake.table import open_table
from zync.rules.json_text import JSON_OPTIONS
from zync.spark.causes import causes
from zync.spark.errors import message_of, spark_errors
from zync.spark.frames import RowCache, from_rows, read_parquet, result_of, select, spark_schema
from zync.sql import aliased, literal, name, options, statement
from zync.staging.outputs import Arrivals, OutputRows
from zync.staging.table import STAGING_SCHEMA

FROM_JSON = {**JSON_OPTIONS, "mode": "FAILFAST", "maxStringLen": str(2**31 - 1), "maxNestingDepth": "2000"}
"""The options that parse staging's JSON. Jackson's default limits are 20 MB for a text and 1,000 levels. Spark writes
more than that, and a row that it wrote and cannot read would stop the delivery for good."""
_STATE_SCHEMA = "'left_out ARRAY<STRING>, old_key STRING'"
_PLACE_VALUES = {"_position": "place.position", "_seqno": "place.seqno"}
_CONFLICTS = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_TABLE_ALREADY_EXISTS",
    "TABLE_OR_VIEW_ALREADY_EXISTS",
)
"""The beginnings of Spark's conditions if another process committed to the table meanwhile."""
_FENCED = "ZYNC_CONCURRENT_WRITE"
"""What zync's log stores say then (zync/FencedLogStore.java)."""
_NULL_PARTITIONS = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that Delta reads back as null from a partition column."""


def deliver(  # noqa: PLR0913 - each is a fact about the batch
    session: Callable[[], SparkSession],
    target: TableTarget,
    staging: DeltaTable,
    after: int,
    upto: int,
    placeholder: Placeholder | None,
) -> int:
    """Applies staging's output rows of a batch of syncs to the table.

    Args:
        session: Returns the session, where Spark is needed.
        target: The table.
        staging: The staging.
        after: The last sync that the table has.
        upto: The last sync of the batch, inclusive.
        placeholder: With Debezium's preset its unavailable-value placeholder; positions are the source's then. None
            without that preset.

    Returns:
        The number of rows, truncations included.

    Raises:
        ConflictError: another writer committed to the table first.
        ZyncError: Spark could not apply the rows.
    """
    staging_id = str(staging.metadata().id)
    table = open_table(target.location)
    planned = check_planned(target, table, staging_id, after, upto)
    staged = OutputRows(staging, data_files(staging, "sync", above=after, upto=upto), target.topic, after, upto)
    arrivals = staged.summary()
    left_out_columns = toast.noted(table.metadata().configuration) if table else frozenset()
    in_files = sum(file.rows for file in staged.files)  # of all topics
    batch_bytes = sum(file.size for file in staged.files) * arrivals.rows // max(1, in_files)
    with FencedSession(session, planned) as fenced:
        left_out_columns |= arrivals.left_out
        writer = Writer(fenced, target, staging_id, upto, batch_bytes, left_out_columns, {**planned})
        try:
            dropped = writer.fit_columns(table) if table is not None else []
            is_new = table is None or not table.version()  # at version 0 it was created, and not filled
            if not arrivals.rows and not is_new:
                return 0
            count = without_spark.apply(writer, staged, arrivals, placeholder, is_new=is_new)
            if count is None:
                if not delta_rs.is_small(arrivals.rows, staged.files):
                    writer.planned.clear()
                with RowCache(writer.spark) as row_cache:
                    apply = _Apply(writer, row_cache, staged, arrivals, dropped, placeholder, is_new=is_new)
                    count = {"upsert": apply.upsert, "append": apply.append, "history": apply.history}[target.apply]()
            if count:
                writer.compact()
            return count
        except spark_errors() as error:
            error_text = message_of(error)
            msg = f"output {target.topic} could not be delivered to {target.location}: {error_text}"
            kind = ConflictError if _is_conflict(error) else ZyncError
            raise kind(msg + advice(error_text, target.location)) from error


def _is_conflict(error: BaseException) -> bool:
    """Returns whether an error of Spark's says that another process committed to the table meanwhile.

    An application that imports `delta` gets errors which only have their text (delta.exceptions).
    """
    chain = causes(error)
    conditions = [cause.condition or "" for cause in chain] or [str(error).lstrip("[")]
    return any(condition.startswith(_CONFLICTS) for condition in conditions) or any(
        _FENCED in text for text in [str(error), *(cause.message for cause in chain)]
    )


class _Apply:
    """The ways to apply the rows of the view `arrived` (sql/tables/arrived.sql). Each returns the number of rows."""

    def __init__(  # noqa: PLR0913 - each is a fact about the batch
        self,
        writer: Writer,
        row_cache: RowCache,
        staged: OutputRows,
        arrivals: Arrivals,
        dropped: list[str],
        placeholder: Placeholder | None,
        *,
        is_new: bool,
    ) -> None:
        """Collects what is known of the batch, and creates the view `arrived`.

        Args:
            writer: Commits to the table.
            row_cache: Checkpoints rows that are used several times.
            staged: The batch's rows.
            arrivals: Their summary.
            dropped: Columns of the table that the rules no longer select.
            placeholder: As in `deliver`.
            is_new: Whether the table has no rows yet.
        """
        self.writer, self.row_cache, self.arrivals = writer, row_cache, arrivals
        self.dropped, self.is_new, self.debezium = dropped, is_new, placeholder is not None
        self.spark, self.target = writer.spark, writer.target
        self.columns = self.target.columns.names
        self.types = {
            "key_type": literal(self.target.key_columns.toDDL() or "none INT"),
            "value_type": literal(self.target.columns.toDDL()),
            "options": options(FROM_JSON),
        }
        """SQL literals of the types of keys and values, and the options that parse them."""
        self.may_be_left_out = (
            toast.may_be_left_out(
                self.target.columns, self.target.key, placeholder, arrivals.left_out, writer.left_out_columns
            )
            if placeholder
            else {}
        )
        uses_positions = placeholder is not None and self.target.apply != "append"
        stored = open_table(str(self.target.deleted)) if uses_positions else None
        self.stored_truncations = truncations.read_stored(stored, arrivals.truncations) if stored else []
        self.bind_staged(staged)
        if arrivals.without_position and uses_positions:
            truncations.bind(self.spark, [*arrivals.truncations, *self.stored_truncations])
            assign_positions(self.spark, self.target, self.types, is_new=is_new)
        state = "state" if arrivals.left_out else "CAST(NULL AS STRING)"
        state_struct = f"from_json({state}, {_STATE_SCHEMA})"
        rows = result_of(self.spark, statement("tables/arrived", state=state_struct, **self.types))
        rows.createOrReplaceTempView("arrived")

    def bind_staged(self, staged: OutputRows) -> None:
        """Creates the view `staged` of the batch's rows."""
        row_filter = f"kind = 'output' AND kafka.topic = {literal(staged.topic)}"
        if staged.shares_files:  # only then, as Spark compiles anew for new literals
            row_filter += f" AND sync > {staged.after} AND sync <= {staged.upto}"
        if self.arrivals.truncations and self.target.apply != "append":
            row_filter += " AND reason IS NULL"
        rows = read_parquet(self.spark, [file.uri for file in staged.files], spark_schema(STAGING_SCHEMA))
        rows.where(row_filter).createOrReplaceTempView("staged")

    def keep_arrived(self, *unused_columns: str) -> tuple[DataFrame, int]:
        """Checkpoints the view `arrived` without the unused columns; returns its rows and their number."""
        arrived = self.row_cache.keep(self.spark.table("arrived").drop(*unused_columns))
        arrived.createOrReplaceTempView("arrived")
        return arrived, arrived.count()

    def append(self) -> int:
        """Appends all rows, those of deletions too."""
        arrived, count = self.keep_arrived("value")
        columns = {column: self.value(column) for column in self.columns} | _PLACE_VALUES | {"_deleted": "deleted"}
        left_out = {
            column: condition for column, condition in self.may_be_left_out.items() if column in self.arrivals.left_out
        }
        if self.writer.ensure_left_out_column(needed=bool(left_out)):
            columns |= toast.as_they_came(left_out)
        rows = select(arrived, *aliased(columns))
        if self.is_new:
            self.writer.fill(rows)
        elif count:
            self.writer.append(rows, self.target.location)
        return count

    def value(self, column: str) -> str:
        """Returns the SQL of a column's value; a deleted row has only the columns of its key."""
        sql = f"v.{name(column)}"
        if column in self.target.key:
            sql = f"CASE WHEN deleted THEN k.{name(column)} ELSE {sql} END"
        if self.target.is_partition(column) and self.target.columns[column].dataType.typeName() == "string":
            error_text = f"column {column} is {{}} in a row, which partitions have as null: take it out of partition_by"
            cases = (
                f"WHEN {literal(text)} THEN raise_error({literal(error_text.format(repr(text)))})"
                for text in _NULL_PARTITIONS
            )
            sql = f"CASE {sql} {' '.join(cases)} ELSE {sql} END"
        return sql

    @property
    def any_left_out(self) -> str:
        """An aggregate: whether any row has a column that the connector left out."""
        return f"coalesce(bool_or({' OR '.join(self.may_be_left_out.values()) or 'false'}), false)"

    def store_tombstones(self, rows: DataFrame) -> None:
        """Stores the deletions in `rows`, and the truncations, so that older rows do not bring the keys back."""
        deletions = select(rows.where("deleted"), "key", "struct(place.position, place.seqno) AS place")
        if self.arrivals.truncations:
            deletions = deletions.unionByName(truncations.as_tombstones(self.spark, self.arrivals.truncations))
        self.writer.append(deletions, str(self.target.deleted))

    def upsert(self) -> int:
        """Keeps a row for each key: the newest in the source's order."""
        tombstones.bind(self.spark, self.target, self.arrivals.first_place)
        arrived_truncations, count = self.arrivals.truncations, None
        if arrived_truncations or self.stored_truncations:
            rows = self.spark.table("arrived").where(
                truncations.not_before(arrived_truncations, self.stored_truncations)
            )
            rows.createOrReplaceTempView("arrived")
        if self.arrivals.with_old_key:
            _, count = self.keep_arrived()
            self.add_donors(moves.with_donors_for_upsert)
        known = toast.newest_known(self.may_be_left_out, moved=self.arrivals.with_old_key)
        newest = self.row_cache.keep(result_of(self.spark, statement("tables/newest", known=known, **self.types)))
        newest.createOrReplaceTempView("newest")
        arrived_count, deleted_count, any_left_out, *key_ends = self.aggregate(
            "newest", "sum(arrivals)", "count_if(deleted)", self.any_left_out
        )
        if deleted_count or arrived_truncations:
            self.store_tombstones(newest)
        columns = {column: self.value(column) for column in self.columns} | _PLACE_VALUES
        updates = {column: f"s.{name(column)}" for column in columns} | dict.fromkeys(self.dropped, "NULL")
        matched = NEWER
        tracked = self.tracked_columns(any_left_out=any_left_out)
        if tracked:
            columns |= toast.of_newest(tracked)
            later_known, tracked_updates = toast.merged(tracked, NEWER)
            updates = {
                column: f"IF({NEWER}, {value}, t.{name(column)})" for column, value in updates.items()
            } | tracked_updates
            matched = f"({NEWER} OR {later_known})"
        if self.is_new:
            self.writer.fill(select(newest.where("NOT deleted"), *aliased(columns)))
        elif arrived_count or arrived_truncations:
            changes = select(newest, *aliased(columns | toast.places(tracked)), "deleted AS _deleted")
            truncated = (
                truncations.before(max(arrived_truncations), "t._position", "t._seqno") if arrived_truncations else ""
            )
            is_plain = not (tracked or truncated or self.dropped)
            plain_table = self.writer.plain_table(self.target.location, {*columns}, self.target.key)
            if is_plain and plain_table and self.writer.upsert_by_delta_rs(plain_table, changes.toArrow()):
                return (arrived_count or 0) if count is None else count
            slots = {"truncated": f"WHEN NOT MATCHED BY SOURCE AND {truncated} THEN DELETE" if truncated else ""}
            slots |= {"newer": NEWER, "matched": matched}
            self.merge("upsert", changes, key_ends, list(columns), updates=updates, **slots)
        return ((arrived_count or 0) if count is None else count) + len(arrived_truncations)

    def history(self) -> int:
        """Keeps the versions of a key, at most one for each transaction, with the places where each begins and ends."""
        tombstones.bind(self.spark, self.target)
        all_truncations = [*self.arrivals.truncations, *self.stored_truncations]
        if all_truncations:
            truncations.bind(self.spark, all_truncations)
            in_transaction = "SELECT 1 FROM truncations t WHERE t.seqno = place.seqno AND t.offset > place.offset"
            rows = self.spark.table("arrived").where(f"NOT EXISTS ({in_transaction})")
            rows.createOrReplaceTempView("arrived")
        arrived, count = self.keep_arrived("value")
        if self.arrivals.with_old_key:
            arrived = self.add_donors(moves.with_donors_for_history)
        deleted_count, any_left_out, *key_ends = self.aggregate("arrived", "count_if(deleted)", self.any_left_out)
        if self.arrivals.truncations:  # they change all keys of the table, so that no file can be pruned
            key_ends = [(None, None, 0) for _ in key_ends]
        if deleted_count or self.arrivals.truncations:
            last = ("max_by(deleted, place) AS deleted", "max(place) AS place")
            self.store_tombstones(arrived.groupBy("key", "place.seqno").agg(*map(expr, last)))
        tracked = self.tracked_columns(any_left_out=any_left_out)
        left_out_column = [toast.COLUMN] if tracked else []
        self.bind_kept(arrived, key_ends, [*self.columns, *PLACE, *left_out_column])
        key_struct = f"from_json(key, {self.types['key_type']}, {self.types['options']})"
        key_values = {column: f"{key_struct}.{name(column)}" for column in self.target.key}
        text = statement(
            "tables/history",
            known=toast.newest_known(tracked),
            changed=", ".join(
                aliased({column: self.value(column) for column in self.columns} | toast.in_transaction(tracked))
            ),
            missing=toast.missing(tracked),
            kept=", ".join(map(name, self.columns)),
            missing_before=f"map_keys({toast.COLUMN})" if tracked else "array()",
            tombstones=", ".join(key_values.get(column, "NULL") for column in self.columns),
            of_keys="key IS NOT NULL" if self.arrivals.truncations else "key IN (SELECT key FROM arrived)",
            truncated=self.truncated_versions if all_truncations else "",
            filled=", ".join(aliased({column: name(column) for column in self.columns} | toast.filled(tracked))),
            key=", ".join(map(name, self.target.key)),
            **{"from": "_position" if self.debezium else "_seqno"},
        )
        columns = [*self.columns, *PLACE, *VALIDITY, *left_out_column]
        versions = self.row_cache.keep(result_of(self.spark, text).where("NOT _deleted").select(*map(name, columns)))
        count += len(self.arrivals.truncations)
        if self.is_new:
            self.writer.fill(versions)
        elif count:
            same = [
                "t.valid_to <=> s.valid_to",
                *(f"to_json(t.{column}) <=> to_json(s.{column})" for column in left_out_column),
            ]
            updates = {column: f"s.{name(column)}" for column in ("valid_to", "current", *tracked, *left_out_column)}
            self.merge("versions", versions, key_ends, columns, same=" AND ".join(same), updates=updates)
        return count

    @property
    def truncated_versions(self) -> str:
        """The part of sql/tables/history.sql that turns each truncation into a deletion of each key."""
        keys = ", ".join(map(name, self.target.key))
        columns = ", ".join(f"d.{name(column)}" if column in self.target.key else "NULL" for column in self.columns)
        return (
            f"UNION ALL SELECT {columns}, array(), true, t.position, t.seqno "  # noqa: S608 - names are quoted
            f"FROM (SELECT DISTINCT {keys} FROM changes_of_keys) d CROSS JOIN truncations t"
        )

    def add_donors(self, add: Callable[[DataFrame, DataFrame, DataFrame], DataFrame]) -> DataFrame:
        """Adds to `arrived` what rows were before an update gave them another key.

        `add` is `moves.with_donors_for_upsert` or `moves.with_donors_for_history`.
        """
        arrived = self.spark.table("arrived")
        key_struct = f"from_json(old_key, {self.types['key_type']}, {self.types['options']})"
        moved = moves.moves(arrived, self.row_cache)
        old_keys = select(
            moved, *aliased({column: f"{key_struct}.{name(column)}" for column in self.target.key})
        ).distinct()
        donors = moves.donors(moved, self.rows_of(old_keys, []), self.target, self.may_be_left_out)
        arrived = self.row_cache.keep(add(arrived, moved, donors))
        arrived.createOrReplaceTempView("arrived")
        return arrived

    def tracked_columns(self, *, any_left_out: bool) -> dict[str, str]:
        """Returns `may_be_left_out` if the table has `_left_out`, or gets it by `any_left_out`; otherwise nothing."""
        return (
            self.may_be_left_out
            if self.may_be_left_out and self.writer.ensure_left_out_column(needed=any_left_out)
            else {}
        )

    def bind_kept(self, arrived: DataFrame, key_ends: list[Any], columns: list[str]) -> None:
        """Creates the view `kept` of the table's rows of the arrived keys; of all keys if truncations arrived."""
        keys = select(arrived, *aliased({column: self.value(column) for column in self.target.key})).distinct()
        if self.arrivals.truncations:
            self.rows(key_ends).select(*map(name, columns)).createOrReplaceTempView("kept")
        else:
            self.rows_of(keys, key_ends).select(*map(name, columns)).createOrReplaceTempView("kept")

    def rows_of(self, keys: DataFrame, key_ends: list[Any]) -> DataFrame:
        """Returns the table's rows of the keys; `key_ends` prunes files, unless it is empty."""
        rows = self.rows(key_ends)
        same_key = [rows[name(column)].eqNullSafe(keys[name(column)]) for column in self.target.key]
        return rows.join(keys, same_key, "left_semi")

    def rows(self, key_ends: list[Any]) -> DataFrame:
        """Returns the table's rows, at least those within `key_ends`, by which files are pruned unless it is empty."""
        if self.is_new:
            columns = f"{self.target.columns.toDDL()}, _position BIGINT, _seqno BIGINT, {toast.COLUMN} {toast.TYPE}"
            return from_rows(self.spark, [], columns)
        rows = self.spark.read.format("delta").load(self.target.location).alias("t")
        return rows.where(" AND ".join((pruning.between(self.target, key_ends) if key_ends else []) or ["true"]))

    def merge(
        self,
        statement_name: str,
        changes: DataFrame,
        key_ends: list[Any],
        columns: list[str],
        updates: dict[str, str],
        **slots: str,
    ) -> None:
        """Merges `changes`, whose keys are within `key_ends`, into the table by `sql/tables/<statement_name>.sql`."""
        changes.createOrReplaceTempView("changes")
        same_key = [f"t.{name(column)} <=> s.{name(column)}" for column in self.target.key]
        self.writer.merge(
            statement(
                f"tables/{statement_name}",
                target=name(self.target.location),
                same_key=" AND ".join(same_key + pruning.between(self.target, key_ends)),
                columns=", ".join(map(name, columns)),
                values=", ".join(f"s.{name(column)}" for column in columns),
                updates=", ".join(f"t.{name(column)} = {value}" for column, value in updates.items()),
                **slots,
            )
        )

    def aggregate(self, view: str, *aggregates: str) -> list[Any]:
        """Computes the aggregates over a view, and then the ends of its keys (zync.deliver.tables.pruning)."""
        key_ends = pruning.ends(self.target, self.value)
        return list(select(self.spark.table(view), *aggregates, *key_ends).collect()[0])
