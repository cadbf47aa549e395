"""Tells OpenLineage what syncs and deliveries read and write. Off, without any import, unless a variable asks for it.

A process is one run of its job: START when its first work begins, RUNNING now and then, COMPLETE or FAIL at its end. A
run that had no work sends nothing.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from zync.observe.datasets import Dataset, table
from zync.observe.traces import error_name

if TYPE_CHECKING:
    from zync.observe.run_events import Sender

log = logging.getLogger(__name__)

_RUNNING_SECONDS = 60.0
"""How often a run tells how far it is: `--follow` may commit several times a second, and catalogs keep each event."""


class Run:
    """A run of a job, and what it has read and written so far; while lineage is off, nothing.

    Args:
        sender: Sends its events; None: lineage is off.
    """

    def __init__(self, sender: "Sender | None" = None) -> None:
        self._sender = sender
        self._inputs: dict[Dataset, None] = {}
        self._rows: dict[Dataset, int | None] = {}
        self._told_at: float | None = None

    def begin(self, datasets: Callable[[], tuple[Iterable[Dataset], Iterable[Dataset]]]) -> None:
        """Notes that work begins; that of the first sends START.

        Args:
            datasets: Returns what the work reads, and what it writes; only called while lineage is on.
        """
        if self._sender is None:
            return
        inputs, outputs = datasets()
        self._inputs.update(dict.fromkeys(inputs))
        for output in outputs:
            self._rows.setdefault(output)
        if self._told_at is None:
            self._tell("START")

    def wrote(self, rows: Callable[[], Mapping[Dataset, int]]) -> None:
        """Adds rows that are committed; sends RUNNING if it was not sent lately.

        Args:
            rows: Returns them by what they were written to; only called while lineage is on.
        """
        if self._sender is None:
            return
        for output, count in rows().items():
            self._rows[output] = (self._rows.get(output) or 0) + count
        if self._told_at is None or time.monotonic() - self._told_at > _RUNNING_SECONDS:
            self._tell("RUNNING")

    def end(self, error: BaseException | None = None) -> None:
        """Sends that the run has ended, unless it had no work: COMPLETE, FAIL, or ABORT if it was interrupted."""
        if self._told_at is None:
            return
        if error is None:
            self._tell("COMPLETE")
        else:
            self._tell("FAIL" if isinstance(error, Exception) else "ABORT", error_name(error))

    def _tell(self, state: str, error: str | None = None) -> None:
        self._told_at = time.monotonic()
        if self._sender:
            self._sender.send(state, list(self._inputs), self._rows, error)


@contextmanager
def run_of(job: str, location: str, *, is_endless: bool) -> Iterator[Run]:
    """Yields the run of a job, which ends with this context.

    Args:
        job: The job, like `sync`. Its name in OpenLineage has the location, too: each lake has its own.
        location: The table that the job is about.
        is_endless: Whether it goes on until it is stopped.
    """
    sender_class = _sender_class() if _is_asked_for() else None
    name = f"{job} {_uri(table(location))}"
    run = Run(sender_class(name, is_endless=is_endless) if sender_class else None)
    try:
        yield run
    except BaseException as error:
        run.end(error)
        raise
    run.end()


def _uri(dataset: Dataset) -> str:
    return dataset.name if dataset.namespace == "file" else f"{dataset.namespace}/{dataset.name}"


@cache
def _sender_class() -> "type[Sender] | None":
    """Returns what sends the events of a run; None, and it says why, if OpenLineage's client cannot be had."""
    try:
        from zync.observe.run_events import Sender, outbox  # noqa: PLC0415 - OpenLineage's client is optional

        outbox()
    except ImportError:
        log.warning(
            "OPENLINEAGE_ variables ask for lineage, which needs the extra: pip install 'zync[lineage]'; going on "
            "without lineage"
        )
        return None
    except Exception as error:  # noqa: BLE001 - a wrong value in its config: the work does not depend on it
        log.warning("going on without lineage, as OpenLineage's config is wrong: %s", error)
        return None
    return Sender


def _is_asked_for() -> bool:
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    return any(name in os.environ for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")) or any(
        name.startswith("OPENLINEAGE__TRANSPORT") for name in os.environ
    )
