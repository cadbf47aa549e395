"""Keeps two processes from doing the same work: an OS lock on this machine's disks, a lease in an object store."""

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from zync.errors import OwnedError, ZyncError
from zync.lake.lease import LOOK_SECONDS, Lease
from zync.lake.owner import Owner, from_bytes, this_process, to_bytes
from zync.lake.paths import is_local
from zync.lake.storage import store
from zync.lake.store_errors import outage, texts
from zync.log import event

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wait:
    """How a process waits for the lock or lease of another.

    Attributes:
        standby: Whether it waits until the other ends; if not, only until it is known whether the other lives.
        stop: Ends the wait.
        report: Is called about once a second with the owner that a standby waits for, and with None when it has ended.
    """

    standby: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    report: Callable[[Owner | None], None] = lambda _owner: None


@dataclass(frozen=True)
class Ownership:
    """The lock or the lease that `owned` holds.

    Attributes:
        lease: The lease; None for a lock, which cannot be lost, and where the store takes no lease.
        is_held: Whether it is held: not if the wait for it was ended.
    """

    lease: Lease | None = None
    is_held: bool = True

    def check(self) -> None:
        """Raises OwnedError if another process has taken the lease over. To be called between two commits."""
        if self.lease:
            self.lease.check()


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
def owned(
    location: str, owner_text: str | None = None, *, what: str, name: str = "", wait: Wait | None = None
) -> Iterator[Ownership]:
    """Holds the lock or the lease of a table in this context, so that it has a single writer at a time.

    A lock is on a file beside the table, which is never deleted; it ends with this process, however that ends. In an
    object store a lease takes its place (`zync.lake.lease`). A process that is no standby goes on without a lease where
    the store refuses it: then only the conflict check of the commit decides.

    Args:
        location: The table's path or URI.
        owner_text: The beginning of the error's text, which names the other process; None for the default,
            "another zync is writing …".
        what: What this process does, like `sync`, for the others to read.
        name: A further word in the file's name, for a lock of its own.
        wait: How to wait while another process has it.

    Yields:
        The ownership; `is_held` is False if `wait.stop` ended the wait, and then nothing is to be done.

    Raises:
        OwnedError: Another process has it, and this one is no standby.
        ZyncError: The store takes no lease, and this process is a standby.
    """
    waiting = _Waiting(location, wait or Wait())
    file_name = f".{location.rpartition('/')[2]}{name and f'.{name}'}"
    with contextlib.ExitStack() as stack:
        if is_local(location):
            path = Path(location).parent / f"{file_name}.lock"
            path.parent.mkdir(parents=True, exist_ok=True)
            ownership, owner = Ownership(), _lock(stack, path, what, waiting)
        else:
            ownership, owner = _take_lease(stack, location, f"{file_name}.lease", what, waiting)
        if owner is None:
            waiting.end()
        elif waiting.is_stopped:
            ownership = Ownership(is_held=False)
        else:
            whose = f" It is {owner}." if owner.pid else ""
            msg = (
                f"{owner_text or f'another zync is writing {location}'}: one at a time may.{whose} Nothing was changed"
            )
            raise OwnedError(msg)
        yield ownership


@contextmanager
def taken_over(location: str, *, what: str, name: str) -> Iterator[Ownership]:
    """Takes the lock or lease from whoever has it, in this context, where Kafka fences that other process.

    A lock cannot be taken away: this process gets it once the other has ended. A place that takes no lock or lease, as
    it may only be read, does without.

    Args:
        location: The table's path or URI.
        what: What this process does, for the others to read.
        name: A further word in the name of the lock's file or of the lease.
    """
    file_name = f".{location.rpartition('/')[2]}.{name}"
    if not is_local(location):
        with contextlib.ExitStack() as stack:
            try:
                lease = Lease(location, f"{file_name}.lease", what)
                lease.seize()
                stack.callback(lease.release)
                ownership = Ownership(lease)
            except ZyncError as error:
                if outage(texts(error), store(location)):
                    raise
                log.info("no standby can wait for this process: %s", error, extra=event("no_lease"))
                ownership = Ownership()
            yield ownership
        return
    ended = threading.Event()

    def hold() -> None:
        with contextlib.suppress(OSError):
            while not ended.is_set():
                with contextlib.ExitStack() as stack:
                    if _lock(stack, Path(location).parent / f"{file_name}.lock", what, None) is None:
                        ended.wait()
                ended.wait(LOOK_SECONDS)

    thread = threading.Thread(target=hold, name="lock", daemon=True)
    thread.start()
    try:
        yield Ownership()
    finally:
        ended.set()
        thread.join()


def _lock(stack: contextlib.ExitStack, path: Path, what: str, waiting: "_Waiting | None") -> Owner | None:
    """Acquires the lock on a file, which then names this process; returns the owner if that is another."""
    while True:
        with contextlib.ExitStack() as attempt:
            if attempt.enter_context(locked(path, wait=0)):
                stack.push(attempt.pop_all())
                with contextlib.suppress(OSError):  # a disk that is full
                    path.write_bytes(to_bytes(this_process(what)))
                return None
        owner = from_bytes(path.read_bytes())[0]
        if not waiting or not waiting.is_standby or not waiting.turn(owner):
            return owner


def _take_lease(
    stack: contextlib.ExitStack, location: str, name: str, what: str, waiting: "_Waiting"
) -> tuple[Ownership, Owner | None]:
    """Takes the lease in an object store; returns it, and the owner if that is another."""
    try:
        lease = Lease(location, name, what)
        owner = lease.take(waiting.turn, patient=waiting.is_standby)
    except ZyncError as error:
        if waiting.is_standby or outage(texts(error), store(location)):
            raise
        text = "%s is written without a lease (%s): another process may do the same work, until a commit is refused"
        log.warning(text, location, error, extra=event("no_lease"))
        return Ownership(), None
    if owner is None:
        stack.callback(lease.release)
    return Ownership(lease), owner


class _Waiting:
    """The wait for an owner, which is logged once for each owner, and reported at each turn."""

    def __init__(self, location: str, wait: Wait) -> None:
        self._location, self._wait = location, wait
        self._owner: Owner | None = None

    @property
    def is_standby(self) -> bool:
        return self._wait.standby

    @property
    def is_stopped(self) -> bool:
        return self._wait.stop.is_set()

    def turn(self, owner: Owner) -> bool:
        """Waits for a second; returns whether to look again."""
        if owner != self._owner:
            self._owner = owner
            if self.is_standby:
                text = "waiting as standby: %s has %s"
                log.info(text, owner, self._location, extra=event("standby", host=owner.host, pid=owner.pid))
            else:
                log.info("%s had %s: looking whether it still runs", owner, self._location, extra=event("owner"))
        if self.is_standby:
            self._wait.report(owner)
        return not self._wait.stop.wait(LOOK_SECONDS)

    def end(self) -> None:
        """Says that this process took over, if it waited."""
        if self._owner is not None:
            log.info("took over %s from %s", self._location, self._owner, extra=event("took_over"))
        if self.is_standby:
            self._wait.report(None)
