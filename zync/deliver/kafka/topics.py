"""The topics that a delivery sends to: made as the config says, or checked to be so."""

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from zync.config.model import PROGRESS_TOPIC, Config, DeliveredTopic
from zync.errors import UsageError, ZyncError
from zync.kafka.admin import Brokers, reason
from zync.kafka.partition import Source
from zync.text import amount

_TIMEOUT = 15.0
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
"""A broker that has just started may not know of all topics yet."""
_MISTAKES = (
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
)
PROGRESS = DeliveredTopic(partitions=1, cleanup_policy="compact")
_SEGMENT_BYTES = {"segment.bytes": str(16 << 20)}
"""Of the progress topic: what is compacted away need not be read at each start."""

_WHAT_THEN = (
    "to send all of staging anew, to all topics, say another deliver.kafka.name; to go on with what comes now, make "
    "the topic yourself, if it is not there, and start again"
)


@dataclass(frozen=True)
class _Found:
    partitions: int
    replication: int
    cleanup_policy: str


class Topics:
    """The topics of a delivery by what goes there; each is there, and as wanted, once it was asked for.

    `delivered`: how many messages of an output, or of BEGIN and END, are in Kafka.
    """

    def __init__(self, config: Config, brokers: Brokers, delivered: Callable[[str], int]) -> None:
        self._config, self._said, self._brokers, self._delivered = config, config.kafka_delivery, brokers, delivered
        self._there: dict[str, str] = {}
        self._ids: dict[str, int] = {}

    def ensure_all(self) -> None:
        """Has all be there that the config names. UsageError where one may not be what it is to be."""
        self._check_no_loop(self._said.progress_topic, "the progress", "progress_topic")
        self.ensure_progress()
        for output in [rule.topic for rule in self._config.outputs] + [self._said.transaction_topic]:
            if output is not None:
                self.of(output)

    def ensure_progress(self) -> None:
        """Has the topic be there that says how far the delivery is. UsageError where it may not be as it has to be."""
        name = self._said.progress_topic
        ensure_topic(self._brokers, name, PROGRESS)
        self._ids.update(self._brokers.topic_ids([name]))

    def of(self, output: str) -> str:
        """The topic that an output's rows go to; or BEGIN and END, for `transaction_topic`."""
        if output not in self._there:
            name, own = self._said.target(output), output == self._said.transaction_topic
            what = "BEGIN and END" if own else f"output {output}"
            self._check_no_loop(name, what, "transaction_topic" if own else f"topics.{output}.as")
            self._check_not_gone(name, what, output)
            ensure_topic(self._brokers, name, self._said.topic(output))
            self._ids.update(self._brokers.topic_ids([name]))
            self._there[output] = name
        return self._there[output]

    def batch_bytes(self, outputs: Iterable[str]) -> int | None:
        """The size of a batch that the topics of those outputs and of the config's take; None where that is not known.

        Brokers compare max.message.bytes with a batch, which librdkafka does not divide when it is refused.
        """
        names = {*map(self._said.target, outputs), *self._ids}
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found = []
        for answer in self._brokers.admin.describe_configs(asked, request_timeout=_TIMEOUT).values():
            with suppress(KafkaException):  # one that is not there, or that this user may not look at
                found.append(int(answer.result(_TIMEOUT + 5)["max.message.bytes"].value))
        return min(found, default=None)

    def check_same(self) -> bool:
        """Whether the topic of the progress is the one that it was; UsageError where one of the others is not.

        Brokers may make one anew by themselves, in silence, when somebody asks for it (auto.create.topics.enable).
        """
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                now = self._brokers.topic_ids(self._ids)
            except ZyncError:  # of which who sends hears
                return True
            missing = [name for name in self._ids if name not in now]
            gone = [name for name, one in now.items() if self._ids[name] != one]
            if not (gone or missing):
                return True
            if time.monotonic() > until:
                gone += missing
            if others := [name for name in gone if name != self._said.progress_topic]:
                msg = f"topic {others[0]} was deleted, or made anew, after rows were sent to it: {_WHAT_THEN}"
                raise UsageError(msg)
            if gone:
                return False
            time.sleep(_LOOK_SECONDS)

    def with_records(self, outputs: Iterable[str]) -> list[str]:
        """The topics of those outputs that have records, or had."""
        partitions = self._brokers.topics()
        names = sorted({self._said.target(output) for output in outputs} & partitions.keys())
        return [name for name in names if any(self._brokers.end(Source(name, one)) for one in range(partitions[name]))]

    def _check_no_loop(self, name: str, what: str, key: str) -> None:
        """UsageError where sync-from would take for input what we send."""
        config = self._config
        taken = any(re.search(one, name) if one.startswith("^") else one == name for one in config.sources)
        if name == PROGRESS_TOPIC or not taken or "bootstrap.servers" not in config.kafka:
            return
        if Brokers(config.kafka).cluster() == self._brokers.cluster():
            msg = (
                f"{what} would go to topic {name}, which sync-from takes records from (topics in the config): "
                f"give it another name there, deliver.kafka.{key}"
            )
            raise UsageError(msg)

    def _check_not_gone(self, name: str, what: str, output: str) -> None:
        """UsageError where messages went to a topic that is not there any more, or to one of another name."""
        if name not in self._brokers.topics() and (count := self._delivered(output)):
            msg = (
                f"topic {name} is not there, and {amount(count, 'message')} of {what} went to it, or to one of another "
                f"name, before: {_WHAT_THEN}"
            )
            raise UsageError(msg)


