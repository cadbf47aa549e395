"""Commits to a delivered table: each says of itself, as Delta's `txn` and in words, through which sync it is."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from zync.debezium import toast
from zync.deliver.tables.schema_changes import changes
from zync.deliver.tables.target import CLUSTERED_BY, Target
from zync.deliver.tables.truncations import TOMBSTONES
from zync.lake.delivered import APP
from zync.lake.table import ensure_table, open_table
from zync.rules.json_text import JSON_OPTIONS
from zync.spark.frames import leaves
from zync.sql import literal, name

MANY = 64
"""Small files of a table that are left as they are."""
_FEATURES = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
"""Delta's table features by the types that need them. A new table gets them by itself, one that is there does not."""
_SMALL, _LARGE = 16 << 20, 128 << 20
"""Bytes of a file that is small, and of those that are made of such."""


@dataclass(frozen=True)
class Writer:
    """Writes to the table of `target` what the staging of that table id has up to the sync `upto`.

    `noted`: columns that rows say were left out, which the table has on record (zync.debezium.toast.NOTED).
    """

    spark: SparkSession
    target: Target
    staging: str
    upto: int
    noted: frozenset[str] = frozenset()

    @property
    def properties(self) -> dict[str, str]:
        """All properties that the table is to have."""
        return self.target.properties | ({toast.NOTED: ", ".join(sorted(self.noted))} if self.noted else {})

    def fit_columns(self) -> list[str]:
        """Gives the table the columns and wider types that rules select by now. Those that they do not any more.

        A wider type rewrites the table, in a commit of its own: Delta can widen in place, but then not all can read it.
        UsageError where a type is another one otherwise, or a change is unwanted.
        """
        target = self.target
        self._complete()
        rows = self.spark.read.format("delta").load(target.location)
        wider, more, dropped = changes(target, rows.schema)
        self._enable_features([*wider.values(), *(one.dataType for one in more)])
        if wider:
            self._rewrite(rows.withColumns({column: _as(rows[name(column)], kind) for column, kind in wider.items()}))
        if more:
            self._alter(f"ADD COLUMNS ({StructType(more).toDDL()})")
        return dropped

    def _enable_features(self, types: list[DataType]) -> None:
        """Gives the table the features that columns of those types need, where it lacks them."""
        needed = {_FEATURES[leaf.typeName()] for kind in types for leaf in leaves(kind) if leaf.typeName() in _FEATURES}
        table = open_table(self.target.location) if needed else None
        if table is None:
            return
        has = {*(table.protocol().reader_features or ()), *(table.protocol().writer_features or ())}
        if missing := sorted(needed - has):
            pairs = ", ".join(f"{literal(f'delta.feature.{one}')} = 'supported'" for one in missing)
            self._alter(f"SET TBLPROPERTIES ({pairs})")

    def _rewrite(self, rows: DataFrame) -> None:
        """Puts `rows`, of other types, in place of those that the table has: one commit, which keeps Delta's txn."""
        rows.createOrReplaceTempView("rewritten")
        with self._tagged():  # a DataFrame's overwrite would lose the clustering
            table = f"delta.{name(self.target.location)} USING DELTA{self._made_with}"
            self.spark.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM rewritten")  # noqa: S608 - names are quoted

    def notes_left_out(self, *, some: bool) -> bool:
        """Whether rows say what Debezium left out of them; if `some` is, the table gets that column."""
        table = open_table(self.target.location)
        if table is None:
            return some
        there = any(one.name == toast.COLUMN for one in table.schema().fields)
        if some and not there:
            self._alter(f"ADD COLUMNS ({toast.COLUMN} {toast.TYPE})")
        return some or there

    def _alter(self, clause: str) -> None:
        with self._tagged():
            self.spark.sql(f"ALTER TABLE delta.{name(self.target.location)} {clause}")

    def _complete(self) -> None:
        """Gives the table what one made now would have: all properties, where an older zync made it; its clustering."""
        self._ensure_deleted()
        table = open_table(self.target.location)
        if table is None:
            return
        there, wanted = table.metadata().configuration, self.properties
        if there.get(CLUSTERED_BY, "") != wanted[CLUSTERED_BY]:
            columns = ", ".join(map(name, self.target.said.cluster_by))
            self._alter(f"CLUSTER BY {f'({columns})' if columns else 'NONE'}")
        if not wanted.items() <= there.items():
            self._alter(f"SET{self._properties}")

    def _ensure_deleted(self) -> None:
        if self.target.deleted:
            ensure_table(self.target.deleted, TOMBSTONES, "zync: what was deleted, and where in the source's order")

    def fill(self, rows: DataFrame) -> None:
        """The first rows of a table, which is made if it is not there."""
        self._ensure_deleted()
        if open_table(self.target.location) is None:
            with self._tagged():
                table = f"delta.{name(self.target.location)} ({rows.schema.toDDL()}) USING DELTA{self._made_with}"
                self.spark.sql(f"CREATE TABLE {table}")
        self.append(rows, self.target.location)

    def append(self, rows: DataFrame, location: str) -> None:
        """Adds rows to the table there, as this sync's; nothing, if it has them."""
        options = {"txnAppId": APP + self.staging, "txnVersion": str(self.upto), "userMetadata": self._tag}
        rows.write.format("delta").options(**options).mode("append").save(location)

    def merge(self, text: str) -> None:
        """Runs a MERGE, whose commit is this sync's."""
        write = "spark.databricks.delta.write.txn"  # which MERGE takes from the session alone
        settings = {f"{write}AppId": APP + self.staging, f"{write}Version": str(self.upto)}
        settings["spark.databricks.delta.merge.materializeSource"] = "none"  # what is merged is kept already
        with self._tagged(**settings):
            self.spark.sql(text).collect()

    def compact(self) -> None:
        """Makes few files of small ones where they are many by now: each batch leaves some."""
        for location in filter(None, (self.target.location, self.target.deleted)):
            table = open_table(location)
            sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist() if table else []
            if sum(size < _SMALL for size in sizes) > MANY:
                limits = {"minFileSize": _SMALL, "maxFileSize": _LARGE}
                with self._tagged(**{f"spark.databricks.delta.optimize.{one}": str(v) for one, v in limits.items()}):
                    self.spark.sql(f"OPTIMIZE delta.{name(location)}").collect()

    @property
    def _made_with(self) -> str:
        said = self.target.said
        layout = (("PARTITIONED BY", said.partition_by), ("CLUSTER BY", said.cluster_by))
        clauses = [f" {clause} ({', '.join(map(name, columns))})" for clause, columns in layout if columns]
        return "".join([*clauses, self._properties])

    @property
    def _properties(self) -> str:
        pairs = (f"{literal(one)} = {literal(its)}" for one, its in self.properties.items())
        return f" TBLPROPERTIES ({', '.join(pairs)})"

    @property
    def _tag(self) -> str:
        return json.dumps({"zync": {"sync": self.upto}})

    @contextmanager
    def _tagged(self, **more: str) -> Iterator[None]:
        settings = {"spark.databricks.delta.commitInfo.userMetadata": self._tag, **more}
        for key, value in settings.items():
            self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in settings:
                self.spark.conf.unset(key)


def _as(column: Column, kind: DataType) -> Column:
    """The column's values in a wider type: of nested ones as they were read from JSON, as a cast adds no fields.

    And as text what they are in staging's JSON, as which other rows come.
    """
    if isinstance(kind, StringType):
        return sf.from_json(sf.to_json(sf.struct(column.alias("v")), JSON_OPTIONS), "v STRING", JSON_OPTIONS)["v"]
    if isinstance(kind, StructType | ArrayType | MapType):
        return sf.from_json(sf.to_json(column, JSON_OPTIONS), kind.json(), JSON_OPTIONS)
    return column.cast(kind)
