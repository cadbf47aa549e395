"""Questions to the Kafka brokers: which partitions there are, where they begin and end, which topic that really is."""

import gc
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, OffsetSpec, ResourceType

from zync.config.model import KAFKAS_OWN, PROGRESS_TOPIC, RESERVED_TOPIC
from zync.config.topics import compile_regex
from zync.errors import UsageError, ZyncError
from zync.kafka.partition import Source

_TIMEOUT = 15.0
_TURNS = (1.0, 2.0, 4.0, 8.0)
"""The same, in turns, between which Python hears signals: of a slow broker the last ones are long enough."""
_LOOK_SECONDS = 5.0
_LAST_SECONDS = 2.0
"""So long an answer is waited for once all is to end."""
_OURS = (RESERVED_TOPIC, PROGRESS_TOPIC)
_REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)  # noqa: SLF001 - the library's public names
# What a partition's brokers say while its leader changes, or is not elected yet: it passes.
_PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError._NOENT,  # noqa: SLF001 - librdkafka's own, of a broker that comes back: "No leaders found"
)
# What librdkafka says while no broker answers.
_AWAY = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001 - as above
_ITS_LOG = logging.getLogger("librdkafka")
"""What the library says beside the errors that it reports; shown with --debug."""


@dataclass(frozen=True)
class Bounds:
    """The first offset a partition still has, and its last stable offset: what read_committed can see ends there."""

    earliest: int
    stable: int


class RefusedError(ZyncError):
    """Kafka's brokers answer, and refuse the connection: authentication or TLS failed.

    Correct the `security.*`, `sasl.*` and `ssl.*` properties under `kafka` in the config.
    """

    code = "ZYNC-KAFKA-REFUSED"


def check_ours(given: Iterable[str], ours: Iterable[str], where: str) -> None:
    """UsageError where the config sets what is zync's own to set, among the properties `where`."""
    for key in sorted({*given} & {*ours}):
        msg = f"{where}.{key} in the config is zync's own to set: take it out"
        raise UsageError(msg)


class AwayError(ZyncError):
    """No Kafka broker answered in time: none was reachable, or a partition had no leader.

    Run the command again once the brokers are back: nothing was lost.
    """

    code = "ZYNC-KAFKA-AWAY"


