"""A lease: an object in a store, which has no locks, that says which process works on a table.

The holder writes it again every `RENEW_SECONDS`, on the condition that it is as it was written last (If-Match). Who
waits for it looks every `LOOK_SECONDS`, and takes it over, on the same condition, when it has not changed for
`TERM_SECONDS`. Only the waiting process's own monotonic clock measures that: times of two machines are never compared.

A lease spares work, and nothing rests on it: of two processes that each believe to have it, Delta refuses the commits
of one.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zync.errors import OwnedError, ZyncError
from zync.lake.objects import ChangedError, StoredObject
from zync.lake.owner import Owner, from_bytes, this_process, to_bytes
from zync.log import event

if TYPE_CHECKING:
    from obstore import UpdateVersion

log = logging.getLogger(__name__)

TERM_SECONDS = 15.0
RENEW_SECONDS = 5.0
LOOK_SECONDS = 1.0
_CONFLICTS = 10
"""Refused puts after which the store is taken to refuse each of them: of processes that compete, one succeeds."""


@dataclass
class _Watched:
    """A lease as this process saw it last.

    Attributes:
        holder: Its holder.
        version: The object's version; None before the first look.
        at: When that version was seen first, by the monotonic clock.
        lives: Whether the holder is known to live.
    """

    holder: Owner = field(default_factory=Owner)
    version: "UpdateVersion | None" = None
    at: float = 0.0
    lives: bool = False


class Lease:
    """The lease of a table, of which this process may become the holder once.

    Args:
        location: The URI of the table.
        name: The name of the object, which is beside the table.
        what: What this process does, for others.
    """

    def __init__(self, location: str, name: str, what: str) -> None:
        self.location, self.owner = location, this_process(what)
        self._object = StoredObject(location.rpartition("/")[0], name)
        self._version: UpdateVersion = {}
        self._count = 0
        self._lost_to: Owner | None = None
        self._renewed_at = 0.0
        self._is_late = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_ended, name="lease", daemon=True)

    def take(self, wait: Callable[[Owner], bool], *, patient: bool) -> Owner | None:
        """Becomes the holder, as soon as there is no other or the other has died.

        Args:
            wait: Waits for `LOOK_SECONDS`. Is called with the present holder, and returns whether to go on.
            patient: Whether to wait for a holder that lives.

        Returns:
            None; the holder, if it lives and this process is not patient, or if `wait` ended it.

        Raises:
            ZyncError: The store refuses, or does not answer, twice; a patient process that has seen a holder waits on.
        """
        watched, failure, conflicts = _Watched(), "", 0
        while True:
            try:
                if self._take_if_free(watched):
                    return None
                if watched.lives and not patient:
                    return watched.holder
            except ChangedError as error:
                conflicts += 1
                if conflicts > _CONFLICTS:
                    raise self._never_taken() from error
                continue
            except ZyncError as error:
                if not watched.version or not patient:
                    if failure:
                        raise
                    failure = str(error)
                    continue  # it may be the answer that was lost
                if failure != str(error):
                    failure = str(error)
                    log.warning("the lease of %s could not be watched: %s", self.location, failure)
                watched.at = time.monotonic()  # nobody knows whether it was renewed meanwhile
            if not wait(watched.holder):
                return watched.holder

    def _take_if_free(self, watched: "_Watched") -> bool:
        """Looks at the lease, and becomes the holder if it is free; returns whether this process is the holder."""
        answer = self._object.read()
        if answer is None:
            self._hold(self._object.create(self._content()))
            return True
        (holder, values), version = from_bytes(answer[0]), answer[1]
        if holder.id == self.owner.id:  # the answer to an earlier request was lost
            self._hold(version)
            return True
        now = time.monotonic()
        if version != watched.version:
            is_renewal = bool(watched.version) and not values.get("released")
            watched.lives = is_renewal or holder.is_alive()
            watched.holder, watched.version, watched.at = holder, version, now
        if values.get("released") or holder.is_dead() or now - watched.at >= TERM_SECONDS:
            self._hold(self._object.replace(self._content(), version))
            return True
        return False

    def seize(self) -> None:
        """Becomes the holder at once, whoever is. The other learns of it when it renews. Raises ZyncError."""
        has_failed = False
        for _ in range(_CONFLICTS):
            try:
                answer = self._object.read()
                if answer and from_bytes(answer[0])[0].id == self.owner.id:  # the answer to the put was lost
                    self._hold(answer[1])
                    return
                version = self._object.replace(self._content(), answer[1]) if answer else None
                self._hold(version or self._object.create(self._content()))
            except ChangedError:
                continue
            except ZyncError:
                if has_failed:
                    raise
                has_failed = True
                continue
            return
        raise self._never_taken()

    def _never_taken(self) -> ZyncError:
        return ZyncError(f"the store refuses each conditional put (If-Match) of the lease of {self.location}")

    def check(self) -> None:
        """Raises OwnedError if another process has taken the lease over."""
        if self._lost_to is not None:
            msg = (
                f"{self._lost_to} took over {self.location}, as this process had not renewed its lease or was told to "
                "make way. What this one committed stays"
            )
            raise OwnedError(msg)

    def release(self) -> None:
        """Ends the lease, if it is still this process's: the next process need not wait for its term.

        If the store does not answer, the lease runs out.
        """
        self._ended.set()
        self._thread.join()
        if self._lost_to is None and not self._is_late:
            try:
                self._object.replace(self._content(released=True), self._version)
            except (ChangedError, ZyncError) as error:
                log.debug("the lease of %s was not released: %s", self.location, error)

    def renew(self) -> None:
        """Writes the lease again, and finds out whether another process has it. Raises ChangedError or ZyncError."""
        try:
            self._version = self._object.replace(self._content(), self._version)
        except (ChangedError, ZyncError) as error:  # or the answer was lost
            answer = self._object.read()
            if answer is None:
                self._version = self._object.create(self._content())
            else:
                (holder, values), self._version = from_bytes(answer[0]), answer[1]
                if holder.id != self.owner.id:
                    self._lost_to = holder
                    return
                if values.get("count") != self._count:
                    raise error from None
        self._renewed_at = time.monotonic()

    def _content(self, *, released: bool = False) -> bytes:
        self._count += 1
        return to_bytes(self.owner, count=self._count, released=released)

    def _hold(self, version: "UpdateVersion") -> None:
        self._version, self._renewed_at = version, time.monotonic()
        self._thread.start()

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(RENEW_SECONDS) and self._lost_to is None:
            try:
                self.renew()
            except (ChangedError, ZyncError) as error:
                self._warn(error)
            else:
                if self._is_late and self._lost_to is None:
                    self._is_late = False
                    log.info("the lease of %s is renewed again", self.location, extra=event("lease_renewed"))
        if self._lost_to is not None:
            log.warning("%s took over %s", self._lost_to, self.location, extra=event("lease_lost"))

    def _warn(self, error: Exception) -> None:
        seconds = time.monotonic() - self._renewed_at
        if self._is_late or seconds < TERM_SECONDS - RENEW_SECONDS:
            return
        self._is_late = True
        log.warning(
            "the lease of %s was not renewed for %.0f s (%s): a standby may take over. No commit rests on it",
            self.location,
            seconds,
            error,
            extra=event("lease_late"),
        )
