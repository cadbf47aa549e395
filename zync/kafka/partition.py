"""A partition of a topic, and the identity of the topic that it belongs to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    @classmethod
    def of(cls, topic_partition: "TopicPartition") -> "Partition":
        """Returns what librdkafka has with an offset."""
        return cls(topic_partition.topic, topic_partition.partition)

    @classmethod
    def of_message(cls, message: "Message") -> "Partition":
        """Returns the partition of a consumed message."""
        return cls(message.topic() or "", message.partition() or 0)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def all_partitions(counts: Mapping[str, int]) -> list[Partition]:
    """Returns all partitions of topics, of which `counts` has the number of partitions."""
    return [Partition(topic, partition) for topic, count in counts.items() for partition in range(count)]


class LastRecord(NamedTuple):
    """The last consumed record of a partition: its offset, and the epoch of the leader that appended it.

    Each leader of a partition has a higher epoch than those before. If Kafka's log of that epoch ends at or before this
    offset, Kafka does not have the record any more, and may have other records at its offset (KIP-320).
    """

    offset: int
    epoch: int


def is_recreated(known_id: int | None, topic_id: int | None) -> bool:
    """Returns whether a topic was deleted and recreated: both ids are known and differ."""
    return None not in (known_id, topic_id) and known_id != topic_id
