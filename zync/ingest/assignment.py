"""The partitions that the consumer group gives this process, and where in each of them it stands."""

from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from deltalake import DeltaTable

from zync.errors import ZyncError
from zync.ingest.deleted_topics import OnGap, pass_over
from zync.kafka.admin import AwayError, Brokers
from zync.kafka.epochs import seek_after
from zync.kafka.partition import LastRecord, Source, made_anew
from zync.lake.table import refresh
from zync.raw.batch import Batch, Slice
from zync.raw.table import stored_id, stored_last, stored_position

_PATIENCE_SECONDS = 60.0
"""A broker may go away just after it gave us partitions: so long it is waited for, of 300 between two polls."""


class Assignment:
    """What is held, and the place in each from which reading goes on.

    Places come from raw, never from Kafka. `expected`: the slice that the next record of each partition continues;
    `landed`: how far raw is, as last heard of; `moved`: what was moved or taken away since this was cleared;
    `unchecked`: partitions of which it was not asked yet whether Kafka still has the last record that raw has.
    """

    def __init__(self, consumer: Consumer, brokers: Brokers, table: DeltaTable, on_gap: OnGap) -> None:
        self._consumer, self._brokers, self._table, self._on_gap = consumer, brokers, table, on_gap
        self.expected: dict[Source, Slice] = {}
        self.landed: dict[Source, int] = {}
        self.moved: set[Source] = set()
        self.unchecked: set[Source] = set()
        self._stable: dict[Source, int] = {}
        self._asked_again: dict[Source, LastRecord] = {}

    def begin(self, sources: list[Source]) -> list[TopicPartition]:
        """Where reading of those partitions begins, as raw says now; whatever was in hand of them is to be dropped.

        GapError where a topic was made anew, and that is not to be passed over.
        """
        refresh(self._table)
        ids = self._brokers.topic_ids((source.topic for source in sources), patience=_PATIENCE_SECONDS)
        begun: list[Source] = []
        for source in sources:
            stored, known_id = stored_position(self._table, source), stored_id(self._table, source)
            at = Slice(stored, stored or 0, ids.get(source.topic), begin_id=known_id)
            if stored is not None and made_anew(known_id, at.topic_id):
                pass_over(
                    self._on_gap,
                    f"topic {source.topic!r} was deleted and made anew: raw has {source} below offset {stored}, "
                    "and whatever the old topic held after that was never read",
                    **source._asdict(),
                )
                at.next = self._brokers.bounds([source])[source].earliest
                at.gap, at.begin_last = (stored, at.next), stored_last(self._table, source, stored)
            elif (last := stored_last(self._table, source, stored)) is not None:
                at.last = at.begin_last = last
                begun.append(source)
            self.expected[source] = at
            self.landed[source] = at.next
        self._ask_about_last(begun)
        return [self._start(source) for source in sources]

    def _ask_about_last(self, sources: list[Source]) -> None:
        """Notes that librdkafka is to ask about the last records of those partitions, and where it can begin till then.

        Not of partitions that are gone by now, as a topic may be: of that others tell.
        """
        try:
            found = self._brokers.bounds(sources, patience=_PATIENCE_SECONDS)
        except AwayError:
            raise
        except ZyncError:
            for source in sources:
                self.expected[source].last = None
            return
        for source, bounds in found.items():
            self._stable[source] = bounds.stable
            self.unchecked.add(source)

    def forget(self, sources: Iterable[Source]) -> None:
        """Takes note that they are another's now."""
        for source in sources:
            self.moved.add(source)
            self.expected.pop(source, None)
            self.unchecked.discard(source)

    def advance(self, source: Source, position: int, batch: Batch, last: LastRecord | None = None) -> None:
        """Moves our place in that partition, and the batch's slice with it; `last`: the record that was taken before.

        Without one only markers of transactions were passed.
        """
        at = self.expected[source]
        taken = batch.slices.setdefault(source, at)
        taken.next = position
        if last is not None:
            taken.last = last if last.epoch >= 0 else None
        begin_id = at.begin_id if at.topic_id is None else at.topic_id
        last = taken.last
        self.expected[source] = Slice(position, position, at.topic_id, begin_id=begin_id, last=last, begin_last=last)

    def seek(self, source: Source) -> None:
        """Reads on from where we stand in that partition; what this call of consume gathered of it does not count."""
        self.moved.add(source)
        try:
            self._consumer.seek(self._place(source))
            self.unchecked.discard(source)
        except KafkaException:  # what stopped at an offset that is not there cannot be sought, only begun anew
            start = self._start(source)
            self._consumer.incremental_unassign([start])
            self._consumer.incremental_assign([start])
            if self.expected[source].last is not None:
                self.unchecked.add(source)
                self.seek_unchecked()

    def seek_unchecked(self) -> None:
        """Has librdkafka ask whether Kafka still has the last record that raw has, of partitions it was not asked of.

        It asks when told to seek, not when told where to begin; and it can be told once it has begun.
        """
        for source in [*self.unchecked]:
            with suppress(KafkaException):
                self._consumer.seek(self._place(source))
                self.unchecked.discard(source)

    def seek_what_is_there(self, source: Source) -> None:
        """Reads on where Kafka still has (or does not have yet) the offset that we want to read next; or GapError."""
        at, bounds = self.expected[source], self._brokers.bounds([source])[source]
        if at.last and at.next > bounds.stable and self._asked_again.get(source) != at.last:
            self._asked_again[source] = at.last  # where it was cut, the answer about the last record says more
            self.seek(source)
            return
        if at.begin is not None and not bounds.earliest <= at.next <= bounds.stable:
            lost = (
                f"offsets {at.next} to {bounds.earliest - 1} were deleted before they were read"
                if at.next < bounds.earliest
                else f"the partition ends at {bounds.stable}, so it is not the one that was read before"
            )
            pass_over(
                self._on_gap,
                f"{source}: raw has everything below offset {at.next}, Kafka begins at {bounds.earliest}: {lost}",
                **source._asdict(),
            )
            at.gap, at.next = (at.next, bounds.earliest), bounds.earliest
        at.last = None  # it was asked about; what is behind it, up to where we stand, may be gone as well
        self.seek(source)

    def seek_where_cut(self, source: Source, end: int | None) -> None:
        """Reads on where Kafka's log parted from what was read, or GapError.

        `end`: where the log of the epoch of the last record ends now, None where Kafka knows no such epoch.
        """
        self.begin([source])
        at = self.expected[source]
        if at.gap or (at.last and end is not None and at.last.offset < end):  # made anew; or only markers were cut off
            self.seek(source)
            return
        if at.last is not None:
            offset, epoch = at.last
            what = f"{source}: raw has records up to offset {offset}, the last of leader epoch {epoch}, and Kafka "
            if end is None:
                what += "knows no such epoch: its log was put back, and other records may be at offsets already read"
                how = "reads on from where it is"
            else:
                what += (
                    f"has that epoch only below offset {end}: offsets {end} to {offset} were cut off, and may be other "
                    "records now, as after an unclean leader election"
                )
                how = f"reads what is there now, from offset {end} on, and leaves on record that it went back"
            pass_over(self._on_gap, what, how, **source._asdict())
            at.last = None
            begin = max(end or 0, self._brokers.bounds([source])[source].earliest)
            if end is not None and begin < at.next:
                at.gap, at.next = (at.next, begin), begin
        self.seek_what_is_there(source)

    def still_ours(self, messages: list[Message]) -> list[Message]:
        """Without what one call of consume gathered before partitions were moved or taken away: read again."""
        kept, dropped = [], set[Source]()
        for message in messages:
            source = Source(message.topic() or "", message.partition() or 0)
            if message.topic() is None or (source in self.expected and source not in self.moved | self.unchecked):
                kept.append(message)
            else:
                dropped.add(source)
        for source in dropped & self.expected.keys():
            self.seek(source)
        return kept

    def _start(self, source: Source) -> TopicPartition:
        """Where librdkafka begins: if it is to ask about the last record first, where fetching does not fail.

        An error of a fetch would be told after the seek, too. (OFFSET_END would do, but librdkafka looks it up again
        where that answer comes after a seek, and goes there.)
        """
        if self.expected[source].last is None:
            return self._place(source)
        return TopicPartition(*source, self._stable[source])

    def _place(self, source: Source) -> TopicPartition:
        """From where it is to read."""
        at = self.expected[source]
        if at.last is not None:  # between it and our place there are markers only
            return seek_after(at.last, source)
        return TopicPartition(*source, OFFSET_BEGINNING if at.begin is None else at.next)
