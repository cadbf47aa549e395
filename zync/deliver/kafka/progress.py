"""The progress of a delivery to Kafka: a record in the progress topic, sent in the same Kafka transaction as the rows.

It is not stored as a consumer group's offsets, which brokers delete a week after the group was last active. The topic
is compacted. Each delivery may have a topic of its own, because a reader has to wait for any open transaction on the
topic (KIP-618 gives each connector its own topic of offsets for the same reason).
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from zync.deliver.kafka.truncations import DeliveredTruncation, LastTruncation, last_truncations
from zync.errors import UsageError, ZyncError
from zync.kafka.admin import bad_property
from zync.staging.outputs import DeliveryPosition

_LIBRDKAFKA_LOG = logging.getLogger("librdkafka")
_REFUSALS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_PATIENCE_SECONDS = 90
"""Longer than an abandoned transaction stays open (transaction.timeout.ms, a minute by default)."""


@dataclass(frozen=True)
class Progress:
    """How far a staging is delivered: everything through a transaction.

    Attributes:
        staging: The table id of staging.
        sync: The sync of the last delivered transaction.
        seqno: The seqno of that transaction.
        turn: The seqno at which its turn came (order: commit).
        offsets: The next output offset of each output topic, the same in a staging made again by a replay; and for
            the transaction topic the number of its BEGIN and END messages.
        truncated: By output topic the last truncation that was delivered, as long as it keeps rows back.
    """

    staging: str
    sync: int = 0
    seqno: int = 0
    turn: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    truncated: dict[str, LastTruncation] = field(default_factory=dict)

    @property
    def delivery_position(self) -> DeliveryPosition:
        """The position of that transaction in staging."""
        return DeliveryPosition(self.sync, self.turn or self.seqno, self.seqno)

    def with_truncations(self, truncations: list[DeliveredTruncation], remember: int) -> "Progress":
        """Returns this progress once the truncations are delivered, too, without those that keep nothing back now."""
        if not truncations and not self.truncated:
            return self
        last = last_truncations(self.truncated, truncations)
        turn = self.delivery_position.turn
        return replace(self, truncated={topic: kept for topic, kept in last.items() if turn - kept.turn <= remember})

    @staticmethod
    def parse(value: bytes) -> "Progress":
        """Parses the value of the record.

        Raises:
            ValueError, TypeError, AttributeError: it is not zync's.
        """
        values = json.loads(value)
        truncated = {topic: LastTruncation(*place) for topic, place in values.pop("truncated", {}).items()}
        return Progress(**values, truncated=truncated)

    def as_json(self) -> bytes:
        """Returns the value of the record, without `truncated` if there were none, as zync 0.8 wrote it."""
        values = {name: value for name, value in asdict(self).items() if name != "truncated" or value}
        return json.dumps(values, separators=(",", ":")).encode()


def read(properties: Mapping[str, str], topic: str, name: str, end: int) -> Progress | None:
    """Reads the newest progress of a delivery from its topic; returns None if it has none yet.

    The result is final only after `init_transactions` of the delivery's transactional id, and with the high watermark
    as `end`: then no transaction of the delivery is open.

    Args:
        properties: The properties of the consumer.
        topic: The progress topic, of a single partition.
        name: The name of the delivery, the key of its records.
        end: The offset up to which to read, exclusive.

    Raises:
        UsageError: librdkafka refuses the properties, or the record is not zync's.
        ZyncError: the end was not reached in time, or the brokers refuse to let the topic be read.
    """
    settings = {
        **properties,
        "group.id": f"{name}.progress",  # librdkafka requires a group; no offset is committed for it
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": "true",
        "fetch.wait.max.ms": "10",
        "log_level": "0",
    }
    try:
        consumer = Consumer(settings, logger=_LIBRDKAFKA_LOG)
    except KafkaException as error:
        raise bad_property(error) from error
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        value, next_offset, deadline = None, 0, time.monotonic() + _PATIENCE_SECONDS
        while next_offset < end:
            if time.monotonic() > deadline:
                msg = (
                    f"topic {topic} cannot be read to its end ({next_offset} of {end}): is another transaction open "
                    "on it?"
                )
                raise ZyncError(msg)
            message = consumer.poll(0.1)
            kafka_error = message.error() if message else None
            if message and kafka_error is None:
                value = message.value() if message.key() == name.encode() else value
                next_offset = (message.offset() or 0) + 1
            elif message and kafka_error and kafka_error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                next_offset = message.offset() or 0
            elif kafka_error and kafka_error.code() in _REFUSALS:
                msg = f"topic {topic}, which says how far the delivery {name} is, cannot be read: {kafka_error.str()}"
                raise ZyncError(msg)
    finally:
        consumer.close()
    return _parse(value, topic, name) if value else None


def _parse(value: bytes, topic: str, name: str) -> Progress:
    try:
        return Progress.parse(value)
    except (ValueError, TypeError, AttributeError) as error:
        msg = f"the record of {name} in topic {topic} is not zync's ({error}): say another deliver.kafka.name"
        raise UsageError(msg) from error
