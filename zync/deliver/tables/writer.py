"""Commits to a delivered table: each stores its sync as Delta's `txn` and in the commit's `userMetadata`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from zync.debezium import toast
from zync.deliver.tables.delta_rs import DeltaRs, most_merged
from zync.deliver.tables.fence import FencedSession
from zync.deliver.tables.plain import has_flat_columns, is_plain, spark_schema_of
from zync.deliver.tables.schema_changes import changes
from zync.deliver.tables.target import CLUSTERED_BY, CONFIGURED, TableTarget
from zync.errors import ConflictError
from zync.lake.delivered import APP
from zync.lake.files import add_actions
from zync.lake.table import open_table
from zync.rules.json_text import JSON_OPTIONS
from zync.spark.frames import leaves
from zync.sql import literal, name

MANY = 64
"""The number of small files above which a table is compacted."""
_FEATURES = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
"""Delta's table features by the types that need them. Delta enables them in a new table, but not in an existing one."""
_CONSTRAINT = "delta.constraints."
_INTERNAL = ("delta.columnMapping.maxColumnId", "delta.inCommitTimestampEnablement", "delta.rowTracking.materialized")
"""The prefixes of properties that only Delta itself sets."""
_SMALL_BYTES, _COMPACTED_BYTES = 16 << 20, 128 << 20
"""The size below which a file is small, and the largest size of the files that compaction writes."""


