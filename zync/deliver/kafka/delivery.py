"""`zync sync-to kafka staging`: delivers staging's output rows to Kafka topics in Kafka transactions.

A Kafka transaction holds the rows of whole source transactions, and the progress that the delivery makes by them. A
delivery starts by initializing its transactional id, which fences the producer before it and aborts that producer's
open transaction; then it reads the stored progress, and continues from there. After a transient error it starts again
in the same way.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from zync.config.model import Config
from zync.deliver.kafka import messages
from zync.deliver.kafka.encoder import Encoder
from zync.deliver.kafka.events import with_events
from zync.deliver.kafka.producer import Message, Sender, TransactionAbortedError, check_properties
from zync.deliver.kafka.progress import Progress
from zync.deliver.kafka.progress_topic import ProgressTopic
from zync.deliver.kafka.topics import Topics
from zync.deliver.kafka.truncations import DeliveredTruncation, LastTruncation, last_truncations, outgoing
from zync.errors import ZyncError
from zync.kafka.admin import Brokers, RefusedError
from zync.kafka.garbage import not_collecting
from zync.lake.lock import Ownership, Wait, owned, taken_over
from zync.lake.outage import StoreWatch, watching
from zync.lake.table import poll, poll_seconds, refresh
from zync.log import event
from zync.observe import datasets
from zync.observe.datasets import Dataset
from zync.observe.lineage import Run, run_of
from zync.observe.traces import span
from zync.staging.bookkeeping import read_cursor
from zync.staging.outputs import staged
from zync.staging.table import STAGING_SCHEMA, SYNC, existing_staging, open_staging

if TYPE_CHECKING:
    from zync.deliver.metrics import KafkaDeliveryMetrics

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_REPORT_SECONDS = 1.0
_WARN_SECONDS = 60.0
_CHECK_TOPICS_SECONDS = 1.0
_BATCH_BYTES = 1_000_000
"""librdkafka's default batch.size."""
_ATTEMPTS = 5
"""Failed attempts in a row, while brokers answer, after which an error counts as permanent."""


@dataclass(frozen=True)
class Delivery:
    """The settings of a delivery to Kafka.

    Attributes:
        staging: The location of staging.
        kafka: The librdkafka properties of the target cluster; None for the cluster that the config names.
        config: The config.
        group_rows: A Kafka transaction ends with the source transaction that reaches so many rows; with 1 each source
            transaction has its own.
        until_caught_up: Whether to end once all that is in staging at the start is delivered.
        standby: Whether to wait while another process has this delivery, rather than take it over.
    """

    staging: str
    kafka: dict[str, str] | None = None
    config: Config = field(default_factory=Config)
    group_rows: int = 50_000
    until_caught_up: bool = False
    standby: bool = False

    @property
    def properties(self) -> dict[str, str]:
        """The librdkafka properties of the target cluster."""
        return self.config.kafka_to_deliver_to if self.kafka is None else self.kafka


@dataclass
class Delivered:
    """The result of a run of sync-to kafka.

    Attributes:
        transactions: The number of source transactions.
        rows: The number of rows by topic.
        commits: The number of Kafka transactions.
        seconds: The duration of the run.
        busy: The seconds from the first read of staging to the last commit.
        sync: The sync of the last delivered transaction.
        seqno: The seqno of the last delivered transaction.
    """

    transactions: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    sync: int = 0
    seqno: int = 0

    @property
    def rate(self) -> float:
        """Rows a second."""
        return sum(self.rows.values()) / self.seconds if self.seconds else 0.0


def sync_to_kafka(
    delivery: Delivery,
    stop: threading.Event | None = None,
    on_commit: Callable[[Delivered], None] = lambda _: None,
    metrics: "KafkaDeliveryMetrics | None" = None,
) -> Delivered:
    """Delivers staging to Kafka until `stop` is set, or until it has caught up (`Delivery.until_caught_up`).

    Once it runs, and unless `until_caught_up`, it waits for an object store that is away, and goes on.

    Args:
        delivery: What to deliver, and where.
        stop: Ends the delivery when it is set.
        on_commit: Called after commits, at most once a second.
        metrics: The metrics to update.

    Raises:
        UsageError: a topic has other settings than the config says, or is a source of sync-from; or the delivery was
            of another staging before.
        OwnedError: another deliverer took over.
        ZyncError: Kafka or staging failed. Everything committed is in Kafka exactly once; the rest is in staging.

    Example:
        >>> delivery = zync.Delivery("lake/staging", config=config, until_caught_up=True)
        >>> zync.sync_to_kafka(delivery).rows
        {'order.whole': 1}
    """
    check_properties(delivery.config.kafka_delivery.properties)
    with not_collecting():
        return _Run(delivery, stop or threading.Event(), on_commit, metrics).run()


