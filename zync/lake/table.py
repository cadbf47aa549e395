"""Opens, creates and refreshes Delta tables, and builds their commits."""

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError

from zync.config.secrets import without_signatures
from zync.errors import TableLostError, UsageError, ZyncError
from zync.lake import storage
from zync.lake.delta_errors import is_of_a_table
from zync.lake.delta_log import ACTIONS, STORE_CHECKPOINT_EVERY, TRANSACTIONS, check_entries, entry_time, has_entry
from zync.lake.paths import is_local, locate
from zync.lake.probe import prove
from zync.lake.store_errors import meaning
from zync.lake.table_format import check_format, format_properties

log = logging.getLogger(__name__)

_CAUSE = re.compile(r"\s*\n\s*(?:\x1b\[\d+m)*↳(?:\x1b\[\d+m)*\s*")
"""What delta-rs puts before each cause: a line of its own, with a red arrow."""
_UNSUPPORTED_IN_PATHS = re.compile(r"[][^|\\%{}*?]")
"""delta-rs fails on the first of these characters; the last are wildcards for Spark."""
CHECKPOINT_EVERY = 100
"""Commits between checkpoints of a local table."""
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
        FormatError: This zync does not know the table's format.
        UsageError: The location has something else, or Delta does not support its path.
        ZyncError: The table cannot be read, its log is damaged, or its store refuses or does not answer.
    """
    table = open_any_format(location)
    if table is not None:
        check_format(table)
    return table


def open_any_format(location: str) -> DeltaTable | None:
    """Opens a table as `open_table` does, whatever its format, to see what is in its log."""
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
        check_entries(path / "_delta_log")
    options = storage.delta_options(location)
    try:
        return DeltaTable(location, storage_options=options)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        msg = f"{location} cannot be read as a Delta table: {first_line(error)}"
        raise ZyncError(msg) from error


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


def lost_error(location: str, *, is_deleted: bool) -> TableLostError:
    """Returns the error of a table that was deleted, or replaced by another, under a process that uses it."""
    what = "deleted" if is_deleted else "replaced by another table"
    msg = f"the table at {location} was {what} while zync used it: put it back, or start anew with another lake"
    return TableLostError(msg)


def refresh(table: DeltaTable) -> None:
    """Updates the handle to the table's newest version; cheap to call often.

    To list a log takes longer the more entries it has, so it is listed only if it has an entry after the handle's
    version. If the handle's own entry is gone, or another than before, the table is opened anew: a clean-up may have
    removed the entry, or somebody the table.

    Raises:
        FormatError: A newer zync changed the table's format.
        TableLostError: The table was deleted or replaced since the handle was opened.
        ZyncError: The table cannot be read.
    """
    location, current = locate(table.table_uri, ""), table.version()
    with _readable(location):
        is_same, has_next = _is_same_entry(table), has_entry(location, current + 1)
    if not is_same:
        newest = open_table(location)
        if newest is None or newest.metadata().id != table.metadata().id:
            raise lost_error(location, is_deleted=newest is None)
        _entry_times.pop((str(table.metadata().id), current), None)
    if has_next or not is_same:
        _update(table)


def poll(table: DeltaTable) -> None:
    """Updates the handle as `refresh` does, for a loop that waits `poll_seconds` between two calls.

    In an object store each call is a single request while nothing happens; whether the table was lost is asked every
    `_LOST_SECONDS` only.
    """
    location, now = locate(table.table_uri, ""), time.monotonic()
    if is_local(location) or now >= _checked_until.get(location, 0.0):
        refresh(table)
        _checked_until[location] = now + _LOST_SECONDS
        return
    with _readable(location):
        has_next = has_entry(location, table.version() + 1)
    if has_next:
        _update(table)


def _update(table: DeltaTable) -> None:
    table.update_incremental()
    check_format(table)


def poll_seconds(location: str) -> float:
    """Returns the seconds to wait between two looks at the table; a look at an object store is a request."""
    return _POLL_SECONDS if is_local(location) else _STORE_POLL_SECONDS


def remember_entry(table: DeltaTable) -> None:
    """Remembers the entry of the handle's version, after a commit by this process, so that `refresh` knows it again.

    In an object store, where that is a request, the next `refresh` does it.
    """
    location = locate(table.table_uri, "")
    if is_local(location):
        with _readable(location):
            _is_same_entry(table)


def _is_same_entry(table: DeltaTable) -> bool:
    """Returns whether the log has the entry of the handle's version, with the time that it had at the last call."""
    modified = entry_time(locate(table.table_uri, ""), table.version())
    while len(_entry_times) > _ENTRY_TIMES:
        del _entry_times[next(iter(_entry_times))]
    key = (str(table.metadata().id), table.version())
    return modified is not None and modified == _entry_times.setdefault(key, modified)


