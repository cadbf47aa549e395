"""A partition of a topic, and the identity of the topic that it belongs to."""

from typing import NamedTuple


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class LastRecord(NamedTuple):
    """The last consumed record of a partition: its offset, and the epoch of the leader that appended it.

    Each leader of a partition has a higher epoch than those before. If Kafka's log of that epoch ends at or before this
    offset, Kafka does not have the record any more, and may have other records at its offset (KIP-320).
    """

    offset: int
    epoch: int


def made_anew(known_id: int | None, topic_id: int | None) -> bool:
    """Returns whether a topic was deleted and recreated: both ids are known and differ."""
    return None not in (known_id, topic_id) and known_id != topic_id