class _Run:
    """The state of a run: `progress` and `done` describe what is committed."""

    def __init__(
        self,
        delivery: Delivery,
        stop: threading.Event,
        on_commit: Callable[[Delivered], None],
        metrics: "KafkaDeliveryMetrics | None",
    ) -> None:
        self.delivery, self.stop, self.on_commit, self.metrics = delivery, stop, on_commit, metrics
        self.settings = delivery.config.kafka_delivery
        self.brokers = Brokers(delivery.properties, stop)
        self.done = Delivered()
        self.topics = Topics(delivery.config, self.brokers, self.delivered)
        self.failed_attempts = 0
        self.reported_commits, self.reported_at, self.sending_since, self.warned_at = 0, 0.0, 0.0, float("-inf")
        self.topics_checked_at = 0.0
        self.progress, self.owned = Progress(""), Ownership()
        self.lineage = Run()
        self.store: StoreWatch
        self.progress_topic: ProgressTopic  # set when staging exists, from which the delivery has its default name

    def run(self) -> Delivered:
        started = time.monotonic()
        with (
            watching(self.delivery.staging, self.stop, self.metrics) as store,
            run_of(
                "sync-to kafka", self.delivery.staging, is_endless=not self.delivery.until_caught_up
            ) as self.lineage,
        ):
            self.store = store
            table = self.open_table()
            if table is not None:
                name = self.settings.name_of(read_cursor(table).raw_id)
                self.progress_topic = ProgressTopic(
                    self.delivery.properties, self.settings.progress_topic, name, self.brokers
                )
                if self.is_ready(table):
                    with self.ownership(name) as self.owned:
                        if self.owned.is_held:
                            deliver = partial(self.deliver, table)
                            self.store.outlasting(deliver, waits=lambda: not self.delivery.until_caught_up)
        self.done.seconds = time.monotonic() - started
        return self.done

    def ownership(self, name: str) -> AbstractContextManager[Ownership]:
        """Returns the lock or lease of the delivery of a name to this cluster.

        A second process takes the delivery over, as in Kafka, unless it is a standby, which waits here.
        """
        digest = hashlib.sha256(f"{self.brokers.cluster()}/{name}".encode()).hexdigest()
        what, suffix = "sync-to kafka", f"to-kafka-{digest[:16]}"
        if not self.delivery.standby:
            return taken_over(self.delivery.staging, what=what, name=suffix)
        wait = Wait(standby=True, stop=self.stop, report=self.metrics.wait_for if self.metrics else lambda _owner: None)
        return owned(self.delivery.staging, what=what, name=suffix, wait=wait)

    def is_ready(self, table: DeltaTable) -> bool:
        """Creates or checks the topics, and checks the progress: a process that cannot deliver takes nothing over.

        Returns False if stopped while no broker answers.
        """
        if not self.ensure_topics():
            return False
        self.progress_topic.read_for(table, read_cursor(table), final=False)
        return True

    def open_table(self) -> DeltaTable | None:
        """Opens staging; waits for its first sync unless `until_caught_up`. Returns None if stopped before that."""
        if self.delivery.until_caught_up:
            return existing_staging(self.delivery.staging)
        logged = False
        while not self.stop.is_set():
            table = open_staging(self.delivery.staging)
            if table is not None and read_cursor(table).sync:
                return table
            if not logged:
                log.info("waiting for a sync of %s", self.delivery.staging)
                logged = True
            self.wait()
        return None

    def ensure_topics(self) -> bool:
        """Creates or checks all topics; returns False if stopped while no broker answers."""
        try:
            self.topics.ensure_all()
        except ZyncError:
            if self.stop.is_set():
                return False
            raise
        return True

    def measure(self, sync: int, newest: int) -> None:
        if self.metrics:
            self.metrics.reached(sync, newest)

    def wait(self) -> None:
        self.store.heard()
        if self.metrics:
            self.metrics.turn()
        self.stop.wait(poll_seconds(self.delivery.staging))

    def deliver(self, table: DeltaTable) -> None:
        """Delivers staging, with a new sender after each transient error."""
        refresh(table)
        cursor = read_cursor(table)
        batch_bytes = self.topics.batch_bytes(cursor.offsets)
        properties = {
            **({"batch.size": str(min(batch_bytes, _BATCH_BYTES))} if batch_bytes else {}),
            **self.delivery.properties,
        }
        while True:
            sender = Sender(properties, self.progress_topic.name, self.stop)
            try:
                sender.take_over()
                self.resume(table)
                self.send_all(table, sender)
            except TransactionAbortedError as error:
                if self.stop.is_set():
                    log.warning("stopped in a Kafka transaction, which the next run ends: %s", error)
                    return
                self.again(error, table)
            else:
                return
            finally:
                sender.close()

    def again(self, error: TransactionAbortedError, table: DeltaTable) -> None:
        """Waits before the next attempt after a failed transaction.

        Raises:
            ZyncError: `_ATTEMPTS` transactions failed in a row while brokers answered, or the brokers refuse access.
        """
        self.failed_attempts += 1
        if self.metrics:
            self.metrics.refused()
        refresh(table)
        self.measure(self.progress.sync, table.transaction_version(SYNC) or 0)
        cause: Exception = error
        try:
            self.brokers.topics()
        except RefusedError:
            raise
        except ZyncError as unavailable:
            self.failed_attempts, cause = 1, unavailable  # attempts do not count while the brokers are away
        if self.failed_attempts >= _ATTEMPTS:
            msg = f"Kafka at {self.brokers.servers} takes no transaction of ours: {error}"
            raise ZyncError(msg) from error
        if time.monotonic() - self.warned_at > _WARN_SECONDS:
            self.warned_at = time.monotonic()
            log.warning("a Kafka transaction did not go through (%s); trying on", cause)
        self.stop.wait(_AGAIN_SECONDS)

    def resume(self, table: DeltaTable) -> None:
        """Reads the stored progress, from which the delivery continues.

        Raises:
            UsageError: a topic was deleted or made anew since this run used it, or the progress is of another staging.
            ZyncError: the progress is beyond staging's cursor.
        """
        if self.progress.sync and not self.topics.check_same():
            raise self.progress_topic.lost_error(self.progress)
        cursor = read_cursor(table)
        stored = self.progress_topic.read_for(table, cursor, final=True)
        if stored is None and not self.sending_since and (filled := self.topics.with_records(cursor.offsets)):
            self.progress_topic.warn_from_the_start(filled)
        self.set_progress(stored or Progress(str(table.metadata().id)))

    def delivered(self, output: str) -> int:
        """Returns how many rows of an output, or messages of the transaction topic, are in Kafka."""
        progress = self.progress if self.progress.sync else self.progress_topic.read(final=True)
        return progress.offsets.get(output, 0) if progress else 0

    def set_progress(self, progress: Progress) -> None:
        """Takes over a committed progress."""
        self.progress, self.done.sync, self.done.seqno = progress, progress.sync, progress.seqno

    def send_all(self, table: DeltaTable, sender: Sender) -> None:
        """Sends all rows of staging, and then, unless `until_caught_up`, those of new syncs until `stop` is set."""
        self.sending_since = self.sending_since or time.monotonic()
        encoder = Encoder(self.delivery.config, table)
        while not self.stop.is_set():
            newest = table.transaction_version(SYNC) or 0
            self.measure(self.progress.sync, newest)
            self.check_topics(sender)
            groups = self.groups(table, encoder)
            group = next(groups, None)
            while group and not self.stop.is_set():
                self.owned.check()
                group = self.send(group, sender, groups, table.version())
                self.measure(self.progress.sync, newest)
                if group and time.monotonic() - self.topics_checked_at > _CHECK_TOPICS_SECONDS:
                    self.check_topics(sender)
            if group is None:
                self.measure(newest, newest)
            self.report(at_once=True)
            if self.delivery.until_caught_up:
                self.check_topics(sender)
                return
            version, ended = table.version(), time.monotonic()
            while table.version() == version and not self.stop.is_set():
                self.owned.check()
                self.wait()
                # A broker may have named a topic's former id while rows went to a topic that was made anew.
                if self.topics_checked_at < ended < time.monotonic() - _CHECK_TOPICS_SECONDS:
                    self.check_topics(sender)
                poll(table)

    def groups(self, table: DeltaTable, encoder: Encoder) -> Iterator["_Group"]:
        """Yields the Kafka transactions of the rows in staging that are not delivered yet, in order."""
        progress, remember = self.progress, self.delivery.config.transactions.remember
        truncated, pending = progress.truncated, list[DeliveredTruncation]()
        for staged_rows in staged(table, progress.delivery_position):
            out = outgoing(table, staged_rows, truncated, remember)
            truncated = last_truncations(truncated, out.truncations)
            pending += out.truncations
            self.tell_kept_back(out.kept_back, truncated)
            if not out.rows.num_rows:
                continue
            encoder.load_columns(out.rows)
            for rows in messages.runs(out.rows, self.delivery.group_rows):
                last_row = rows.slice(rows.num_rows - 1).to_pylist()[0]
                outputs = rows.group_by("topic").aggregate([([], "count_all"), ("offset", "max")]).to_pylist()
                transactions = list(messages.transactions(rows))
                offsets = {**progress.offsets, **{output["topic"]: output["offset_max"] + 1 for output in outputs}}
                if transaction_topic := self.settings.transaction_topic:
                    offsets[transaction_topic] = offsets.get(transaction_topic, 0) + 2 * len(transactions)
                progress = replace(
                    progress, offsets=offsets, **{column: last_row[column] for column in ("sync", "turn", "seqno")}
                )
                sent = [truncation for truncation in pending if truncation.at <= progress.delivery_position]
                progress, pending = progress.with_truncations(sent, remember), pending[len(sent) :]
                targets = {output["topic"]: self.topics.topic_of(output["topic"]) for output in outputs}
                counts = {targets[output["topic"]]: output["count_all"] for output in outputs}
                group_messages = messages.messages(rows, targets, transactions, encoder)
                if transaction_topic:
                    group_messages = with_events(group_messages, transactions, self.topics.topic_of(transaction_topic))
                progress_record = self.progress_topic.record(progress)
                yield _Group(progress, len(transactions), counts, chain(group_messages, [progress_record]))

    def tell_kept_back(self, rows: Mapping[str, int], truncated: Mapping[str, LastTruncation]) -> None:
        """Logs how many rows do not go out, by topic, because a TRUNCATE before them deleted them."""
        for topic, count in rows.items():
            if count:
                log.warning(
                    "%s: %d rows were committed before the TRUNCATE at position %d, which went out, and are not sent",
                    topic,
                    count,
                    truncated[topic].position,
                    extra=event("truncated_rows", topic=topic, rows=count, position=truncated[topic].position),
                )

    def check_topics(self, sender: Sender) -> None:
        """Checks that the topics are still those that rows were sent to; stores the progress again if its topic is not.

        Raises:
            UsageError: a topic of rows was deleted or recreated.
        """
        same, self.topics_checked_at = self.topics.check_same(), time.monotonic()
        if same:
            return
        self.progress_topic.warn_put_back()
        try:
            self.topics.ensure_progress()
        finally:  # a topic that a broker created by itself is not compacted, which the operator has to change
            sender.send([self.progress_topic.record(self.progress)])
            sender.commit(lambda: None)

    def send(self, group: "_Group", sender: Sender, groups: Iterator["_Group"], version: int) -> "_Group | None":
        """Sends and commits a Kafka transaction; returns the next group, which is made while Kafka commits."""
        self.lineage.begin(lambda: self.reads_and_writes(group))
        with span(
            "sync_to.kafka",
            staging=self.delivery.staging,
            version=version,
            delivery=self.progress_topic.name,
            sync=group.progress.sync,
            seqno=group.progress.seqno,
            transactions=group.transactions,
            rows=sum(group.rows.values()),
            topics=list(group.rows),
        ):
            sender.send(group.messages)
            next_group, seconds = sender.commit(lambda: next(groups, None))
        self.set_progress(group.progress)
        self.failed_attempts = 0
        self.store.worked()
        self.done.transactions += group.transactions
        for topic, count in group.rows.items():
            self.done.rows[topic] = self.done.rows.get(topic, 0) + count
        self.done.commits += 1
        self.lineage.wrote(lambda: dict(zip(self.targets(group), group.rows.values(), strict=False)))
        self.done.busy = time.monotonic() - self.sending_since
        if self.metrics:
            self.metrics.transactions(group.transactions)
            self.metrics.committed(group.rows, seconds)
        self.report()
        return next_group

    def reads_and_writes(self, group: "_Group") -> tuple[list[Dataset], list[Dataset]]:
        """Returns what a Kafka transaction is made of, staging, and the topics that it goes to."""
        return [datasets.table(self.delivery.staging, datasets.columns_of(STAGING_SCHEMA))], self.targets(group)

    def targets(self, group: "_Group") -> list[Dataset]:
        """Returns the topics of a Kafka transaction's rows, in the order of `rows`."""
        return datasets.topics(self.delivery.properties.get("bootstrap.servers"), group.rows)

    def report(self, *, at_once: bool = False) -> None:
        """Calls `on_commit` if there were commits since its last call: at once, or at most every `_REPORT_SECONDS`."""
        now = time.monotonic()
        if self.done.commits > self.reported_commits and (at_once or now - self.reported_at > _REPORT_SECONDS):
            self.reported_commits, self.reported_at = self.done.commits, now
            self.on_commit(self.done)


@dataclass(frozen=True)
class _Group:
    """The content of a Kafka transaction.

    Attributes:
        progress: The progress once it is committed.
        transactions: The number of source transactions.
        rows: The number of rows by topic.
        messages: The messages; the last stores the progress.
    """

    progress: Progress
    transactions: int
    rows: dict[str, int]
    messages: Iterable[Message]
