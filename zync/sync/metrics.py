"""Metrics of `sync --follow`."""

import time
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from zync.sync.outcome import Outcome
from zync.metrics.base import Metrics

_STAGE_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class SyncMetrics(Metrics):
    """Those of `sync --follow`."""

    def __init__(self) -> None:
        super().__init__(stuck_after=1800)
        of = self.registry
        self._syncs = Counter("zync_sync_commits", "Syncs committed to staging.", registry=of)
        self._records = Counter("zync_sync_records", "Records of raw that were judged.", registry=of)
        self._transactions = Counter("zync_sync_transactions", "Transactions that went out whole.", registry=of)
        self._outputs = Counter("zync_sync_output_rows", "Output rows, by topic.", ("topic",), registry=of)
        self._aside = Counter("zync_sync_set_aside", "What was set aside, by kind.", ("kind",), registry=of)
        self._stages = Histogram(
            "zync_sync_stage_seconds", "How long a stage took.", ("stage",), buckets=_STAGE_SECONDS, registry=of
        )
        self._in_flight = Gauge("zync_sync_in_flight", "Transactions in flight.", registry=of)
        self._expired = Gauge("zync_sync_expired", "Transactions that are expired and undecided.", registry=of)
        self._cursor = Gauge("zync_staging_cursor_seqno", "Every record up to it is settled.", registry=of)
        self._head = Gauge("zync_staging_head_seqno", "The largest seqno looked at.", registry=of)
        self._oldest: float | None = None
        age = Gauge("zync_sync_oldest_in_flight_age_seconds", "Since when the oldest is in flight.", registry=of)
        age.set_function(lambda: 0.0 if self._oldest is None else max(0.0, time.time() - self._oldest))

    def synced(self, done: "Outcome") -> None:
        """Counts a sync."""
        self._in_flight.set(done.in_flight)
        self._expired.set(done.expired)
        self._cursor.set(done.cursor)
        self._head.set(done.head)
        self._oldest = done.oldest.timestamp() if done.oldest else None
        if not done.seconds:  # nothing was new
            return
        self._syncs.inc()
        self._records.inc(done.records)
        self._transactions.inc(done.transactions)
        for topic, count in done.outputs.items():
            self._outputs.labels(topic).inc(count)
        for kind, count in done.set_aside.items():
            self._aside.labels(kind).inc(count)
        for stage, seconds in done.seconds.items():
            self._stages.labels(stage).observe(seconds)
