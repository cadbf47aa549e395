"""Metrics of `sync --follow`."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from zync.sync.outcome import Outcome
from zync.metrics.base import UNKNOWN, Metrics

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
        self._started = Gauge("zync_sync_started", "Whether it has looked at raw, after Spark's start.", registry=of)
        self._before = Gauge(
            "zync_sync_undecided_at_start", "Set aside before, and undecided when this began.", ("kind",), registry=of
        )
        for one in (self._in_flight, self._expired, self._cursor, self._head):
            one.set(UNKNOWN)
        self._knows = False
        self._oldest: float | None = None
        age = Gauge("zync_sync_oldest_in_flight_age_seconds", "Since when the oldest is in flight.", registry=of)
        age.set_function(lambda: 0.0 if self._oldest is None else max(0.0, time.time() - self._oldest))

    def turn(self) -> None:
        """Says that the work gets on."""
        super().turn()
        self._started.set(1)

    def found(self, in_flight: int, expired: int, oldest: datetime | None, undecided: Mapping[str, int]) -> None:
        """Takes what staging has, before the first sync tells."""
        for kind, count in undecided.items():
            self._before.labels(kind).set(count)
        if not self._knows:
            self._hold(in_flight, expired, oldest)

    def _hold(self, in_flight: int, expired: int, oldest: datetime | None) -> None:
        self._in_flight.set(in_flight)
        self._expired.set(expired)
        self._oldest = oldest.timestamp() if oldest else None

    def synced(self, done: "Outcome") -> None:
        """Counts a sync."""
        self._knows = True
        self._hold(done.in_flight, done.expired, done.oldest)
        self._cursor.set(done.cursor)
        self._head.set(done.head)
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
