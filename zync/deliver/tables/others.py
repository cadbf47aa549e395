"""What other programs do to a delivered table: commits that keep its rows may stay, others have to be taken back.

The names of operations are those that Delta 4.4 and delta-rs 1.6 write.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from zync.config.table_properties import APPEND_ONLY, TRANSACTION_RETENTION
from zync.errors import ZyncError
from zync.lake import storage
from zync.lake.delivered import TAG
from zync.lake.delta_log import commit_infos
from zync.sql import literal, name

REMAKE_ADVICE = "take the folder of the tables away, to have all made anew"
"""Advice for a table that cannot be delivered to any more."""
_KEEPS_ROWS = frozenset(
    (
        "ADD CONSTRAINT",
        "ADD FEATURE",
        "CLUSTER BY",
        "COMPUTE STATS",
        "DROP CONSTRAINT",
        "DROP FEATURE",
        "DOMAIN METADATA CLEANUP",
        "OPTIMIZE",
        "REORG",
        "ROW TRACKING BACKFILL",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPDATE FIELD METADATA",
        "UPDATE TABLE METADATA",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    )
)
"""Operations that keep a table's rows and columns."""
_CHANGES_COLUMN = "CHANGE COLUMN"
"""The operation of a column's comment, which keeps the columns, and of its place and type."""

_VIOLATED = re.compile(r"\[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\] CHECK constraint (\S+) ")
_MISSING_FEATURES = re.compile(
    r"\[DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH\].* not listed in protocol: (\w+(?:, \w+)*)"
)

Commit = Mapping[str, Any]


def is_zync_commit(commit: Commit) -> bool:
    """Returns whether zync made a commit."""
    return str(commit.get("userMetadata") or "").startswith(TAG)


def check_commits(table: DeltaTable, location: str, after: int | None) -> None:
    """Checks that what others committed to a table keeps its rows, or was taken back by RESTORE.

    Args:
        table: The table at its newest version.
        location: Its location.
        after: The version after which commits are checked; None to check all.

    Raises:
        ZyncError: A commit of others does not keep the rows.
    """
    harmful = harmful_commit(table, location, after)
    if harmful is None:
        return
    version = harmful["version"]
    newer = commit_infos(table, version)
    if version == 0 or any(map(is_zync_commit, newer)):
        undo = REMAKE_ADVICE
    else:
        undo = f"take it back by RESTORE TABLE delta.{name(location)} TO VERSION AS OF {version - 1}"
    change = f"its version {version} is {harmful['operation']}"
    msg = f"somebody else changed the table at {location}: {change}: {undo}, and write elsewhere"
    raise ZyncError(msg)


def harmful_commit(table: DeltaTable, location: str, after: int | None) -> Commit | None:
    """Returns the oldest commit of others that does not keep a table's rows, and was not taken back by RESTORE.

    Args:
        table: The table at its newest version.
        location: Its location.
        after: The version after which commits are looked at; None for all.
    """
    commits = commit_infos(table, -1 if after is None else after)
    harmful: Commit | None = None
    restored: int | None = None
    for commit in commits:
        if is_zync_commit(commit) or (restored is not None and commit["version"] > restored):
            continue
        target_version = _restored_version(commit, commits, after or 0)
        if target_version is not None:
            restored = target_version
        elif not _keeps_rows(commit, location):
            harmful = commit
    return harmful


def check_properties(table: DeltaTable, location: str, apply: str) -> None:
    """Checks that no property was set on a table by which it cannot be delivered to.

    Raises:
        ZyncError: The table has such a property.
    """
    configuration = table.metadata().configuration
    reasons = {TRANSACTION_RETENTION: "by which Delta forgets what zync delivered"}
    if configuration.get(APPEND_ONLY) == "true" and apply != "append":
        reasons[APPEND_ONLY] = f"by which no row of it can change, as apply: {apply} does"
    for key, reason in reasons.items():
        if key in configuration:
            undo = f"ALTER TABLE delta.{name(location)} UNSET TBLPROPERTIES ({literal(key)})"
            msg = f"somebody else set {key} on the table at {location}, {reason}: take it back by {undo}"
            raise ZyncError(msg)


def advice(error_text: str, location: str) -> str:
    """Returns how to take back what a Spark error says that others did to a table; empty if it says nothing of it."""
    if violated := _VIOLATED.search(error_text):
        return f": take the constraint back by ALTER TABLE delta.{name(location)} DROP CONSTRAINT {name(violated[1])}"
    if missing := _MISSING_FEATURES.search(error_text):
        features = ", ".join(f"TableFeatures.{text[0].upper()}{text[1:]}" for text in missing[1].split(", "))
        added = f"DeltaTable({location!r}).alter.add_feature([{features}])"
        return f" delta-rs leaves them out where it adds another feature: add them by its {added}"
    return ""


def _restored_version(commit: Commit, commits: Sequence[Commit], oldest: int) -> int | None:
    """Returns the version that a RESTORE took the table back to; None if that lost a commit of zync's, or is none."""
    parameters = commit.get("operationParameters") or {}
    text = str(parameters.get("version", ""))
    if commit["operation"] != "RESTORE" or not text.isdigit() or int(text) < oldest:
        return None
    lost = (other for other in commits if int(text) < other["version"] < commit["version"])
    return None if any(map(is_zync_commit, lost)) else int(text)


def _keeps_rows(commit: Commit, location: str) -> bool:
    operation, version = commit["operation"], commit["version"]
    if operation != _CHANGES_COLUMN or not version:
        return operation in _KEEPS_ROWS
    before, after = _columns(location, version - 1), _columns(location, version)
    return before is not None and before == after


def _columns(location: str, version: int) -> pa.Schema | None:
    """Returns the columns of a version of a table, without comments; None if the version cannot be read any more."""
    try:
        table = DeltaTable(location, version=version, storage_options=storage.delta_options(location))
    except DeltaError:
        return None
    return pa.schema(table.schema().to_arrow()).remove_metadata()
