"""The partitions that the consumer group gives this process, and where in each of them it stands."""

from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from deltalake import DeltaTable

from zync.ingest.deleted_topics import OnGap, pass_over
from zync.kafka.admin import Brokers
from zync.kafka.partition import Source, made_anew
from zync.lake.table import refresh
from zync.raw.batch import Batch, Slice
from zync.raw.table import stored_id, stored_position

_PATIENCE_SECONDS = 60.0
"""A broker may go away just after it gave us partitions: so long it is waited for, of 300 between two polls."""


class Assignment:
    """What is held, and the place in each from which reading goes on.

    Places come from raw, never from Kafka. `expected`: the slice that the next record of each partition continues;
    `landed`: how far raw is, as last heard of; `moved`: what was moved or taken away since this was cleared.
    """

    def __init__(self, consumer: Consumer, brokers: Brokers, table: DeltaTable, on_gap: OnGap) -> None:
        self._consumer, self._brokers, self._table, self._on_gap = consumer, brokers, table, on_gap
        self.expected: dict[Source, Slice] = {}
        self.landed: dict[Source, int] = {}
        self.moved: set[Source] = set()

    def begin(self, sources: list[Source]) -> list[TopicPartition]:
        """Where reading of those partitions begins, as raw says now; whatever was in hand of them is to be dropped.

        GapError where a topic was made anew, and that is not to be passed over.
        """
        refresh(self._table)
        ids = self._brokers.topic_ids((source.topic for source in sources), patience=_PATIENCE_SECONDS)
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
                at.gap = (stored, at.next)
            self.expected[source] = at
            self.landed[source] = at.next
        return [self._start(source) for source in sources]

    def forget(self, sources: Iterable[Source]) -> None:
        """Takes note that they are another's now."""
        for source in sources:
            self.moved.add(source)
            self.expected.pop(source, None)

    def advance(self, source: Source, position: int, batch: Batch) -> None:
        """Moves our place in that partition, and the batch's slice with it."""
        at = self.expected[source]
        taken = batch.slices.setdefault(source, at)
        taken.next = position
        begin_id = at.begin_id if at.topic_id is None else at.topic_id
        self.expected[source] = Slice(position, position, at.topic_id, begin_id=begin_id)

    def seek(self, source: Source) -> None:
        """Reads on from where we stand in that partition; what this call of consume gathered of it does not count."""
        self.moved.add(source)
        start = self._start(source)
        try:
            self._consumer.seek(start)
        except KafkaException:  # what stopped at an offset that is not there cannot be sought, only begun anew
            self._consumer.incremental_unassign([start])
            self._consumer.incremental_assign([start])

    def seek_what_is_there(self, source: Source) -> None:
        """Reads on where Kafka still has (or does not have yet) the offset that we want to read next; or GapError."""
        at, bounds = self.expected[source], self._brokers.bounds([source])[source]
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
        self.seek(source)

    def still_ours(self, messages: list[Message]) -> list[Message]:
        """Without what one call of consume gathered before partitions were moved or taken away: read again."""
        kept, dropped = [], set[Source]()
        for message in messages:
            source = Source(message.topic() or "", message.partition() or 0)
            if message.topic() is None or (source in self.expected and source not in self.moved):
                kept.append(message)
            else:
                dropped.add(source)
        for source in dropped & self.expected.keys():
            self.seek(source)
        return kept

    def _start(self, source: Source) -> TopicPartition:
        at = self.expected[source]
        return TopicPartition(*source, OFFSET_BEGINNING if at.begin is None else at.next)
