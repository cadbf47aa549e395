"""When `sync-from` has caught up: compares raw's positions with the offsets that were stable in Kafka at the start."""

import logging
from functools import cached_property
from typing import NamedTuple

from deltalake import DeltaTable

from zync.errors import ZyncError
from zync.kafka.admin import Brokers
from zync.kafka.epochs import cut_off
from zync.kafka.partition import LastRecord, Partition, made_anew
from zync.lake.table import refresh
from zync.raw.table import stored_id, stored_last, stored_position

log = logging.getLogger(__name__)


class Targets:
    """The offsets that raw's positions have to reach: the last stable offset of each partition at the start.

    Attributes:
        stable: Those offsets by partition.
    """

    def __init__(self, brokers: Brokers, table: DeltaTable, topics: dict[str, int]) -> None:
        self._brokers, self._table = brokers, table
        sources = [Partition(topic, partition) for topic, count in topics.items() for partition in range(count)]
        self.stable = {source: offsets.stable for source, offsets in brokers.bounds(sources).items()}

    def forget(self, topic: str) -> None:
        """Removes the targets of a topic."""
        self.stable = {source: offset for source, offset in self.stable.items() if source.topic != topic}

    def reached(self) -> bool:
        """Returns whether raw's positions have reached all targets, by this process's commits or others'."""
        refresh(self._table)
        return all(self._has_reached(source, stable) for source, stable in self.stable.items())

    def lag(self) -> tuple[dict[str, int], int | None]:
        """Returns raw's positions by partition, and the number of offsets between them and Kafka's current ends.

        The number is None where no broker answers.
        """
        refresh(self._table)
        stored = {source: stored_position(self._table, source) for source in self.stable}
        positions = {str(source): position for source, position in stored.items() if position is not None}
        try:
            bounds = self._brokers.bounds(self.stable)
        except ZyncError as error:
            log.warning("lag unknown: %s", error)
            return positions, None
        return positions, sum(
            max(0, bounds[source].stable - (position or bounds[source].earliest)) for source, position in stored.items()
        )

    @cached_property
    def _replaced(self) -> dict[Partition, "_Stored"]:
        """What raw stores of partitions that are not those it read: recreated, shorter than its position, or truncated.

        Asks about truncation only for partitions that raw has read to the target: of the others librdkafka checks it
        before it reads on.
        """
        ids = self._brokers.topic_ids(source.topic for source in self.stable)
        stored = {source: self._stored(source) for source in self.stable}
        last_records = {
            source: state.last
            for source, state in stored.items()
            if state.position == self.stable[source] and state.last
        }
        truncated = cut_off(self._brokers.properties, last_records)
        return {
            source: state
            for source, state in stored.items()
            if state.position is not None
            and (
                made_anew(state.topic_id, ids.get(source.topic))
                or state.position > self.stable[source]
                or source in truncated
            )
        }

    def _has_reached(self, source: Partition, target: int) -> bool:
        stored = stored_position(self._table, source)
        if source in self._replaced and self._replaced[source] == self._stored(source):
            return False
        return target == 0 if stored is None else stored >= target

    def _stored(self, source: Partition) -> "_Stored":
        position = stored_position(self._table, source)
        return _Stored(position, stored_id(self._table, source), stored_last(self._table, source, position))


class _Stored(NamedTuple):
    """What raw stores of a partition. Reading the partition again changes a field, even up to the same position."""

    position: int | None
    topic_id: int | None
    last: LastRecord | None
