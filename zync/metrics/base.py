"""Metrics of a process for Prometheus, and whether its work advances: `--metrics`.

`zync.metrics.server` serves them.

Names follow https://prometheus.io/docs/practices/naming/. Counters start at 0 with each process.
"""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

UNKNOWN = float("nan")
"""The value of a gauge until it is known: Prometheus does not draw it, and no `<`, `>` or `==` with it holds."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """A registry of metrics, and the time of the last turn of the process's loop.

    Args:
        stuck_after: The seconds without a turn after which the process counts as stuck.
    """

    def __init__(self, stuck_after: float) -> None:
        self.registry = CollectorRegistry()
        self._stuck_after = stuck_after
        self._turned = time.monotonic()

    def turn(self) -> None:
        """Records a turn of the process's loop."""
        self._turned = time.monotonic()

    def stuck(self) -> str | None:
        """Returns why the process is stuck, as its loop does not run. None if it is not."""
        since = time.monotonic() - self._turned
        return f"stuck: nothing was done for {since:.0f} s" if since > self._stuck_after else None

    def waits(self) -> str | None:
        """Returns what the process waits for as a standby; None if it works."""
        return None


class PartMetrics(Metrics):
    """The metrics of a process that works on a lake.

    Attributes:
        store_is_away: Returns why the lake's object store keeps the process from working; None if it does not.
    """

    def __init__(self, stuck_after: float) -> None:
        super().__init__(stuck_after)
        self.store_is_away: Callable[[], str | None] = lambda: None
        ready = Gauge("zync_ready", "Whether `/readyz` answers 200.", registry=self.registry)
        ready.set_function(lambda: self.stuck() is None)
        away = Gauge("zync_store_away", "Whether the lake's object store does not answer.", registry=self.registry)
        away.set_function(lambda: self.store_is_away() is not None)

    def stuck(self) -> str | None:
        """Returns why the process is stuck: its store is away, or its loop does not run. None if it is not."""
        away = self.store_is_away()
        return f"stuck: {away}" if away else super().stuck()


class StandbyMetrics(PartMetrics):
    """The metrics of a process that may wait as a standby until another ends."""

    def __init__(self, stuck_after: float) -> None:
        super().__init__(stuck_after)
        self._owner: object | None = None
        self._standby = Gauge("zync_standby", "Whether it waits as a standby.", registry=self.registry)

    def wait_for(self, owner: object | None) -> None:
        """Records that the process waits for `owner`, which is alright for as long as it takes; None: no more."""
        self._turned = time.monotonic()
        self._owner = owner
        self._standby.set(owner is not None)

    def waits(self) -> str | None:
        """Returns what the process waits for as a standby; None if it works."""
        return None if self._owner is None else f"standby: {self._owner} works"
