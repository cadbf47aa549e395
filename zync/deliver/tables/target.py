"""The delivered table of an output topic: its columns and layout, and checks that only zync changed it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from deltalake import DeltaTable
from pyspark.sql.types import ArrayType, BooleanType, LongType, MapType, StructField, StructType, VariantType

from zync.config.model import Deliver, DeliveredTable, OutputRule
from zync.debezium import toast
from zync.deliver.tables.others import REMAKE_ADVICE, check_commits, check_properties, is_zync_commit
from zync.errors import UsageError, ZyncError
from zync.lake.delivered import APP, APPLY, DELETED, PLACE, delivered_sync
from zync.lake.delta_log import app_transactions, commit_infos
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.rules.type_changes import check_has_tables
from zync.spark.frames import leaves

VALIDITY = ("valid_from", "valid_to", "current")
"""Columns of a history: the place from which a version is valid, the place of the next version, and whether the version
is the current one."""
OWN: dict[str, tuple[str, ...]] = {"history": VALIDITY, "append": (DELETED,)}
"""The columns that zync adds to a table, by `apply`."""
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta refuses in column names (without column mapping, which some readers lack)."""
_NUMBERS = ("byte", "short", "integer", "long", "bigint", "decimal", "float", "double")
_TEXTS = ("string", "char", "varchar")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_LAYOUT_TYPES = {
    # Without binary: Delta writes partition values as text, and bytes may be no valid text.
    "partition_by": ("boolean", *_TEXTS, *_NUMBERS, *_TIMES),
    "cluster_by": (*_TEXTS, *_NUMBERS, *_TIMES),
}
"""The types of the columns that a table can be partitioned or clustered by."""
_MAX_CLUSTER_COLUMNS = 4
CLUSTERED_BY = "zync.cluster_by"
CONFIGURED = "zync.properties"
"""The table property with the names of those that the config gave the table."""


@dataclass(frozen=True)
class TableTarget:
    """The delivered table of an output topic.

    Attributes:
        topic: The output topic.
        location: The location of the table.
        columns: The columns that the topic's rules select.
        key: The names of the key columns.
        settings: The table's settings in the config.
    """

    topic: str
    location: str
    columns: StructType
    key: tuple[str, ...]
    settings: DeliveredTable

    @property
    def apply(self) -> str:
        """How rows are applied: upsert, append or history; by default upsert if there is a key, else append."""
        return self.settings.apply or ("upsert" if self.key else "append")

    @property
    def deleted(self) -> str | None:
        """The location of the table of tombstones, which stores deleted keys; None for an append table."""
        folder, _, topic = self.location.rpartition("/")
        return f"{folder}/{DELETED}/{topic}" if self.apply != "append" else None

    @property
    def key_columns(self) -> StructType:
        """The columns of the key."""
        return StructType([self.columns[column] for column in self.key])

    @property
    def plain_columns(self) -> StructType:
        """The columns of a new table without further ones, as Spark makes it."""
        appended = self.apply == "append"
        columns = [StructField(field.name, field.dataType, metadata=field.metadata) for field in self.columns]
        position, seqno = PLACE
        places = [StructField(position, LongType(), not appended), StructField(seqno, LongType())]
        return StructType(columns + places + ([StructField(DELETED, BooleanType(), False)] if appended else []))

    def is_partition(self, column: str) -> bool:
        """Returns whether the table is partitioned by the column."""
        return column.lower() in map(str.lower, self.settings.partition_by)

    @property
    def made_with(self) -> dict[str, str]:
        """The table properties that cannot change after the table was created."""
        return {APPLY: self.apply, "zync.key": ", ".join(self.key)}

    @property
    def properties(self) -> dict[str, str]:
        """All table properties: `made_with`, and the clustering and the config's properties, which may change."""
        configured = self.settings.properties
        names = {CONFIGURED: ", ".join(sorted(configured))} if configured else {}
        return self.made_with | {CLUSTERED_BY: ", ".join(self.settings.cluster_by)} | configured | names


