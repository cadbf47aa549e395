"""This process as a member of the consumer group of a raw: the topics it subscribes to, and its assignment.

The group is named after raw's table id. It only assigns the partitions; raw stores the positions.
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
_LIBRARY_LOG = logging.getLogger("librdkafka")
"""Receives librdkafka's log lines, which are shown with --debug."""

_WITHOUT_SECONDS = 5
_ANSWER_SECONDS = 2.0
_STATISTICS_MS = 2000
_MIN_REFRESH_SECONDS = 1.0
_REFRESH = "topic.metadata.refresh.interval.ms"
_REFRESH_MS = 30_000
_FIXED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": "true",
    "partition.assignment.strategy": "cooperative-sticky",
}
_DEFAULTS = {
    # With librdkafka's default of 1 the broker answers a fetch for every few records: at 1,500 records a second that
    # took 0.41 of a core in the broker and 0.30 in zync, and 0.25 and 0.18 with this value.
    "fetch.min.bytes": "100000",
    "fetch.wait.max.ms": "100",
    "fetch.queue.backoff.ms": "10",
    _REFRESH: str(_REFRESH_MS),
    "log_level": "0",
}


def check_properties(kafka: Mapping[str, str]) -> None:
    """Checks that the config sets no property that zync sets itself.

    Raises:
        UsageError: It sets such a property.
    """
    check_ours(kafka, (*_FIXED, "group.id"), "kafka")


class Group:
    """A member of the consumer group.

    Attributes:
        consumer: The consumer; replaced when it has to connect again.
        assignment: The partitions assigned to that consumer.
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
            **_FIXED,
            **({"stats_cb": on_statistics, "statistics.interval.ms": _STATISTICS_MS} if on_statistics else {}),
            "group.id": f"zync-{table.metadata().id}",
            "error_cb": on_error,
        }
        self._regexes = [topic for topic in topics if topic.startswith("^")]
        self._subscribed: set[str] = set()
        self._refresh_seconds = milliseconds(kafka, _REFRESH, _REFRESH_MS) / 1000
        self._next_refresh_seconds = min(_MIN_REFRESH_SECONDS, self._refresh_seconds)
        self._refreshed = 0.0
        self._without_since, self._warned, self._checked = time.monotonic(), False, 0.0
        self._connect()

    def _connect(self) -> None:
        try:
            self.consumer = Consumer(self._properties, logger=_LIBRARY_LOG)
        except KafkaException as error:
            raise bad_property(error) from error
        self.assignment = Assignment(self.consumer, self._brokers, self._table, self._on_gap)

    def subscribe(self, topics: set[str]) -> None:
        """Subscribes to `topics` in place of those before."""
        self._subscribed = topics
        if topics:
            self.consumer.subscribe(sorted(topics), **self._callbacks)

    def refresh_topics(self) -> None:
        """Subscribes, from time to time, to new topics that match a ^regex.

        The regexes are Python's, whose syntax differs from librdkafka's. It looks more often while no topic matches,
        and after a new topic, as others may follow.
        """
        if not self._regexes or not 0 < self._next_refresh_seconds < time.monotonic() - self._refreshed:
            return
        self._refreshed = time.monotonic()
        try:
            topics = self._subscribed | self._brokers.matching(self._regexes).keys()
        except ZyncError as error:
            log.warning("new topics are not looked for: %s", error)
            return
        if topics != self._subscribed:
            self.subscribe(topics)
            self._next_refresh_seconds = min(_MIN_REFRESH_SECONDS, self._refresh_seconds)
        elif topics:
            self._next_refresh_seconds = min(2 * self._next_refresh_seconds, self._refresh_seconds)

    def wait_for_partitions(self) -> None:
        """Logs a single warning if the group assigns no partition, which may last for a while after a kill -9.

        If the cause is that the consumer knows no broker, it connects again. No record is uncommitted then.
        """
        now = time.monotonic()
        if self.assignment.expected or not self._subscribed:
            self._without_since, self._warned = now, False
        if now - max(self._without_since, self._checked) < _WITHOUT_SECONDS:
            return
        if self._has_no_broker():
            log.info("this consumer knows no broker that answers: connecting anew", extra=event("connecting_anew"))
            self.consumer.close()
            self._connect()
            self.subscribe(self._subscribed)
        elif not self._warned:
            self._warned = True
            log.warning(
                "no partitions yet: other processes that sync to this raw hold them, or one is waited for until its "
                "session times out (kafka.session.timeout.ms, 45 s by default), as it was killed, or stopped and has "
                "an --instance name, like that of `zync run`, under which it would go on at once",
                extra=event("no_partitions"),
            )
        self._checked = time.monotonic()

    def _has_no_broker(self) -> bool:
        """Returns whether librdkafka has no broker left to ask, which may last although brokers run.

        See `Brokers.begin_anew`. A broker that is only slow to answer counts as known.
        """
        try:
            self.consumer.list_topics(min(self._subscribed), timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError._TRANSPORT)  # noqa: SLF001
        return False
