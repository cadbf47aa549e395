"""When `sync-from` has caught up: compares raw's positions with the offsets that were stable in Kafka at the start."""

import logging
from functools import cached_property
from typing import NamedTuple

from deltalake import DeltaTable

from zync.errors import ZyncError
from zync.kafka.admin import Brokers
from zync.kafka.epochs import cut_off
from zync.kafka.partition import LastRecord, Partition, all_partitions, is_recreated
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
        partitions = all_partitions(topics)
        self.stable = {partition: offsets.stable for partition, offsets in brokers.bounds(partitions).items()}

    def forget(self, topic: str) -> None:
        """Removes the targets of a topic."""
        self.stable = {partition: offset for partition, offset in self.stable.items() if partition.topic != topic}

    def reached(self) -> bool:
        """Returns whether raw's positions have reached all targets, by this process's commits or others'."""
        refresh(self._table)
        return all(self._has_reached(partition, stable) for partition, stable in self.stable.items())

    def lag(self) -> tuple[dict[str, int], int | None]:
        """Returns raw's positions by partition, and the number of offsets between them and Kafka's current ends.

        The number is None where no broker answers.
        """
        refresh(self._table)
        stored = {partition: stored_position(self._table, partition) for partition in self.stable}
        positions = {str(partition): position for partition, position in stored.items() if position is not None}
        try:
            bounds = self._brokers.bounds(self.stable)
        except ZyncError as error:
            log.warning("lag unknown: %s", error)
            return positions, None
        return positions, sum(
            max(0, bounds[partition].stable - (position or bounds[partition].earliest))
            for partition, position in stored.items()
        )

    @cached_property
    def _replaced(self) -> dict[Partition, "_Stored"]:
        """What raw stores of partitions that are not those it read: recreated, shorter than its position, or truncated.

        Asks about truncation only for partitions that raw has read to the target: of the others librdkafka checks it
        before it reads on.
        """
        ids = self._brokers.topic_ids(partition.topic for partition in self.stable)
        stored = {partition: self._stored(partition) for partition in self.stable}
        last_records = {
            partition: state.last
            for partition, state in stored.items()
            if state.position == self.stable[partition] and state.last
        }
        truncated = cut_off(self._brokers.properties, last_records)
        return {
            partition: state
            for partition, state in stored.items()
            if state.position is not None
            and (
                is_recreated(state.topic_id, ids.get(partition.topic))
                or state.position > self.stable[partition]
                or partition in truncated
            )
        }

    def _has_reached(self, partition: Partition, target: int) -> bool:
        stored = stored_position(self._table, partition)
        if partition in self._replaced and self._replaced[partition] == self._stored(partition):
            return False
        return target == 0 if stored is None else stored >= target

    def _stored(self, partition: Partition) -> "_Stored":
        position = stored_position(self._table, partition)
        return _Stored(position, stored_id(self._table, partition), stored_last(self._table, partition, position))


class _Stored(NamedTuple):
    """What raw stores of a partition. Reading the partition again changes a field, even up to the same position."""

    position: int | None
    topic_id: int | None
    last: LastRecord | None
