"""Prometheus metrics of `sync --follow`."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from zync.metrics.base import UNKNOWN, StandbyMetrics
from zync.staging.kinds import SET_ASIDE_KINDS

if TYPE_CHECKING:
    from zync.sync.outcome import Outcome

_STAGE_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class SyncMetrics(StandbyMetrics):
    """The counters, gauges and histograms of `sync --follow`."""

    def __init__(self) -> None:
        super().__init__(stuck_after=1800)
        registry = self.registry
        self._syncs = Counter("zync_sync_commits", "Syncs committed to staging.", registry=registry)
        self._records = Counter("zync_sync_records", "Records of raw that were judged.", registry=registry)
        self._transactions = Counter("zync_sync_transactions", "Transactions that went out whole.", registry=registry)
        self._outputs = Counter("zync_sync_output_rows", "Output rows, by topic.", ("topic",), registry=registry)
        self._set_aside = Counter("zync_sync_set_aside", "What was set aside, by kind.", ("kind",), registry=registry)
        self._stage_seconds = Histogram(
            "zync_sync_stage_seconds", "How long a stage took.", ("stage",), buckets=_STAGE_SECONDS, registry=registry
        )
        self._in_flight = Gauge("zync_sync_in_flight", "Transactions in flight.", registry=registry)
        self._expired = Gauge("zync_sync_expired", "Transactions that are expired and undecided.", registry=registry)
        self._cursor = Gauge("zync_staging_cursor_seqno", "Every record up to it is settled.", registry=registry)
        self._head = Gauge("zync_staging_head_seqno", "The largest seqno looked at.", registry=registry)
        self._started = Gauge(
            "zync_sync_started", "Whether it has looked at raw, after Spark's start.", registry=registry
        )
        self._undecided_at_start = Gauge(
            "zync_sync_undecided_at_start",
            "Set aside before, and undecided when this began.",
            ("kind",),
            registry=registry,
        )
        for kind in SET_ASIDE_KINDS:  # from 0: Prometheus' increase() counts nothing of a series' first sample
            self._set_aside.labels(kind)
        for gauge in (self._in_flight, self._expired, self._cursor, self._head):
            gauge.set(UNKNOWN)
        self._has_synced = False
        self._oldest: float | None = None
        age = Gauge("zync_sync_oldest_in_flight_age_seconds", "Since when the oldest is in flight.", registry=registry)
        age.set_function(lambda: 0.0 if self._oldest is None else max(0.0, time.time() - self._oldest))

    def turn(self) -> None:
        """Records that the loop made progress, and that Spark has started."""
        super().turn()
        self._started.set(1)

    def found(self, in_flight: int, expired: int, oldest: datetime | None, undecided: Mapping[str, int]) -> None:
        """Sets the gauges from staging's bookkeeping; a sync that has finished since has newer values, which stay.

        Args:
            in_flight: The number of transactions in flight, without the expired ones.
            expired: The number of expired transactions.
            oldest: When the oldest transaction in flight began.
            undecided: What is set aside without a decision, as counts by kind.
        """
        for kind, count in undecided.items():
            self._undecided_at_start.labels(kind).set(count)
        if not self._has_synced:
            self._set_in_flight(in_flight, expired, oldest)

    def _set_in_flight(self, in_flight: int, expired: int, oldest: datetime | None) -> None:
        self._in_flight.set(in_flight)
        self._expired.set(expired)
        self._oldest = oldest.timestamp() if oldest else None

    def synced(self, outcome: "Outcome") -> None:
        """Adds a sync to the counters, and sets the gauges to the state after it."""
        self._has_synced = True
        self._set_in_flight(outcome.in_flight, outcome.expired, outcome.oldest)
        self._cursor.set(outcome.cursor)
        self._head.set(outcome.head)
        if not outcome.seconds:  # raw had nothing new
            return
        self._syncs.inc()
        self._records.inc(outcome.records)
        self._transactions.inc(outcome.transactions)
        for topic, count in outcome.outputs.items():
            self._outputs.labels(topic).inc(count)
        for kind, count in outcome.set_aside.items():
            self._set_aside.labels(kind).inc(count)
        for stage, seconds in outcome.seconds.items():
            self._stage_seconds.labels(stage).observe(seconds)
