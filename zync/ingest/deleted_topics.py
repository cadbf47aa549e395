"""Detects deleted topics, and applies `--on-gap` to offsets that Kafka deleted before they were read."""

import logging
import time
from collections.abc import Iterable
from typing import Literal

from deltalake import DeltaTable

from zync.config.model import RESERVED_TOPIC
from zync.config.topic_names import is_topic
from zync.errors import GapError, ZyncError
from zync.kafka.admin import Brokers, RefusedError
from zync.lake.table import refresh
from zync.log import event
from zync.raw.table import positions
from zync.text import amount, listed

log = logging.getLogger(__name__)

OnGap = Literal["stop", "skip"]

_CHECK_SECONDS = 1.0
_DELETED_AFTER_SECONDS = 10.0
"""Seconds for which a topic must be missing to count as deleted: a broker that just started may not list all."""


def skip_or_stop(
    on_gap: OnGap, message: str, consequence: str = "leaves the gap on record", **extra: str | int
) -> None:
    """Logs a lost range of offsets as a warning where `on_gap` is skip.

    Args:
        on_gap: The option `--on-gap`.
        message: What was lost.
        consequence: What `--on-gap skip` would do, for the error's text.
        extra: Fields of the log's event.

    Raises:
        GapError: `on_gap` is stop.
    """
    if on_gap == "stop":
        msg = f"{message}. Nothing was skipped: `zync sync-from kafka raw --on-gap skip` goes on and {consequence}"
        raise GapError(msg)
    log.warning("%s; going on, as --on-gap skip says", message, extra=event("gap", **extra))


class DeletedTopics:
    """Finds topics that this process read and that were deleted in Kafka.

    When a topic is deleted the group only revokes its partitions, as if another process were to read them.
    """

    def __init__(self, brokers: Brokers, table: DeltaTable, on_gap: OnGap) -> None:
        self._brokers, self._table, self._on_gap = brokers, table, on_gap
        self._missing: dict[str, float] = {}
        self._reported: set[str] = set()
        self._checked = 0.0

    def suspect(self, topics: Iterable[str]) -> None:
        """Adds topics that may have been deleted; `check` looks for them from now on."""
        for topic in topics:
            self._missing.setdefault(topic, time.monotonic())

    def mark_present(self, topics: Iterable[str]) -> None:
        """Marks topics as existing, as their partitions were assigned."""
        self._reported -= set(topics)

    def check(self) -> list[str]:
        """Returns topics newly detected as deleted, which are no longer to be read.

        Raises:
            GapError: A topic was deleted, and `on_gap` is stop.
        """
        now = time.monotonic()
        if not self._missing or now - self._checked < _CHECK_SECONDS:
            return []
        self._checked = now
        try:
            topics = self._brokers.topics(patient=False)
        except RefusedError:
            raise
        except ZyncError:  # no broker answers: librdkafka reports that
            self._missing = dict.fromkeys(self._missing, now)
            return []
        self._missing = {topic: since for topic, since in self._missing.items() if topic not in topics}
        deleted = [topic for topic, since in self._missing.items() if now - since > _DELETED_AFTER_SECONDS]
        for topic in deleted:
            del self._missing[topic]
        deleted = [topic for topic in deleted if topic not in self._reported]
        refresh(self._table)
        for topic in deleted:
            text = f"topic {topic!r} is gone from {self._brokers.servers}: raw has {self._read_offsets(topic)}"
            loss = "and whatever it held after that was never read"
            skip_or_stop(self._on_gap, f"{text}, {loss}", "reads the others", topic=topic)
        self._reported.update(deleted)
        return deleted

    def _read_offsets(self, topic: str) -> str:
        stored = {
            partition: offset for partition, offset in positions(self._table).next.items() if partition.topic == topic
        }
        return (
            ", ".join(f"{partition} below offset {offset}" for partition, offset in stored.items()) or "nothing of it"
        )


def warn_of_deleted_topics(table: DeltaTable, brokers: Brokers, regexes: Iterable[str], topics: Iterable[str]) -> None:
    """Logs a warning for topics of raw that match a `^regex` and are not among Kafka's `topics`."""
    missing = {partition.topic for partition in positions(table).next} - {RESERVED_TOPIC, *topics}
    deleted = sorted(topic for topic in missing if any(is_topic(topic, regex) for regex in regexes))
    if deleted:
        log.warning(
            "%s of which raw has records: gone from %s, with whatever was not read by then: %s",
            amount(len(deleted), "topic"),
            brokers.servers,
            listed(deleted),
            extra=event("topics_gone", topics=deleted),
        )
