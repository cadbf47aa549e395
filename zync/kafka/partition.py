"""A partition of a topic, and the identity of the topic that it belongs to."""

from typing import NamedTuple


class Source(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class LastRecord(NamedTuple):
    """The last record taken of a partition: its offset, and the epoch of the leader that had appended it.

    Each leader of a partition has an epoch, higher than those before it. Where Kafka's log of that epoch ends at or
    before this offset, the record is not there any more, and others may stand in its place (KIP-320).
    """

    offset: int
    epoch: int


def made_anew(known_id: int | None, topic_id: int | None) -> bool:
    """Whether a topic that raw knows by one id has another now: it was deleted and made anew."""
    return None not in (known_id, topic_id) and known_id != topic_id
