"""What is gone from Kafka and was never read: told of, and passed over only where the operator said so."""

import logging
import re
import time
from collections.abc import Iterable
from typing import Literal

from deltalake import DeltaTable

from zync.config.model import RESERVED_TOPIC
from zync.errors import GapError, ZyncError
from zync.kafka.admin import Brokers, RefusedError
from zync.lake.table import refresh
from zync.log import event
from zync.raw.table import positions
from zync.text import amount, listed

log = logging.getLogger(__name__)

OnGap = Literal["stop", "skip"]

_ASKING_SECONDS = 1.0
_GONE_SECONDS = 10.0
"""So long a topic is not there before it is gone: a broker that has just started may not know of all yet."""


def pass_over(on_gap: OnGap, message: str, how: str = "leaves the gap on record", **place: str | int) -> None:
    """Goes on after what the message tells of, with a warning; or GapError, where `on_gap` is stop."""
    if on_gap == "stop":
        msg = f"{message}. Nothing was skipped: `zync sync-from kafka raw --on-gap skip` goes on and {how}"
        raise GapError(msg)
    log.warning("%s; going on, as --on-gap skip says", message, extra=event("gap", **place))


class GoneTopics:
    """Topics that were read here and that Kafka has no more.

    When one is deleted the group takes its partitions away, as if others were to read them: nothing else tells.
    """

    def __init__(self, brokers: Brokers, table: DeltaTable, on_gap: OnGap) -> None:
        self._brokers, self._table, self._on_gap = brokers, table, on_gap
        self._missing: dict[str, float] = {}
        self._told: set[str] = set()
        self._asked = 0.0

    def suspect(self, topics: Iterable[str]) -> None:
        """These may be gone: it is looked whether they are, from now on."""
        for topic in topics:
            self._missing.setdefault(topic, time.monotonic())

    def back(self, topics: Iterable[str]) -> None:
        """These are there, for they are given to us to read."""
        self._told -= set(topics)

    def look(self) -> list[str]:
        """Those that are found to be gone now, to be read no more. GapError where that is not to be passed over."""
        now = time.monotonic()
        if not self._missing or now - self._asked < _ASKING_SECONDS:
            return []
        self._asked = now
        try:
            there = self._brokers.topics(patient=False)
        except RefusedError:
            raise
        except ZyncError:  # nobody answers: librdkafka says so
            self._missing = dict.fromkeys(self._missing, now)
            return []
        self._missing = {topic: since for topic, since in self._missing.items() if topic not in there}
        gone = [topic for topic, since in self._missing.items() if now - since > _GONE_SECONDS]
        for topic in gone:
            del self._missing[topic]
        gone = [topic for topic in gone if topic not in self._told]
        refresh(self._table)
        for topic in gone:
            what = f"topic {topic!r} is gone from {self._brokers.servers}: raw has {self._read(topic)}"
            lost = "and whatever it held after that was never read"
            pass_over(self._on_gap, f"{what}, {lost}", "reads the others", topic=topic)
        self._told.update(gone)
        return gone

    def _read(self, topic: str) -> str:
        stored = {one: at for one, at in positions(self._table).next.items() if one.topic == topic}
        return ", ".join(f"{one} below offset {at}" for one, at in stored.items()) or "nothing of it"


def tell_of_gone(table: DeltaTable, brokers: Brokers, regexes: Iterable[str], there: Iterable[str]) -> None:
    """Tells of topics that raw was read from by one of these `^regexes`, and that are not `there` to be read on."""
    read = {source.topic for source in positions(table).next} - {RESERVED_TOPIC, *there}
    gone = sorted(one for one in read if any(re.search(regex, one) for regex in regexes))
    if gone:
        log.warning(
            "%s of which raw has records: gone from %s, with whatever was not read by then: %s",
            amount(len(gone), "topic"),
            brokers.servers,
            listed(gone),
            extra=event("topics_gone", topics=gone),
        )
