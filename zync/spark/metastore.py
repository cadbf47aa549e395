"""What a Hive metastore has of a table, by the client that Spark has in the JVM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from zync.spark.jvm import jvm_class

HiveColumn = tuple[str, str, str | None]
"""A column's name, type and comment, as Hive has them."""


@dataclass(frozen=True)
class RegisteredTable:
    """A table or view in the metastore.

    Attributes:
        is_view: Whether it is a view.
        provider: The format, `delta` for a Delta table; None if Spark knows none.
        location: The location; None for a view.
        text: The query of a view.
        properties: The table properties.
        columns: The columns as Spark has them, as JSON.
    """

    is_view: bool
    provider: str | None
    location: str | None
    text: str | None
    properties: dict[str, str]
    columns: str


class Metastore:
    """The metastore of a session that `hive_session` made. Each call may raise Spark's errors."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._catalog: Any = spark._jsparkSession.sharedState().externalCatalog()  # noqa: SLF001
        self._client: Any = self._catalog.unwrapped().client()

    def has_database(self, database: str) -> bool:
        """Returns whether the metastore has a database."""
        return bool(self._catalog.databaseExists(database))

    def table(self, database: str, table: str) -> RegisteredTable | None:
        """Returns what the metastore has by a name; None if it has nothing."""
        if not self._catalog.tableExists(database, table):
            return None
        entry = self._catalog.getTable(database, table)
        location, properties = _value(entry.storage().locationUri()), entry.properties()
        return RegisteredTable(
            is_view=entry.tableType().name() == "VIEW",
            provider=_value(entry.provider()),
            location=location and location.toString(),
            text=_value(entry.viewText()),
            properties={key: properties.apply(key) for key in properties.keys().mkString("\n").split("\n") if key},
            columns=entry.schema().json(),
        )

    def columns(self, database: str, table: str) -> list[HiveColumn]:
        """Returns a table's columns as programs other than Spark have them."""
        return [
            (column.getName(), column.getType(), column.getComment())
            for column in self._raw(database, table).getSd().getCols()
        ]

    def change_columns(
        self, database: str, table: str, columns: StructType, hive_columns: Sequence[HiveColumn]
    ) -> None:
        """Changes a table's columns.

        Spark keeps its own in properties. For those of Hive it gives up where the metastore finds a type that is
        changed to another kind; it begins with a column of an array. The metastore compares columns by their place, so
        they are taken away first.
        """
        schema = jvm_class(self._spark, "org.apache.spark.sql.types.DataType").fromJson(columns.json())
        self._catalog.alterTableDataSchema(database, table, schema)
        if self.columns(database, table) == list(hive_columns):
            return
        raw = self._raw(database, table).deepCopy()
        template = next(iter(raw.getSd().getCols()), None)
        if template is None:
            return
        array_list = jvm_class(self._spark, "java.util.ArrayList")
        changed = array_list()
        for name, type_name, comment in hive_columns:
            column = template.deepCopy()  # its class is of a loader of Hive's own
            column.setName(name)
            column.setType(type_name)
            column.setComment(comment)
            changed.add(column)
        hive = self._client.clientLoader().cachedHive().getMSC()
        for fields in (array_list(), changed):
            raw.getSd().setCols(fields)
            hive.alter_table(database, table, raw)

    def _raw(self, database: str, table: str) -> Any:
        """Returns a table as the metastore's protocol has it."""
        return self._client.getRawHiveTableOption(database, table).get().rawTable().getTTable()


def _value(option: Any) -> Any:
    """Returns the value of an Option of Scala; None if it has none."""
    return option.get() if option.isDefined() else None
