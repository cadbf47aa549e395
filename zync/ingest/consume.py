"""`zync sync-from kafka raw`: consume, batch, append, until stopped or caught up.

One thread consumes, one appends; between them goes a batch whose slices remember where their consumption
began. Positions come from raw and go to raw; Kafka's group only shares out the partitions.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from deltalake import DeltaTable

from zync.config.model import Transactions
from zync.errors import UsageError, ZyncError
from zync.ingest import memory
from zync.ingest.arrow import first_times, to_arrow
from zync.ingest.assignment import Assignment
from zync.ingest.committer import Committer
from zync.ingest.deleted_topics import GoneTopics, OnGap, tell_of_gone
from zync.ingest.group import Group, check_properties
from zync.ingest.lag import Lag
from zync.ingest.start_position import Begin, put_on_record
from zync.ingest.targets import Targets
from zync.kafka.admin import Brokers
from zync.kafka.epochs import epoch_end, is_truncation
from zync.kafka.garbage import not_collecting
from zync.kafka.partition import LastRecord, Source
from zync.kafka.properties import milliseconds
from zync.lake.table import refresh
from zync.log import event
from zync.raw.append import Appended
from zync.raw.batch import Batch, last_rows
from zync.raw.table import check_newest, ensure_raw
from zync.text import amount, byte_size, listed

if TYPE_CHECKING:
    from zync.ingest.metrics import IngestMetrics
from zync.ingest.outcome import Ingested

log = logging.getLogger(__name__)
_MESSAGES = 10_000
_LARGE = 1_000_000
"""What a message has, in bytes, for all we know before the first has come: Kafka's limit if nobody changed it."""
_POLL_SECONDS = 0.1
_COMMITTING_SECONDS = 0.01
_WARN_SECONDS = 60
_LOOK_SECONDS = 0.5
_ASKING_SECONDS = 1.0
_PATIENCE_SECONDS = 30.0
_MAX_POLL_INTERVAL_MS = 300_000
"""librdkafka's default."""
_ENDS = (
    KafkaError._FATAL,  # noqa: SLF001 - an error may be of this code and not say that it is `fatal()`
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
"""Errors after which nothing more will come."""


@dataclass(frozen=True)
class Ingest:
    """What to take from Kafka, where to put it, how often to commit, and within how many bytes of memory.

    `commit_bytes`: None for what `max_memory` allows.
    """

    location: str
    kafka: dict[str, str]
    topics: tuple[str, ...]
    until_caught_up: bool = False
    commit_every: timedelta = timedelta(seconds=5)
    commit_rows: int = 100_000
    commit_bytes: int | None = None
    max_memory: int = memory.DEFAULT
    on_gap: OnGap = "stop"
    begin: Begin = field(default_factory=Begin)
    transactions: Transactions = field(default_factory=Transactions)


def sync_from_kafka(
    ingest: Ingest,
    stop: threading.Event | None = None,
    on_commit: Callable[[Appended], None] = lambda _: None,
    metrics: "IngestMetrics | None" = None,
) -> Ingested:
    """Takes records from Kafka to raw until `stop` is set, or until raw has all that was stable in Kafka at the start.

    Raises:
        UsageError: a topic or property that does not exist.
        GapError: offsets that were never read are gone from Kafka; the message names them.
        ZyncError: Kafka or the table failed. All that was committed is in raw, the rest still in Kafka.
    """
    check_properties(ingest.kafka)
    if not ingest.topics:
        msg = "no topics named: give --topic, or topics in the config"
        raise UsageError(msg)
    stop = stop or threading.Event()
    brokers = Brokers(ingest.kafka, stop)
    try:
        topics = brokers.matching(ingest.topics)
    except ZyncError:
        if stop.is_set():  # while we waited for a broker: there is nothing in hand
            return Ingested()
        raise
    if not topics:
        log.warning("no topic at %s matches %s yet", brokers.servers, ", ".join(ingest.topics))
    ingest.transactions.check_partitions(topics)
    table = ensure_raw(ingest.location)
    check_newest(table)
    if ingest.begin != Begin():
        sources = [Source(topic, partition) for topic, count in topics.items() for partition in range(count)]
        put_on_record(ingest.begin, brokers, ingest.location, sources)
        refresh(table)
    _tell_of_compacted(brokers, topics)
    tell_of_gone(table, brokers, [one for one in ingest.topics if one.startswith("^")], topics)
    targets = Targets(brokers, table, topics)
    with not_collecting():
        return _Run(ingest, brokers, table, targets, stop, on_commit, metrics).run()


def _tell_of_compacted(brokers: Brokers, topics: Iterable[str]) -> None:
    """Tells of topics that are compacted: what they lose before it is read is no gap, for offsets may be missing."""
    try:
        found = brokers.compacted(topics)
    except ZyncError as error:  # who may read them may not be allowed to ask
        log.info("whether topics are compacted is not known: %s", error)
        return
    if found:
        log.warning(
            "%s compacted (cleanup.policy): rows of a transaction that were not read in time are taken away without a "
            "word, and it is never complete: %s",
            amount(len(found), "topic is", "topics are"),
            listed(found),
            extra=event("compacted", topics=found),
        )


class _Run:
    """One run's state, which belongs to the consuming thread."""

    def __init__(
        self,
        ingest: Ingest,
        brokers: Brokers,
        table: DeltaTable,
        targets: Targets,
        stop: threading.Event,
        on_commit: Callable[[Appended], None],
        metrics: "IngestMetrics | None",
    ) -> None:
        self.ingest, self.brokers, self.targets = ingest, brokers, targets
        self.stop, self.on_commit, self.metrics = stop, on_commit, metrics
        self.lag = Lag(metrics) if metrics else None
        self.batch = Batch()
        self.failed: ZyncError | None = None
        self.done = Ingested()
        self.away = False
        self.warned, self.asked = float("-inf"), 0.0
        self.looked = 0.0
        self.began = 0.0
        self.paused: list[Source] = []
        self.closing = False
        self.share = memory.share(ingest.max_memory)
        self.commit_bytes = min(ingest.commit_bytes or 2 * self.share, 2 * self.share)
        if ingest.commit_bytes and ingest.commit_bytes > self.commit_bytes:
            at_most = byte_size(self.commit_bytes)
            log.warning("--commit-bytes is more than fits in --max-memory: %s a commit at most", at_most)
        self.message_bytes = _LARGE
        self.group = Group(
            {**memory.properties(self.share), **ingest.kafka},
            brokers,
            table,
            topics=ingest.topics,
            on_gap=ingest.on_gap,
            on_error=self.on_error,
            on_statistics=metrics.reached if metrics else None,
            on_assign=self.on_assign,
            on_revoke=self.on_revoke,
            on_lost=self.on_lost,
        )
        self.gone = GoneTopics(brokers, table, ingest.on_gap)
        self.committer = Committer(ingest.location, brokers)
        max_poll_interval = milliseconds(ingest.kafka, "max.poll.interval.ms", _MAX_POLL_INTERVAL_MS)
        self.patience = min(_PATIENCE_SECONDS, max_poll_interval / 1000 / 3)

    @property
    def consumer(self) -> Consumer:
        return self.group.consumer

    @property
    def held(self) -> Assignment:
        return self.group.held

    def run(self) -> Ingested:
        started = time.monotonic()
        if self.metrics:
            self.metrics.watch(self.done, self.ingest.location)
        try:
            self.group.subscribe({source.topic for source in self.targets.stable})
            while not self.stop.is_set() and not (self.ingest.until_caught_up and self.caught_up()):
                self.held.seek_unchecked()
                self.held.moved.clear()
                self.measure()
                self.look_whether_back()
                for topic in self.gone.look():
                    self.targets.forget(topic)
                messages = self.consumer.consume(self.at_most(), self.gathering_seconds())
                if self.failed:
                    raise self.failed
                self.take(messages)
                self.commit_if_due()
                self.group.look_for_topics()
                self.group.wait_for_partitions()
            self.flush()
        finally:
            self.closing, self.batch = True, Batch()  # after a commit that failed none is tried of what came behind it
            self.consumer.close()
            self.committer.close()
        self.done.seconds = time.monotonic() - started
        self.done.positions, self.done.lag = self.targets.lag()
        return self.done

    def take(self, messages: list[Message]) -> None:
        """Puts what came into the batch: records, and ends of partitions, which move positions past markers."""
        if not messages:
            return
        records, rows, last = _records(messages)
        if self.held.moved or self.held.unchecked or not last.keys() <= self.held.expected.keys():
            messages = self.held.still_ours(messages)
            records, rows, last = _records(messages)
        if records:
            self.began = self.began or time.monotonic()
            self.batch.add(rows)
            for source, one in last.items():
                self.held.advance(source, one.offset + 1, self.batch, one)
            for source, at in first_times(rows).items() if self.metrics else ():
                self.batch.slices[source].first = self.batch.slices[source].first or at
            self.message_bytes = rows.nbytes // len(records)
        for message in messages if len(records) < len(messages) else ():
            if (error := message.error()) is not None:
                self.on_event(message, error)

    def on_event(self, message: Message, error: KafkaError) -> None:
        """An end of partition, or something wrong with one."""
        source = Source(message.topic() or "", message.partition() or 0)
        code, at = error.code(), self.held.expected.get(source)
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public name for it
            position = message.offset()
            if at and (position > at.next or at.gap or (at.begin is None and position > 0) or at.is_cut_to(position)):
                self.held.advance(source, position, self.batch)
        elif code == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            if at:
                self.flush()
                if is_truncation(error):
                    self.held.seek_where_cut(source, epoch_end(error))
                else:
                    self.held.seek_what_is_there(source)
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001
            self.gone.suspect([source.topic])
        elif error.fatal() or code in _ENDS:
            raise self.ended_by(error)
        else:
            log.warning("kafka: %s", error.str())

    def on_error(self, error: KafkaError) -> None:
        """Librdkafka's errors that belong to no partition: it goes on by itself, except after fatal ones."""
        if error.fatal() or error.code() in _ENDS:
            self.failed = self.ended_by(error)
        elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):  # noqa: SLF001 - 20 a second
            if time.monotonic() - self.warned > _WARN_SECONDS:
                self.away, self.warned = True, time.monotonic()
                why = self.brokers.servers, error.str()
                log.warning("no answer from Kafka at %s (%s); trying on", *why, extra=event("kafka_away"))
        else:
            log.warning("kafka: %s", error.str())

    def look_whether_back(self) -> None:
        """Says that Kafka answers again, once it does: where nothing comes, nothing else would tell."""
        if not self.away or time.monotonic() - max(self.asked, self.warned) < _ASKING_SECONDS:
            return
        self.asked = time.monotonic()
        try:
            self.consumer.list_topics(timeout=_ASKING_SECONDS)
        except KafkaException:
            return
        self.away = False
        log.info("Kafka at %s answers again", self.brokers.servers, extra=event("kafka_back"))

    def ended_by(self, error: KafkaError) -> ZyncError:
        text = error.str()
        if "Static consumer fenced" in text:
            text = (
                "another sync-from came with the same --instance (group.instance.id): give each process one of its own"
            )
        return ZyncError(f"Kafka at {self.brokers.servers}: {text}")

    # The group gives and takes partitions: first everything in hand lands or is refused, unless the table is slow. What
    # comes too late then is refused, or makes others read again what it has: each commit is checked by itself.

    def on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.done.rebalances += 1
        try:
            self.flush(self.patience)
            self.consumer.incremental_assign(self.begin(_sources(partitions)))
            self.held.seek_unchecked()
            self.say_of("now read here", "assigned", partitions)
        except ZyncError as error:
            self.failed = error

    def on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.done.rebalances += 1
        self.say_of("now read by others", "revoked", partitions)
        try:
            self.flush(self.patience)
        except ZyncError as error:
            self.failed = error
        self.forget(partitions)

    def on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.done.rebalances += 1
        names = list(map(str, _sources(partitions)))
        what = event("lost", partitions=names)
        log.warning("lost %s: others may have taken them over", ", ".join(names), extra=what)
        self.forget(partitions)

    def say_of(self, what: str, name: str, partitions: list[TopicPartition]) -> None:
        """A line of the log, but for the partitions that it ends with."""
        if partitions and not self.closing:
            names = list(map(str, sorted(_sources(partitions))))
            log.info("%s: %s", what, listed(names), extra=event(name, partitions=names))

    def begin(self, sources: list[Source]) -> list[TopicPartition]:
        """Where reading of those partitions begins, as raw says; nothing is in hand of them then."""
        self.batch.drop(sources)
        self.gone.back(source.topic for source in sources)
        return self.held.begin(sources)

    def forget(self, partitions: list[TopicPartition]) -> None:
        if not self.closing:
            self.gone.suspect(one.topic for one in partitions)
        self.batch.drop(_sources(partitions))
        self.held.forget(_sources(partitions))
        if self.paused:
            self.consumer.resume(partitions)  # or they are so still when they come back
        self.consumer.incremental_unassign(partitions)

    # Commits

    def full(self) -> bool:
        return self.batch.num_rows >= self.ingest.commit_rows or self.batch.num_bytes >= self.commit_bytes

    def due_in(self) -> float:
        """Seconds until what is in hand is to be committed."""
        if self.full() or self.at_targets():
            return 0.0
        return self.batch.since + self.ingest.commit_every.total_seconds() - time.monotonic()

    def gathering_seconds(self) -> float:
        """How long to gather records at a time, which has its price each time: until there is something to commit."""
        if self.paused or not (self.batch.slices or self.committer.busy):
            return _POLL_SECONDS
        return min(max(self.due_in(), _COMMITTING_SECONDS), _POLL_SECONDS)

    def commit_if_due(self) -> None:
        if self.committer.done():
            self.settle()
        if not self.batch.slices:
            self.batch.since = time.monotonic()
        elif self.due_in() <= 0:
            if self.full() and self.committer.busy:
                if not self.committer.done(0.0 if self.paused else self.patience):
                    self.pause()
                    return
                self.settle()
            if not self.committer.busy:
                self.start_commit()

    def pause(self) -> None:
        """Takes no more while the table is slow: what is in hand stays as it is, and the group still hears of us."""
        if not self.paused:
            what = "raw at %s is slow: no more is read until a commit has gone through"
            log.warning(what, self.ingest.location, extra=event("paused"))
            self.paused = list(self.held.expected)
            self.consumer.pause([TopicPartition(*source) for source in self.paused])

    def resume(self) -> None:
        """Reads on, each partition from where we stand in it: of what was fetched ahead some may be gone."""
        paused, self.paused = [source for source in self.paused if source in self.held.expected], []
        self.consumer.resume([TopicPartition(*source) for source in paused])
        for source in paused:
            self.held.seek(source)
        log.info("a commit has gone through: reading on", extra=event("resumed"))

    def start_commit(self) -> None:
        batch, self.batch = self.batch, Batch()
        self.committer.start(batch)

    def settle(self) -> None:
        """Waits for the commit under way. What was refused is dropped with all behind it, and read again."""
        appended = self.committer.result()
        if appended is None:
            return
        if self.paused:
            self.resume()
        self.done.records += appended.rows
        self.done.num_bytes += appended.num_bytes
        self.done.retries += appended.retries
        self.done.commits += bool(appended.committed)
        if self.done.first_seqno is None:
            self.done.first_seqno = appended.first_seqno
        moved = [source for source in appended.refused if source in self.held.expected]
        self.begin(moved)
        for source in moved:
            at = appended.refused[source]
            what = event("refused", **source._asdict(), offset=at)
            log.info("%s: another process moved it to %s; reading on from there", source, at, extra=what)
            self.held.seek(source)
        self.held.landed |= appended.committed
        if appended.committed:
            self.looked = 0.0
            self.done.busy = time.monotonic() - (self.began or time.monotonic())
            self.on_commit(appended)

    def flush(self, within: float | None = None) -> None:
        """Commits what is in hand, and waits for it; where `within` is given, so many seconds for a commit at most."""
        if self.committer.busy and not self.committer.done(within):
            return
        self.settle()
        if self.batch.slices:
            self.start_commit()
            if self.committer.done(within):
                self.settle()

    def measure(self) -> None:
        """Tells those who watch that it gets on, and how far behind Kafka's ends it is."""
        if not (self.metrics and self.lag):
            return
        if not self.committer.busy:
            self.metrics.turn()
        in_hand = (self.batch, self.committer.batch)
        self.lag.measure(self.consumer, self.held, in_hand, fetching=not self.paused)

    def at_targets(self) -> bool:
        """Whether all that we were to reach and have in hand is in the batch, so that waiting gains nothing."""
        return self.ingest.until_caught_up and not self.left()

    def left(self) -> int:
        """How many offsets there are still until what we were to reach, of the partitions that are ours."""
        stable = self.targets.stable
        return sum(max(0, stable.get(source, 0) - at.next) for source, at in self.held.expected.items())

    def at_most(self) -> int:
        """How many messages to ask for: as many as may be in hand, and no more than there are, or we would wait."""
        num_bytes = min(self.share, self.commit_bytes - self.batch.num_bytes)
        most = [_MESSAGES, num_bytes // self.message_bytes, self.ingest.commit_rows - self.batch.num_rows]
        if self.ingest.until_caught_up and (left := self.left()):
            most.append(left)
        return max(1, min(most))

    def caught_up(self) -> bool:
        """Whether raw's positions, whoever committed them, have reached what was stable at the start."""
        if time.monotonic() - self.looked < _LOOK_SECONDS:
            return False
        self.looked = time.monotonic()
        return self.targets.reached()


def _records(messages: list[Message]) -> tuple[list[Message], pa.RecordBatch, dict[Source, LastRecord]]:
    """Those that are no errors, the rows they make, and the last record of each partition."""
    records = messages
    if any(map(Message.error, messages)):
        records = [message for message in messages if message.error() is None]
    rows = to_arrow(records)
    last = {source: records[row] for source, row in last_rows(rows).items()}
    return records, rows, {source: LastRecord(_offset(one), _epoch(one)) for source, one in last.items()}


def _offset(message: Message) -> int:
    offset: int | None = message.offset()
    assert offset is not None  # noqa: S101 - for mypy
    return offset


def _epoch(message: Message) -> int:
    """The epoch of the leader that appended it; -1 where the broker does not say, as before Kafka 0.11."""
    epoch: int | None = message.leader_epoch()
    return -1 if epoch is None else epoch


def _sources(partitions: list[TopicPartition]) -> list[Source]:
    return [Source(one.topic, one.partition) for one in partitions]
