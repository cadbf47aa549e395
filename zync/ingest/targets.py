"""When sync-from has caught up: what was stable in Kafka at the start, and how far raw is by comparison."""

import logging
from functools import cached_property
from typing import NamedTuple

from deltalake import DeltaTable

from zync.errors import ZyncError
from zync.kafka.admin import Brokers
from zync.kafka.epochs import cut_off
from zync.kafka.partition import LastRecord, Source, made_anew
from zync.lake.table import refresh
from zync.raw.table import stored_id, stored_last, stored_position

log = logging.getLogger(__name__)


class Targets:
    """The partitions of some topics and their last stable offsets at the start: what raw's positions have to reach."""

    def __init__(self, brokers: Brokers, table: DeltaTable, topics: dict[str, int]) -> None:
        self._brokers, self._table = brokers, table
        sources = [Source(topic, partition) for topic, count in topics.items() for partition in range(count)]
        self.stable = {source: one.stable for source, one in brokers.bounds(sources).items()}

    def forget(self, topic: str) -> None:
        """Nothing more is to be reached of that topic."""
        self.stable = {source: at for source, at in self.stable.items() if source.topic != topic}

    def reached(self) -> bool:
        """Whether raw's positions, whoever committed them, have reached what was stable at the start."""
        refresh(self._table)
        return all(self._has(source, stable) for source, stable in self.stable.items())

    def lag(self) -> tuple[dict[str, int], int | None]:
        """Raw's positions by partition, and the offsets between them and Kafka's ends now; None where unknown."""
        refresh(self._table)
        stored = {source: stored_position(self._table, source) for source in self.stable}
        positions = {str(source): at for source, at in stored.items() if at is not None}
        try:
            bounds = self._brokers.bounds(self.stable)
        except ZyncError as error:
            log.warning("lag unknown: %s", error)
            return positions, None
        return positions, sum(max(0, bounds[one].stable - (at or bounds[one].earliest)) for one, at in stored.items())

    @cached_property
    def _strange(self) -> dict[Source, "_Stored"]:
        """What raw stores of partitions that cannot be those it read: made anew, shorter than its position, or cut.

        Of those with more to read librdkafka tells whether they were cut, before it reads on.
        """
        ids = self._brokers.topic_ids(source.topic for source in self.stable)
        stored = {source: self._stored(source) for source in self.stable}
        as_long = {
            source: one.last for source, one in stored.items() if one.position == self.stable[source] and one.last
        }
        cut = cut_off(self._brokers.properties, as_long)
        return {
            source: one
            for source, one in stored.items()
            if one.position is not None
            and (made_anew(one.topic_id, ids.get(source.topic)) or one.position > self.stable[source] or source in cut)
        }

    def _has(self, source: Source, target: int) -> bool:
        stored = stored_position(self._table, source)
        if source in self._strange and self._strange[source] == self._stored(source):
            return False
        return target == 0 if stored is None else stored >= target

    def _stored(self, source: Source) -> "_Stored":
        position = stored_position(self._table, source)
        return _Stored(position, stored_id(self._table, source), stored_last(self._table, source, position))


class _Stored(NamedTuple):
    """What raw stores of a partition: who reads it anew changes one of these, even if it comes as far as before."""

    position: int | None
    topic_id: int | None
    last: LastRecord | None
