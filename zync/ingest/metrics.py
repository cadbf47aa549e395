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
    from zync.kafka.partition import Source
    from zync.raw.append import Appended
from zync.metrics.base import _SECONDS, Metrics

_ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


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
