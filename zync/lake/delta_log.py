"""Reads the logs of Delta tables: whether an entry is there and whole, and the `txn` actions of all entries."""

import contextlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileSystem, FileType

from zync.errors import ZyncError
from zync.lake import storage
from zync.lake.files import table_files
from zync.lake.paths import is_local

TRANSACTIONS = "zync.transactions"
ACTIONS = "zync.actions"
"""Fields of `commitInfo`: the number of an entry's `txn` actions, and of all its actions."""
STORE_CHECKPOINT_EVERY = 10
"""Commits between checkpoints of a table in an object store, where each entry is a request, or two."""
_ENTRY = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint.*\.parquet")
_REQUESTS_AT_ONCE = 8


def check_entries(log: Path) -> None:
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
    counts = {TRANSACTIONS: sum(line.startswith(b'{"txn":') for line in lines), ACTIONS: len(lines) - 1}
    return all(int(commit_info.get(key, count)) == count for key, count in counts.items())


def has_entry(location: str, version: int) -> bool:
    """Returns whether the log of the table at `location` has the entry of a version. Raises OSError."""
    path = _entry_path(version)
    if is_local(location):
        return os.access(Path(location, path), os.F_OK)
    try:
        with storage.arrow_files(location).open_input_file(path):  # a single request, which get_file_info is not
            return True
    except FileNotFoundError:
        return False


def entry_time(location: str, version: int) -> int | None:
    """Returns when the entry of a version was written, in nanoseconds; None if the log has none. Raises OSError."""
    path = _entry_path(version)
    try:
        if is_local(location):
            return Path(location, path).stat().st_mtime_ns
        modified: int | None = storage.arrow_files(location).get_file_info(path).mtime_ns
    except FileNotFoundError:
        return None
    return modified


def _entry_path(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def log_versions(table: DeltaTable) -> set[int]:
    """Lists the versions of which the table's log has the entry or a checkpoint."""
    infos = table_files(table).get_file_info(FileSelector("_delta_log"))
    names = (info.base_name for info in infos if info.type == FileType.File)
    return {int(name[:20]) for name in names if _ENTRY.fullmatch(name) or _CHECKPOINT.fullmatch(name)}


def commit_infos(table: DeltaTable, after: int) -> list[dict[str, Any]]:
    """Returns the `commitInfo` of the table's commits after a version, with their `version`, the newest first.

    delta-rs's `DeltaTable.history` does the same, but holds Python's GIL until the store has answered, so that no
    other thread can answer `/readyz` meanwhile. As there, entries that were cleaned up are left out.
    """
    files = table_files(table)
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        infos = pool.map(lambda version: _commit_info(files, version), range(table.version(), after, -1))
        return [info for info in infos if info is not None]


def _commit_info(files: FileSystem, version: int) -> dict[str, Any] | None:
    """Returns the `commitInfo` of a version's entry, with the version; None if the log has not got the entry."""
    try:
        with files.open_input_file(_entry_path(version)) as source:
            lines = source.read().splitlines()
    except FileNotFoundError:
        return None
    infos = (json.loads(line).get("commitInfo") for line in lines if b'"commitInfo"' in line)
    return {"operation": "unknown", **next(filter(None, infos), {}), "version": version}


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
    entries = map(_entry_path, range(start + 1, end + 1))
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        for transactions in pool.map(lambda path: _txn_actions(files, path), entries):
            versions.update(transactions)
    return versions


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a log.

    Attributes:
        version: The version that it is of.
        actions: The number of its actions: files, those that were removed lately, and some more.
    """

    version: int
    actions: int


def last_checkpoint(table: DeltaTable) -> Checkpoint | None:
    """Returns the newest checkpoint, as the log's `_last_checkpoint` has it; None before the first."""
    try:
        last = _read_hint(table_files(table))
        return Checkpoint(int(last["version"]), int(last["size"]))
    except (FileNotFoundError, KeyError, TypeError, ValueError):  # it is only a hint
        return None


def _read_hint(files: FileSystem) -> dict[str, Any]:
    with files.open_input_file("_delta_log/_last_checkpoint") as source:
        return dict(json.loads(source.read()))


def _hinted_checkpoint(files: FileSystem, version: int) -> tuple[int, list[str]] | None:
    """Returns the version and the file of the checkpoint that `_last_checkpoint` names; None if it names none."""
    try:
        last = _read_hint(files)
        if last["version"] <= version and not last.get("parts") and not last.get("v2Checkpoint"):
            return last["version"], [f"{last['version']:020}.checkpoint.parquet"]
    except FileNotFoundError:
        return (-1, []) if version < STORE_CHECKPOINT_EVERY else None
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


def _txn_actions(files: FileSystem, path: str) -> dict[str, int]:
    """Returns the versions of the `txn` actions of a log entry by application id."""
    with files.open_input_file(path) as source:
        lines = source.read().splitlines()
    actions = [json.loads(line).get("txn") for line in lines if b'"txn"' in line]
    return {txn["appId"]: txn["version"] for txn in actions if txn}
