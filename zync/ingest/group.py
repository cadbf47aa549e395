"""This process as one of the consumer group on a raw: which topics it asks for, and what it is given of them.

The group is named after raw's table id. It only shares out the partitions; positions are raw's.
"""

import logging
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException
from deltalake import DeltaTable

from zync.errors import ZyncError
from zync.ingest.assignment import Assignment
from zync.ingest.deleted_topics import OnGap
from zync.kafka.admin import Brokers, bad_property, check_ours
from zync.kafka.properties import milliseconds
from zync.log import event

log = logging.getLogger(__name__)
_ITS_LOG = logging.getLogger("librdkafka")
"""What the library says beside the errors that it reports; shown with --debug."""

_WITHOUT_SECONDS = 5
_ANSWER_SECONDS = 2.0
_STATISTICS_MS = 2000
_SOON_SECONDS = 1.0
_REFRESH = "topic.metadata.refresh.interval.ms"
_REFRESH_MS = 30_000
_OURS = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": "true",
    "partition.assignment.strategy": "cooperative-sticky",
}
_DEFAULTS = {
    # Else the broker answers for each few records that come: 0.41 of its core and 0.30 of ours at 1,500 a second, by
    # 0.25 and 0.18 so.
    "fetch.min.bytes": "100000",
    "fetch.wait.max.ms": "100",
    "fetch.queue.backoff.ms": "10",
    _REFRESH: str(_REFRESH_MS),
    "log_level": "0",
}


def check_properties(kafka: Mapping[str, str]) -> None:
    """UsageError where the config sets what is zync's own to set."""
    check_ours(kafka, (*_OURS, "group.id"), "kafka")


class Group:
    """A member of the group: `consumer`, and what it has `held` of partitions since it connected.

    `topics`: names and ^regexes; `kafka`: librdkafka's properties.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        brokers: Brokers,
        table: DeltaTable,
        *,
        topics: tuple[str, ...],
        on_gap: OnGap,
        on_error: Callable[[KafkaError], None],
        on_statistics: Callable[[str], None] | None,
        **callbacks: Callable[..., None],
    ) -> None:
        self._brokers, self._table, self._on_gap, self._callbacks = brokers, table, on_gap, callbacks
        self._properties = {
            **_DEFAULTS,
            **kafka,
            **_OURS,
            **({"stats_cb": on_statistics, "statistics.interval.ms": _STATISTICS_MS} if on_statistics else {}),
            "group.id": f"zync-{table.metadata().id}",
            "error_cb": on_error,
        }
        self._regexes = [one for one in topics if one.startswith("^")]
        self._subscribed: set[str] = set()
        self._look_every = milliseconds(kafka, _REFRESH, _REFRESH_MS) / 1000
        self._look_in = min(_SOON_SECONDS, self._look_every)
        self._looked = 0.0
        self._without_since, self._said_without, self._asked = time.monotonic(), False, 0.0
        self._connect()

    def _connect(self) -> None:
        try:
            self.consumer = Consumer(self._properties, logger=_ITS_LOG)
        except KafkaException as error:
            raise bad_property(error) from error
        self.held = Assignment(self.consumer, self._brokers, self._table, self._on_gap)

    def subscribe(self, topics: set[str]) -> None:
        """Asks for those topics, and no others."""
        self._subscribed = topics
        if topics:
            self.consumer.subscribe(sorted(topics), **self._callbacks)

    def look_for_topics(self) -> None:
        """Every so often, takes in topics that are new and match a ^regex (Python's, librdkafka knows others).

        More often while there is none, and after one came, which may be the first of many.
        """
        if not self._regexes or not 0 < self._look_in < time.monotonic() - self._looked:
            return
        self._looked = time.monotonic()
        try:
            found = self._subscribed | self._brokers.matching(self._regexes).keys()
        except ZyncError as error:
            log.warning("new topics are not looked for: %s", error)
            return
        if found != self._subscribed:
            self.subscribe(found)
            self._look_in = min(_SOON_SECONDS, self._look_every)
        elif found:
            self._look_in = min(2 * self._look_in, self._look_every)

    def wait_for_partitions(self) -> None:
        """Says once that the group gives this process none, which may be so for a while after a kill -9.

        Where that is not the group's doing, it connects anew; nothing is in hand then.
        """
        now = time.monotonic()
        if self.held.expected or not self._subscribed:
            self._without_since, self._said_without = now, False
        if now - max(self._without_since, self._asked) < _WITHOUT_SECONDS:
            return
        if self._knows_no_broker():
            log.info("this consumer knows no broker that answers: connecting anew", extra=event("connecting_anew"))
            self.consumer.close()
            self._connect()
            self.subscribe(self._subscribed)
        elif not self._said_without:
            self._said_without = True
            log.warning(
                "no partitions yet: other processes that sync to this raw hold them, or one is waited for until its "
                "session times out (kafka.session.timeout.ms, 45 s by default), as it was killed, or stopped and has "
                "an --instance name, like that of `zync run`, under which it would go on at once",
                extra=event("no_partitions"),
            )
        self._asked = time.monotonic()

    def _knows_no_broker(self) -> bool:
        """Whether the library has none left to ask, which may be for good though brokers are there.

        See `Brokers.begin_anew`. One that is only slow to answer is known.
        """
        try:
            self.consumer.list_topics(min(self._subscribed), timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError._TRANSPORT)  # noqa: SLF001
        return False
