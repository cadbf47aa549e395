"""One table that an output topic goes to: what it looks like, and whether it is still as zync left it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from zync.config.model import DeliveredTable, OutputRule
from zync.debezium import toast
from zync.errors import UsageError, ZyncError
from zync.lake.delivered import APP
from zync.lake.paths import locate
from zync.lake.table import app_transactions, open_table
from zync.rules.schema import columns_by_topic
from zync.rules.type_changes import check_has_tables

PLACE = ("_position", "_seqno")
"""Columns beside the rule's: where a row's transaction is in the source's order."""
VALIDITY = ("valid_from", "valid_to", "current")
"""And those of a history: where a version begins to hold, where the next one does, and whether there is none."""
DELETED = "_deleted"
"""And that of what is appended: whether its row is deleted. And the folder where tables' deleted keys are."""
OWN: dict[str, tuple[str, ...]] = {"history": VALIDITY, "append": (DELETED,)}
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
"""What Delta has in no column's name (without column mapping, which not all read)."""
_UPKEEP = ("OPTIMIZE", "VACUUM START", "VACUUM END", "REORG")
"""What others may do to a table: the rows are the same afterwards."""
_NUMBERS = ("byte", "short", "integer", "long", "bigint", "decimal", "float", "double")
_TEXTS = ("string", "char", "varchar")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_LAYOUT = {
    # Binary is written as the text that it may not be, and read back so.
    "partition_by": ("boolean", *_TEXTS, *_NUMBERS, *_TIMES),
    "cluster_by": (*_TEXTS, *_NUMBERS, *_TIMES),
}
"""The types of columns that tables can be laid out by."""
_CLUSTERED_MOST = 4
ANEW = "take the folder of the tables away, to have all made anew"
CLUSTERED_BY = "zync.cluster_by"
TAG = '{"zync":'
"""How what a commit says of itself begins, where it is zync's."""


@dataclass(frozen=True)
class Target:
    """The table of an output topic. `columns`: the rules'; `key`: their key columns."""

    topic: str
    location: str
    columns: StructType
    key: tuple[str, ...]
    said: DeliveredTable

    @property
    def apply(self) -> str:
        """What rows do to it: by default upsert, where there is a key to do it by."""
        return self.said.apply or ("upsert" if self.key else "append")

    @property
    def deleted(self) -> str | None:
        """Where the table is that remembers what was deleted, if this one does."""
        folder, _, topic = self.location.rpartition("/")
        return f"{folder}/{DELETED}/{topic}" if self.apply != "append" else None

    def is_partition(self, column: str) -> bool:
        """Whether the table is partitioned by it."""
        return column.lower() in map(str.lower, self.said.partition_by)

    @property
    def made_with(self) -> dict[str, str]:
        """What the table is made with, as properties of it: it cannot be another later."""
        return {"zync.apply": self.apply, "zync.key": ", ".join(self.key)}

    @property
    def properties(self) -> dict[str, str]:
        """All properties that it has: what it is clustered by may change."""
        return self.made_with | {CLUSTERED_BY: ", ".join(self.said.cluster_by)}


def targets(
    made: list[tuple[OutputRule, DataFrame]], said: Mapping[str, DeliveredTable], folder: str
) -> dict[str, Target]:
    """The tables of all output topics, by what their rules make. UsageError where rules of a topic do not agree."""
    columns = columns_by_topic(made)
    found: dict[str, Target] = {}
    for rule, _ in made:
        of = f"output {rule.topic}: rule {rule.name}"
        if "/" in rule.topic or rule.topic.startswith(("_", ".")):
            msg = f"output {rule.topic!r} cannot be the name of a table's folder: name it otherwise"
            raise UsageError(msg)
        table = said.get(rule.topic, DeliveredTable())
        if table.apply in ("upsert", "history") and not rule.key:
            msg = f"{of} has no key, which apply: {table.apply} needs: say `key` in outputs"
            raise UsageError(msg)
        if alike := [one for one in found if one.lower() == rule.topic.lower() and one != rule.topic]:
            msg = f"outputs {alike[0]!r} and {rule.topic!r} are alike but for case: name one otherwise"
            raise UsageError(msg)
        location = locate(f"{folder}/{rule.topic}", folder)
        found[rule.topic] = Target(rule.topic, location, columns[rule.topic].value, rule.key, table)
        check_columns(found[rule.topic], of)
    return found


