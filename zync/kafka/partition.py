"""A partition of a topic, and the identity of the topic that it belongs to."""

from typing import NamedTuple


class Source(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def made_anew(known_id: int | None, topic_id: int | None) -> bool:
    """Whether a topic that raw knows by one id has another now: it was deleted and made anew."""
    return None not in (known_id, topic_id) and known_id != topic_id
