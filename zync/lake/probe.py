"""Proves that an object store keeps two writers apart, before zync trusts it with a table.

zync's commits rest on one thing: of two puts of the same object under `If-None-Match: *` one is refused. A store that
ignores the condition takes both, and loses the first commit without an error.
"""

import logging
import threading
import uuid
from functools import cache

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler

from zync.errors import UsageError, ZyncError
from zync.lake import storage
from zync.lake.paths import is_local
from zync.lake.store_errors import meaning
from zync.log import event

log = logging.getLogger(__name__)

_ROUNDS = 20
_WRITERS = 2
_FIRST_ENTRY = "_delta_log/00000000000000000000.json"
_SCHEMA = Schema.from_arrow(pa.schema([pa.field("probe", pa.string())]))


@cache
def prove(lake: str) -> None:
    """Checks that a store refuses one of two commits that are made at once, by the client that makes zync's commits.

    Two threads create the same table. delta-rs lists the log first, and puts the entry then: in most rounds both lists
    come before both puts, so that only the store can tell the second from the first. A round in which the second saw
    the first's entry proves nothing, and is repeated; a warning tells if all were such. The objects are deleted. A
    process proves a place once.

    Args:
        lake: The location of the lake; nothing is done for a local folder.

    Raises:
        UsageError: Both commits landed.
        ZyncError: The store refuses to be listed, written or deleted from, or does not answer.
    """
    if is_local(lake):
        return
    for _ in range(_ROUNDS):
        location = f"{lake.rstrip('/')}/.zync-probe-{uuid.uuid4().hex}"
        errors = _create_at_once(location)
        if len(errors) < _WRITERS:
            _delete(location)
        if not errors:
            msg = (
                f"the store of {lake} takes two puts of the same object under If-None-Match: *, so that of two writers "
                "one would overwrite the other's commits, and rows be lost: take a store with conditional puts"
            )
            raise UsageError(msg)
        if len(errors) == _WRITERS:
            msg = f"{lake} cannot be used: {meaning(str(errors[0])) or str(errors[0]).splitlines()[0]}"
            raise ZyncError(msg) from errors[0]
        if isinstance(errors[0], CommitFailedError):
            return
    log.warning(
        "it could not be shown that the store of %s refuses the second of two commits at once: in %d rounds each "
        "second one came too late to be refused. Look whether it has conditional puts (If-None-Match: *)",
        lake,
        _ROUNDS,
        extra=event("store_not_proved"),
    )


def _create_at_once(location: str) -> list[Exception]:
    """Creates the same table in several threads at once, and returns the errors of those that could not."""
    options, start = storage.delta_options(location), threading.Barrier(_WRITERS)
    errors: list[Exception] = []

    def create() -> None:
        start.wait()
        try:
            DeltaTable.create(
                location,
                _SCHEMA,
                mode="error",
                storage_options=options,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except Exception as error:  # noqa: BLE001 - a thread that ends without a word would count as one that committed
            errors.append(error)

    threads = [threading.Thread(target=create, name="probe") for _ in range(_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def _delete(location: str) -> None:
    try:
        DeltaStorageHandler(location, storage.delta_options(location)).delete_file(_FIRST_ENTRY)
    except OSError as error:
        msg = f"{location} cannot be deleted: {meaning(str(error)) or str(error).splitlines()[0]}"
        raise ZyncError(msg) from error