def table_targets(
    rules: Iterable[OutputRule], columns: Mapping[str, StructType], settings: Deliver, folder: str
) -> dict[str, TableTarget]:
    """Returns the delivered tables by output topic.

    Args:
        rules: The rules.
        columns: The columns of the rows of each output topic.
        settings: The config's section `deliver`.
        folder: The folder of the delivered tables.

    Raises:
        UsageError: A topic or its columns do not fit a table.
    """
    by_topic: dict[str, TableTarget] = {}
    for rule in rules:
        subject = f"output {rule.topic}: rule {rule.name}"
        if "/" in rule.topic or rule.topic.startswith(("_", ".")):
            msg = f"output {rule.topic!r} cannot be the name of a table's folder: name it otherwise"
            raise UsageError(msg)
        table_settings = settings.table(rule.topic)
        if table_settings.apply in ("upsert", "history") and not rule.key:
            msg = f"{subject} has no key, which apply: {table_settings.apply} needs: say `key` in outputs"
            raise UsageError(msg)
        if alike := [topic for topic in by_topic if topic.lower() == rule.topic.lower() and topic != rule.topic]:
            msg = f"outputs {alike[0]!r} and {rule.topic!r} are alike but for case: name one otherwise"
            raise UsageError(msg)
        location = locate(f"{folder}/{rule.topic}", folder)
        target = TableTarget(rule.topic, location, columns[rule.topic], rule.key, table_settings)
        by_topic[rule.topic] = target
        check_columns(target, subject)
    return by_topic


def check_columns(target: TableTarget, subject: str) -> None:
    """Checks that a delivered table can have the columns of `target`.

    Args:
        target: The table.
        subject: Begins the error text.

    Raises:
        UsageError: a column's name or type does not fit, or the table cannot be laid out as the config says.
    """
    reserved = {*PLACE, DELETED, toast.COLUMN, *OWN.get(target.apply, ())}
    for field in target.columns:
        if field.name.lower() in {*reserved, toast.MISSING} or field.name.lower().startswith(toast.KNOWN):
            msg = f"{subject} selects {field.name!r}, which is a column of zync's own in tables: name it otherwise"
            raise UsageError(msg)
        if invalid := _NOT_IN_NAMES.search(field.name):
            msg = (
                f"{subject} selects {field.name!r}, and tables have no {invalid[0]!r} in the name of a column: name it "
                "otherwise"
            )
            raise UsageError(msg)
        check_has_tables(field.dataType, field.name, subject)
        if target.settings.iceberg and any(isinstance(leaf, VariantType) for leaf in leaves(field.dataType)):
            msg = f"{subject}: column {field.name!r} is {field.dataType.simpleString()}, and Iceberg has no VARIANT: "
            msg += f"cast it, or take out deliver.tables.{target.topic}.iceberg"
            raise UsageError(msg)
        if re.search(r"\bmap<(?!string,)", field.dataType.simpleString()):
            msg = f"{subject}: column {field.name!r} is {field.dataType.simpleString()}: cast its keys to string"
            raise UsageError(msg)
        if field.name in target.key and isinstance(field.dataType, ArrayType | MapType | VariantType):
            type_text = field.dataType.simpleString()
            msg = f"{subject}: column {field.name!r} is {type_text}, by which no row is found: cast it"
            raise UsageError(msg)
    _check_layout(target)


