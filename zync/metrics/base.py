"""What a process does, in figures for Prometheus, and whether it gets on: `--metrics`.

`zync.metrics.server` answers for it.

Names follow https://prometheus.io/docs/practices/naming/. Counters begin anew with the process.
"""

import time

from prometheus_client import CollectorRegistry

UNKNOWN = float("nan")
"""The value of a gauge until it is known: Prometheus draws nothing then, and compares it with nothing."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """What is measured, and when the work last took a turn: it is stuck after `stuck_after` seconds without one."""

    def __init__(self, stuck_after: float) -> None:
        self.registry = CollectorRegistry()
        self._stuck_after = stuck_after
        self._turned = time.monotonic()

    def turn(self) -> None:
        """Says that the work gets on."""
        self._turned = time.monotonic()

    def stuck(self) -> str | None:
        """Why the work does not get on; None while it does."""
        since = time.monotonic() - self._turned
        return f"stuck: nothing was done for {since:.0f} s" if since > self._stuck_after else None
