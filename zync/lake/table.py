"""Names to Delta tables, and what zync needs of a table beyond its rows: to make it, commits, positions, a lock."""

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
from zync.lake.files import table_files
from zync.lake.paths import is_local, locate

_ENTRY = re.compile(r"\d{20}\.json")
_CAUSE = re.compile(r"\s*\n\s*(?:\x1b\[\d+m)*↳(?:\x1b\[\d+m)*\s*")  # on a line of its own, with a red arrow
_NOT_IN_PATHS = re.compile(r"[][^|\\%{}*?]")
"""delta-rs fails on the first of them; the last are wildcards to Spark."""
_TRANSACTIONS = "zync.transactions"
_ACTIONS = "zync.actions"
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint.*\.parquet")
CHECKPOINT_EVERY = 100
"""Commits between checkpoints: the log that a reader has to read is at most this long."""
REMEMBERED = timedelta(days=30)
"""For so long a table's log says what was removed from it, as `ensure_table` makes tables."""


def open_table(location: str) -> DeltaTable | None:
    """The table at its newest version, or None where there is nothing. UsageError where there is something else."""
    if is_local(location):
        path = Path(location)
        if odd := _NOT_IN_PATHS.search(location):
            msg = f"{location}: delta-rs and Spark cannot read a table with {odd[0]!r} in its path: name it otherwise"
            raise UsageError(msg)
        if file := next((one for one in path.parents if one.is_file()), None):
            msg = f"{file} is a file, so there can be no table at {location}: name another place"
            raise UsageError(msg)
        names = {one.name for one in path.iterdir()} if path.is_dir() else set()
        if not names and not path.is_file():
            return None
        if "_delta_log" not in names:
            msg = f"{location} is not a Delta table: name another place, or move what is there"
            raise UsageError(msg)
        _check_log(path / "_delta_log")
    try:
        return DeltaTable(location)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        msg = f"{location} cannot be read as a Delta table: {first_line(error)}"
        raise ZyncError(msg) from error


def _check_log(log: Path) -> None:
    """Raises ZyncError where an entry since the last checkpoint was cut off, which delta-rs reads as far as it goes."""
    names = {path.name for path in log.iterdir()}
    checkpoint = max((name[:20] for name in names if _CHECKPOINT.fullmatch(name)), default="")
    for name in sorted(names):
        if not _ENTRY.fullmatch(name) or name[:20] <= checkpoint:
            continue
        if not _is_whole((log / name).read_bytes().splitlines()):
            msg = f"{log / name} was cut off: put it back from a copy. Nothing was changed"
            raise ZyncError(msg)


def _is_whole(lines: list[bytes]) -> bool:
    """Whether those are all lines of an entry of the log, by the last one and by what zync's own say in the first."""
    try:
        said = json.loads(lines[0]).get("commitInfo", {}) if lines else {}
        json.loads(lines[-1] if lines else b"")
    except ValueError:
        return False
    there = {_TRANSACTIONS: sum(one.startswith(b'{"txn":') for one in lines), _ACTIONS: len(lines) - 1}
    return all(int(said.get(what, count)) == count for what, count in there.items())


def existing_table(location: str, made_by: str) -> DeltaTable:
    """The table at its newest version; UsageError where there is none. `made_by`: the zync command that makes it."""
    table = open_table(location)
    if table is None:
        msg = f"there is no table at {location} yet: `{made_by}` makes it"
        raise UsageError(msg)
    return table


def refresh(table: DeltaTable) -> None:
    """Brings the handle to the table's newest version, however often it is asked to.

    To list a folder takes longer the more there is in it: a local log is listed only when there is more than the
    handle knows of. Where the log was cleaned up since, the handle's own entry is gone, and nothing can be told by it.
    """
    if is_local(location := locate(table.table_uri, "")):
        log, own = Path(location, "_delta_log"), table.version()
        there = [os.access(log / f"{version:020}.json", os.F_OK) for version in (own, own + 1)]
        if there == [True, False]:
            return
    table.update_incremental()


def of_kind(table: DeltaTable, schema: pa.Schema, kind: str) -> DeltaTable:
    """That very table; UsageError where it is no table of that kind, as it lacks columns of its schema."""
    there = {one.name for one in table.schema().fields}
    if missing := [name for name in schema.names if name not in there]:
        msg = f"{locate(table.table_uri, '')} is no {kind}: it has no column {missing[0]}. Were tables mixed up?"
        raise UsageError(msg)
    return table


def ensure_table(location: str, schema: pa.Schema, description: str, **properties: str) -> DeltaTable:
    """The table at its newest version, made now if there was none. Safe when several processes do it at once.

    `properties`: those of Delta's, without `delta.`, that it is made with beside zync's usual ones.
    """
    table = open_table(location)
    if table is not None:
        return table
    try:
        if is_local(location):
            Path(location).mkdir(parents=True, exist_ok=True)
        return DeltaTable.create(
            location,
            schema=Schema.from_arrow(schema),
            mode="error",
            description=description,
            configuration={
                "delta.checkpointInterval": str(CHECKPOINT_EVERY),
                "delta.deletedFileRetentionDuration": f"interval {REMEMBERED.days} days",
                **{f"delta.{key}": value for key, value in properties.items()},
            },
            commit_properties=commit_properties({}, others=2),  # or who comes second makes it again, with another id
        )
    except (DeltaError, OSError) as error:
        table = open_table(location) if not isinstance(error, PermissionError) else None
        if table is None:
            msg = f"{location} cannot be made: {first_line(error)}"
            raise ZyncError(msg) from error
        return table


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, and the causes that delta-rs puts below it."""
    return (_CAUSE.sub(": ", str(error).strip()).splitlines() or [type(error).__name__])[0]


def commit_properties(
    app_transactions: dict[str, int], *, others: int | None = None, **metadata: str
) -> CommitProperties:
    """A commit that carries these `txn` actions and is refused if anything at all was committed in between.

    It says how many they are: an entry of the log that was cut off between two of them looks whole otherwise. They come
    last. `others`: how many other actions it has, where that is known, and matters, as there may be no `txn`.
    """
    count = len(app_transactions)
    actions = {} if others is None else {_ACTIONS: str(others + count)}
    return CommitProperties(
        custom_metadata={**metadata, _TRANSACTIONS: str(count), **actions},
        max_commit_retries=0,
        app_transactions=[Transaction(app, version) for app, version in app_transactions.items()],
    )


NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints and clean-up run apart from the commit: their failure is not the commit's."""


def app_transactions(table: DeltaTable) -> dict[str, int]:
    """Every application id that has committed to the table, with its newest version (the log's `txn` actions).

    deltalake answers for one id at a time; this reads the checkpoint and the commits after it,
    as the Delta protocol's action reconciliation says.
    """
    files = table_files(table)
    found: dict[str, int] = {}
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
                    found[row["appId"]] = row["version"]
    for name in names:
        if _ENTRY.fullmatch(name) and int(name[:20]) > start:
            found.update(_txn_actions(files, name))
    return found


def _txn_actions(files: FileSystem, name: str) -> Iterator[tuple[str, int]]:
    with files.open_input_stream(f"_delta_log/{name}") as source:
        for line in source.read().splitlines():
            if b'"txn"' in line and (txn := json.loads(line).get("txn")):
                yield txn["appId"], txn["version"]
