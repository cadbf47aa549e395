"""`zync sync-from kafka raw`: consume, batch, append, until stopped or caught up.

One thread consumes and another appends. They hand over a batch whose slices remember the offset at which their
consumption began. Raw stores the positions; Kafka's consumer group only assigns the partitions.
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
from zync.ingest.deleted_topics import DeletedTopics, OnGap, warn_of_deleted_topics
from zync.ingest.group import Group, check_properties
from zync.ingest.lag import Lag
from zync.ingest.outcome import Ingested
from zync.ingest.start_position import Begin, store_start_positions
from zync.ingest.targets import Targets
from zync.kafka.admin import Brokers
from zync.kafka.epochs import epoch_end, is_truncation
from zync.kafka.garbage import not_collecting
from zync.kafka.partition import LastRecord, Partition, all_partitions
from zync.kafka.properties import milliseconds
from zync.lake.outage import watching
from zync.lake.table import refresh
from zync.log import event
from zync.raw.append import Appended
from zync.raw.batch import Batch, last_rows
from zync.raw.table import check_newest, ensure_raw
from zync.text import amount, byte_size, listed

if TYPE_CHECKING:
    from zync.ingest.metrics import IngestMetrics

log = logging.getLogger(__name__)
_MESSAGES_PER_CALL = 10_000
_INITIAL_MESSAGE_BYTES = 1_000_000
"""The assumed bytes of a message before the first has arrived: Kafka's default limit."""
_POLL_SECONDS = 0.1
_MIN_POLL_SECONDS = 0.01
_WARN_SECONDS = 60
_TARGET_CHECK_SECONDS = 0.5
_REQUEST_SECONDS = 1.0
_PATIENCE_SECONDS = 30.0
_MAX_POLL_INTERVAL_MS = 300_000
"""librdkafka's default."""
_FINAL_ERRORS = (
    KafkaError._FATAL,  # noqa: SLF001 - an error may have this code while its `fatal()` is false
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
"""Codes of errors after which the consumer delivers nothing more."""


@dataclass(frozen=True)
class Ingest:
    """The options of `sync-from`.

    Attributes:
        location: The path or URI of raw.
        kafka: librdkafka's properties.
        topics: Names and ^regexes.
        commit_bytes: The bytes of keys and values of a commit; None for as many as `max_memory` allows.
        max_memory: The bytes of memory that the process may use.
        begin: Where to start reading partitions.
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
    """Appends records from Kafka to raw until `stop` is set.

    With `until_caught_up` it also ends when raw has all records that were stable in Kafka at the start. Without it,
    once it runs, it waits for an object store that is away, and goes on.

    Args:
        ingest: What to read, and where to.
        stop: Ends it when it is set; what was read by then is committed.
        on_commit: Called after each commit.
        metrics: The metrics to update.

    Raises:
        UsageError: A topic or property does not exist.
        GapError: Kafka deleted offsets before they were read; the message names them.
        ZyncError: Kafka or the table failed. All committed records are in raw, the others are still in Kafka.

    Example:
        >>> ingest = zync.Ingest("lake/raw", config.kafka, ("order", "menu"), until_caught_up=True)
        >>> zync.sync_from_kafka(ingest).records
        4
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
        if stop.is_set():  # while waiting for a broker: no record has been consumed yet
            return Ingested()
        raise
    if not topics:
        log.warning("no topic at %s matches %s yet", brokers.servers, ", ".join(ingest.topics))
    ingest.transactions.check_partitions(topics)
    table = ensure_raw(ingest.location)
    check_newest(table)
    if ingest.begin != Begin():
        partitions = all_partitions(topics)
        store_start_positions(ingest.begin, brokers, ingest.location, partitions)
        refresh(table)
    _warn_of_compacted(brokers, topics)
    warn_of_deleted_topics(table, brokers, [name for name in ingest.topics if name.startswith("^")], topics)
    targets = Targets(brokers, table, topics)
    result, started = Ingested(), time.monotonic()
    with not_collecting(), watching(ingest.location, stop, metrics) as store:

        def committed(appended: Appended) -> None:
            store.worked()
            on_commit(appended)

        def consume() -> None:
            _Run(ingest, brokers, table, targets, stop, committed, metrics, result).run()

        store.outlasting(consume, waits=lambda: not ingest.until_caught_up)
    result.seconds = time.monotonic() - started
    return result


def _warn_of_compacted(brokers: Brokers, topics: Iterable[str]) -> None:
    """Logs a warning for compacted topics: offsets may be missing in any topic, so their lost records are no gap."""
    try:
        compacted = brokers.compacted(topics)
    except ZyncError as error:  # the ACLs may allow to read a topic and not to describe its config
        log.info("whether topics are compacted is not known: %s", error)
        return
    if compacted:
        log.warning(
            "%s compacted (cleanup.policy): rows of a transaction that were not read in time are taken away without a "
            "word, and it is never complete: %s",
            amount(len(compacted), "topic is", "topics are"),
            listed(compacted),
            extra=event("compacted", topics=compacted),
        )


class _Run:
    """The state of one `sync-from`, owned by the consuming thread."""

    def __init__(
        self,
        ingest: Ingest,
        brokers: Brokers,
        table: DeltaTable,
        targets: Targets,
        stop: threading.Event,
        on_commit: Callable[[Appended], None],
        metrics: "IngestMetrics | None",
        result: Ingested,
    ) -> None:
        self.ingest, self.brokers, self.targets = ingest, brokers, targets
        self.stop, self.on_commit, self.metrics = stop, on_commit, metrics
        self.lag = Lag(metrics) if metrics else None
        self.batch = Batch()
        self.failed: ZyncError | None = None
        self.result = result
        self.away = False
        self.warned, self.connection_checked = float("-inf"), 0.0
        self.targets_checked = 0.0
        self.first_record_time = 0.0
        self.paused: list[Partition] = []
        self.closing = False
        self.share = memory.share(ingest.max_memory)
        self.commit_bytes = min(ingest.commit_bytes or 2 * self.share, 2 * self.share)
        if ingest.commit_bytes and ingest.commit_bytes > self.commit_bytes:
            limit = byte_size(self.commit_bytes)
            log.warning("--commit-bytes is more than fits in --max-memory: %s a commit at most", limit)
        self.message_bytes = _INITIAL_MESSAGE_BYTES
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
        self.deleted_topics = DeletedTopics(brokers, table, ingest.on_gap)
        self.committer = Committer(ingest.location, brokers)
        max_poll_interval = milliseconds(ingest.kafka, "max.poll.interval.ms", _MAX_POLL_INTERVAL_MS)
        self.patience = min(_PATIENCE_SECONDS, max_poll_interval / 1000 / 3)

    @property
    def consumer(self) -> Consumer:
        return self.group.consumer

    @property
    def assignment(self) -> Assignment:
        return self.group.assignment

    def run(self) -> None:
        if self.metrics:
            self.metrics.watch(self.result, self.ingest.location)
        try:
            self.group.subscribe({partition.topic for partition in self.targets.stable})
            while not self.stop.is_set() and not (self.ingest.until_caught_up and self.caught_up()):
                self.assignment.seek_unchecked()
                self.assignment.moved.clear()
                self.measure()
                self.check_connection()
                for topic in self.deleted_topics.check():
                    self.targets.forget(topic)
                messages = self.consumer.consume(self.message_limit(), self.gathering_seconds())
                if self.failed:
                    raise self.failed
                self.take(messages)
                self.commit_if_due()
                self.group.refresh_topics()
                self.group.wait_for_partitions()
            self.flush()
        finally:
            self.closing, self.batch = True, Batch()  # a batch behind a failed commit must not be committed
            self.consumer.close()
            self.committer.close()
        self.result.positions, self.result.lag = self.targets.lag()

    def take(self, messages: list[Message]) -> None:
        """Adds records to the batch, and moves positions past transaction markers where a partition's end is reported.

        Args:
            messages: What one call of `consume` returned: records, and events of partitions.
        """
        if not messages:
            return
        records, rows, last = _records(messages)
        if self.assignment.moved or self.assignment.unchecked or not last.keys() <= self.assignment.expected.keys():
            messages = self.assignment.drop_unassigned(messages)
            records, rows, last = _records(messages)
        if records:
            self.first_record_time = self.first_record_time or time.monotonic()
            self.batch.add(rows)
            for partition, record in last.items():
                self.assignment.advance(partition, record.offset + 1, self.batch, record)
            for partition, timestamp in first_times(rows).items() if self.metrics else ():
                self.batch.slices[partition].first = self.batch.slices[partition].first or timestamp
            self.message_bytes = rows.nbytes // len(records)
        for message in messages if len(records) < len(messages) else ():
            if (error := message.error()) is not None:
                self.on_partition_event(message, error)

    def on_partition_event(self, message: Message, error: KafkaError) -> None:
        """Handles the end of a partition, or an error of a partition.

        Raises:
            ZyncError: The consumer delivers nothing more after this error.
        """
        partition = Partition.of_message(message)
        code, expected = error.code(), self.assignment.expected.get(partition)
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public name for it
            position = message.offset()
            if expected and (
                position > expected.next
                or expected.gap
                or (expected.begin is None and position > 0)
                or expected.is_cut_to(position)
            ):
                self.assignment.advance(partition, position, self.batch)
        elif code == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            if expected:
                self.flush()
                if is_truncation(error):
                    self.assignment.seek_after_truncation(partition, epoch_end(error))
                else:
                    self.assignment.seek_available(partition)
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001
            self.deleted_topics.suspect([partition.topic])
        elif error.fatal() or code in _FINAL_ERRORS:
            raise self.final_error(error)
        else:
            log.warning("kafka: %s", error.str())

    def on_error(self, error: KafkaError) -> None:
        """Handles librdkafka's errors that belong to no partition. It recovers by itself except from fatal errors."""
        if error.fatal() or error.code() in _FINAL_ERRORS:
            self.failed = self.final_error(error)
        elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):  # noqa: SLF001 - 20 a second
            if time.monotonic() - self.warned > _WARN_SECONDS:
                self.away, self.warned = True, time.monotonic()
                details = self.brokers.servers, error.str()
                log.warning("no answer from Kafka at %s (%s); trying on", *details, extra=event("kafka_away"))
        else:
            log.warning("kafka: %s", error.str())

    def check_connection(self) -> None:
        """Logs that Kafka answers again. It asks a broker, as an idle topic sends no message that would show it."""
        if not self.away or time.monotonic() - max(self.connection_checked, self.warned) < _REQUEST_SECONDS:
            return
        self.connection_checked = time.monotonic()
        try:
            self.consumer.list_topics(timeout=_REQUEST_SECONDS)
        except KafkaException:
            return
        self.away = False
        log.info("Kafka at %s answers again", self.brokers.servers, extra=event("kafka_back"))

    def final_error(self, error: KafkaError) -> ZyncError:
        text = error.str()
        if "Static consumer fenced" in text:
            text = (
                "another sync-from came with the same --instance (group.instance.id): give each process one of its own"
            )
        return ZyncError(f"Kafka at {self.brokers.servers}: {text}")

    # Before the group assigns or revokes partitions, the batch is committed or refused, unless the table is slow. A
    # later commit is refused, or makes another process read its records again: each commit checks raw's positions.

    def on_assign(self, _: Consumer, topic_partitions: list[TopicPartition]) -> None:
        self.result.rebalances += 1
        try:
            self.flush(self.patience)
            self.consumer.incremental_assign(self.start_reading(_partitions(topic_partitions)))
            self.assignment.seek_unchecked()
            self.log_partitions("now read here", "assigned", topic_partitions)
        except ZyncError as error:
            self.failed = error

    def on_revoke(self, _: Consumer, topic_partitions: list[TopicPartition]) -> None:
        self.result.rebalances += 1
        self.log_partitions("now read by others", "revoked", topic_partitions)
        try:
            self.flush(self.patience)
        except ZyncError as error:
            self.failed = error
        self.forget(topic_partitions)

    def on_lost(self, _: Consumer, topic_partitions: list[TopicPartition]) -> None:
        self.result.rebalances += 1
        names = list(map(str, _partitions(topic_partitions)))
        extra = event("lost", partitions=names)
        log.warning("lost %s: others may have taken them over", ", ".join(names), extra=extra)
        self.forget(topic_partitions)

    def log_partitions(self, text: str, event_name: str, topic_partitions: list[TopicPartition]) -> None:
        """Logs an assignment or a revocation, but not the revocation of all partitions at the end."""
        if topic_partitions and not self.closing:
            names = list(map(str, sorted(_partitions(topic_partitions))))
            log.info("%s: %s", text, listed(names), extra=event(event_name, partitions=names))

    def start_reading(self, partitions: list[Partition]) -> list[TopicPartition]:
        """Returns where to start reading partitions, by raw's positions, and drops their records from the batch."""
        self.batch.drop(partitions)
        self.deleted_topics.mark_present(partition.topic for partition in partitions)
        return self.assignment.start(partitions)

    def forget(self, topic_partitions: list[TopicPartition]) -> None:
        if not self.closing:
            self.deleted_topics.suspect(topic_partition.topic for topic_partition in topic_partitions)
        self.batch.drop(_partitions(topic_partitions))
        self.assignment.forget(_partitions(topic_partitions))
        if self.paused:
            self.consumer.resume(topic_partitions)  # otherwise they would still be paused when they are assigned again
        self.consumer.incremental_unassign(topic_partitions)

    # Commits

    def is_full(self) -> bool:
        return self.batch.num_rows >= self.ingest.commit_rows or self.batch.num_bytes >= self.commit_bytes

    def seconds_until_commit(self) -> float:
        """Returns the seconds until the batch is to be committed; 0 or less if that is now."""
        if self.is_full() or self.at_targets():
            return 0.0
        return self.batch.since + self.ingest.commit_every.total_seconds() - time.monotonic()

    def gathering_seconds(self) -> float:
        """Returns how long one call of `consume` waits. Each call has a cost, so it waits until the next commit."""
        if self.paused or not (self.batch.slices or self.committer.busy):
            return _POLL_SECONDS
        return min(max(self.seconds_until_commit(), _MIN_POLL_SECONDS), _POLL_SECONDS)

    def commit_if_due(self) -> None:
        if self.committer.done():
            self.settle()
        if not self.batch.slices:
            self.batch.since = time.monotonic()
        elif self.seconds_until_commit() <= 0:
            if self.is_full() and self.committer.busy:
                if not self.committer.done(0.0 if self.paused else self.patience):
                    self.pause()
                    return
                self.settle()
            if not self.committer.busy:
                self.start_commit()

    def pause(self) -> None:
        """Pauses all partitions while the table is slow. Polling goes on, so the group keeps this member."""
        if not self.paused:
            text = "raw at %s is slow: no more is read until a commit has gone through"
            log.warning(text, self.ingest.location, extra=event("paused"))
            self.paused = list(self.assignment.expected)
            self.consumer.pause([TopicPartition(*partition) for partition in self.paused])

    def resume(self) -> None:
        """Resumes the paused partitions, each by a seek, as librdkafka may have dropped prefetched messages."""
        paused, self.paused = [partition for partition in self.paused if partition in self.assignment.expected], []
        self.consumer.resume([TopicPartition(*partition) for partition in paused])
        for partition in paused:
            self.assignment.seek(partition)
        log.info("a commit has gone through: reading on", extra=event("resumed"))

    def start_commit(self) -> None:
        batch, self.batch = self.batch, Batch()
        self.committer.start(batch)

    def settle(self) -> None:
        """Waits for the running commit. Drops the records of refused partitions, later ones too, and reads them again.

        Raises:
            ZyncError: The commit failed.
        """
        appended = self.committer.result()
        if appended is None:
            return
        if self.paused:
            self.resume()
        self.result.records += appended.rows
        self.result.num_bytes += appended.num_bytes
        self.result.retries += appended.retries
        self.result.commits += bool(appended.committed)
        if self.result.first_seqno is None:
            self.result.first_seqno = appended.first_seqno
        moved = [partition for partition in appended.refused if partition in self.assignment.expected]
        self.start_reading(moved)
        for partition in moved:
            offset = appended.refused[partition]
            extra = event("refused", **partition._asdict(), offset=offset)
            log.info("%s: another process moved it to %s; reading on from there", partition, offset, extra=extra)
            self.assignment.seek(partition)
        self.assignment.landed |= appended.committed
        if appended.committed:
            self.targets_checked = 0.0
            self.result.busy = time.monotonic() - (self.first_record_time or time.monotonic())
            self.on_commit(appended)

    def flush(self, timeout: float | None = None) -> None:
        """Commits the batch and waits for the commit, at most `timeout` seconds for each of the commits it waits for.

        Raises:
            ZyncError: A commit failed.
        """
        if self.committer.busy and not self.committer.done(timeout):
            return
        self.settle()
        if self.batch.slices:
            self.start_commit()
            if self.committer.done(timeout):
                self.settle()

    def measure(self) -> None:
        """Reports to the metrics that the loop runs, and the lag behind Kafka's ends."""
        if not (self.metrics and self.lag):
            return
        if not self.committer.busy:
            self.metrics.turn()
        uncommitted = (self.batch, self.committer.batch)
        self.lag.measure(self.consumer, self.assignment, uncommitted, fetching=not self.paused)

    def at_targets(self) -> bool:
        """Returns whether the batch has all records up to the targets, so that waiting for more has no use."""
        return self.ingest.until_caught_up and not self.offsets_left()

    def offsets_left(self) -> int:
        """Counts the offsets between the assigned partitions' positions and the targets."""
        stable = self.targets.stable
        return sum(max(0, stable.get(partition, 0) - part.next) for partition, part in self.assignment.expected.items())

    def message_limit(self) -> int:
        """Returns how many messages to ask for: what memory allows, and no more than are left, as `consume` waits."""
        num_bytes = min(self.share, self.commit_bytes - self.batch.num_bytes)
        limits = [_MESSAGES_PER_CALL, num_bytes // self.message_bytes, self.ingest.commit_rows - self.batch.num_rows]
        if self.ingest.until_caught_up and (count := self.offsets_left()):
            limits.append(count)
        return max(1, min(limits))

    def caught_up(self) -> bool:
        """Returns whether raw's positions have reached the targets, by this process's commits or others'."""
        if time.monotonic() - self.targets_checked < _TARGET_CHECK_SECONDS:
            return False
        self.targets_checked = time.monotonic()
        return self.targets.reached()


def _records(messages: list[Message]) -> tuple[list[Message], pa.RecordBatch, dict[Partition, LastRecord]]:
    """Returns the messages that are records, their rows, and the last record of each partition."""
    records = messages
    if any(map(Message.error, messages)):
        records = [message for message in messages if message.error() is None]
    rows = to_arrow(records)
    last = {partition: records[row] for partition, row in last_rows(rows).items()}
    last_records = {partition: LastRecord(_offset(message), _epoch(message)) for partition, message in last.items()}
    return records, rows, last_records


def _offset(message: Message) -> int:
    offset: int | None = message.offset()
    assert offset is not None  # noqa: S101 - for mypy
    return offset


def _epoch(message: Message) -> int:
    """Returns the epoch of the leader that appended the record; -1 if the broker sends none, as before Kafka 0.11."""
    epoch: int | None = message.leader_epoch()
    return -1 if epoch is None else epoch


def _partitions(topic_partitions: list[TopicPartition]) -> list[Partition]:
    return [Partition.of(topic_partition) for topic_partition in topic_partitions]
