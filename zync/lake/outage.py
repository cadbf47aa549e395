"""What a process that goes on for ever does while its object store is away: it waits, and says so at `/readyz`."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zync.errors import DataError, FormatError, GapError, OwnedError, TableLostError, UsageError
from zync.lake import storage
from zync.lake.delta_log import has_entry
from zync.lake.paths import is_local
from zync.lake.store_errors import meaning, outage, texts
from zync.log import event
from zync.metrics.base import PartMetrics

log = logging.getLogger(__name__)

_PAUSE_SECONDS = (1.0, 30.0)
"""The first wait before the store is asked again, which doubles each time, and the longest."""
_MAX_IN_VAIN = 5
"""Failures in a row of work for whose sake a store was waited for that answers: it refuses only what the work asks."""
_ASK_SECONDS = 10.0
_LATE_SECONDS = 5.0
_LASTING = (DataError, FormatError, GapError, OwnedError, TableLostError, UsageError)
"""Errors that waiting does not mend, even where an error of the store caused them."""


class StoreWatch:
    """Knows whether the object store of a table answers, and waits for it.

    Of a table in a local folder it knows nothing, and no error is one that waiting mends.
    """

    def __init__(self, location: str, stop: threading.Event, text_of: Callable[[BaseException], str]) -> None:
        self._location, self._stop, self._text_of = location, stop, text_of
        self._store = storage.store(location)
        self._ended = threading.Event()
        self._reason: str | None = None  # of the outage that `outlast` waits for
        self._answer: str | None = None  # what was wrong when the thread asked last
        self._asked_at: float | None = None
        self._heard_at = time.monotonic()
        self._pause, self._in_vain = _PAUSE_SECONDS[0], 0

    def heard(self) -> None:
        """Records that the store has answered, so that it need not be asked."""
        self._heard_at, self._answer = time.monotonic(), None

    def worked(self) -> None:
        """Records that the work has gone through."""
        self.heard()
        self._pause, self._in_vain = _PAUSE_SECONDS[0], 0

    def away(self) -> str | None:
        """Returns why the process cannot work, if that is the store; returns at once, whatever the store does."""
        asked_at = self._asked_at
        late = 0.0 if asked_at is None else time.monotonic() - asked_at
        if late > _LATE_SECONDS:
            return f"the store of {self._location} has not answered for {late:.0f} s"
        return self._reason or self._answer

    def outlast(self, error: BaseException) -> bool:
        """Waits until the store answers again, or until the process is to stop, if the store caused the error.

        Returns:
            Whether the work can be tried again; False for an error that waiting does not mend.
        """
        reason = self._reason_of(error)
        if reason is None or self._stop.is_set() or self._in_vain >= _MAX_IN_VAIN:
            return False
        log.warning("%s: waiting for it", reason, extra=event("store_away"))
        began, self._reason, self._in_vain = time.monotonic(), reason, self._in_vain + 1
        try:
            while not self._stop.wait(self._pause):
                self._pause = min(2 * self._pause, _PAUSE_SECONDS[1])
                if self._ask() is None:
                    seconds = time.monotonic() - began
                    log.info("the store answers again, after %.0f s", seconds, extra=event("store_back"))
                    self.heard()
                    break
                self._in_vain = 0
        finally:
            self._reason = None
        return True

    def outlasting(self, work: Callable[[], None], *, waits: Callable[[], bool]) -> None:
        """Does the work, and tries it again after each outage of the store, until the process is to stop.

        Args:
            work: Goes on from where it was when it is called again.
            waits: Returns whether an error that waiting mends is waited for; called after each error.
        """
        while True:
            try:
                work()
            except Exception as error:
                if not waits() or not self.outlast(error):
                    raise
                if self._stop.is_set():
                    return
            else:
                return

    def _reason_of(self, error: BaseException) -> str | None:
        """Returns what is wrong with the store, if that caused the error; asks it if the error says nothing."""
        if is_local(self._location) or isinstance(error, _LASTING):
            return None
        text = self._text_of(error)
        return outage(text, self._store) if meaning(text, self._store) else self._ask()

    def watch(self) -> None:
        """Asks the store every `_ASK_SECONDS` if nothing was heard of it meanwhile, until `end`."""
        while not self._ended.wait(_ASK_SECONDS):
            if time.monotonic() - self._heard_at < _ASK_SECONDS:
                continue
            self._asked_at = time.monotonic()
            self._answer = self._ask()
            self._asked_at = None

    def end(self) -> None:
        """Ends `watch`."""
        self._ended.set()

    def _ask(self) -> str | None:
        """Asks the store for an entry of the table's log; returns what is wrong with the store, None for any answer."""
        try:
            has_entry(self._location, 0)
        except OSError as error:
            return outage(str(error), self._store)
        return None


@contextmanager
def watching(
    location: str,
    stop: threading.Event,
    metrics: PartMetrics | None,
    text_of: Callable[[BaseException], str] = texts,
) -> Iterator[StoreWatch]:
    """Watches the object store of a table in this context, and reports at `/readyz` when it is away.

    Args:
        location: The location of a table; nothing is watched for a local folder.
        stop: Ends the wait for a store.
        metrics: The metrics of the process; without them nobody asks whether the store is away.
        text_of: Returns the texts of an error and of its causes.
    """
    store = StoreWatch(location, stop, text_of)
    if metrics is None or is_local(location):
        yield store
        return
    metrics.store_is_away = store.away
    # It is waited for at the end: a thread that is inside Arrow when the interpreter ends would abort the process.
    watcher = threading.Thread(target=store.watch, name="store", daemon=True)
    watcher.start()
    try:
        yield store
    finally:
        store.end()
        watcher.join()
