"""Opens and creates Delta tables, builds their commits, and reads the `txn` actions of their logs."""

import contextlib
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileSelector, FileSystem, FileType

from zync.errors import TableLostError, UsageError, ZyncError
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
_REQUESTS_AT_ONCE = 8
_TRANSACTIONS = "zync.transactions"
_ACTIONS = "zync.actions"
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint.*\.parquet")
CHECKPOINT_EVERY = 100
"""Commits between checkpoints of a local table."""
_STORE_CHECKPOINT_EVERY = 10
_POLL_SECONDS, _STORE_POLL_SECONDS = 0.1, 1.0
_LOST_SECONDS = 30.0
_ENTRY_TIMES = 1000
_entry_times: dict[tuple[str, int], int] = {}
"""The times of log entries as last seen, by the id and version of the table; the last `_ENTRY_TIMES`."""
_checked_until: dict[str, float] = {}
"""By location, when `poll` asks again whether the table was lost."""
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

    To list a log takes longer the more entries it has, so it is listed only if it has an entry after the handle's
    version. If the handle's own entry is gone, or another than before, the table is opened anew: a clean-up may have
    removed the entry, or somebody the table.

    Raises:
        TableLostError: The table was deleted or replaced since the handle was opened.
        ZyncError: The table cannot be read.
    """
    location, current = locate(table.table_uri, ""), table.version()
    is_same, has_next = _is_same_entry(table), _has_entry(location, current + 1)
    if not is_same:
        newest = open_table(location)
        if newest is None or newest.metadata().id != table.metadata().id:
            what = "deleted" if newest is None else "replaced by another table"
            msg = f"the table at {location} was {what} while zync used it: put it back, or start anew with another lake"
            raise TableLostError(msg)
        _entry_times.pop((str(table.metadata().id), current), None)
    if has_next or not is_same:
        table.update_incremental()


def poll(table: DeltaTable) -> None:
    """Updates the handle as `refresh` does, for a loop that waits `poll_seconds` between two calls.

    In an object store each call is a single request while nothing happens; whether the table was lost is asked every
    `_LOST_SECONDS` only.
    """
    location, now = locate(table.table_uri, ""), time.monotonic()
    if is_local(location) or now >= _checked_until.get(location, 0.0):
        refresh(table)
        _checked_until[location] = now + _LOST_SECONDS
    elif _has_entry(location, table.version() + 1):
        table.update_incremental()


def poll_seconds(location: str) -> float:
    """Returns the seconds to wait between two looks at the table; a look at an object store is a request."""
    return _POLL_SECONDS if is_local(location) else _STORE_POLL_SECONDS


def remember_entry(table: DeltaTable) -> None:
    """Remembers the entry of the handle's version, after a commit by this process, so that `refresh` knows it again.

    In an object store, where that is a request, the next `refresh` does it.
    """
    if is_local(locate(table.table_uri, "")):
        _is_same_entry(table)


def _is_same_entry(table: DeltaTable) -> bool:
    """Returns whether the log has the entry of the handle's version, with the time that it had at the last call."""
    location, version = locate(table.table_uri, ""), table.version()
    path = f"_delta_log/{version:020}.json"
    try:
        if is_local(location):
            modified = Path(location, path).stat().st_mtime_ns
        else:
            modified = storage.arrow_files(location).get_file_info(path).mtime_ns or 0
    except FileNotFoundError:
        return False
    except OSError as error:
        msg = f"{location} cannot be read: {first_line(error)}"
        raise ZyncError(msg) from error
    while len(_entry_times) > _ENTRY_TIMES:
        del _entry_times[next(iter(_entry_times))]
    return modified == _entry_times.setdefault((str(table.metadata().id), version), modified) != 0


def _has_entry(location: str, version: int) -> bool:
    """Returns whether the table's log has the entry of a version."""
    path = f"_delta_log/{version:020}.json"
    if is_local(location):
        return os.access(Path(location, path), os.F_OK)
    try:
        with storage.arrow_files(location).open_input_file(path):
            return True
    except FileNotFoundError:
        return False
    except OSError as error:
        msg = f"{location} cannot be read: {first_line(error)}"
        raise ZyncError(msg) from error


