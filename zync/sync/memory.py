"""Estimates the memory of a sync before it begins: a process that takes more than there is is killed in silence."""

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from zync.log import event
from zync.staging.bookkeeping import Bookkeeping
from zync.text import amount, byte_size

log = logging.getLogger(__name__)

BYTES_OF_RECORD, BYTES_OF_REMEMBERED, BYTES_OF_IN_FLIGHT = 260, 200, 600
"""For a new record that is a transaction, for one that is remembered, and for one in flight (`bench scale`)."""


_MUCH = 256 * 1024 * 1024
"""Less is not looked at: each sync of `--follow` asks."""


class MemoryCheck:
    """Warns before a sync that may need more memory than there is; once, until one needs less again."""

    def __init__(self, heap_growth: Callable[[], int]) -> None:
        """Prepares the check.

        Args:
            heap_growth: Returns by how many bytes the heap of Spark's JVM may still grow.
        """
        self._heap_growth, self._has_warned = heap_growth, False

    def __call__(self, bookkeeping: Bookkeeping, records: int) -> None:
        """Warns if the next sync may need more memory than there is, and says what for.

        Args:
            bookkeeping: Staging's bookkeeping before the sync.
            records: The number of its new records.
        """
        in_flight, remembered = bookkeeping.in_flight.num_rows, bookkeeping.settled.num_rows
        bytes_of = {
            f"{amount(records, 'new record')} (limits.records_per_sync)": records * BYTES_OF_RECORD,
            f"{amount(remembered, 'id')} that it remembers (transactions.remember)": remembered * BYTES_OF_REMEMBERED,
            f"{amount(in_flight, 'transaction')} in flight (zync txn list)": in_flight * BYTES_OF_IN_FLIGHT,
        }
        needed = sum(bytes_of.values())
        available = available_bytes() if needed > _MUCH else None
        growth = 0 if available is None else self._heap_growth()
        is_short = available is not None and needed + growth > available
        if is_short and not self._has_warned:
            log.warning(
                "the next sync may take %s of memory, most of it for %s, and Spark's heap %s more; %s are free",
                byte_size(needed),
                max(bytes_of, key=lambda what: bytes_of[what]),
                byte_size(growth),
                byte_size(available or 0),
                extra=event("memory", needed=needed, heap_growth=growth, available=available),
            )
        self._has_warned = is_short


def available_bytes(root: Path = Path("/")) -> int | None:
    """Returns the memory that this process may still take: the machine's, or its container's if that is less.

    Args:
        root: The root of the file system, which has `proc` and `sys`.

    Returns:
        Bytes; None if neither is known.
    """
    known = []
    with suppress(OSError, TypeError):
        text = (root / "proc/meminfo").read_text()
        known.append(int(re.search(r"MemAvailable:\s+(\d+) kB", text)[1]) * 1024)  # type: ignore[index]
    with suppress(OSError, TypeError, ValueError):  # `max` is no number: there is no limit
        cgroup = root / "sys/fs/cgroup"
        limit, used = (int((cgroup / f"memory.{name}").read_text()) for name in ("max", "current"))
        cache = int(re.search(r"^inactive_file (\d+)", (cgroup / "memory.stat").read_text(), re.MULTILINE)[1])  # type: ignore[index]
        known.append(limit - used + cache)
    return max(min(known), 0) if known else None
