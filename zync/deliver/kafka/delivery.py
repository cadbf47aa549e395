"""`zync sync-to kafka staging`: staging's output rows to Kafka topics, whole transactions in Kafka transactions.

A Kafka transaction holds the rows of one or more source transactions, and the progress that this makes. Who begins
takes the delivery's transactional id, which ends what another left open and fences that other; then reads how far
the delivery is; then goes on from there. After an error that may pass, it begins so again.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from zync.config.model import Config
from zync.deliver.kafka import messages
from zync.deliver.kafka.encoder import Encoder
from zync.deliver.kafka.events import with_events
from zync.deliver.kafka.producer import AgainError, Message, Sender, check_properties
from zync.deliver.kafka.progress import Progress
from zync.deliver.kafka.progress_topic import ProgressTopic
from zync.deliver.kafka.topics import Topics
from zync.errors import ZyncError
from zync.kafka.admin import Brokers, RefusedError
from zync.kafka.garbage import not_collecting
from zync.lake.table import refresh
from zync.staging.bookkeeping import read_cursor
from zync.staging.outputs import staged, with_tombstones
from zync.staging.table import SYNC, existing_staging, open_staging

if TYPE_CHECKING:
    from zync.deliver.metrics import KafkaDeliveryMetrics

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_AGAIN_SECONDS = 1.0
_SAY_SECONDS = 1.0
_WARN_SECONDS = 60.0
_LOOK_AT_TOPICS_SECONDS = 1.0
_BATCH_BYTES = 1_000_000
"""librdkafka's own batch.size."""
_ATTEMPTS = 5
"""In a row without a commit, while brokers answer, before what stands in the way is taken for lasting."""


@dataclass(frozen=True)
class Delivery:
    """What to deliver, to which Kafka, and how much goes into one Kafka transaction.

    group_rows: source transactions go into a Kafka transaction until they have so many rows; 1: each has its own.
    """

    staging: str
    kafka: dict[str, str]
    config: Config = field(default_factory=Config)
    group_rows: int = 50_000
    until_caught_up: bool = False


@dataclass
class Delivered:
    """What a run of sync-to kafka did: source transactions, `rows` by topic, Kafka transactions (`commits`).

    `seconds`: all in all; `busy`: from the first row looked for to the last commit.
    `sync` and `seqno`: the transaction in staging through which all is delivered.
    """

    transactions: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    sync: int = 0
    seqno: int = 0


def sync_to_kafka(
    delivery: Delivery,
    stop: threading.Event | None = None,
    on_commit: Callable[[Delivered], None] = lambda _: None,
    metrics: "KafkaDeliveryMetrics | None" = None,
) -> Delivered:
    """Delivers until `stop` is set, or until all is in Kafka that was in staging at the start.

    `on_commit` hears of commits, once a second at most.

    Raises:
        UsageError: topics that are not as wanted, or that zync takes records from itself; another staging than before.
        OwnedError: another deliverer took over.
        ZyncError: Kafka or the table failed. All that was committed is in Kafka, once; the rest is in staging.
    """
    check_properties(delivery.config.kafka_delivery.properties)
    with not_collecting():
        return _Run(delivery, stop or threading.Event(), on_commit, metrics).run()