class Brokers:
    """A connection for questions. Every answer is one of the moment. Once `stop` is set none is waited for long.

    `properties`: librdkafka's, all of which the connection gets: it ignores those of consumers and producers, and
    connects like them by the others.
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
        """Whether all is to end."""
        return self._stop.is_set()

    def begin_anew(self) -> None:
        """Connects as if for the first time, after a question that nobody answered.

        librdkafka forgets the brokers that an answer no longer names. Where it names none, as while the only one
        comes back, it may have none left to ask, for good (2.16; its issue 5511 is a kin of this).
        """
        try:
            self.admin = AdminClient({**self.properties, "log_level": "0", "error_cb": self._on_error}, logger=_ITS_LOG)
        except KafkaException as error:
            raise bad_property(error) from error
        gc.collect()  # the one before, whose threads go on while an error that was caught refers to it

    def topics(self, *, patient: bool = True) -> dict[str, int]:
        """All topics but Kafka's own, with their number of partitions. ZyncError when none answers, or lets us in.

        `patient`: an answer is waited for for some 15 seconds, not for one.
        """
        self.admin.poll(0)
        self._refusals.clear()  # of before
        try:
            found = self._listed(_TURNS if patient else _TURNS[:1]).topics
        except KafkaException as error:
            self.admin.poll(0)  # which hands over what went wrong meanwhile
            self.begin_anew()
            if self._refusals:
                msg = f"Kafka at {self.servers} does not let us in: {self._refusals[-1]}"
                raise RefusedError(msg) from error
            msg = (
                f"no Kafka broker answers at {self.servers} ({reason(error)}): "
                "is it running, and are the address and kafka.security.protocol right?"
            )
            raise ZyncError(msg) from error
        return {name: len(one.partitions) for name, one in found.items() if name not in KAFKAS_OWN}

    def cluster(self) -> str:
        """The id of the cluster. ZyncError when no broker answers."""
        try:
            return str(self._listed().cluster_id)
        except KafkaException as error:
            msg = f"no Kafka broker answers at {self.servers} ({reason(error)})"
            self.begin_anew()
            raise ZyncError(msg) from error

    def _listed(self, turns: tuple[float, ...] = _TURNS) -> ClusterMetadata:
        for turn in turns[:-1]:
            with suppress(KafkaException):
                return self.admin.list_topics(timeout=turn)
            if self.stopping:
                break
        return self.admin.list_topics(timeout=0.1 if self.stopping else turns[-1])

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _REFUSALS:
            self._refusals.append(error.str())

    def matching(self, wanted: Iterable[str]) -> dict[str, int]:
        """The topics of those names and `^regexes`, with their partitions; UsageError for a name that is not there.

        zync's own topics are no data: no regex finds them, and their names are refused.
        """
        there = {name: count for name, count in self.topics().items() if name not in _OURS}
        found: dict[str, int] = {}
        for one in wanted:
            if one.startswith("^"):
                try:
                    regex = compile_regex(one)
                except ValueError as error:
                    raise UsageError(str(error)) from None
                found.update({name: count for name, count in there.items() if regex.search(name)})
            elif one in there:
                found[one] = there[one]
            else:
                known = ", ".join(sorted(there)[:20]) or "none"
                msg = f"there is no topic {one!r} at {self.servers} (there: {known}): create it, or give a ^regex"
                raise UsageError(msg)
        return found

    def bounds(self, sources: Iterable[Source], patience: float = 0.0) -> dict[Source, Bounds]:
        """Each partition's earliest and last stable offset.

        Brokers that are away are waited for, `patience` seconds; AwayError then.
        """
        asked = [TopicPartition(*source) for source in sources]
        found = [
            self._offsets(dict.fromkeys(asked, spec), patience, isolation_level=IsolationLevel.READ_COMMITTED)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        ]
        return {Source(one.topic, one.partition): Bounds(found[0][one].offset, found[1][one].offset) for one in asked}

    def end(self, source: Source) -> int:
        """The partition's high watermark: where it ends, with what is not committed yet."""
        at = TopicPartition(*source)
        found = self._offsets({at: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return int(found[at].offset)

    def offsets_at(self, sources: Iterable[Source], moment: datetime) -> dict[Source, int]:
        """The first offset of each partition whose record is of that time or later; left out where there is none."""
        spec = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000))
        asked = {TopicPartition(*source): spec for source in sources}
        found = self._offsets(asked)
        return {Source(at.topic, at.partition): one.offset for at, one in found.items() if one.offset >= 0}

    def topic_properties(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Each topic's properties, like `cleanup.policy`; what this user may not look at is left out."""
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(topics))]
        if not asked:
            return {}
        found = self._answers(
            lambda admin: admin.describe_configs(asked, request_timeout=_TIMEOUT),
            but=KafkaError.TOPIC_AUTHORIZATION_FAILED,
        )
        return {
            resource.name: {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}
            for resource, entries in found.items()
        }

    def compacted(self, topics: Iterable[str]) -> list[str]:
        """Those of these topics that Kafka compacts: of a key's records all but the newest are taken away."""
        found = self.topic_properties(topics)
        return [name for name, one in found.items() if "compact" in one.get("cleanup.policy", "")]

    def topic_ids(self, topics: Iterable[str], patience: float = 0.0) -> dict[str, int]:
        """63 bits of each topic's id: a topic deleted and made anew has another. What has none is left out.

        Brokers that are away are waited for, `patience` seconds; AwayError then.
        """
        asked = sorted(set(topics))
        if not asked:
            return {}
        found: dict[str, int] = {}
        described_topics = self._answers(
            lambda admin: admin.describe_topics(TopicCollection(asked), request_timeout=_TIMEOUT),
            but=KafkaError.UNKNOWN_TOPIC_OR_PART,
            patience=patience,
        )
        for name, described in described_topics.items():
            high, low = described.topic_id.get_most_significant_bits(), described.topic_id.get_least_significant_bits()
            if high or low:
                number = uuid.UUID(int=((high % 2**64) << 64) | (low % 2**64)).int
                found[name] = (number ^ (number >> 64)) & (2**63 - 1)
        return found

    def _offsets(
        self, asked: dict[TopicPartition, OffsetSpec], patience: float = 0.0, **settings: Any
    ) -> dict[Any, Any]:
        if not asked:
            return {}
        return self._answers(
            lambda admin: admin.list_offsets(asked, request_timeout=_TIMEOUT, **settings), patience=patience
        )

    def _answers(
        self, ask: "Callable[[AdminClient], Mapping[Any, Future[Any]]]", but: int | None = None, patience: float = 0.0
    ) -> dict[Any, Any]:
        """The answers, without those whose error is `but`; asked again while a partition has no leader, or another."""
        started = time.monotonic()
        while True:
            found, admin = {}, self.admin  # which another thread may replace: it has to stay until it has answered
            admin.poll(0)  # which hands over what the library logs, or it would be kept for good
            try:
                for key, future in ask(admin).items():
                    try:
                        found[key] = self._result(future)
                    except KafkaException as error:
                        if error.args[0].code() != but:
                            raise
            except KafkaException as error:
                code, taken = error.args[0].code(), time.monotonic() - started
                if code in _AWAY:
                    self.begin_anew()
                waits = _TIMEOUT if code in _PASSING else patience if code in _AWAY and not self.stopping else 0.0
                if taken >= waits:
                    msg = f"Kafka at {self.servers} does not answer: {reason(error)}"
                    raise (AwayError if code in (*_PASSING, *_AWAY) else ZyncError)(msg) from error
                time.sleep(0.1)
                if code in _PASSING:  # the library asks by the leaders that it knows, until told to look again
                    with suppress(KafkaException):
                        self.admin.list_topics(timeout=_LOOK_SECONDS)
            else:
                return found

    def _result(self, future: "Future[Any]") -> Any:
        """What comes of a question, which ends by its own time limit; AwayError if all is to end before that."""
        while not self.stopping and not wait([future], 0.1).done:
            pass
        if not wait([future], _LAST_SECONDS).done:
            msg = f"Kafka at {self.servers} did not answer in the {_LAST_SECONDS:.0f} s left"
            raise AwayError(msg)
        return future.result()


def reason(error: KafkaException) -> str:
    """What librdkafka says of an error, without its wrapping."""
    return str(error.args[0].str()) if error.args and hasattr(error.args[0], "str") else str(error)


def bad_property(error: KafkaException) -> UsageError:
    """The error for a librdkafka property that is unknown or has a bad value."""
    return UsageError(f"kafka in the config: {reason(error)}")
