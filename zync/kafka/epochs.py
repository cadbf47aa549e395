"""Detects a truncated log of Kafka by the epochs of a partition's leaders (KIP-320).

librdkafka asks a partition's leader where the log of an epoch ends (OffsetForLeaderEpoch) at every seek with an epoch
and after every change of the leader. If it ends before the offset, librdkafka delivers an error of the partition in
place of a record. The error has the same code as that of any unreadable offset; only its text differs.
"""

import re
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from zync.kafka.admin import AwayError, bad_property
from zync.kafka.partition import LastRecord, Partition

_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001 - the library's public name for it
_END = re.compile(r"broker end offset is (\d+)")
_TIMEOUT = 15.0
_PARTITIONS_AT_ONCE = 100
"""How many partitions to check together: each may bring as many bytes as a fetch."""


def is_truncation(error: KafkaError) -> bool:
    """Returns whether a partition's error reports that the log was truncated before the offset to read."""
    return _TRUNCATION in error.str()


def epoch_end(error: KafkaError) -> int | None:
    """Returns the offset at which the log of the requested epoch ends; None if Kafka has no such epoch.

    Args:
        error: A truncation error (`is_truncation`).
    """
    match = _END.search(error.str())
    return int(match[1]) if match else None


def seek_after(last: LastRecord, partition: Partition) -> TopicPartition:
    """Returns the offset to seek after `last`, with its epoch, so that librdkafka checks for truncation."""
    return TopicPartition(*partition, last.offset + 1, leader_epoch=last.epoch)


def cut_off(properties: Mapping[str, str], read: Mapping[Partition, LastRecord]) -> dict[Partition, int | None]:
    """Finds partitions whose last consumed record was truncated in Kafka.

    Args:
        properties: librdkafka's properties.
        read: The last consumed record of each partition.

    Returns:
        For each such partition, the offset at which the log of the record's epoch ends now; None if Kafka has no such
        epoch.

    Raises:
        AwayError: No broker answered in time.
    """
    ends: dict[Partition, int | None] = {}
    if not read:
        return ends
    fixed = {
        "group.id": "zync-verify",  # librdkafka requires a group; this consumer neither joins it nor commits to it
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": "10",
        "fetch.message.max.bytes": "10000",
        "log_level": "0",
    }
    try:
        consumer = Consumer({**properties, **fixed})
    except KafkaException as error:
        raise bad_property(error) from error
    try:
        partitions = sorted(read)
        for start in range(0, len(partitions), _PARTITIONS_AT_ONCE):
            ends.update(
                _cut_off(
                    consumer,
                    {partition: read[partition] for partition in partitions[start : start + _PARTITIONS_AT_ONCE]},
                )
            )
    finally:
        consumer.close()
    return ends


def _cut_off(consumer: Consumer, read: Mapping[Partition, LastRecord]) -> Iterator[tuple[Partition, int | None]]:
    positions = {partition: seek_after(last, partition) for partition, last in read.items()}
    consumer.assign([*positions.values()])
    deadline = time.monotonic() + _TIMEOUT
    waiting = set(read)
    for partition, position in positions.items():
        while not _try_seek(consumer, position):
            if time.monotonic() > deadline:
                msg = f"Kafka does not answer: {partition} cannot be read"
                raise AwayError(msg)
            time.sleep(0.01)
    while waiting:
        if time.monotonic() > deadline:
            msg = f"Kafka does not say whether it still has what was read of {', '.join(map(str, sorted(waiting)))}"
            raise AwayError(msg)
        for message in consumer.consume(1000, 0.1):
            partition = Partition.of_message(message)
            if partition in waiting:
                waiting.discard(partition)
                consumer.incremental_unassign([TopicPartition(*partition)])
                if (error := message.error()) is not None and is_truncation(error):
                    yield partition, epoch_end(error)
    consumer.unassign()


def _try_seek(consumer: Consumer, position: TopicPartition) -> bool:
    """Seeks, and returns whether that worked: it fails until librdkafka has begun to fetch the partition."""
    try:
        consumer.seek(position)
    except KafkaException:
        return False
    return True