@contextlib.contextmanager
def _readable(location: str) -> Iterator[None]:
    """Raises ZyncError, with the location, for an OSError in the context."""
    try:
        yield
    except OSError as error:
        msg = f"{location} cannot be read: {first_line(error)}"
        raise ZyncError(msg) from error


def checkpoint_every(location: str) -> int:
    """Returns the number of commits between two checkpoints: a reader reads at most so many entries of the log."""
    return CHECKPOINT_EVERY if is_local(location) else STORE_CHECKPOINT_EVERY


def refresh_after_commit(table: DeltaTable) -> None:
    """Refreshes a handle that a commit left at its version, and writes a checkpoint if it is time for one.

    Logs a failure only, as the commit landed.
    """
    try:
        refresh(table)
    except Exception as error:
        if not is_of_a_table(error):
            raise
        log.warning("%s could not be read after a commit: %s", locate(table.table_uri, ""), first_line(error))
    else:
        checkpoint(table)


def checkpoint(table: DeltaTable, is_due: Callable[[DeltaTable], bool] = lambda _: True) -> None:
    """Writes a checkpoint if it is time for one, after a commit. Logs a failure only, as the commit landed.

    Args:
        table: The table, at the version of the commit.
        is_due: Called every `checkpoint_every` versions: whether a checkpoint is to be written.
    """
    location = locate(table.table_uri, "")
    if table.version() % checkpoint_every(location):
        return
    try:
        if is_due(table):
            table.create_checkpoint()
    except Exception as error:
        if not is_of_a_table(error):
            raise
        log.warning("no checkpoint of %s: %s", location, first_line(error))


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
    configuration = {
        **format_properties(),
        "delta.checkpointInterval": str(checkpoint_every(location)),
        "delta.deletedFileRetentionDuration": f"interval {REMEMBERED.days} days",
        **{f"delta.{key}": value for key, value in properties.items()},
    }
    try:
        return create_table(location, Schema.from_arrow(schema), configuration, description)
    except (DeltaError, OSError) as error:
        table = open_table(location) if not isinstance(error, PermissionError) else None
        if table is None:
            msg = f"{location} cannot be made: {first_line(error)}"
            raise ZyncError(msg) from error
        return table


def create_table(
    location: str,
    schema: Schema,
    configuration: Mapping[str, str],
    description: str | None = None,
    **metadata: str,
) -> DeltaTable:
    """Creates a table, which must not exist.

    Args:
        location: The location of the table.
        schema: Its schema.
        configuration: Its properties.
        description: Its description.
        **metadata: Fields of the commit's `commitInfo`.

    Raises:
        DeltaError, OSError: It cannot be created, or exists.
    """
    if is_local(location):
        Path(location).mkdir(parents=True, exist_ok=True)
    return DeltaTable.create(
        location,
        schema=schema,
        mode="error",
        storage_options=storage.delta_options(location),
        description=description,
        raise_if_key_not_exists=False,  # delta-rs knows only the properties of Delta
        configuration=dict(configuration),
        # Without these properties a second process would create it again, with another id.
        commit_properties=commit_properties({}, others=2, **metadata),
    )


def first_line(error: BaseException) -> str:
    """Returns an exception's text as a line: what a store's error means, or the first line with delta-rs's causes."""
    if store_error := meaning(str(error)):
        return store_error
    text = without_signatures(str(error).strip())
    return (_CAUSE.sub(": ", text).splitlines() or [type(error).__name__])[0]


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
    actions = {} if others is None else {ACTIONS: str(others + count)}
    return CommitProperties(
        custom_metadata={**metadata, TRANSACTIONS: str(count), **actions},
        max_commit_retries=0,
        app_transactions=[Transaction(app, version) for app, version in app_transactions.items()],
    )


NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints and clean-up run apart from the commit, so that their failure does not fail the commit."""
