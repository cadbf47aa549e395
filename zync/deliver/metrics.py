"""Metrics of `sync-to kafka` and `sync-to tables`."""

import time
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping

from zync.metrics.base import _SECONDS, UNKNOWN, StandbyMetrics


class DeliveryMetrics(StandbyMetrics):
    """The metrics of `sync-to`."""

    def __init__(self, stuck_after: float = 1800) -> None:
        super().__init__(stuck_after)
        registry = self.registry
        self._rows = Counter("zync_delivery_rows", "Rows delivered, by topic.", ("topic",), registry=registry)
        self._seconds = Histogram(
            "zync_delivery_commit_seconds",
            "How long a commit took; of tables, a batch.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._sync = Gauge(
            "zync_delivery_sync", "The sync through which, in part at least, all is there.", registry=registry
        )
        self._lag_syncs = Gauge(
            "zync_delivery_lag_syncs", "Syncs in staging that were not looked at yet.", registry=registry
        )
        for gauge in (self._sync, self._lag_syncs):
            gauge.set(UNKNOWN)

    def committed(self, rows: "Mapping[str, int]", seconds: float) -> None:
        """Records a Kafka transaction, or a batch for tables: its rows by topic and how many seconds it took."""
        self.turn()
        for topic, count in rows.items():
            self._rows.labels(topic).inc(count)
        self._seconds.observe(seconds)

    def reached(self, sync: int, newest: int) -> None:
        """Records the delivered sync, and the lag behind the newest sync of staging."""
        self._sync.set(sync)
        self._lag_syncs.set(newest - sync)


class KafkaDeliveryMetrics(DeliveryMetrics):
    """The metrics of `sync-to kafka`, which also counts source transactions."""

    def __init__(self) -> None:
        super().__init__(stuck_after=180)
        self._refused_since: float | None = None
        self._transactions = Counter(
            "zync_delivery_transactions", "Source transactions delivered.", registry=self.registry
        )

    def transactions(self, count: int) -> None:
        """Counts delivered source transactions."""
        self._transactions.inc(count)

    def turn(self) -> None:
        """Records progress: a Kafka transaction committed, or staging has no rows to deliver."""
        super().turn()
        self._refused_since = None

    def refused(self) -> None:
        """Records that a Kafka transaction failed."""
        self._refused_since = self._refused_since or time.monotonic()

    def stuck(self) -> str | None:
        """Returns why the delivery makes no progress: Kafka transactions fail, or the reason of `Metrics.stuck`."""
        if self._refused_since is not None:
            return f"stuck: no Kafka transaction has gone through for {time.monotonic() - self._refused_since:.0f} s"
        return super().stuck()
