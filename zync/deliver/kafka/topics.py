"""Creates the topics that a delivery sends to, or checks that existing ones are as the config says."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from zync.config.model import PROGRESS_TOPIC, Config, DeliveredTopic
from zync.config.topic_names import is_topic
from zync.errors import UsageError, ZyncError
from zync.kafka.admin import Brokers, reason
from zync.kafka.partition import Partition
from zync.text import amount

_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
"""For so long a topic may be missing: a broker that has just started does not know all topics yet."""
_MISTAKES = (
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
)
PROGRESS = DeliveredTopic(partitions=1, cleanup_policy="compact")
_SEGMENT_BYTES = {"segment.bytes": str(16 << 20)}
"""Small segments of the progress topic are compacted early, so that each start of a delivery reads few records."""

_RECREATED_ADVICE = (
    "to send all of staging anew, to all topics, say another deliver.kafka.name; to go on with what comes now, make "
    "the topic yourself, if it is not there, and start again"
)


@dataclass(frozen=True)
class _TopicSettings:
    partitions: int
    replication: int
    cleanup_policy: str


class Topics:
    """The Kafka topics of a delivery, by output; a topic is created or checked when it is first asked for.

    `delivered` returns how many messages of an output, or of the transaction topic, are in Kafka.
    """

    def __init__(self, config: Config, brokers: Brokers, delivered: Callable[[str], int]) -> None:
        self._config, self._settings, self._brokers, self._delivered = config, config.kafka_delivery, brokers, delivered
        self._topic_names: dict[str, str] = {}
        self._topic_ids: dict[str, int] = {}

    def ensure_all(self) -> None:
        """Creates or checks all topics that the config names.

        Raises:
            UsageError: a topic is not as the config says, or cannot be created so.
        """
        self._check_is_no_source(self._settings.progress_topic, "the progress", "progress_topic")
        self.ensure_progress()
        for output in [rule.topic for rule in self._config.outputs] + [self._settings.transaction_topic]:
            if output is not None:
                self.topic_of(output)

    def ensure_progress(self) -> None:
        """Creates or checks the progress topic, as `ensure_topic` does."""
        name = self._settings.progress_topic
        ensure_topic(self._brokers, name, PROGRESS)
        self._topic_ids.update(self._brokers.topic_ids([name]))

    def topic_of(self, output: str) -> str:
        """Returns the Kafka topic of an output, or of BEGIN and END for `transaction_topic`; creates or checks it."""
        if output not in self._topic_names:
            name, is_transaction_topic = self._settings.target(output), output == self._settings.transaction_topic
            content = "BEGIN and END" if is_transaction_topic else f"output {output}"
            config_key = "transaction_topic" if is_transaction_topic else f"topics.{output}.as"
            self._check_is_no_source(name, content, config_key)
            self._check_not_deleted(name, content, output)
            ensure_topic(self._brokers, name, self._settings.topic(output))
            self._topic_ids.update(self._brokers.topic_ids([name]))
            self._topic_names[output] = name
        return self._topic_names[output]

    def batch_bytes(self, outputs: Iterable[str]) -> int | None:
        """Returns the largest batch that the topics of `outputs` and of the config accept; None if it is unknown.

        Brokers compare max.message.bytes with the size of a batch, and librdkafka does not split a refused batch.
        """
        names = {*map(self._settings.target, outputs), *self._topic_ids}
        try:
            properties_by_topic = self._brokers.topic_properties(names)
        except ZyncError:  # the sender reports that brokers are away
            return None
        limits = [properties.get("max.message.bytes") for properties in properties_by_topic.values()]
        return min((int(limit) for limit in limits if limit), default=None)

    def check_same(self) -> bool:
        """Returns whether the progress topic still has the topic id that it had; checks the other topics.

        Brokers may recreate a deleted topic silently when a client asks for it (auto.create.topics.enable).

        Raises:
            UsageError: another topic was deleted or recreated.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                current_ids = self._brokers.topic_ids(self._topic_ids)
            except ZyncError:  # the sender reports that brokers are away
                return True
            missing = [name for name in self._topic_ids if name not in current_ids]
            changed = [name for name, topic_id in current_ids.items() if self._topic_ids[name] != topic_id]
            if not (changed or missing):
                return True
            if time.monotonic() > deadline:
                changed += missing
            if others := [name for name in changed if name != self._settings.progress_topic]:
                msg = f"topic {others[0]} was deleted, or made anew, after rows were sent to it: {_RECREATED_ADVICE}"
                raise UsageError(msg)
            if changed:
                return False
            time.sleep(_LOOK_SECONDS)

    def with_records(self, outputs: Iterable[str]) -> list[str]:
        """Returns the topics of `outputs` that have, or had, records."""
        partitions = self._brokers.topics()
        names = sorted({self._settings.target(output) for output in outputs} & partitions.keys())
        return [
            name
            for name in names
            if any(self._brokers.end(Partition(name, partition)) for partition in range(partitions[name]))
        ]

    def _check_is_no_source(self, name: str, content: str, config_key: str) -> None:
        """Raises UsageError if sync-from consumes the topic, so that the delivery would feed itself."""
        config = self._config
        is_source = any(is_topic(name, source) for source in config.sources)
        if name == PROGRESS_TOPIC or not is_source or "bootstrap.servers" not in config.kafka:
            return
        if Brokers(config.kafka).cluster() == self._brokers.cluster():
            msg = (
                f"{content} would go to topic {name}, which sync-from takes records from (topics in the config): "
                f"give it another name there, deliver.kafka.{config_key}"
            )
            raise UsageError(msg)

    def _check_not_deleted(self, name: str, content: str, output: str) -> None:
        """Raises UsageError if the topic does not exist although messages of the output were delivered."""
        if name not in self._brokers.topics() and (count := self._delivered(output)):
            msg = (
                f"topic {name} is not there, and {amount(count, 'message')} of {content} went to it, or to one of "
                f"another name, before: {_RECREATED_ADVICE}"
            )
            raise UsageError(msg)


