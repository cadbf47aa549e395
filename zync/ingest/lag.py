"""Measures the lag of raw behind Kafka's ends, by partition: in offsets and in time."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from zync.ingest.assignment import Assignment
from zync.kafka.partition import Partition
from zync.raw.batch import Batch

if TYPE_CHECKING:
    from zync.ingest.metrics import IngestMetrics

_MEASURE_SECONDS = 1.0
_REQUEST_SECONDS = 1.0


class Lag:
    """Reports the lag of each partition to `metrics`, at most once a second."""

    def __init__(self, metrics: "IngestMetrics") -> None:
        self._metrics = metrics
        self._measured = 0.0
        self._stalled: dict[Partition, tuple[int, float]] = {}

    def measure(
        self, consumer: Consumer, assignment: Assignment, uncommitted: Iterable[Batch], *, fetching: bool
    ) -> None:
        """Measures and reports the lag if a second has passed since the last time.

        Args:
            consumer: The consumer that reads the partitions.
            assignment: The assigned partitions, with their positions.
            uncommitted: The batches that are not in raw yet.
            fetching: Whether the consumer fetches. If it does not, librdkafka's cache has no newest ends of the
                partitions, so the broker is asked.
        """
        if time.monotonic() - self._measured < _MEASURE_SECONDS:
            return
        self._measured = time.monotonic()
        # Forget revoked partitions: while another process reads them, their progress is unknown here, and they may come
        # back at the same offset.
        self._stalled = {
            partition: since for partition, since in self._stalled.items() if partition in assignment.expected
        }
        behind, waiting = {}, dict[Partition, float]()
        for batch in uncommitted:
            waiting |= {partition: part.first for partition, part in list(batch.slices.items()) if part.first}
        for partition, expected in assignment.expected.items():
            topic_partition = TopicPartition(*partition)
            try:  # this call waits for a running `consume`, so the consuming thread itself makes it
                ends = consumer.get_watermark_offsets(topic_partition, timeout=_REQUEST_SECONDS, cached=fetching)
            except KafkaException:
                ends = None
            if ends is None and not fetching:  # the broker is away: each further partition would wait as long
                return
            if ends and ends[1] >= 0:  # a fetch of this partition was answered
                landed = assignment.landed.get(partition, expected.next)
                behind[partition] = max(0, ends[1] - landed)
                if since := self._stalled_since(partition, landed, behind[partition]):
                    waiting.setdefault(partition, since)
        self._metrics.behind(behind, waiting)

    def _stalled_since(self, partition: Partition, landed: int, behind: int) -> float | None:
        """Returns since when raw's position has not moved although Kafka has more records; None if it has no more."""
        if not behind:
            self._stalled.pop(partition, None)
            return None
        if self._stalled.get(partition, (-1, 0.0))[0] != landed:
            self._stalled[partition] = (landed, time.time())
        return self._stalled[partition][1]