@dataclass(frozen=True)
class Writer:
    """Writes the rows of staging through the sync `upto` to the table of `target`.

    Attributes:
        session: The session, for what takes Spark.
        target: The table.
        staging: The table id of staging.
        upto: The last sync of the batch.
        batch_bytes: The bytes of the batch's files in staging.
        left_out_columns: The columns that rows name as left out, which the table property toast.NOTED stores.
        planned: The tables by location that delta-rs may write to: at the versions that the batch was planned from, or
            that delta-rs wrote since. None, or not there: they are Spark's, which may have written.
    """

    session: FencedSession
    target: TableTarget
    staging: str
    upto: int
    batch_bytes: int
    left_out_columns: frozenset[str] = frozenset()
    planned: "dict[str, DeltaTable | None]" = field(default_factory=dict)

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.session.spark

    @property
    def properties(self) -> dict[str, str]:
        """All properties that the table should have."""
        return self.target.properties | (
            {toast.NOTED: ", ".join(sorted(self.left_out_columns))} if self.left_out_columns else {}
        )

    def fit_columns(self, table: DeltaTable) -> list[str]:
        """Adds the new columns of the rules to `table`, and widens its types.

        A wider type rewrites the table in a commit of its own: Delta can widen types in place, but not all readers
        support that.

        Returns:
            The names of the columns that the rules no longer select.

        Raises:
            UsageError: as `schema_changes.changes`.
        """
        target = self.target
        self._update_properties(table)
        wider, new_fields, dropped = changes(target, spark_schema_of(table))
        self._enable_features([*wider.values(), *(field.dataType for field in new_fields)])
        if wider:
            rows = self.spark.read.format("delta").load(target.location)
            self._rewrite(
                rows.withColumns(
                    {column: _widen(rows[name(column)], wider_type) for column, wider_type in wider.items()}
                )
            )
        if new_fields:
            self._alter(f"ADD COLUMNS ({StructType(new_fields).toDDL()})")
        return dropped

    def _enable_features(self, types: list[DataType]) -> None:
        """Enables the table features that columns of these types need."""
        needed = {
            _FEATURES[leaf.typeName()]
            for column_type in types
            for leaf in leaves(column_type)
            if leaf.typeName() in _FEATURES
        }
        table = open_table(self.target.location) if needed else None
        if table is None:
            return
        enabled = {*(table.protocol().reader_features or ()), *(table.protocol().writer_features or ())}
        if missing := sorted(needed - enabled):
            pairs = ", ".join(f"{literal(f'delta.feature.{feature}')} = 'supported'" for feature in missing)
            self._alter(f"SET TBLPROPERTIES ({pairs})")

    def _rewrite(self, rows: DataFrame) -> None:
        """Replaces the table's rows by `rows` with wider types, in a single commit that keeps Delta's `txn`.

        The table keeps the properties that others set, and gets their constraints again.
        """
        self.planned.pop(self.target.location, None)
        rows.createOrReplaceTempView("rewritten")
        table = open_table(self.target.location)
        current = table.metadata().configuration if table else {}
        kept = {key: value for key, value in current.items() if not key.startswith((_CONSTRAINT, *_INTERNAL))}
        with self._tagged():  # SQL, as the overwrite of a DataFrame would lose the clustering
            clauses = self._table_clauses(kept | self.properties)
            created = f"delta.{name(self.target.location)} USING DELTA{clauses}"
            query = "SELECT * FROM rewritten"
            self.spark.sql(f"CREATE OR REPLACE TABLE {created} AS {query}")
        self.spark.catalog.dropTempView("rewritten")
        for key, condition in current.items():
            if key.startswith(_CONSTRAINT):
                self._alter(f"ADD CONSTRAINT {name(key.removeprefix(_CONSTRAINT))} CHECK ({condition})")

    def ensure_left_out_column(self, *, needed: bool) -> bool:
        """Adds the column `_left_out` to an existing table if it is `needed`.

        Returns:
            Whether the table has the column, or a new table should have it.
        """
        table = open_table(self.target.location)
        if table is None:
            return needed
        exists = any(field.name == toast.COLUMN for field in table.schema().fields)
        if needed and not exists:
            self._alter(f"ADD COLUMNS ({toast.COLUMN} {toast.TYPE})")
        return needed or exists

    def _alter(self, clause: str) -> None:
        self.planned.pop(self.target.location, None)
        with self._tagged():
            self.spark.sql(f"ALTER TABLE delta.{name(self.target.location)} {clause}")

    def _update_properties(self, table: DeltaTable) -> None:
        """Gives an existing table the clustering and properties of a new one; unsets those of an earlier config."""
        current, wanted = table.metadata().configuration, self.properties
        if current.get(CLUSTERED_BY, "") != wanted[CLUSTERED_BY]:
            columns = ", ".join(map(name, self.target.settings.cluster_by))
            self._alter(f"CLUSTER BY {f'({columns})' if columns else 'NONE'}")
        previous = {CONFIGURED, *current[CONFIGURED].split(", ")} if CONFIGURED in current else set[str]()
        # Before SET, which forgets their names.
        if removed := sorted(previous - wanted.keys()):
            self._alter(f"UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(literal, removed))})")
        if not wanted.items() <= current.items():
            self._alter(f"SET{_properties_clause(wanted)}")

    def fill(self, rows: DataFrame) -> None:
        """Writes the first rows of the table; creates the table if it does not exist."""
        if open_table(self.target.location) is None:
            self._create(rows.schema)
        self.append(rows, self.target.location)

    def _create(self, columns: StructType) -> None:
        with self._tagged():
            clauses = self._table_clauses(self.properties)
            table = f"delta.{name(self.target.location)} ({columns.toDDL()}) USING DELTA{clauses}"
            self.spark.sql(f"CREATE TABLE {table}")

    def plan_new(self) -> None:
        """Creates the table if it did not exist, for delta-rs to write its first rows.

        Raises:
            ConflictError: Another process has written to it by then.
        """
        location, columns = self.target.location, self.target.plain_columns
        if location not in self.planned or self.planned[location] is not None:
            return
        is_created = self._is_plain(columns) and self._delta_rs.create(location, columns, self.properties)
        if not is_created and open_table(location) is None:
            self._create(columns)
        self.planned[location] = table = open_table(location)
        if table is None or table.version():
            msg = f"another process wrote to {location} meanwhile"
            raise ConflictError(msg)

    def _is_plain(self, columns: StructType) -> bool:
        """Returns whether delta-rs makes a table of these columns as Spark does."""
        settings, is_appended = self.target.settings, self.target.apply == "append"
        has_layout = settings.partition_by or settings.cluster_by
        needs_feature = any(field.dataType.typeName() in _FEATURES for field in columns)
        is_flat = has_flat_columns(columns, self.target.key, is_appended=is_appended)
        # Spark checks properties of Delta when it makes a table.
        return is_flat and not (has_layout or needs_feature or any(key.startswith("delta.") for key in self.properties))

    def append(self, rows: DataFrame, location: str) -> None:
        """Appends rows to the table at `location`; Delta skips them if the table has the batch's `txn` already."""
        table = self.plain_table(location, set(rows.columns))
        if table and self.append_by_delta_rs(location, table, [rows.toArrow()]):
            return
        self.planned.pop(location, None)
        options = {"txnAppId": APP + self.staging, "txnVersion": str(self.upto), "userMetadata": self._tag}
        rows.write.format("delta").options(**options).mode("append").save(location)

    def append_by_delta_rs(self, location: str, table: DeltaTable, rows: Iterable[pa.Table]) -> bool:
        """Appends rows to a table of `plain_table` by delta-rs; returns whether delta-rs took them."""
        appended = self._delta_rs.append(table, rows)
        self.planned[location] = appended
        return appended is not None

    def upsert_by_delta_rs(self, table: DeltaTable, changes: pa.Table) -> bool:
        """Merges a row for each key, with `_deleted`, into such a table; returns whether delta-rs took them."""
        merged = self._delta_rs.upsert(table, changes, self.target.key)
        self.planned[self.target.location] = merged
        if merged is None:  # its tombstones may be stored: Spark does not store them again
            self.planned[str(self.target.deleted)] = None
        return merged is not None

    def plain_table(self, location: str, columns: set[str], key: Sequence[str] = ()) -> DeltaTable | None:
        """Returns the table at `location` if delta-rs may write rows with these columns to it.

        Args:
            location: The location of the table.
            columns: The names of the columns of the rows.
            key: The names of the columns by which rows are found.
        """
        table = self.planned.get(location)
        if table is None:
            return None
        schema = spark_schema_of(table)
        fits = {*schema.names} == columns and is_plain(table)
        is_appended = self.target.apply == "append"
        is_flat = location == self.target.deleted or has_flat_columns(schema, key, is_appended=is_appended)
        return table if fits and is_flat else None

    @property
    def _delta_rs(self) -> DeltaRs:
        return DeltaRs(self.staging, self.upto, self._tag, self.session.follow, self.most_merged)

    @property
    def most_merged(self) -> int:
        """The most bytes of the table's files that a merge by delta-rs may read."""
        return most_merged(self.batch_bytes)

    def merge(self, text: str) -> None:
        """Runs a MERGE statement on the table; its commit stores the batch's sync as `txn`."""
        self.planned.pop(self.target.location, None)
        prefix = "spark.databricks.delta.write.txn"  # MERGE takes the txn from the session's settings only
        settings = {f"{prefix}AppId": APP + self.staging, f"{prefix}Version": str(self.upto)}
        settings["spark.databricks.delta.merge.materializeSource"] = "none"  # the source is checkpointed already
        with self._tagged(**settings):
            self.spark.sql(text).collect()

    def compact(self) -> None:
        """Compacts the table, and its tombstones, if it has more than `MANY` small files; each batch adds some."""
        for location in filter(None, (self.target.location, self.target.deleted)):
            planned = self.planned.get(location)
            if _has_many_small(planned or open_table(location)):
                if planned and self._is_compacted_by_delta_rs(location, planned):
                    compacted = self._delta_rs.compact(planned)
                    if compacted and not _has_many_small(compacted):
                        continue
                limits = {"minFileSize": _SMALL_BYTES, "maxFileSize": _COMPACTED_BYTES}
                with self._tagged(
                    **{f"spark.databricks.delta.optimize.{setting}": str(limit) for setting, limit in limits.items()}
                ):
                    self.spark.sql(f"OPTIMIZE delta.{name(location)}").collect()

    def _is_compacted_by_delta_rs(self, location: str, table: DeltaTable) -> bool:
        is_tombstones = location == self.target.deleted
        return is_plain(table) and (is_tombstones or has_flat_columns(spark_schema_of(table), is_appended=True))

    def _table_clauses(self, properties: dict[str, str]) -> str:
        """The clauses of CREATE TABLE: partitioning, clustering and properties."""
        settings = self.target.settings
        layout = (("PARTITIONED BY", settings.partition_by), ("CLUSTER BY", settings.cluster_by))
        clauses = [f" {clause} ({', '.join(map(name, columns))})" for clause, columns in layout if columns]
        return "".join([*clauses, _properties_clause(properties)])

    @property
    def _tag(self) -> str:
        return json.dumps({"zync": {"sync": self.upto}})

    @contextmanager
    def _tagged(self, **spark_settings: str) -> Iterator[None]:
        """Sets the commits' `userMetadata`, and other settings of the session, within the context."""
        settings = {"spark.databricks.delta.commitInfo.userMetadata": self._tag, **spark_settings}
        for key, value in settings.items():
            self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in settings:
                self.spark.conf.unset(key)


def _has_many_small(table: DeltaTable | None) -> bool:
    sizes: list[int] = add_actions(table)["size_bytes"].to_pylist() if table else []
    return sum(size < _SMALL_BYTES for size in sizes) > MANY


def _properties_clause(properties: dict[str, str]) -> str:
    pairs = (f"{literal(key)} = {literal(value)}" for key, value in properties.items())
    return f" TBLPROPERTIES ({', '.join(pairs)})"


def _widen(column: Column, wider_type: DataType) -> Column:
    """Converts a column to a wider type.

    Nested values go through JSON, because a cast adds no fields to a struct. A value that becomes a string has the text
    of staging's JSON, as the values of new rows have.
    """
    if isinstance(wider_type, StringType):
        return sf.from_json(sf.to_json(sf.struct(column.alias("v")), JSON_OPTIONS), "v STRING", JSON_OPTIONS)["v"]
    if isinstance(wider_type, StructType | ArrayType | MapType):
        return sf.from_json(sf.to_json(column, JSON_OPTIONS), wider_type.json(), JSON_OPTIONS)
    return column.cast(wider_type)
