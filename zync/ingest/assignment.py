"""The partitions that the consumer group assigns to this process, and the position in each of them."""

from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from deltalake import DeltaTable

from zync.errors import ZyncError
from zync.ingest.deleted_topics import OnGap, skip_or_stop
from zync.kafka.admin import AwayError, Brokers
from zync.kafka.epochs import seek_after
from zync.kafka.partition import LastRecord, Partition, is_recreated
from zync.lake.table import refresh
from zync.raw.batch import Batch, Slice
from zync.raw.table import stored_id, stored_last, stored_position

_PATIENCE_SECONDS = 60.0
"""Seconds to wait for a broker that stops answering just after the assignment, of the 300 allowed between two polls."""


class Assignment:
    """The assigned partitions and their positions, which come from raw, never from Kafka.

    Attributes:
        expected: By partition, the slice that its next record continues.
        landed: By partition, raw's position as last seen.
        moved: Partitions that were sought or revoked since the caller cleared this set.
        unchecked: Partitions of which librdkafka has not been told yet to ask whether Kafka still has the last record
            that raw has.
    """

    def __init__(self, consumer: Consumer, brokers: Brokers, table: DeltaTable, on_gap: OnGap) -> None:
        self._consumer, self._brokers, self._table, self._on_gap = consumer, brokers, table, on_gap
        self.expected: dict[Partition, Slice] = {}
        self.landed: dict[Partition, int] = {}
        self.moved: set[Partition] = set()
        self.unchecked: set[Partition] = set()
        self._stable: dict[Partition, int] = {}
        self._checked_again: dict[Partition, LastRecord] = {}

    def start(self, partitions: list[Partition]) -> list[TopicPartition]:
        """Returns where to start reading partitions, by raw's newest positions. The caller drops uncommitted rows.

        Raises:
            GapError: A topic was recreated, and `on_gap` is stop.
        """
        refresh(self._table)
        ids = self._brokers.topic_ids((partition.topic for partition in partitions), patience=_PATIENCE_SECONDS)
        with_last_record: list[Partition] = []
        for partition in partitions:
            stored, known_id = stored_position(self._table, partition), stored_id(self._table, partition)
            expected = Slice(stored, stored or 0, ids.get(partition.topic), begin_id=known_id)
            if stored is not None and is_recreated(known_id, expected.topic_id):
                skip_or_stop(
                    self._on_gap,
                    f"topic {partition.topic!r} was deleted and made anew: raw has {partition} below offset {stored}, "
                    "and whatever the old topic held after that was never read",
                    **partition._asdict(),
                )
                expected.next = self._brokers.bounds([partition])[partition].earliest
                expected.gap = (stored, expected.next)
                expected.begin_last = stored_last(self._table, partition, stored)
            elif (last := stored_last(self._table, partition, stored)) is not None:
                expected.last = expected.begin_last = last
                with_last_record.append(partition)
            self.expected[partition] = expected
            self.landed[partition] = expected.next
        self._prepare_truncation_check(with_last_record)
        return [self._start_offset(partition) for partition in partitions]

    def _prepare_truncation_check(self, partitions: list[Partition]) -> None:
        """Marks partitions as unchecked, and stores their last stable offsets, where fetching starts before the seek.

        Marks none of them if the brokers refuse the request, as after a topic was deleted meanwhile: `DeletedTopics`
        reports that.
        """
        try:
            bounds = self._brokers.bounds(partitions, patience=_PATIENCE_SECONDS)
        except AwayError:
            raise
        except ZyncError:
            for partition in partitions:
                self.expected[partition].last = None
            return
        for partition, offsets in bounds.items():
            self._stable[partition] = offsets.stable
            self.unchecked.add(partition)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Removes partitions that were revoked."""
        for partition in partitions:
            self.moved.add(partition)
            self.expected.pop(partition, None)
            self.unchecked.discard(partition)

    def advance(self, partition: Partition, position: int, batch: Batch, last: LastRecord | None = None) -> None:
        """Moves the position in a partition and the end of its slice in `batch`.

        Args:
            partition: The partition.
            position: The next offset to read.
            batch: The batch that has the records.
            last: The last record before `position`; None if only transaction markers were passed.
        """
        expected = self.expected[partition]
        batch_slice = batch.slices.setdefault(partition, expected)
        batch_slice.next = position
        if last is not None:
            batch_slice.last = last if last.epoch >= 0 else None
        begin_id = expected.begin_id if expected.topic_id is None else expected.topic_id
        last = batch_slice.last
        topic_id = expected.topic_id
        self.expected[partition] = Slice(position, position, topic_id, begin_id=begin_id, last=last, begin_last=last)

    def seek(self, partition: Partition) -> None:
        """Seeks to the position of a partition. Records of it that this call of `consume` returned are dropped."""
        self.moved.add(partition)
        try:
            self._consumer.seek(self._seek_offset(partition))
            self.unchecked.discard(partition)
        except KafkaException:  # a partition that stopped at a missing offset cannot be sought, only assigned again
            start = self._start_offset(partition)
            self._consumer.incremental_unassign([start])
            self._consumer.incremental_assign([start])
            if self.expected[partition].last is not None:
                self.unchecked.add(partition)
                self.seek_unchecked()

    def seek_unchecked(self) -> None:
        """Seeks the unchecked partitions, so that librdkafka asks whether Kafka still has raw's last record.

        librdkafka asks at a seek and not at an assignment, and it can seek only after it has begun to fetch.
        """
        for partition in [*self.unchecked]:
            with suppress(KafkaException):
                self._consumer.seek(self._seek_offset(partition))
                self.unchecked.discard(partition)

    def seek_available(self, partition: Partition) -> None:
        """Seeks to the position if Kafka has that offset, or else to the first offset that it has, with a gap.

        Raises:
            GapError: Offsets are missing, and `on_gap` is stop.
        """
        expected, bounds = self.expected[partition], self._brokers.bounds([partition])[partition]
        if expected.last and expected.next > bounds.stable and self._checked_again.get(partition) != expected.last:
            # If the log was truncated, its error has the end of the epoch.
            self._checked_again[partition] = expected.last
            self.seek(partition)
            return
        if expected.begin is not None and not bounds.earliest <= expected.next <= bounds.stable:
            cause = (
                f"offsets {expected.next} to {bounds.earliest - 1} were deleted before they were read"
                if expected.next < bounds.earliest
                else f"the partition ends at {bounds.stable}, so it is not the one that was read before"
            )
            skip_or_stop(
                self._on_gap,
                f"{partition}: raw has everything below offset {expected.next}, "
                f"Kafka begins at {bounds.earliest}: {cause}",
                **partition._asdict(),
            )
            expected.gap, expected.next = (expected.next, bounds.earliest), bounds.earliest
        expected.last = None  # it was checked; the markers between it and the position may be deleted as well
        self.seek(partition)

    def seek_after_truncation(self, partition: Partition, end: int | None) -> None:
        """Seeks to the offset at which Kafka truncated its log, with a gap on record.

        Args:
            partition: The partition.
            end: The offset at which the log of the last record's epoch ends now; None if Kafka has no such epoch.

        Raises:
            GapError: Records that raw has were truncated, and `on_gap` is stop.
        """
        self.start([partition])
        expected = self.expected[partition]
        only_markers_truncated = expected.last and end is not None and expected.last.offset < end
        if expected.gap or only_markers_truncated:  # with a gap the topic was recreated
            self.seek(partition)
            return
        if expected.last is not None:
            offset, epoch = expected.last
            message = (
                f"{partition}: raw has records up to offset {offset}, the last of leader epoch {epoch}, and Kafka "
            )
            if end is None:
                message += "knows no such epoch: its log was put back, and other records may be at offsets already read"
                consequence = "reads on from where it is"
            else:
                message += (
                    f"has that epoch only below offset {end}: offsets {end} to {offset} were cut off, and may be other "
                    "records now, as after an unclean leader election"
                )
                consequence = f"reads what is there now, from offset {end} on, and leaves on record that it went back"
            skip_or_stop(self._on_gap, message, consequence, **partition._asdict())
            expected.last = None
            start_offset = max(end or 0, self._brokers.bounds([partition])[partition].earliest)
            if end is not None and start_offset < expected.next:
                expected.gap, expected.next = (expected.next, start_offset), start_offset
        self.seek_available(partition)

    def drop_unassigned(self, messages: list[Message]) -> list[Message]:
        """Returns messages without those consumed before their partitions were sought or revoked, and seeks these."""
        kept, dropped = [], set[Partition]()
        for message in messages:
            partition = Partition.of_message(message)
            if message.topic() is None or (partition in self.expected and partition not in self.moved | self.unchecked):
                kept.append(message)
            else:
                dropped.add(partition)
        for partition in dropped & self.expected.keys():
            self.seek(partition)
        return kept

    def _start_offset(self, partition: Partition) -> TopicPartition:
        """Returns the offset to assign: where the last record is to be checked first, the last stable offset.

        Fetching from there does not fail. librdkafka would report an error of that fetch even after the seek.
        (OFFSET_END has a fault: if its lookup is answered after the seek, librdkafka looks it up again and goes there.)
        """
        if self.expected[partition].last is None:
            return self._seek_offset(partition)
        return TopicPartition(*partition, self._stable[partition])

    def _seek_offset(self, partition: Partition) -> TopicPartition:
        """Returns the offset from which to read, with the last record's epoch where it is known."""
        expected = self.expected[partition]
        if expected.last is not None:  # between it and the position there are only markers
            return seek_after(expected.last, partition)
        return TopicPartition(*partition, OFFSET_BEGINNING if expected.begin is None else expected.next)