class _Run:
    """One run's state: what is committed is in `progress` and `done`."""

    def __init__(
        self,
        delivery: Delivery,
        stop: threading.Event,
        on_commit: Callable[[Delivered], None],
        metrics: "KafkaDeliveryMetrics | None",
    ) -> None:
        self.delivery, self.stop, self.on_commit, self.metrics = delivery, stop, on_commit, metrics
        self.said = delivery.config.kafka_delivery
        self.brokers = Brokers(delivery.kafka, stop)
        self.done = Delivered()
        self.topics = Topics(delivery.config, self.brokers, self.delivered)
        self.attempts = 0
        self.told, self.spoke, self.began, self.warned = 0, 0.0, 0.0, float("-inf")
        self.looked = 0.0
        self.progress = Progress("")
        self.kept: ProgressTopic  # from when there is staging, which the delivery has its name from

    def run(self) -> Delivered:
        started = time.monotonic()
        table = self.find_table()
        if table is not None:
            name = self.said.name_of(read_cursor(table).raw_id)
            self.kept = ProgressTopic(self.delivery.kafka, self.said.progress_topic, name, self.brokers)
            if self.find_topics():
                self.deliver(table)
        self.done.seconds = time.monotonic() - started
        return self.done

    def find_table(self) -> DeltaTable | None:
        """Staging, when it has a sync; None where we are stopped before."""
        if self.delivery.until_caught_up:
            return existing_staging(self.delivery.staging)
        said = False
        while not self.stop.is_set():
            table = open_staging(self.delivery.staging)
            if table is not None and read_cursor(table).sync:
                return table
            if not said:
                log.info("waiting for a sync of %s", self.delivery.staging)
                said = True
            self.wait()
        return None

    def find_topics(self) -> bool:
        """Has all topics be there; false where we are stopped while no broker answers."""
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
        if self.metrics:
            self.metrics.turn()
        self.stop.wait(_LOOK_SECONDS)

    def deliver(self, table: DeltaTable) -> None:
        """Senders, one after the other, until there is no need for another.

        What is refused is refused before the first, which ends the delivery of who has that name now.
        """
        cursor = read_cursor(table)
        self.kept.read_for(table, cursor, final=False)
        batch = self.topics.batch_bytes(cursor.offsets)
        properties = {**({"batch.size": str(min(batch, _BATCH_BYTES))} if batch else {}), **self.delivery.kafka}
        while True:
            sender = Sender(properties, self.kept.name, self.stop)
            try:
                sender.take_over()
                self.begin(table)
                self.send_all(table, sender)
            except AgainError as error:
                if self.stop.is_set():
                    log.warning("stopped in a Kafka transaction, which the next run ends: %s", error)
                    return
                self.again(error, table)
            else:
                return
            finally:
                sender.close()

    def again(self, error: AgainError, table: DeltaTable) -> None:
        """Waits a moment; ZyncError where it has been so often enough, or nobody lets us in."""
        self.attempts += 1
        if self.metrics:
            self.metrics.refused()
        refresh(table)
        self.measure(self.progress.sync, table.transaction_version(SYNC) or 0)
        why: Exception = error
        try:
            self.brokers.topics()
        except RefusedError:
            raise
        except ZyncError as away:
            self.attempts, why = 1, away  # for as long as they are away
        if self.attempts >= _ATTEMPTS:
            msg = f"Kafka at {self.brokers.servers} takes no transaction of ours: {error}"
            raise ZyncError(msg) from error
        if time.monotonic() - self.warned > _WARN_SECONDS:
            self.warned = time.monotonic()
            log.warning("a Kafka transaction did not go through (%s); trying on", why)
        self.stop.wait(_AGAIN_SECONDS)

    def begin(self, table: DeltaTable) -> None:
        """Takes up the delivery where it is."""
        if self.progress.sync and not self.topics.check_same():
            raise self.kept.forgotten(self.progress)
        cursor = read_cursor(table)
        stored = self.kept.read_for(table, cursor, final=True)
        if stored is None and not self.began and (filled := self.topics.with_records(cursor.offsets)):
            self.kept.warn_from_the_start(filled)
        self.reached(stored or Progress(str(table.metadata().id)))

    def delivered(self, output: str) -> int:
        """How many rows of that output, or BEGINs and ENDs, are in Kafka."""
        progress = self.progress if self.progress.sync else self.kept.read(final=True)
        return progress.offsets.get(output, 0) if progress else 0

    def reached(self, progress: Progress) -> None:
        """Notes that so much is committed."""
        self.progress, self.done.sync, self.done.seqno = progress, progress.sync, progress.seqno

    def send_all(self, table: DeltaTable, sender: Sender) -> None:
        """What is in staging, and then, unless that is all that is asked for, what comes."""
        self.began = self.began or time.monotonic()
        encoder = Encoder(self.delivery.config, table)
        while not self.stop.is_set():
            newest = table.transaction_version(SYNC) or 0
            self.measure(self.progress.sync, newest)
            self.look_at_topics(sender)
            groups = self.groups(table, encoder)
            group = next(groups, None)
            while group and not self.stop.is_set():
                group = self.send(group, sender, groups)
                self.measure(self.progress.sync, newest)
                if group and time.monotonic() - self.looked > _LOOK_AT_TOPICS_SECONDS:
                    self.look_at_topics(sender)
            if group is None:
                self.measure(newest, newest)
            self.speak(at_once=True)
            if self.delivery.until_caught_up:
                self.look_at_topics(sender)
                return
            version = table.version()
            while table.version() == version and not self.stop.is_set():
                self.wait()
                refresh(table)

    def groups(self, table: DeltaTable, encoder: Encoder) -> Iterator["_Group"]:
        """What is in staging that was not delivered yet, in order, as Kafka transactions."""
        progress = self.progress
        for window in staged(table, progress.place):
            window = with_tombstones(table, window)  # noqa: PLW2901 - the same rows, as they go out
            if not window.num_rows:
                continue
            encoder.look_up(window)
            for rows in messages.runs(window, self.delivery.group_rows):
                last = rows.slice(rows.num_rows - 1).to_pylist()[0]
                by_topic = rows.group_by("topic").aggregate([([], "count_all"), ("offset", "max")]).to_pylist()
                transactions = list(messages.transactions(rows))
                offsets = {**progress.offsets, **{one["topic"]: one["offset_max"] + 1 for one in by_topic}}
                if ends := self.said.transaction_topic:
                    offsets[ends] = offsets.get(ends, 0) + 2 * len(transactions)
                progress = replace(progress, offsets=offsets, **{one: last[one] for one in ("sync", "turn", "seqno")})
                targets = {one["topic"]: self.topics.of(one["topic"]) for one in by_topic}
                counts = {targets[one["topic"]]: one["count_all"] for one in by_topic}
                sent = messages.messages(rows, targets, transactions, encoder)
                if ends:
                    sent = with_events(sent, transactions, self.topics.of(ends))
                yield _Group(progress, len(transactions), counts, chain(sent, [self.kept.record(progress)]))

    def look_at_topics(self, sender: Sender) -> None:
        """UsageError where one that rows went to is another by now.

        Says once more how far the delivery is, where the topic that said so was deleted, or made anew.
        """
        same, self.looked = self.topics.check_same(), time.monotonic()
        if same:
            return
        self.kept.warn_put_back()
        try:
            self.topics.ensure_progress()
        finally:  # where a broker made it by itself, it is not compacted, which is for the operator to change
            sender.send([self.kept.record(self.progress)])
            sender.commit(lambda: None)

    def send(self, group: "_Group", sender: Sender, groups: Iterator["_Group"]) -> "_Group | None":
        """Sends a Kafka transaction: when this returns, all of it is there. The next one, made while Kafka commits."""
        sender.send(group.messages)
        following, seconds = sender.commit(lambda: next(groups, None))
        self.reached(group.progress)
        self.attempts = 0
        self.done.transactions += group.transactions
        for target, count in group.rows.items():
            self.done.rows[target] = self.done.rows.get(target, 0) + count
        self.done.commits += 1
        self.done.busy = time.monotonic() - self.began
        if self.metrics:
            self.metrics.transactions(group.transactions)
            self.metrics.committed(group.rows, seconds)
        self.speak()
        return following

    def speak(self, *, at_once: bool = False) -> None:
        """Tells of what was committed since it was told of last."""
        now = time.monotonic()
        if self.done.commits > self.told and (at_once or now - self.spoke > _SAY_SECONDS):
            self.told, self.spoke = self.done.commits, now
            self.on_commit(self.done)


@dataclass(frozen=True)
class _Group:
    """A Kafka transaction: its messages, of which the last says the progress that it makes.

    Of how many source transactions it has the rows, and how many for each topic.
    """

    progress: Progress
    transactions: int
    rows: dict[str, int]
    messages: Iterable[Message]