def _check_layout(target: TableTarget) -> None:
    """Raises UsageError if the table cannot be partitioned or clustered as the config says."""
    types = {field.name.lower(): field.dataType.typeName() for field in target.columns}
    types |= dict.fromkeys((*PLACE, *OWN.get(target.apply, ())), "bigint")
    for clause, allowed_types in _LAYOUT_TYPES.items():
        columns = getattr(target.settings, clause)
        config_key = f"deliver.tables.{target.topic}.{clause}"
        for column in columns:
            type_name = types.get(column.lower())
            if type_name is None:
                msg = f"{config_key}: {column!r} is no column of it: {sorted(types)}"
                raise UsageError(msg)
            if type_name not in allowed_types:
                msg = f"{config_key}: {column!r} is {type_name}, by which Delta does not lay out a table: take another"
                raise UsageError(msg)
            if clause == "partition_by" and "." in column:
                msg = f"{config_key}: {column!r} has a dot in its name, which Delta splits it at: name it otherwise"
                raise UsageError(msg)
        if clause == "cluster_by" and len(columns) > _MAX_CLUSTER_COLUMNS:
            msg = f"{config_key}: Delta clusters by {_MAX_CLUSTER_COLUMNS} columns at most, not {len(columns)}"
            raise UsageError(msg)


@dataclass(frozen=True)
class TableState:
    """What a delivered table has.

    Attributes:
        version: Its version.
        sync: The last sync of staging whose rows it has; 0 before the first.
        tombstones_sync: The last sync whose deletions its tombstones have; 0 without any.
    """

    version: int
    sync: int
    tombstones_sync: int


def check_table(target: TableTarget, staging_id: str, snapshot_version: int | None) -> TableState | None:
    """Checks that only zync changed the table since the newest snapshot.

    Args:
        target: The table.
        staging_id: The table id of staging.
        snapshot_version: The table's version in the newest snapshot, if it has one.

    Returns:
        What the table has; None if the table does not exist and no snapshot has it.

    Raises:
        UsageError: the table is of another staging, or has another key, apply or partitioning than the config says.
        ZyncError: others wrote to the table, deleted it, or restored an older version.
    """
    table = open_table(target.location)
    if table is None:
        if snapshot_version is not None:
            _raise_deleted(target, target.location)
        return None
    check_properties(table, target.location, target.apply)
    syncs = {app.removeprefix(APP): sync for app, sync in app_transactions(table).items() if app.startswith(APP)}
    is_empty_zync_table = not syncs and is_zync_commit(commit_infos(table, -1)[-1])
    if syncs.keys() != {staging_id} and not is_empty_zync_table:
        origin = f"of another staging (table id {next(iter(syncs))})" if syncs else "not zync's"
        msg = f"the table at {target.location} is {origin}: take it away, or give another lake"
        raise UsageError(msg)
    tombstones = open_table(target.deleted) if target.deleted else None
    _check_made_with(target, table, tombstones)
    version = table.version()
    if snapshot_version is not None and version < snapshot_version:
        msg = f"the table at {target.location} is at version {version}, and was at {snapshot_version}: was it put back?"
        raise ZyncError(msg)
    check_commits(table, target.location, snapshot_version)
    return TableState(version, syncs.get(staging_id, 0), delivered_sync(tombstones, staging_id))


def _check_made_with(target: TableTarget, table: DeltaTable, tombstones: DeltaTable | None) -> None:
    """Raises UsageError if the table was created with other settings; ZyncError if its tombstones are deleted."""
    metadata = table.metadata()
    # Tables of older zyncs do not have these properties.
    created_with = {key: value for key, value in metadata.configuration.items() if key in target.made_with}
    partitioning = {"partition_by": ", ".join(metadata.partition_columns)}
    wanted = target.made_with | {"partition_by": ", ".join(target.settings.partition_by)}
    for key, value in {**created_with, **partitioning}.items():
        if value.lower() != wanted[key].lower():
            difference = f"{key.removeprefix('zync.')} is {wanted[key] or 'none'}, and was {value or 'none'}"
            msg = f"output {target.topic}: {difference} when {target.location} was made. Say that, or {REMAKE_ADVICE}"
            raise UsageError(msg)
    if created_with and target.deleted and tombstones is None:
        _raise_deleted(target, target.deleted)


def _raise_deleted(target: TableTarget, location: str) -> NoReturn:
    msg = f"the table at {location}, of output {target.topic}, is gone: put it back, or {REMAKE_ADVICE}"
    raise ZyncError(msg)
