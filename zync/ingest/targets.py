"""When sync-from has caught up: what was stable in Kafka at the start, and how far raw is by comparison."""

import logging

from deltalake import DeltaTable

from zync.errors import ZyncError
from zync.kafka.admin import Brokers
from zync.kafka.partition import Source, made_anew
from zync.lake.table import refresh
from zync.raw.table import stored_id, stored_position

log = logging.getLogger(__name__)


class Targets:
    """The partitions of some topics and their last stable offsets at the start: what raw's positions have to reach."""

    def __init__(self, brokers: Brokers, table: DeltaTable, topics: dict[str, int]) -> None:
        self._brokers, self._table = brokers, table
        sources = [Source(topic, partition) for topic, count in topics.items() for partition in range(count)]
        self.stable = {source: one.stable for source, one in brokers.bounds(sources).items()}
        self._strange = self._not_as_read()

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

    def _not_as_read(self) -> dict[Source, tuple[int | None, int | None]]:
        """What raw stores of partitions that cannot be those it read: made anew, or shorter than its position."""
        ids = self._brokers.topic_ids(source.topic for source in self.stable)
        return {
            source: (stored, known_id)
            for source, stable in self.stable.items()
            if (stored := stored_position(self._table, source)) is not None
            and (made_anew(known_id := stored_id(self._table, source), ids.get(source.topic)) or stored > stable)
        }

    def _has(self, source: Source, target: int) -> bool:
        stored = stored_position(self._table, source)
        if self._strange.get(source) == (stored, stored_id(self._table, source)):
            return False
        return target == 0 if stored is None else stored >= target
