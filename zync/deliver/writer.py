"""Commits to a delivered table: each says of itself, as Delta's `txn` and in words, through which sync it is."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from zync.deliver.target import APP, Target
from zync.errors import UsageError
from zync.lake import open_table
from zync.sql import name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MANY = 64
"""Small files of a table that are left as they are."""
_SMALL, _LARGE = 16 << 20, 128 << 20
"""Bytes of a file that is small, and of those that are made of such."""


@dataclass(frozen=True)
class Writer:
    """Writes to the table of `target` what the staging of that table id has up to the sync `upto`."""

    spark: "SparkSession"
    target: Target
    staging: str
    upto: int

    @property
    def deleted(self) -> str:
        """Where the table is that remembers what was deleted."""
        folder, _, topic = self.target.location.rpartition("/")
        return f"{folder}/_deleted/{topic}"

    def fit_columns(self) -> None:
        """Gives the table the columns that rules select by now. UsageError where types differ, or that is unwanted."""
        from pyspark.sql.types import StructType  # noqa: PLC0415

        target = self.target
        there = {one.name: one.dataType for one in self.spark.read.format("delta").load(target.location).schema.fields}
        for one in target.columns.fields:
            if there.get(one.name, one.dataType) != one.dataType:
                msg = (
                    f"the rules of output {target.topic} make {one.name!r} a {one.dataType.simpleString()}, and the "
                    f"table at {target.location} has it as {there[one.name].simpleString()}: cast it in the rule, or "
                    "take the folder of the tables away, to have all made anew"
                )
                raise UsageError(msg)
        more = [one for one in target.columns.fields if one.name not in there]
        if more and target.said.schema_changes == "fail":
            msg = (
                f"the rules of output {target.topic} select {more[0].name!r}, which the table at {target.location} "
                "does not have, and schema_changes is fail"
            )
            raise UsageError(msg)
        if more:
            with self._tagged():
                self.spark.sql(f"ALTER TABLE delta.{name(target.location)} ADD COLUMNS ({StructType(more).toDDL()})")

    def fill(self, rows: "DataFrame") -> None:
        """The first rows of a table, which is made if it is not there."""
        said = self.target.said
        if open_table(self.target.location) is None:
            laid_out = ""
            for clause, columns in (("PARTITIONED BY", said.partition_by), ("CLUSTER BY", said.cluster_by)):
                laid_out += f" {clause} ({', '.join(map(name, columns))})" if columns else ""
            with self._tagged():
                columns_said = rows.schema.toDDL()
                self.spark.sql(
                    f"CREATE TABLE delta.{name(self.target.location)} ({columns_said}) USING DELTA{laid_out}"
                )
        self.append(rows, self.target.location)

    def append(self, rows: "DataFrame", location: str) -> None:
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
        for location in (self.target.location, self.deleted):
            table = open_table(location)
            sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist() if table else []
            if sum(size < _SMALL for size in sizes) > MANY:
                limits = {"minFileSize": _SMALL, "maxFileSize": _LARGE}
                with self._tagged(**{f"spark.databricks.delta.optimize.{one}": str(v) for one, v in limits.items()}):
                    self.spark.sql(f"OPTIMIZE delta.{name(location)}").collect()

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
