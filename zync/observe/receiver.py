"""Watches a receiver of traces or of lineage, which may be away: neither the work nor the end of it waits for it."""

import atexit
import logging
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

_LAST_SECONDS = 2.0
"""How long the end of a process may wait for what is still to be sent."""


class Receiver:
    """Logs once that a receiver does not answer, and once that it answers again.

    Args:
        name: What the lines call it.
        away: The fields of the line that it does not answer.
        back: The fields of the line that it answers again.
    """

    def __init__(self, name: str, away: dict[str, Any], back: dict[str, Any]) -> None:
        self._name, self._away_fields, self._back_fields = name, away, back
        self._is_away = False
        self._lock = threading.Lock()

    def answered(self) -> None:
        """Records that it took what was sent."""
        with self._lock:
            was_away, self._is_away = self._is_away, False
        if was_away:
            log.info("%s answers again", self._name, extra=self._back_fields)

    def failed(self) -> None:
        """Records that it did not take what was sent, which is lost."""
        with self._lock:
            was_away, self._is_away = self._is_away, True
        if not was_away:
            log.warning("%s does not answer; the work goes on without it", self._name, extra=self._away_fields)

    def close_at_exit(self, close: Callable[[], object]) -> None:
        """Has `close`, which sends what is left, called at the process's end, which waits for it a little while.

        The thread that calls it is started at once, as an atexit handler may start none from Python 3.12 on.
        """
        asked, closed = threading.Event(), threading.Event()

        def wait_and_close() -> None:
            asked.wait()
            close()
            closed.set()

        def at_exit() -> None:
            asked.set()
            if not closed.wait(_LAST_SECONDS):
                self.failed()

        threading.Thread(target=wait_and_close, name="observe", daemon=True).start()
        atexit.register(at_exit)
