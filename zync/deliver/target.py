"""One table that an output topic goes to: what it looks like, and whether it is still as zync left it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zync.config import DeliveredTable, OutputRule
from zync.errors import UsageError, ZyncError
from zync.etl.columns import columns_by_topic
from zync.lake import app_transactions, open_table
from zync.places import locate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

APP = "zync/delivered/"
PLACE = ("_position", "_seqno")
"""Columns beside the rule's: where a row's transaction is in the source's order."""
VALIDITY = ("valid_from", "valid_to", "current")
"""And those of a history: where a version begins to hold, where the next one does, and whether there is none."""
_UPKEEP = ("OPTIMIZE", "VACUUM START", "VACUUM END", "REORG")
"""What others may do to a table: the rows are the same afterwards."""
TAG = '{"zync":'
"""How what a commit says of itself begins, where it is zync's."""


@dataclass(frozen=True)
class Target:
    """The table of an output topic. `columns`: the rules'; `key`: their key columns."""

    topic: str
    location: str
    columns: "StructType"
    key: tuple[str, ...]
    said: DeliveredTable

    @property
    def apply(self) -> str:
        """What rows do to it: by default upsert, where there is a key to do it by."""
        return self.said.apply or ("upsert" if self.key else "append")


def targets(
    made: "list[tuple[OutputRule, DataFrame]]", said: Mapping[str, DeliveredTable], folder: str
) -> dict[str, Target]:
    """The tables of all output topics, by what their rules make. UsageError where rules of a topic do not agree."""
    columns = columns_by_topic(made)
    found: dict[str, Target] = {}
    for rule, rows in made:
        of = f"output {rule.topic}: rule {rule.name}"
        table = said.get(rule.topic, DeliveredTable())
        taken = {*PLACE, *(VALIDITY if table.apply == "history" else ())}
        if mine := sorted(one for one in rows.columns if one.lower() in taken):
            msg = f"{of} selects {mine[0]!r}, which is a column of zync's own in tables: name it otherwise"
            raise UsageError(msg)
        if "/" in rule.topic or rule.topic.startswith(("_", ".")):
            msg = f"output {rule.topic!r} cannot be the name of a table's folder: name it otherwise"
            raise UsageError(msg)
        if table.apply in ("upsert", "history") and not rule.key:
            msg = f"{of} has no key, which apply: {table.apply} needs: say `key` in outputs"
            raise UsageError(msg)
        location = locate(f"{folder}/{rule.topic}", folder)
        found[rule.topic] = Target(rule.topic, location, columns[rule.topic].value, rule.key, table)
    return found


def through(target: Target, staging: str) -> int:
    """The sync of that staging (its table id) whose rows the table has; 0 where there is no table."""
    table = open_table(target.location)
    return (table.transaction_version(APP + staging) or 0) if table else 0


def check(target: Target, staging: str, recorded: int | None) -> None:
    """Raises ZyncError where somebody else wrote to the table since the version that is on record, or took it away."""
    table = open_table(target.location)
    if table is None:
        if recorded is not None:
            msg = (
                f"the table of output {target.topic} is gone from {target.location}: put it back, or take the folder "
                "that it was in away whole, to have all tables made anew"
            )
            raise ZyncError(msg)
        return
    made_of = [app.removeprefix(APP) for app in app_transactions(table) if app.startswith(APP)]
    begun = not made_of and _is_ours(table.history()[-1].get("userMetadata"))
    if made_of != [staging] and not begun:
        of = f"of another staging (table id {made_of[0]})" if made_of else "not zync's"
        msg = f"the table at {target.location} is {of}: take it away, or give another lake"
        raise UsageError(msg)
    if recorded is None:
        return
    if table.version() < recorded:
        msg = f"the table at {target.location} is at version {table.version()}, and was at {recorded}: was it put back?"
        raise ZyncError(msg)
    for one in table.history(table.version() - recorded):
        if not _is_ours(one.get("userMetadata")) and one["operation"] not in _UPKEEP:
            msg = (
                f"somebody else changed the table at {target.location}: its version {one['version']} is "
                f"{one['operation']}. Take the folder of the tables away, to have all made anew, and write elsewhere"
            )
            raise ZyncError(msg)


def _is_ours(metadata: str | None) -> bool:
    return bool(metadata) and str(metadata).startswith(TAG)
