"""How far a delivery to Kafka is: a record of the progress topic, sent in the same Kafka transaction as the rows.

Not a consumer group's offsets: brokers forget those a week after the group was last there. The topic is compacted, and
each delivery may have its own, for what somebody else's open transaction hides has to be waited for (KIP-618 gives
each connector its own topic of offsets for the same reason).
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from zync.errors import UsageError, ZyncError
from zync.kafka.admin import bad_property
from zync.staging.outputs import Place

_ITS_LOG = logging.getLogger("librdkafka")
_REFUSALS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_PATIENCE_SECONDS = 90
"""Longer than a transaction lasts that nobody ends (transaction.timeout.ms, a minute by default)."""


@dataclass(frozen=True)
class Progress:
    """What was delivered: `staging` by its table id, through that sync and transaction.

    offsets: the next output offset of each topic of staging, which are the same in a staging made anew; and for the
    transaction topic how many BEGINs and ENDs it got.
    """

    staging: str
    sync: int = 0
    seqno: int = 0
    turn: int = 0
    offsets: dict[str, int] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Where in staging that is."""
        return Place(self.sync, self.turn or self.seqno, self.seqno)

    def as_json(self) -> bytes:
        """The record's value."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def read(properties: Mapping[str, str], topic: str, name: str, end: int) -> Progress | None:
    """The newest progress of the delivery of that name, before the topic's offset `end`; None where there is none yet.

    Only final after `init_transactions` of its transactional id, up to the high watermark: then nothing of it is under
    way. ZyncError when the end is not reached in time; UsageError for properties that no consumer takes.
    """
    settings = {
        **properties,
        "group.id": f"{name}.progress",  # which the library wants; nothing is committed to it
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": "true",
        "fetch.wait.max.ms": "10",
        "log_level": "0",
    }
    try:
        consumer = Consumer(settings, logger=_ITS_LOG)
    except KafkaException as refused:
        raise bad_property(refused) from refused
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found, at, until = None, 0, time.monotonic() + _PATIENCE_SECONDS
        while at < end:
            if time.monotonic() > until:
                msg = f"topic {topic} cannot be read to its end ({at} of {end}): is another transaction open on it?"
                raise ZyncError(msg)
            message = consumer.poll(0.1)
            error = message.error() if message else None
            if message and error is None:
                found = message.value() if message.key() == name.encode() else found
                at = (message.offset() or 0) + 1
            elif message and error and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                at = message.offset() or 0
            elif error and error.code() in _REFUSALS:
                msg = f"topic {topic}, which says how far the delivery {name} is, cannot be read: {error.str()}"
                raise ZyncError(msg)
    finally:
        consumer.close()
    return _parsed(found, topic, name) if found else None


def _parsed(text: bytes, topic: str, name: str) -> Progress:
    try:
        return Progress(**json.loads(text))
    except (ValueError, TypeError) as error:
        msg = f"the record of {name} in topic {topic} is not zync's ({error}): say another deliver.kafka.name"
        raise UsageError(msg) from error
