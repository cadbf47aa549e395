"""Iceberg metadata beside delivered tables: readers of Iceberg read the files that Delta's log names, uncopied.

Delta's own way (UniForm) needs the jar delta-iceberg, which could not be had for Delta 4, and column mapping. pyiceberg
writes the same metadata: a snapshot of Iceberg for each snapshot of zync, whose manifests name the data files of the
table at that version. Data files have no field ids of Iceberg, so a name mapping gives columns to fields. The folder is
that of a table of Iceberg's Hadoop catalog: `v<number>.metadata.json`, and the newest number in `version-hint.text`.
"""

import logging
from contextlib import suppress
from datetime import date, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from zync.deliver.catalog.entries import CatalogError
from zync.errors import UsageError
from zync.lake import storage
from zync.lake.paths import for_spark

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction

log = logging.getLogger(__name__)

FOLDER = "_iceberg"
"""The folder of the metadata of all tables, in the folder of the tables: VACUUM leaves it alone."""
_VERSION = "zync.version"
"""The property of a table of Iceberg with the version of the Delta table that it has."""
_KEPT = 50
"""The number of snapshots that stay readable; with twice as many the older ones are deleted."""
_UNREADABLE = {"columnMapping", "deletionVectors", "variantType"}
"""Features of Delta by which Iceberg's readers would see other rows, or other columns."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - partition values have no zone
_NAMESPACE = ("zync",)


def require_iceberg() -> None:
    """Raises UsageError if the extra `iceberg` is not installed."""
    if find_spec("pyiceberg") is None:
        msg = "deliver.tables: iceberg: true needs the extra: pip install 'zync[iceberg]'"
        raise UsageError(msg)


def metadata_location(location: str) -> str:
    """Returns the location of the Iceberg metadata of the delivered table at `location`."""
    folder, _, topic = location.rpartition("/")
    return f"{folder}/{FOLDER}/{topic}"


def write_metadata(location: str, version: int) -> None:
    """Makes the Iceberg metadata of a delivered table show a version of it, unless it does.

    Args:
        location: The location of the table.
        version: The version.

    Raises:
        CatalogError: The metadata cannot be written, or Iceberg cannot show the table.
    """
    try:
        _write(location, version)
    except Exception as error:  # pyiceberg's errors have no class in common, and none of them may end the delivery
        log.debug("the Iceberg metadata of %s cannot be written", location, exc_info=True)
        msg = f"the Iceberg metadata of {location} cannot be written: {error}"
        raise CatalogError(msg) from error


def _write(location: str, version: int) -> None:
    from pyiceberg.catalog.memory import InMemoryCatalog  # noqa: PLC0415 - an extra
    from pyiceberg.exceptions import ValidationError  # noqa: PLC0415

    delta = DeltaTable(location, version=version, storage_options=storage.delta_options(location))
    if unreadable := {*(delta.protocol().reader_features or ())} & _UNREADABLE:
        features = ", ".join(sorted(unreadable))
        msg = f"Iceberg has no {features}, which somebody gave the table: ALTER TABLE takes it away"
        raise ValueError(msg)
    base = for_spark(metadata_location(location))
    catalog = InMemoryCatalog("zync", **storage.iceberg_properties())
    catalog.create_namespace(_NAMESPACE)
    io = catalog._load_file_io(location=base)  # noqa: SLF001
    number = 0
    with suppress(FileNotFoundError), io.new_input(f"{base}/metadata/version-hint.text").open() as hint:
        number = int(hint.read())
    columns = pa.schema(delta.schema().to_arrow())
    partitioning = delta.metadata().partition_columns
    identifier = (*_NAMESPACE, "table")
    if number:
        table = catalog.register_table(identifier, f"{base}/metadata/v{number}.metadata.json")
        if table.properties.get(_VERSION) == str(version):
            return
        try:
            with table.update_schema() as schema:
                schema.union_by_name(columns)
        except (ValidationError, ValueError):  # a type became wider in a way that Iceberg does not know: begin anew
            catalog.drop_table(identifier)
            table = _create(catalog, identifier, columns, base, partitioning)
    else:
        table = _create(catalog, identifier, columns, base, partitioning)
    with table.transaction() as transaction:
        _change(transaction, delta, partitioning)
    table = _expire(catalog.load_table(identifier))
    with io.new_input(table.metadata_location).open() as metadata:
        text = metadata.read()
    for path, content in ((f"v{number + 1}.metadata.json", text), ("version-hint.text", str(number + 1).encode())):
        with io.new_output(f"{base}/metadata/{path}").create(overwrite=True) as file:
            file.write(content)
    with suppress(OSError):
        io.delete(f"{base}/metadata/v{number + 1 - _KEPT}.metadata.json")


def _create(
    catalog: Any, identifier: tuple[str, ...], columns: pa.Schema, base: str, partitioning: list[str]
) -> "Table":
    """Creates a table of Iceberg without rows."""
    properties = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "100"}
    table: Table = catalog.create_table(identifier, schema=columns, location=base, properties=properties)
    with table.update_spec() as spec:
        for column in partitioning:
            spec.add_identity(column)
    return table


def _change(transaction: "Transaction", delta: DeltaTable, partitioning: list[str]) -> None:
    """Changes the files of a table of Iceberg to those of a version of a Delta table."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat  # noqa: PLC0415 - an extra
    from pyiceberg.table import TableProperties  # noqa: PLC0415
    from pyiceberg.typedef import Record  # noqa: PLC0415

    metadata = transaction.table_metadata
    mapping = metadata.schema().name_mapping.model_dump_json()
    transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping, _VERSION: str(delta.version())})
    known = {task.file.file_path: task.file for task in transaction._scan().plan_files()}  # noqa: SLF001
    base = for_spark(str(delta.table_uri))
    files = {
        f"{base.rstrip('/')}/{unquote(file['path'])}": file
        for file in pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    }
    no_statistics: dict[str, dict[int, Any]] = {
        name: {}
        for name in (
            "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
        )
    }  # fmt: skip
    with transaction.update_snapshot(snapshot_properties={_VERSION: str(delta.version())}).overwrite() as snapshot:
        for path in known.keys() - files.keys():
            snapshot.delete_data_file(known[path])
        for path in files.keys() - known.keys():
            file = files[path]
            snapshot.append_data_file(
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=path,
                    file_format=FileFormat.PARQUET,
                    partition=Record(*(_partition_value(file[f"partition.{column}"]) for column in partitioning)),
                    record_count=file["num_records"],
                    file_size_in_bytes=file["size_bytes"],
                    spec_id=metadata.spec().spec_id,
                    **no_statistics,
                )
            )


def _partition_value(value: Any) -> Any:
    """Returns a partition's value as Iceberg's manifests have it: days of a date, microseconds of a timestamp."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)
    return (value - _EPOCH.date()).days if isinstance(value, date) else value


def _expire(table: "Table") -> "Table":
    """Deletes the older snapshots, and their manifests, once there are many."""
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    if len(snapshots) < 2 * _KEPT:
        return table
    old, kept = snapshots[:-_KEPT], snapshots[-_KEPT:]
    needed = {manifest.manifest_path for snapshot in kept for manifest in snapshot.manifests(table.io)}
    unneeded = {manifest.manifest_path for snapshot in old for manifest in snapshot.manifests(table.io)} - needed
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in old]).commit()
    for path in (*unneeded, *(snapshot.manifest_list for snapshot in old)):
        with suppress(OSError):
            table.io.delete(path)
    return table.refresh()
