"""Opens and creates Delta tables, builds their commits, and reads the `txn` actions of their logs."""

import json
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileSelector, FileSystem, FileType

from zync.errors import UsageError, ZyncError
from zync.lake import storage
from zync.lake.files import table_files
from zync.lake.paths import is_local, locate
from zync.lake.probe import prove
from zync.lake.store_errors import meaning

_ENTRY = re.compile(r"\d{20}\.json")
_CAUSE = re.compile(r"\s*\n\s*(?:\x1b\[\d+m)*↳(?:\x1b\[\d+m)*\s*")
"""What delta-rs puts before each cause: a line of its own, with a red arrow."""
_UNSUPPORTED_IN_PATHS = re.compile(r"[][^|\\%{}*?]")
"""delta-rs fails on the first of these characters; the last are wildcards for Spark."""
_TRANSACTIONS = "zync.transactions"
_ACTIONS = "zync.actions"
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint.*\.parquet")
CHECKPOINT_EVERY = 100
"""Commits between checkpoints: a reader has to read at most so many entries of the log."""
REMEMBERED = timedelta(days=30)
"""How long the log of a table that `ensure_table` creates keeps the `remove` actions of its files."""


def open_table(location: str) -> DeltaTable | None:
    """Opens a table at its newest version.

    Returns:
        The table; None if the location is empty.

    Raises:
        UsageError: The location has something else, or Delta does not support its path.
        ZyncError: The table cannot be read, its log is damaged, or its store refuses or does not answer.
    """
    if is_local(location):
        path = Path(location)
        if match := _UNSUPPORTED_IN_PATHS.search(location):
            msg = f"{location}: delta-rs and Spark cannot read a table with {match[0]!r} in its path: name it otherwise"
            raise UsageError(msg)
        if file := next((parent for parent in path.parents if parent.is_file()), None):
            msg = f"{file} is a file, so there can be no table at {location}: name another place"
            raise UsageError(msg)
        names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
        if not names and not path.is_file():
            return None
        if "_delta_log" not in names:
            msg = f"{location} is not a Delta table: name another place, or move what is there"
            raise UsageError(msg)
        _check_log(path / "_delta_log")
    options = storage.delta_options(location)
    try:
        return DeltaTable(location, storage_options=options)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        msg = f"{location} cannot be read as a Delta table: {first_line(error)}"
        raise ZyncError(msg) from error


def _check_log(log: Path) -> None:
    """Raises ZyncError if an entry since the last checkpoint is truncated: delta-rs reads it without an error."""
    names = {path.name for path in log.iterdir()}
    checkpoint = max((name[:20] for name in names if _CHECKPOINT.fullmatch(name)), default="")
    for name in sorted(names):
        if not _ENTRY.fullmatch(name) or name[:20] <= checkpoint:
            continue
        if not _is_complete((log / name).read_bytes().splitlines()):
            msg = f"{log / name} was cut off: put it back from a copy. Nothing was changed"
            raise ZyncError(msg)


def _is_complete(lines: list[bytes]) -> bool:
    """Returns whether a log entry has all its lines, by its last line and by the counts in zync's `commitInfo`."""
    try:
        commit_info = json.loads(lines[0]).get("commitInfo", {}) if lines else {}
        json.loads(lines[-1] if lines else b"")
    except ValueError:
        return False
    counts = {_TRANSACTIONS: sum(line.startswith(b'{"txn":') for line in lines), _ACTIONS: len(lines) - 1}
    return all(int(commit_info.get(key, count)) == count for key, count in counts.items())


def existing_table(location: str, made_by: str) -> DeltaTable:
    """Opens an existing table at its newest version.

    Args:
        location: The table's path or URI.
        made_by: The zync command that creates the table, for the message.

    Raises:
        UsageError: The table does not exist.
    """
    table = open_table(location)
    if table is None:
        msg = f"there is no table at {location} yet: `{made_by}` makes it"
        raise UsageError(msg)
    return table


def refresh(table: DeltaTable) -> None:
    """Updates the handle to the table's newest version; cheap to call often.

    Listing a folder takes longer the more files it has, so a local log is listed only if it has an entry after the
    handle's version. If a clean-up removed the handle's own entry, the log is listed as well.
    """
    if is_local(location := locate(table.table_uri, "")):
        log, current = Path(location, "_delta_log"), table.version()
        exists = [os.access(log / f"{version:020}.json", os.F_OK) for version in (current, current + 1)]
        if exists == [True, False]:
            return
    table.update_incremental()


