"""What a process does, in figures for Prometheus, and whether it gets on: `--metrics`, which zync/serving.py answers.

Names follow https://prometheus.io/docs/practices/naming/. Counters begin anew with the process.
"""

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from zync.ingest.raw import existing_raw, positions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zync.ingest.append import Appended
    from zync.ingest.batch import Source
    from zync.ingest.consume import Ingested
    from zync.sync import Outcome

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STAGE_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


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


class IngestMetrics(Metrics, Collector):
    """Those of sync-from."""

    def __init__(self, stuck_after: float = 60) -> None:
        super().__init__(stuck_after)
        self._done: Ingested | None = None
        self._away: bool | None = None  # until statistics say, which takes some seconds
        self._has_committed = False
        self._behind: dict[Source, int] = {}
        self._waiting: dict[Source, float] = {}
        self._location = ""
        self._seconds = Histogram(
            "zync_ingest_commit_seconds", "How long a commit to raw took.", buckets=_SECONDS, registry=self.registry
        )
        self._rows = Histogram(
            "zync_ingest_file_rows", "Rows of a commit, which is one file.", buckets=_ROWS, registry=self.registry
        )
        self.registry.register(self)

    def watch(self, done: "Ingested", location: str) -> None:
        """Takes the counts from those of a run into the raw at `location`."""
        self._done, self._location = done, location

    def reached(self, statistics: str) -> None:
        """Takes from librdkafka's statistics (its STATISTICS.md) whether a broker is there to be talked to."""
        self._away = not any(one["state"] == "UP" for one in json.loads(statistics)["brokers"].values())

    def stuck(self) -> str | None:
        """Why the work does not get on: Kafka is away, or as for all."""
        away = not self._has_committed if self._away is None else self._away  # what is committed came from one
        return "stuck: no Kafka broker answers" if away else super().stuck()

    def behind(self, offsets: "dict[Source, int]", waiting: "dict[Source, float]") -> None:
        """Takes of each partition the offsets not in raw yet, and the time of the first record that waits for that."""
        self._behind, self._waiting = offsets, waiting

    def committed(self, one: "Appended") -> None:
        """Counts a commit."""
        self._has_committed = True
        self._seconds.observe(one.seconds)
        if one.rows:
            self._rows.observe(one.rows)

    def collect(self) -> Iterator[Metric]:
        """What is read from the run as it is now."""
        done = self._done
        if done is None:
            return
        for name, text, value in (
            ("records", "Records appended to raw.", done.records),
            ("bytes", "Bytes of those records' keys, values and places.", done.num_bytes),
            ("commits", "Commits to raw.", done.commits),
            ("retries", "Commits tried again, as another process came first.", done.retries),
            ("rebalances", "Times that the group gave or took partitions.", done.rebalances),
        ):
            yield CounterMetricFamily(f"zync_ingest_{name}", text, value)
        offsets = GaugeMetricFamily(
            "zync_ingest_lag_offsets", "Offsets not taken yet, by partition.", labels=("topic", "partition")
        )
        seconds = GaugeMetricFamily(
            "zync_ingest_lag_seconds",
            "Age of the oldest record that is not in raw, 0 if all are; while none is read, since when there are more.",
            labels=("topic", "partition"),
        )
        for source, behind in self._behind.items():
            of = (source.topic, str(source.partition))
            offsets.add_metric(of, behind)
            since = self._waiting.get(source) if behind else None
            seconds.add_metric(of, 0.0 if since is None else max(0.0, time.time() - since))
        yield from (offsets, seconds)
        stored = positions(existing_raw(self._location))
        yield GaugeMetricFamily("zync_ingest_gaps", "Gaps on record in raw.", len(stored.gaps))
        yield GaugeMetricFamily("zync_raw_head_seqno", "The largest seqno in raw.", stored.seqno - 1)


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
