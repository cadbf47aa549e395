"""How far raw is behind Kafka's ends, by partition: in offsets, and since when."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from zync.ingest.assignment import Assignment
from zync.kafka.partition import Source
from zync.raw.batch import Batch

if TYPE_CHECKING:
    from zync.ingest.metrics import IngestMetrics

_MEASURE_SECONDS = 1.0
_ASKING_SECONDS = 1.0


class Lag:
    """Tells `metrics`, a second apart, how far behind each partition is."""

    def __init__(self, metrics: "IngestMetrics") -> None:
        self._metrics = metrics
        self._measured = 0.0
        self._stalled: dict[Source, tuple[int, float]] = {}

    def measure(self, consumer: Consumer, held: Assignment, in_hand: Iterable[Batch], *, fetching: bool) -> None:
        """Notes it, if a second is over. `in_hand`: what has been taken and is not in raw yet.

        `fetching`: where nothing is, nothing tells the library where partitions end, so it has to ask.
        """
        if time.monotonic() - self._measured < _MEASURE_SECONDS:
            return
        self._measured = time.monotonic()
        # While a partition is another's we do not know what becomes of it: it may come back at the same offset.
        self._stalled = {source: since for source, since in self._stalled.items() if source in held.expected}
        behind, waiting = {}, dict[Source, float]()
        for one in in_hand:
            waiting |= {source: each.first for source, each in list(one.slices.items()) if each.first}
        for source, at in held.expected.items():
            place = TopicPartition(*source)
            try:  # waits for a consume under way in another thread, so this one asks
                ends = consumer.get_watermark_offsets(place, timeout=_ASKING_SECONDS, cached=fetching)
            except KafkaException:
                ends = None
            if ends is None and not fetching:  # the broker is away: the others would have us wait as long each
                return
            if ends and ends[1] >= 0:  # something was fetched of it
                landed = held.landed.get(source, at.next)
                behind[source] = max(0, ends[1] - landed)
                if since := self._stalled_since(source, landed, behind[source]):
                    waiting.setdefault(source, since)
        self._metrics.behind(behind, waiting)

    def _stalled_since(self, source: Source, landed: int, behind: int) -> float | None:
        """Since when raw has been there while Kafka had more: it tells of records that nobody has read yet."""
        if not behind:
            self._stalled.pop(source, None)
            return None
        if self._stalled.get(source, (-1, 0.0))[0] != landed:
            self._stalled[source] = (landed, time.time())
        return self._stalled[source][1]
