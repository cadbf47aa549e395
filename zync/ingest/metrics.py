"""Metrics of `sync-from`."""

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from zync.raw.table import existing_raw, positions

if TYPE_CHECKING:
    from zync.ingest.outcome import Ingested
    from zync.kafka.partition import Partition
    from zync.raw.append import Appended
from zync.metrics.base import _SECONDS, PartMetrics

_ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


class IngestMetrics(PartMetrics, Collector):
    """The metrics of `sync-from`."""

    def __init__(self, stuck_after: float = 60) -> None:
        super().__init__(stuck_after)
        self._result: Ingested | None = None
        self._away: bool | None = None  # unknown until librdkafka's first statistics, after some seconds
        self._has_committed = False
        self._behind: dict[Partition, int] = {}
        self._waiting: dict[Partition, float] = {}
        self._location = ""
        self._seconds = Histogram(
            "zync_ingest_commit_seconds", "How long a commit to raw took.", buckets=_SECONDS, registry=self.registry
        )
        self._rows = Histogram(
            "zync_ingest_file_rows", "Rows of a commit, which is one file.", buckets=_ROWS, registry=self.registry
        )
        self.registry.register(self)

    def watch(self, result: "Ingested", location: str) -> None:
        """Exports the counts in `result`, and the positions of the raw at `location`."""
        self._result, self._location = result, location

    def reached(self, statistics: str) -> None:
        """Reads from librdkafka's statistics (its STATISTICS.md) whether a connection to a broker is up."""
        self._away = not any(broker["state"] == "UP" for broker in json.loads(statistics)["brokers"].values())

    def stuck(self) -> str | None:
        """Returns why the process is stuck: no Kafka broker answers, or the loop does not run. None if it is not."""
        away = not self._has_committed if self._away is None else self._away  # a commit shows that a broker answered
        return "stuck: no Kafka broker answers" if away else super().stuck()

    def behind(self, offsets: "dict[Partition, int]", waiting: "dict[Partition, float]") -> None:
        """Stores by partition the offsets that are not in raw yet, and the time of its oldest such record."""
        self._behind, self._waiting = offsets, waiting

    def committed(self, appended: "Appended") -> None:
        """Counts a commit."""
        self._has_committed = True
        self._seconds.observe(appended.seconds)
        if appended.rows:
            self._rows.observe(appended.rows)

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics that are read from the run's counts and from raw when they are scraped."""
        result = self._result
        if result is None:
            return
        for name, text, value in (
            ("records", "Records appended to raw.", result.records),
            ("bytes", "Bytes of those records' keys, values and places.", result.num_bytes),
            ("commits", "Commits to raw.", result.commits),
            ("retries", "Commits tried again, as another process came first.", result.retries),
            ("rebalances", "Times that the group gave or took partitions.", result.rebalances),
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
        for partition, behind in self._behind.items():
            topic, number = partition
            labels = (topic, str(number))
            offsets.add_metric(labels, behind)
            since = self._waiting.get(partition) if behind else None
            seconds.add_metric(labels, 0.0 if since is None else max(0.0, time.time() - since))
        yield from (offsets, seconds)
        if self.store_is_away():  # to read raw would fail, and all other metrics with it, or take longer than a scrape
            return
        stored = positions(existing_raw(self._location))
        yield GaugeMetricFamily("zync_ingest_gaps", "Gaps on record in raw.", len(stored.gaps))
        yield GaugeMetricFamily("zync_raw_head_seqno", "The largest seqno in raw.", stored.seqno - 1)