def check_columns(target: Target, of: str) -> None:
    """UsageError where columns are not such as a table of that kind can have."""
    taken = {*PLACE, DELETED, toast.COLUMN, *OWN.get(target.apply, ())}
    for one in target.columns:
        if one.name.lower() in {*taken, toast.MISSING} or one.name.lower().startswith(toast.KNOWN):
            msg = f"{of} selects {one.name!r}, which is a column of zync's own in tables: name it otherwise"
            raise UsageError(msg)
        if odd := _NOT_IN_NAMES.search(one.name):
            msg = f"{of} selects {one.name!r}, and tables have no {odd[0]!r} in the name of a column: name it otherwise"
            raise UsageError(msg)
        check_has_tables(one.dataType, one.name, of)
        if re.search(r"\bmap<(?!string,)", one.dataType.simpleString()):
            msg = f"{of}: column {one.name!r} is {one.dataType.simpleString()}: cast its keys to string"
            raise UsageError(msg)
        if one.name in target.key and isinstance(one.dataType, ArrayType | MapType | VariantType):
            msg = f"{of}: column {one.name!r} is {one.dataType.simpleString()}, by which no row is found: cast it"
            raise UsageError(msg)
    _check_layout(target)


def _check_layout(target: Target) -> None:
    """UsageError where the table cannot be laid out by the columns that the config says."""
    types = {one.name.lower(): one.dataType.typeName() for one in target.columns}
    types |= dict.fromkeys((*PLACE, *OWN.get(target.apply, ())), "bigint")
    for clause, suited in _LAYOUT.items():
        asked = getattr(target.said, clause)
        where = f"deliver.tables.{target.topic}.{clause}"
        for column in asked:
            kind = types.get(column.lower())
            if kind is None:
                msg = f"{where}: {column!r} is no column of it: {sorted(types)}"
                raise UsageError(msg)
            if kind not in suited:
                msg = f"{where}: {column!r} is {kind}, by which Delta does not lay out a table: take another"
                raise UsageError(msg)
            if clause == "partition_by" and "." in column:
                msg = f"{where}: {column!r} has a dot in its name, which Delta splits it at: name it otherwise"
                raise UsageError(msg)
        if clause == "cluster_by" and len(asked) > _CLUSTERED_MOST:
            msg = f"{where}: Delta clusters by {_CLUSTERED_MOST} columns at most, not {len(asked)}"
            raise UsageError(msg)


def through(target: Target, staging: str) -> int:
    """The sync of that staging (its table id) whose rows the table has; 0 where there is no table."""
    table = open_table(target.location)
    return (table.transaction_version(APP + staging) or 0) if table else 0


def check(target: Target, staging: str, recorded: int | None) -> int | None:
    """The table's version, None where it is not there; ZyncError where others wrote to it, or took it away.

    `recorded`: the version that the newest snapshot has of it. UsageError where it is made otherwise than the config
    says, or of another staging.
    """
    table = open_table(target.location)
    if table is None:
        if recorded is not None:
            _gone(target, target.location)
        return None
    made_of = [app.removeprefix(APP) for app in app_transactions(table) if app.startswith(APP)]
    begun = not made_of and _is_ours(table.history()[-1].get("userMetadata"))
    if made_of != [staging] and not begun:
        of = f"of another staging (table id {made_of[0]})" if made_of else "not zync's"
        msg = f"the table at {target.location} is {of}: take it away, or give another lake"
        raise UsageError(msg)
    _check_made_with(target, table)
    version = table.version()
    if recorded is not None and version < recorded:
        msg = f"the table at {target.location} is at version {version}, and was at {recorded}: was it put back?"
        raise ZyncError(msg)
    for one in table.history(None if recorded is None else version - recorded):
        if not _is_ours(one.get("userMetadata")) and one["operation"] not in _UPKEEP:
            msg = (
                f"somebody else changed the table at {target.location}: its version {one['version']} is "
                f"{one['operation']}: {ANEW}, and write elsewhere"
            )
            raise ZyncError(msg)
    return version


def _check_made_with(target: Target, table: DeltaTable) -> None:
    metadata = table.metadata()
    made = {key: its for key, its in metadata.configuration.items() if key in target.made_with}  # none in older tables
    partitioned = {"partition_by": ", ".join(metadata.partition_columns)}
    now = target.made_with | {"partition_by": ", ".join(target.said.partition_by)}
    for key, was in {**made, **partitioned}.items():
        if was.lower() != now[key].lower():
            says = f"{key.removeprefix('zync.')} is {now[key] or 'none'}, and was {was or 'none'}"
            msg = f"output {target.topic}: {says} when {target.location} was made. Say that, or {ANEW}"
            raise UsageError(msg)
    if made and target.deleted and open_table(target.deleted) is None:
        _gone(target, target.deleted)


def _gone(target: Target, location: str) -> NoReturn:
    msg = f"the table at {location}, of output {target.topic}, is gone: put it back, or {ANEW}"
    raise ZyncError(msg)


def _is_ours(metadata: str | None) -> bool:
    return bool(metadata) and str(metadata).startswith(TAG)
