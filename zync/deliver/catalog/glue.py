"""Delivered tables in the AWS Glue Data Catalog, through its own client (boto3, of the extra `glue`)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from pyspark.sql.types import StructType

from zync.config.catalog import Catalog
from zync.deliver.catalog.entries import TOPIC, CatalogError, Entry, View, hive_type, same_location, taken
from zync.errors import UsageError
from zync.lake import storage

_MAX_COMMENT = 255
"""The most characters of a column's comment in Glue."""
_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS = 5, 20, 3
_FORMAT = {
    "InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
}
"""The formats that Spark and Glue's crawler name for a Delta table. No reader goes by them."""
_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_PROVIDER = "spark.sql.sources.provider"
_KEPT = ("Description", "Owner", "Retention", "PartitionKeys", "TableType")
"""What an update takes over of a table, beside its parameters."""


class GlueCatalog:
    """The Glue Data Catalog."""

    def __init__(self, settings: Catalog) -> None:
        """Prepares a client, which asks nothing yet.

        Raises:
            UsageError: The extra is not installed, or no region is named.
        """
        if find_spec("boto3") is None:
            msg = "deliver.tables.catalog: type: glue needs the extra: pip install 'zync[glue]'"
            raise UsageError(msg)
        import boto3  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError, NoRegionError  # noqa: PLC0415

        self._errors_of_aws = (BotoCoreError, ClientError)
        options = storage.boto_options() | ({"region_name": settings.region} if settings.region else {})
        limits = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        )
        try:
            self._client: Any = boto3.client("glue", endpoint_url=settings.endpoint or None, config=limits, **options)
        except NoRegionError as error:
            msg = "deliver.tables.catalog: Glue needs a region: say region, or set AWS_REGION"
            raise UsageError(msg) from error
        self._databases: set[str] = set()

    def register(self, entry: Entry) -> None:
        """Registers the table, or changes its columns, as `CatalogClient.register`."""
        with self._errors():
            self._ensure_database(entry.name.database)
            try:
                table = self._client.get_table(DatabaseName=entry.name.database, Name=entry.name.name)["Table"]
            except self._client.exceptions.EntityNotFoundException:
                self._client.create_table(DatabaseName=entry.name.database, TableInput=_table_input(entry, {}))
                return
            location = table.get("StorageDescriptor", {}).get("Location", "")
            if table.get("Parameters", {}).get(_PROVIDER) != "delta" or not same_location(location, entry.location):
                raise taken(entry.name, f"the table at {location or 'no location'}", f"the table at {entry.location}")
            if table["StorageDescriptor"].get("Columns") != _columns(entry.columns):
                self._client.update_table(DatabaseName=entry.name.database, TableInput=_table_input(entry, table))

    def replace_views(self, views: Sequence[View]) -> None:
        """Raises CatalogError: Glue has no views that read a Delta table at a version. The config is not accepted."""
        msg = "Glue has no views of versions"
        raise CatalogError(msg)

    def _ensure_database(self, database: str) -> None:
        if database in self._databases:
            return
        try:
            self._client.get_database(Name=database)
        except self._client.exceptions.EntityNotFoundException:
            self._client.create_database(DatabaseInput={"Name": database})
        self._databases.add(database)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors_of_aws as error:
            self._databases.clear()
            msg = f"the Glue Data Catalog: {error}"
            raise CatalogError(msg) from error


def _table_input(entry: Entry, table: dict[str, Any]) -> dict[str, Any]:
    """Returns what Glue is told of a table. `table`: what it has of it now, of which all stays that is not zync's."""
    descriptor = {
        **_FORMAT,
        **table.get("StorageDescriptor", {}),
        "Columns": _columns(entry.columns),
        "Location": entry.location,
    }
    serde = descriptor.setdefault("SerdeInfo", {"SerializationLibrary": _SERDE})
    descriptor["SerdeInfo"] = {**serde, "Parameters": {**serde.get("Parameters", {}), "path": entry.location}}
    own = {"EXTERNAL": "TRUE", "classification": "delta", "table_type": "DELTA", _PROVIDER: "delta", TOPIC: entry.topic}
    return {
        "TableType": "EXTERNAL_TABLE",
        **{key: table[key] for key in _KEPT if key in table},
        "Name": entry.name.name,
        "Parameters": {**table.get("Parameters", {}), **own},
        "StorageDescriptor": descriptor,
    }


def _columns(columns: StructType) -> list[dict[str, str]]:
    """Returns the columns in Glue's form."""
    return [
        {"Name": field.name.lower(), "Type": hive_type(field.dataType)}
        | ({"Comment": comment[:_MAX_COMMENT]} if (comment := field.metadata.get("comment")) else {})
        for field in columns.fields
    ]
