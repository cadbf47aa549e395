"""Delivered tables in a Hive metastore, through a Spark session that has no other use.

The session of the delivery itself keeps Spark's catalog in memory: with that of the metastore, each statement over a
table by its path would ask the metastore whether it has the database `delta`, and fail while that is away.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from zync.config.catalog import Catalog, CatalogName
from zync.deliver.catalog.entries import (
    TOPIC,
    CatalogError,
    Entry,
    NameTakenError,
    View,
    hive_type,
    same_location,
    taken,
)
from zync.lake import storage
from zync.lake.paths import for_spark
from zync.spark.errors import message_of, spark_errors
from zync.spark.metastore import Metastore
from zync.spark.session import hive_session
from zync.sql import literal, name

_BOUNDS = {
    "hive.metastore.client.socket.timeout": "20s",
    "hive.metastore.client.connect.retry.delay": "1s",
    "hive.metastore.connect.retries": "1",
    "hive.metastore.failure.retries": "0",
}
"""How long the metastore's client waits for an answer, once: by default it would be ten minutes, several times. A
delivery asks again after a minute."""
_HADOOP = "spark.hadoop."
_OF_HIVE = (f"{_HADOOP}hive.", f"{_HADOOP}javax.jdo.", f"{_HADOOP}datanucleus.", "spark.sql.hive.metastore.")
"""The beginnings of the names of Spark properties that say how the metastore is reached."""
_JAVA_EXCEPTION = re.compile(r"\b(?:\w+\.)+\w+(?:Exception|Error): ")
_UNREACHABLE = re.compile(r"Could not connect to meta store .*Most recent failure: (.*)")


class HiveCatalog:
    """A Hive metastore."""

    def __init__(
        self, session: Callable[[], SparkSession], settings: Catalog, properties: Mapping[str, str], lake: str
    ) -> None:
        """Prepares the access to the metastore, which is not asked yet.

        Args:
            session: Returns a session of the application.
            settings: The config's catalog.
            properties: The config's Spark properties.
            lake: The location of the lake, in which a database of the catalog gets its folder.
        """
        # An application of others has not all of the config, and maybe no access to the lake's store.
        own = {key.removeprefix(_HADOOP): value for key, value in properties.items() if key.startswith(_OF_HIVE)}
        self._options = {**_BOUNDS, **storage.session_properties(lake), **own}
        if settings.uri:
            self._options["hive.metastore.uris"] = settings.uri
        self._session, self._lake = session, lake
        self._place = settings.uri or "that Spark is told of"

    @cached_property
    def _spark(self) -> SparkSession:
        return hive_session(self._session(), self._options)

    @cached_property
    def _metastore(self) -> Metastore:
        return Metastore(self._spark)

    def register(self, entry: Entry) -> None:
        """Registers the table, or changes its columns, as `CatalogClient.register`."""
        database, table = entry.name.database, entry.name.name
        with self._errors():
            self._ensure_database(database)
            registered = self._metastore.table(database, table)
            if registered is None:
                location = literal(for_spark(entry.location))
                self._spark.sql(f"CREATE TABLE IF NOT EXISTS {_quoted(entry.name)} USING DELTA LOCATION {location}")
                registered = self._metastore.table(database, table)
            if registered is None or registered.is_view or registered.provider != "delta":
                raise taken(entry.name, "something else", f"the table at {entry.location}")
            if not same_location(str(registered.location), entry.location):
                raise taken(entry.name, f"the table at {registered.location}", f"the table at {entry.location}")
            columns = [
                (field.name.lower(), hive_type(field.dataType), field.metadata.get("comment"))
                for field in entry.columns
            ]
            is_current = StructType.fromJson(json.loads(registered.columns)) == entry.columns
            if not is_current or self._metastore.columns(database, table) != columns:
                self._metastore.change_columns(database, table, entry.columns, columns)

    def replace_views(self, views: Sequence[View]) -> None:
        """Creates the views, or changes the versions that they read, as `CatalogClient.replace_views`.

        An existing view is altered, which the metastore does at once. CREATE OR REPLACE VIEW would drop it first.
        """
        error: NameTakenError | None = None
        statements: list[str] = []
        with self._errors():
            for view in views:
                try:
                    statements += self._replacing(view)
                except NameTakenError as taken_name:
                    error = error or taken_name
            for statement in statements:
                self._spark.sql(statement)
        if error:
            raise error

    def _replacing(self, view: View) -> Iterator[str]:
        """Yields the statement that makes the view read its version; none if it does."""
        self._ensure_database(view.name.database)
        registered = self._metastore.table(view.name.database, view.name.name)
        rows = f"SELECT * FROM {_quoted(view.table)} VERSION AS OF {view.version}"  # noqa: S608 - names are quoted
        if registered is None:
            properties = f"TBLPROPERTIES ({literal(TOPIC)} = {literal(view.topic)})"
            yield f"CREATE VIEW {_quoted(view.name)} {properties} AS {rows}"
        elif not registered.is_view or registered.properties.get(TOPIC) != view.topic:
            kind = "a view" if registered.is_view else "a table"
            raise taken(view.name, f"{kind} of somebody else", f"the view of {view.table}")
        elif registered.text != rows:
            self._spark.sql(rows)  # loads the version now, so that the views are replaced soon after each other
            yield f"ALTER VIEW {_quoted(view.name)} AS {rows}"

    def _ensure_database(self, database: str) -> None:
        if not self._metastore.has_database(database):
            location = literal(f"{for_spark(self._lake)}/{database}.db")
            self._spark.sql(f"CREATE DATABASE IF NOT EXISTS {name(database)} LOCATION {location}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except spark_errors() as error:
            text = _JAVA_EXCEPTION.sub("", message_of(error))
            failure = _UNREACHABLE.search(text)
            reason = f"cannot be reached: {failure[1]}" if failure else f"fails: {text}"
            msg = f"the Hive metastore {self._place} {reason}"
            raise CatalogError(msg) from error


def _quoted(table: CatalogName) -> str:
    return f"{name(table.database)}.{name(table.name)}"
