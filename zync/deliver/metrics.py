"""Metrics of `sync-to kafka` and `sync-to tables`."""

import time
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping

from zync.metrics.base import _SECONDS, UNKNOWN, Metrics


class DeliveryMetrics(Metrics):
    """Those of `sync-to`."""

    def __init__(self, stuck_after: float = 1800) -> None:
        super().__init__(stuck_after)
        of = self.registry
        self._rows = Counter("zync_delivery_rows", "Rows delivered, by topic.", ("topic",), registry=of)
        self._seconds = Histogram(
            "zync_delivery_commit_seconds", "How long a commit took; of tables, a batch.", buckets=_SECONDS, registry=of
        )
        self._sync = Gauge("zync_delivery_sync", "The sync through which, in part at least, all is there.", registry=of)
        self._behind = Gauge("zync_delivery_lag_syncs", "Syncs in staging that were not looked at yet.", registry=of)
        for one in (self._sync, self._behind):
            one.set(UNKNOWN)

    def committed(self, rows: "Mapping[str, int]", seconds: float) -> None:
        """Counts a commit, or a batch for tables."""
        self.turn()
        for topic, count in rows.items():
            self._rows.labels(topic).inc(count)
        self._seconds.observe(seconds)

    def reached(self, sync: int, newest: int) -> None:
        """Takes how far it is, and how far it could be."""
        self._sync.set(sync)
        self._behind.set(newest - sync)


class KafkaDeliveryMetrics(DeliveryMetrics):
    """Those of `sync-to kafka`, which knows what a transaction is."""

    def __init__(self) -> None:
        super().__init__(stuck_after=180)
        self._refused: float | None = None
        self._count = Counter("zync_delivery_transactions", "Source transactions delivered.", registry=self.registry)

    def transactions(self, count: int) -> None:
        """Counts source transactions."""
        self._count.inc(count)

    def turn(self) -> None:
        """Says that the work gets on: Kafka took a transaction, or there is none that it would have to take."""
        super().turn()
        self._refused = None

    def refused(self) -> None:
        """Takes note that a Kafka transaction did not go through."""
        self._refused = self._refused or time.monotonic()

    def stuck(self) -> str | None:
        """Why the work does not get on: Kafka takes nothing, or as for all."""
        if self._refused is not None:
            return f"stuck: no Kafka transaction has gone through for {time.monotonic() - self._refused:.0f} s"
        return super().stuck()