def ensure_topic(brokers: Brokers, name: str, wanted: DeliveredTopic) -> None:
    """Makes the topic, or looks whether it is as wanted. UsageError where it is not, or cannot be made so."""
    if name not in brokers.topics() and _make(brokers, name, wanted):
        return
    found = _found(brokers, name)
    for what in ("partitions", "replication", "cleanup_policy"):
        asked, is_ = getattr(wanted, what), getattr(found, what)
        if asked is not None and asked != is_:
            do = "change the topic or the config (deliver.kafka.topics)"
            do = "change it, and do not delete it: it says how far the delivery is" if wanted is PROGRESS else do
            msg = f"topic {name} at {brokers.servers} is there with {what} {is_}, and not {asked}, as wanted: {do}"
            raise UsageError(msg)


def _make(brokers: Brokers, name: str, wanted: DeliveredTopic) -> bool:
    """Makes the topic; False where somebody else just did."""
    config = {"cleanup.policy": wanted.cleanup_policy} if wanted.cleanup_policy else {}
    new = NewTopic(
        name,
        num_partitions=wanted.partitions or -1,
        replication_factor=wanted.replication or -1,
        config={**config, **(_SEGMENT_BYTES if wanted is PROGRESS else {})},
    )
    try:
        for future in brokers.admin.create_topics([new], operation_timeout=_TIMEOUT).values():
            future.result(_TIMEOUT + 5)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        msg = f"topic {name} cannot be made at {brokers.servers}: {reason(error)}"
        raise (UsageError if error.args[0].code() in _MISTAKES else ZyncError)(msg) from error
    return True


def _found(brokers: Brokers, name: str) -> _Found:
    try:
        topic = brokers.admin.list_topics(timeout=_TIMEOUT).topics.get(name)
        if topic is None:
            msg = f"topic {name} at {brokers.servers} is there, and this user may not look at it (DESCRIBE)"
            raise ZyncError(msg)
        resource = ConfigResource(ResourceType.TOPIC, name)
        config = brokers.admin.describe_configs([resource], request_timeout=_TIMEOUT)[resource].result(_TIMEOUT + 5)
    except KafkaException as error:
        msg = f"topic {name} at {brokers.servers} cannot be looked at: {reason(error)}"
        raise ZyncError(msg) from error
    copies = min((len(one.replicas) for one in topic.partitions.values()), default=0)
    policies = sorted(config["cleanup.policy"].value.replace(" ", "").split(","))
    return _Found(len(topic.partitions), copies, ",".join(policies))
