"""Advisory OS locks: one writer of a table at a time, on this machine."""

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
    """Holds an exclusive OS lock on the file at `path`, made if needed and never unlinked; yields whether it is ours.

    Waits at most `wait` seconds. The lock ends with the process that holds it, however it ends.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        until, ours = time.monotonic() + wait, False
        while not ours:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = True
            except BlockingIOError:
                if time.monotonic() >= until:
                    break
                time.sleep(0.01)
        yield ours
    finally:
        os.close(descriptor)


@contextmanager
def owned(location: str, who: str | None = None) -> Iterator[None]:
    """Holds the lock of what is at that location: one writer at a time.

    The lock is on a file beside the table, which stays; it ends with this process, however that ends.
    An object store has no such lock: there the commit's fence alone decides.

    Raises:
        OwnedError: another process has it. `who`: that it is there, as the error says it; by default that it writes.
    """
    if not is_local(location):
        yield
        return
    path = Path(location)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent / f".{path.name}.lock", wait=0) as ours:
        if not ours:
            msg = f"{who or f'another zync is writing {location}'}: one at a time may. Nothing was changed"
            raise OwnedError(msg)
        yield
