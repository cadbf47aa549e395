"""Requests to the Kafka brokers: topics and partitions, their offsets, their ids and properties."""

import gc
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, NewTopic, OffsetSpec, ResourceType

from zync.config.model import KAFKAS_OWN, PROGRESS_TOPIC, RESERVED_TOPIC
from zync.config.topic_names import compile_regex
from zync.errors import UsageError, ZyncError
from zync.kafka.partition import Partition

_TIMEOUT = 15.0
_TIMEOUTS = (1.0, 2.0, 4.0, 8.0)
"""The same 15 s as timeouts of single attempts, between which Python handles signals; a slow broker needs the last."""
_REFRESH_SECONDS = 5.0
_UNKNOWN_SECONDS = 5.0
"""Seconds to wait for the leader of a listed topic to know it: one just created, or made anew, it may not know yet."""
_STOPPING_SECONDS = 2.0
"""Seconds to wait for an answer once the process is to stop."""
_ZYNC_TOPICS = (RESERVED_TOPIC, PROGRESS_TOPIC)
_REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)  # noqa: SLF001 - the library's public names
# Errors of a partition while its leader changes or is not elected yet: a retry succeeds.
_TRANSIENT = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError._NOENT,  # noqa: SLF001 - librdkafka's own, for a broker that restarts: "No leaders found"
)
# librdkafka's errors while no broker answers.
_AWAY = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001 - as above
_HIDDEN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION)
"""Errors of a topic that does not exist, that this user may not describe, or whose name Kafka refuses."""
_LIBRARY_LOG = logging.getLogger("librdkafka")
"""Receives librdkafka's log lines, which are shown with --debug."""


@dataclass(frozen=True)
class Bounds:
    """A partition's first offset, and its last stable offset, at which the records that read_committed sees end."""

    earliest: int
    stable: int


class RefusedError(ZyncError):
    """Kafka's brokers answer, and refuse the connection: authentication or TLS failed.

    Correct the `security.*`, `sasl.*` and `ssl.*` properties under `kafka` in the config.
    """

    code = "ZYNC-KAFKA-REFUSED"


def check_ours(properties: Iterable[str], fixed: Iterable[str], section: str) -> None:
    """Checks that a section of the config sets no property that zync sets itself.

    Args:
        properties: The names of the section's properties.
        fixed: The names that zync sets.
        section: The section's key, for the message.

    Raises:
        UsageError: It sets such a property.
    """
    for key in sorted({*properties} & {*fixed}):
        msg = f"{section}.{key} in the config is zync's own to set: take it out"
        raise UsageError(msg)


class AwayError(ZyncError):
    """No Kafka broker answered in time: none was reachable, or a partition had no leader.

    Run the command again once the brokers are back: nothing was lost.
    """

    code = "ZYNC-KAFKA-AWAY"