def of_kind(table: DeltaTable, schema: pa.Schema, kind: str) -> DeltaTable:
    """Returns `table` if it has all columns of a schema.

    Args:
        table: The table.
        schema: The schema of tables of this kind.
        kind: The name of the kind, for the message.

    Raises:
        UsageError: It lacks a column.
    """
    columns = {field.name for field in table.schema().fields}
    if missing := [name for name in schema.names if name not in columns]:
        msg = f"{locate(table.table_uri, '')} is no {kind}: it has no column {missing[0]}. Were tables mixed up?"
        raise UsageError(msg)
    return table


def ensure_table(location: str, schema: pa.Schema, description: str, **properties: str) -> DeltaTable:
    """Opens a table at its newest version, and creates it if it does not exist. Processes may do that concurrently.

    An object store is proved before a table is created in it.

    Args:
        location: The table's path or URI.
        schema: The schema of a new table.
        description: The description of a new table.
        **properties: Delta's properties of a new table, without `delta.`, in addition to zync's defaults.

    Raises:
        UsageError: The location has something else, or its store does not keep writers apart.
        ZyncError: The table cannot be created or read.
    """
    table = open_table(location)
    if table is not None:
        return table
    prove(location.rpartition("/")[0])
    try:
        if is_local(location):
            Path(location).mkdir(parents=True, exist_ok=True)
        return DeltaTable.create(
            location,
            schema=Schema.from_arrow(schema),
            mode="error",
            storage_options=storage.delta_options(location),
            description=description,
            configuration={
                "delta.checkpointInterval": str(CHECKPOINT_EVERY),
                "delta.deletedFileRetentionDuration": f"interval {REMEMBERED.days} days",
                **{f"delta.{key}": value for key, value in properties.items()},
            },
            # Without these properties a second process would create it again, with another id.
            commit_properties=commit_properties({}, others=2),
        )
    except (DeltaError, OSError) as error:
        table = open_table(location) if not isinstance(error, PermissionError) else None
        if table is None:
            msg = f"{location} cannot be made: {first_line(error)}"
            raise ZyncError(msg) from error
        return table


def first_line(error: BaseException) -> str:
    """Returns an exception's text as a line: what a store's error means, or the first line with delta-rs's causes."""
    if store_error := meaning(str(error)):
        return store_error
    return (_CAUSE.sub(": ", str(error).strip()).splitlines() or [type(error).__name__])[0]


def commit_properties(
    app_transactions: dict[str, int], *, others: int | None = None, **metadata: str
) -> CommitProperties:
    """Returns the properties of a commit with `txn` actions, which is refused if any other commit came in between.

    The commit's metadata has the number of its `txn` actions, and with `others` that of all its actions: a log entry
    that is truncated between two `txn` actions, which come last, would look complete.

    Args:
        app_transactions: The versions of the `txn` actions by application id.
        others: The number of other actions, for commits that may have no `txn` action; None if it is not known.
        **metadata: More fields of `commitInfo`.
    """
    count = len(app_transactions)
    actions = {} if others is None else {_ACTIONS: str(others + count)}
    return CommitProperties(
        custom_metadata={**metadata, _TRANSACTIONS: str(count), **actions},
        max_commit_retries=0,
        app_transactions=[Transaction(app, version) for app, version in app_transactions.items()],
    )


NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints and clean-up run apart from the commit, so that their failure does not fail the commit."""


def app_transactions(table: DeltaTable) -> dict[str, int]:
    """Returns the newest version of every application id (the log's `txn` actions).

    deltalake has a call for a single id only. This function reads the checkpoint and the commits after it, as the
    Delta protocol's action reconciliation says.
    """
    files = table_files(table)
    versions: dict[str, int] = {}
    names = sorted(
        info.base_name
        for info in files.get_file_info(FileSelector("_delta_log"))
        if info.type == FileType.File and int((re.match(r"\d{20}", info.base_name) or ["-1"])[0]) <= table.version()
    )
    checkpoints = [name for name in names if _CHECKPOINT.fullmatch(name)]
    start = int(checkpoints[-1][:20]) if checkpoints else -1
    for name in checkpoints:
        if int(name[:20]) == start:
            with files.open_input_file(f"_delta_log/{name}") as source:
                for row in pq.read_table(source, columns=["txn"])["txn"].drop_null().to_pylist():
                    versions[row["appId"]] = row["version"]
    for name in names:
        if _ENTRY.fullmatch(name) and int(name[:20]) > start:
            versions.update(_txn_actions(files, name))
    return versions


def _txn_actions(files: FileSystem, name: str) -> Iterator[tuple[str, int]]:
    with files.open_input_stream(f"_delta_log/{name}") as source:
        for line in source.read().splitlines():
            if b'"txn"' in line and (txn := json.loads(line).get("txn")):
                yield txn["appId"], txn["version"]
