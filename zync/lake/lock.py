"""Advisory OS locks, which admit a single writer of a table at a time on this machine."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zync.errors import OwnedError
from zync.lake.paths import is_local


@contextmanager
def locked(path: Path, wait: float) -> Iterator[bool]:
    """Holds an exclusive OS lock on a file in this context; yields whether the lock was acquired.

    The lock ends with the process that holds it, however that ends.

    Args:
        path: The file, which is created if it does not exist, and never deleted.
        wait: Seconds to wait for the lock at most.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline, acquired = time.monotonic() + wait, False
        while not acquired:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                acquired = True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.01)
        yield acquired
    finally:
        os.close(descriptor)


@contextmanager
def owned(location: str, owner_text: str | None = None) -> Iterator[None]:
    """Holds the lock of a table in this context, so that it has a single writer at a time.

    The lock is on a file beside the table, which is never deleted; it ends with this process, however that ends.
    An object store has no such lock: there only the conflict check of the commit decides.

    Args:
        location: The table's path or URI.
        owner_text: The beginning of the error's text, which names the other process; None for the default,
            "another zync is writing …".

    Raises:
        OwnedError: Another process has the lock.
    """
    if not is_local(location):
        yield
        return
    path = Path(location)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent / f".{path.name}.lock", wait=0) as acquired:
        if not acquired:
            msg = f"{owner_text or f'another zync is writing {location}'}: one at a time may. Nothing was changed"
            raise OwnedError(msg)
        yield