class Brokers:
    """An admin client. Its answers describe the present moment. Once `stop` is set it waits for no answer for long.

    Attributes:
        servers: `bootstrap.servers`.
        properties: librdkafka's properties. The admin client gets all of them: it ignores those of consumers and
            producers, and connects as these do.
    """

    def __init__(self, properties: Mapping[str, str], stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()
        self.servers = properties.get("bootstrap.servers", "")
        if not self.servers:
            msg = "no Kafka named: give --bootstrap-servers, or kafka.bootstrap.servers in the config"
            raise UsageError(msg)
        self.properties = dict(properties)
        self._refusals: list[str] = []
        self.begin_anew()

    @property
    def stopping(self) -> bool:
        """Whether the process is to stop."""
        return self._stop.is_set()

    def begin_anew(self) -> None:
        """Replaces the client by a new connection, after a request without an answer.

        librdkafka removes the brokers that the newest metadata does not list. If it lists none, as while the only
        broker restarts, librdkafka may never have a broker to ask again (2.16; its issue 5511 is related).
        """
        try:
            self.admin = AdminClient(
                {**self.properties, "log_level": "0", "error_cb": self._on_error}, logger=_LIBRARY_LOG
            )
        except KafkaException as error:
            raise bad_property(error) from error
        gc.collect()  # frees the previous client, whose threads run while a caught error refers to it

    def topics(self, *, patient: bool = True) -> dict[str, int]:
        """Returns all topics but Kafka's own, with their number of partitions.

        Args:
            patient: Whether to wait for about 15 seconds; otherwise for a second.

        Raises:
            RefusedError: A broker refuses the connection.
            AwayError: No broker answers.
        """
        self.admin.poll(0)
        self._refusals.clear()  # earlier refusals
        try:
            topics = self._cluster_metadata(_TIMEOUTS if patient else _TIMEOUTS[:1]).topics
        except KafkaException as error:
            self.admin.poll(0)  # calls `_on_error` with the errors of the connection
            self.begin_anew()
            if self._refusals:
                msg = f"Kafka at {self.servers} does not let us in: {self._refusals[-1]}"
                raise RefusedError(msg) from error
            msg = (
                f"no Kafka broker answers at {self.servers} ({reason(error)}): "
                "is it running, and are the address and kafka.security.protocol right?"
            )
            raise AwayError(msg) from error
        return {name: len(topic.partitions) for name, topic in topics.items() if name not in KAFKAS_OWN}

    def cluster(self) -> str:
        """Returns the id of the cluster.

        Raises:
            AwayError: No broker answers.
        """
        try:
            return str(self._cluster_metadata().cluster_id)
        except KafkaException as error:
            msg = f"no Kafka broker answers at {self.servers} ({reason(error)})"
            self.begin_anew()
            raise AwayError(msg) from error

    def _cluster_metadata(self, timeouts: tuple[float, ...] = _TIMEOUTS) -> ClusterMetadata:
        for timeout in timeouts[:-1]:
            with suppress(KafkaException):
                return self.admin.list_topics(timeout=timeout)
            if self.stopping:
                break
        return self.admin.list_topics(timeout=0.1 if self.stopping else timeouts[-1])

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _REFUSALS:
            self._refusals.append(error.str())

    def matching(self, patterns: Iterable[str]) -> dict[str, int]:
        """Returns the topics with given names or matching `^regexes`, with their number of partitions.

        zync's own topics are no data: no regex matches them, and their names are refused.

        Raises:
            UsageError: A name does not exist, or a regex is invalid.
            ZyncError: No broker answers, or it refuses the connection.
        """
        topics = {name: count for name, count in self.topics().items() if name not in _ZYNC_TOPICS}
        matches: dict[str, int] = {}
        for pattern in patterns:
            if pattern.startswith("^"):
                try:
                    regex = compile_regex(pattern)
                except ValueError as error:
                    raise UsageError(str(error)) from None
                matches.update({name: count for name, count in topics.items() if regex.search(name)})
            elif pattern in topics:
                matches[pattern] = topics[pattern]
            else:
                names = ", ".join(sorted(topics)[:20]) or "none"
                msg = f"there is no topic {pattern!r} at {self.servers} (there: {names}): create it, or give a ^regex"
                raise UsageError(msg)
        return matches

    def bounds(self, partitions: Iterable[Partition], patience: float = 0.0) -> dict[Partition, Bounds]:
        """Returns each partition's earliest and last stable offset.

        Args:
            partitions: The partitions.
            patience: Seconds to wait for brokers that do not answer.

        Raises:
            AwayError: No broker answered in that time.
            ZyncError: The request failed.
        """
        topic_partitions = [TopicPartition(*partition) for partition in partitions]
        earliest, latest = (
            self._offsets(
                dict.fromkeys(topic_partitions, spec), patience, isolation_level=IsolationLevel.READ_COMMITTED
            )
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return {
            Partition.of(topic_partition): Bounds(earliest[topic_partition].offset, latest[topic_partition].offset)
            for topic_partition in topic_partitions
        }

    def end(self, partition: Partition) -> int:
        """Returns the partition's high watermark: its end with the uncommitted records."""
        topic_partition = TopicPartition(*partition)
        offsets = self._offsets({topic_partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return int(offsets[topic_partition].offset)

    def offsets_at(self, partitions: Iterable[Partition], moment: datetime) -> dict[Partition, int]:
        """Returns each partition's first offset with a timestamp of `moment` or later; omits partitions without."""
        spec = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000))
        offsets = self._offsets({TopicPartition(*partition): spec for partition in partitions})
        return {
            Partition.of(topic_partition): result.offset
            for topic_partition, result in offsets.items()
            if result.offset >= 0
        }

    def create_topic(self, topic: NewTopic) -> bool:
        """Creates a topic; returns False if there is one of its name already.

        Raises:
            AwayError: No broker answered in time.
            ZyncError: The brokers refuse it; its cause has their code.
        """
        created = self._answers(
            lambda admin: admin.create_topics([topic], operation_timeout=_TIMEOUT, request_timeout=_TIMEOUT + 5),
            ignored=(KafkaError.TOPIC_ALREADY_EXISTS,),
        )
        return bool(created)

    def replicas(self, topic: str) -> list[int] | None:
        """Returns the number of replicas of each partition; None for a topic that this user may not describe.

        Raises:
            AwayError: No broker answered in time.
            ZyncError: The request failed.
        """
        descriptions = self._answers(
            lambda admin: admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT), ignored=_HIDDEN
        )
        described = descriptions.get(topic)
        return described and [len(partition.replicas) for partition in described.partitions]

    def topic_properties(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns each topic's properties, like `cleanup.policy`.

        Omits topics that do not exist and topics that this user may not describe.
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(topics))]
        if not resources:
            return {}
        configs = self._answers(
            lambda admin: admin.describe_configs(resources, request_timeout=_TIMEOUT),
            ignored=_HIDDEN,
        )
        return {
            resource.name: {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}
            for resource, entries in configs.items()
        }

    def compacted(self, topics: Iterable[str]) -> list[str]:
        """Returns the topics that Kafka compacts, where it removes all but the newest record of each key."""
        properties_by_topic = self.topic_properties(topics)
        return [
            name
            for name, properties in properties_by_topic.items()
            if "compact" in properties.get("cleanup.policy", "")
        ]

    def topic_ids(self, topics: Iterable[str], patience: float = 0.0) -> dict[str, int]:
        """Returns 63 bits of each topic's id, which differs after a topic was deleted and recreated.

        Omits topics without an id and topics that do not exist.

        Args:
            topics: The names of the topics.
            patience: Seconds to wait for brokers that do not answer.

        Raises:
            AwayError: No broker answered in that time.
            ZyncError: The request failed.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        ids: dict[str, int] = {}
        descriptions = self._answers(
            lambda admin: admin.describe_topics(TopicCollection(names), request_timeout=_TIMEOUT),
            ignored=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
            patience=patience,
        )
        for name, described in descriptions.items():
            high, low = described.topic_id.get_most_significant_bits(), described.topic_id.get_least_significant_bits()
            if high or low:
                number = uuid.UUID(int=((high % 2**64) << 64) | (low % 2**64)).int
                ids[name] = (number ^ (number >> 64)) & (2**63 - 1)
        return ids

    def _offsets(
        self, specs: dict[TopicPartition, OffsetSpec], patience: float = 0.0, **settings: Any
    ) -> dict[Any, Any]:
        if not specs:
            return {}
        return self._answers(
            lambda admin: admin.list_offsets(specs, request_timeout=_TIMEOUT, **settings), patience=patience
        )

    def _answers(
        self,
        request: "Callable[[AdminClient], Mapping[Any, Future[Any]]]",
        ignored: Collection[int] = (),
        patience: float = 0.0,
    ) -> dict[Any, Any]:
        """Sends a request, and repeats it while a partition's leader changes.

        Args:
            request: Sends the request by the client that it gets, and returns the futures by key.
            ignored: The codes of errors whose keys are omitted.
            patience: Seconds to repeat it while no broker answers.

        Returns:
            The results by key.

        Raises:
            AwayError: No broker answered in time, or a partition had no leader.
            ZyncError: The request failed.
        """
        started = time.monotonic()
        while True:
            results, admin = {}, self.admin  # keeps the client alive, as another thread may replace `self.admin`
            asked: Any = None
            admin.poll(0)  # takes log lines from librdkafka's queue, which would grow without limit
            try:
                for key, future in request(admin).items():
                    asked = key
                    try:
                        results[key] = self._result(future)
                    except KafkaException as error:
                        if error.args[0].code() not in ignored:
                            raise
            except KafkaException as error:
                code, elapsed = error.args[0].code(), time.monotonic() - started
                if code in _AWAY:
                    self.begin_anew()
                if elapsed >= self._limit(code, patience):
                    is_away = code in (*_TRANSIENT, *_AWAY)
                    says = "does not answer" if is_away else "refuses it"
                    msg = f"Kafka at {self.servers} {says}: {_name(asked)}{reason(error)}"
                    raise (AwayError if is_away else ZyncError)(msg) from error
                time.sleep(0.1)
                if code not in _AWAY:  # librdkafka uses its cached leaders until it gets new metadata
                    with suppress(KafkaException):
                        self.admin.list_topics(timeout=_REFRESH_SECONDS)
            else:
                return results

    def _limit(self, code: int, patience: float) -> float:
        """Returns for how many seconds a request that failed with this code is repeated."""
        if code in _TRANSIENT:
            return _TIMEOUT
        if self.stopping:
            return 0.0
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return _UNKNOWN_SECONDS
        return patience if code in _AWAY else 0.0

    def _result(self, future: "Future[Any]") -> Any:
        """Waits for a request's result. The request has a timeout of its own.

        Raises:
            AwayError: The process is to stop, and the request was not answered in the 2 seconds left.
        """
        while not self.stopping and not wait([future], 0.1).done:
            pass
        if not wait([future], _STOPPING_SECONDS).done:
            msg = f"Kafka at {self.servers} did not answer in the {_STOPPING_SECONDS:.0f} s left"
            raise AwayError(msg)
        return future.result()


def _name(key: Any) -> str:
    """Returns how a message begins that is about a partition, a topic or its properties; empty for None."""
    if key is None:
        return ""
    return f"{Partition.of(key) if isinstance(key, TopicPartition) else getattr(key, 'name', key)}: "


def reason(error: KafkaException) -> str:
    """Returns librdkafka's text of an error, without the code and the wrapping of the exception."""
    return str(error.args[0].str()) if error.args and hasattr(error.args[0], "str") else str(error)


def bad_property(error: KafkaException) -> UsageError:
    """Returns the error for a librdkafka property that is unknown or has an invalid value."""
    return UsageError(f"kafka in the config: {reason(error)}")
