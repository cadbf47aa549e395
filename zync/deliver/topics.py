"""The topics that a delivery sends to: made as the config says, or checked to be so."""

from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from zync.config import DeliveredTopic
from zync.errors import UsageError, ZyncError
from zync.ingest.broker import Brokers, reason

_TIMEOUT = 15.0
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


@dataclass(frozen=True)
class _Found:
    partitions: int
    replication: int
    cleanup_policy: str


def ensure_topic(brokers: Brokers, name: str, wanted: DeliveredTopic) -> None:
    """Makes the topic, or looks whether it is as wanted. UsageError where it is not, or cannot be made so."""
    if name not in brokers.topics() and _make(brokers, name, wanted):
        return
    found = _found(brokers, name)
    for what in ("partitions", "replication", "cleanup_policy"):
        asked, is_ = getattr(wanted, what), getattr(found, what)
        if asked is not None and asked != is_:
            msg = (
                f"topic {name} at {brokers.servers} is there with {what} {is_}, and not {asked}, as wanted: "
                "change the topic or the config (deliver.kafka.topics)"
            )
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
        topic = brokers.admin.list_topics(timeout=_TIMEOUT).topics[name]
        resource = ConfigResource(ResourceType.TOPIC, name)
        config = brokers.admin.describe_configs([resource], request_timeout=_TIMEOUT)[resource].result(_TIMEOUT + 5)
    except KafkaException as error:
        msg = f"topic {name} at {brokers.servers} cannot be looked at: {reason(error)}"
        raise ZyncError(msg) from error
    copies = min((len(one.replicas) for one in topic.partitions.values()), default=0)
    policies = sorted(config["cleanup.policy"].value.replace(" ", "").split(","))
    return _Found(len(topic.partitions), copies, ",".join(policies))