def ensure_topic(brokers: Brokers, name: str, wanted: DeliveredTopic) -> None:
    """Creates a topic with the `wanted` settings, or checks that an existing topic has them.

    Raises:
        UsageError: an existing topic has other settings, or the brokers refuse them for a new topic.
        ZyncError: the topic could not be created or described for another reason.
    """
    if name not in brokers.topics() and _create(brokers, name, wanted):
        return
    actual = _describe(brokers, name)
    for setting in ("partitions", "replication", "cleanup_policy"):
        wanted_value, actual_value = getattr(wanted, setting), getattr(actual, setting)
        if wanted_value is not None and wanted_value != actual_value:
            advice = "change the topic or the config (deliver.kafka.topics)"
            advice = (
                "change it, and do not delete it: it says how far the delivery is" if wanted is PROGRESS else advice
            )
            msg = (
                f"topic {name} at {brokers.servers} is there with {setting} {actual_value}, and not {wanted_value}, as "
                f"wanted: {advice}"
            )
            raise UsageError(msg)


def _create(brokers: Brokers, name: str, wanted: DeliveredTopic) -> bool:
    """Creates the topic; returns False if another client has just created it."""
    config = {"cleanup.policy": wanted.cleanup_policy} if wanted.cleanup_policy else {}
    new_topic = NewTopic(
        name,
        num_partitions=wanted.partitions or -1,
        replication_factor=wanted.replication or -1,
        config={**config, **(_SEGMENT_BYTES if wanted is PROGRESS else {})},
    )
    try:
        return brokers.create_topic(new_topic)
    except ZyncError as error:
        cause = error.__cause__
        is_mistake = isinstance(cause, KafkaException) and cause.args[0].code() in _MISTAKES
        why = reason(cause) if isinstance(cause, KafkaException) else str(error)
        msg = f"topic {name} cannot be made at {brokers.servers}: {why}"
        raise (UsageError if is_mistake else type(error))(msg) from error


def _describe(brokers: Brokers, name: str) -> _TopicSettings:
    replicas, properties = brokers.replicas(name), brokers.topic_properties([name]).get(name)
    if replicas is None or properties is None:
        permission = "DESCRIBE" if replicas is None else "DESCRIBE_CONFIGS"
        msg = f"topic {name} at {brokers.servers} is there, and this user may not look at it ({permission})"
        raise ZyncError(msg)
    policies = sorted(properties["cleanup.policy"].replace(" ", "").split(","))
    return _TopicSettings(len(replicas), min(replicas, default=0), ",".join(policies))