def log_versions(table: DeltaTable) -> set[int]:
    """Lists the versions of which the table's log has the entry or a checkpoint."""
    infos = table_files(table).get_file_info(FileSelector("_delta_log"))
    names = (info.base_name for info in infos if info.type == FileType.File)
    return {int(name[:20]) for name in names if _ENTRY.fullmatch(name) or _CHECKPOINT.fullmatch(name)}


def checkpoint_every(location: str) -> int:
    """Returns the number of commits between two checkpoints: a reader has to read at most so many entries of the log.

    In an object store each of them is a request, or two.
    """
    return CHECKPOINT_EVERY if is_local(location) else _STORE_CHECKPOINT_EVERY


def checkpoint(table: DeltaTable) -> None:
    """Writes a checkpoint if it is time for one, after a commit on this handle; ignores a failure, as that landed."""
    with contextlib.suppress(ZyncError, DeltaError, OSError):
        refresh(table)
        if table.version() % checkpoint_every(locate(table.table_uri, "")) == 0:
            table.create_checkpoint()


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
                "delta.checkpointInterval": str(checkpoint_every(location)),
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
    files, version = table_files(table), table.version()
    hinted = _hinted_checkpoint(files, version)
    if hinted is not None:
        with contextlib.suppress(FileNotFoundError):  # the log was cleaned up by a newer checkpoint
            return _read_transactions(files, *hinted, version)
    return _read_transactions(files, *_newest_checkpoint(files, version), version)


def _read_transactions(files: FileSystem, start: int, names: list[str], end: int) -> dict[str, int]:
    """Reads the `txn` actions of a checkpoint's files, and of the entries after the version `start` through `end`."""
    versions: dict[str, int] = {}
    for name in names:
        with files.open_input_file(f"_delta_log/{name}") as source:
            for row in pq.read_table(source, columns=["txn"])["txn"].drop_null().to_pylist():
                versions[row["appId"]] = row["version"]
    entries = [f"{version:020}.json" for version in range(start + 1, end + 1)]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        for transactions in pool.map(lambda name: _txn_actions(files, name), entries):
            versions.update(transactions)
    return versions


def _hinted_checkpoint(files: FileSystem, version: int) -> tuple[int, list[str]] | None:
    """Returns the version and the file of the checkpoint that `_last_checkpoint` names; None if it names none."""
    try:
        with files.open_input_file("_delta_log/_last_checkpoint") as source:
            last = json.loads(source.read())
        if last["version"] <= version and not last.get("parts") and not last.get("v2Checkpoint"):
            return last["version"], [f"{last['version']:020}.checkpoint.parquet"]
    except FileNotFoundError:
        return (-1, []) if version < _STORE_CHECKPOINT_EVERY else None
    except (ValueError, KeyError):
        pass  # it is only a hint
    return None


def _newest_checkpoint(files: FileSystem, version: int) -> tuple[int, list[str]]:
    """Returns the version and the files of the newest checkpoint that is not after a version; -1 and none without."""
    names = sorted(
        info.base_name
        for info in files.get_file_info(FileSelector("_delta_log"))
        if info.type == FileType.File and _CHECKPOINT.fullmatch(info.base_name) and int(info.base_name[:20]) <= version
    )
    start = int(names[-1][:20]) if names else -1
    return start, [name for name in names if int(name[:20]) == start]


def _txn_actions(files: FileSystem, name: str) -> dict[str, int]:
    """Returns the versions of the `txn` actions of a log entry by application id."""
    with files.open_input_file(f"_delta_log/{name}") as source:
        lines = source.read().splitlines()
    actions = [json.loads(line).get("txn") for line in lines if b'"txn"' in line]
    return {txn["appId"]: txn["version"] for txn in actions if txn}
