"""Whether Kafka's log still has what was read of it, by the epochs of a partition's leaders (KIP-320).

librdkafka asks a partition's leader where the log of an epoch ends (OffsetForLeaderEpoch) whenever it is told to seek
with that epoch, and whenever it hears of a new leader. Where it ends before the offset to seek, librdkafka reports an
error of the partition instead of a record, with the code of any offset that cannot be read: only its text tells.
"""

import re
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from zync.kafka.admin import AwayError, bad_property
from zync.kafka.partition import LastRecord, Source

_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001 - the library's public name for it
_END = re.compile(r"broker end offset is (\d+)")
_TIMEOUT = 15.0
_AT_ONCE = 100
"""Partitions that are asked for together: each may come with as many bytes as one fetch brings."""


def is_truncation(error: KafkaError) -> bool:
    """Whether that error of a partition says that the log was cut before the offset that was to be read."""
    return _TRUNCATION in error.str()


def epoch_end(error: KafkaError) -> int | None:
    """The offset at which the log of the epoch asked for ends, by that error; None where Kafka knows no such epoch."""
    match = _END.search(error.str())
    return int(match[1]) if match else None


def seek_after(last: LastRecord, source: Source) -> TopicPartition:
    """What to seek to read on after `last`, so that librdkafka asks whether it is still there."""
    return TopicPartition(*source, last.offset + 1, leader_epoch=last.epoch)


def cut_off(properties: Mapping[str, str], read: Mapping[Source, LastRecord]) -> dict[Source, int | None]:
    """Those partitions whose last record `read` is not in Kafka any more, and where the log of its epoch ends now.

    None for that where Kafka knows no such epoch.

    Raises:
        AwayError: no broker answered in time.
    """
    found: dict[Source, int | None] = {}
    if not read:
        return found
    ours = {
        "group.id": "zync-verify",  # librdkafka wants one; nobody joins it, and nothing is committed to it
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": "10",
        "fetch.message.max.bytes": "10000",
        "log_level": "0",
    }
    try:
        consumer = Consumer({**properties, **ours})
    except KafkaException as error:
        raise bad_property(error) from error
    try:
        sources = sorted(read)
        for start in range(0, len(sources), _AT_ONCE):
            found.update(_cut_off(consumer, {source: read[source] for source in sources[start : start + _AT_ONCE]}))
    finally:
        consumer.close()
    return found


def _cut_off(consumer: Consumer, read: Mapping[Source, LastRecord]) -> Iterator[tuple[Source, int | None]]:
    places = {source: seek_after(last, source) for source, last in read.items()}
    consumer.assign([*places.values()])
    until = time.monotonic() + _TIMEOUT
    waiting = set(read)
    for source, place in places.items():
        while not _seeks(consumer, place):
            if time.monotonic() > until:
                msg = f"Kafka does not answer: {source} cannot be read"
                raise AwayError(msg)
            time.sleep(0.01)
    while waiting:
        if time.monotonic() > until:
            msg = f"Kafka does not say whether it still has what was read of {', '.join(map(str, sorted(waiting)))}"
            raise AwayError(msg)
        for message in consumer.consume(1000, 0.1):
            source = Source(message.topic() or "", message.partition() or 0)
            if source in waiting:
                waiting.discard(source)
                consumer.incremental_unassign([TopicPartition(*source)])
                if (error := message.error()) is not None and is_truncation(error):
                    yield source, epoch_end(error)
    consumer.unassign()


def _seeks(consumer: Consumer, place: TopicPartition) -> bool:
    """Whether it could be told to, which it cannot until it has begun to read the partition."""
    try:
        consumer.seek(place)
    except KafkaException:
        return False
    return True
