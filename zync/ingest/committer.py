"""Commits batches to raw in a thread of its own, while the consuming thread gathers the next batch."""

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait

from zync.kafka.admin import AwayError, Brokers
from zync.kafka.partition import is_recreated
from zync.observe.traces import span
from zync.raw.append import Appended, Appender
from zync.raw.batch import Batch

log = logging.getLogger(__name__)


class Committer:
    """A thread that appends batches to raw, never two at a time.

    Attributes:
        batch: The batch that is being committed; an empty batch if none is.
    """

    def __init__(self, location: str, brokers: Brokers) -> None:
        self._location, self._brokers = location, brokers
        self._appender = Appender(location)
        self.batch = Batch()
        self._closing = threading.Event()
        self._thread = ThreadPoolExecutor(1, "append")
        self._future: Future[Appended] | None = None

    @property
    def busy(self) -> bool:
        """Whether a commit was started whose result has not been taken yet."""
        return self._future is not None

    def done(self, timeout: float | None = 0.0) -> bool:
        """Returns whether a result can be taken, after waiting at most `timeout` seconds; None: without limit."""
        return self._future is not None and bool(wait([self._future], timeout).done)

    def start(self, batch: Batch) -> None:
        """Starts to commit a batch. The previous commit's result must have been taken."""
        self.batch, self._future = batch, self._thread.submit(self._append, batch)

    def result(self) -> Appended | None:
        """Waits for the running commit and returns its result; None if no commit is running.

        Raises:
            ZyncError: The commit failed.
        """
        future, self._future = self._future, None
        try:
            return future.result() if future else None
        finally:
            self.batch = Batch()

    def close(self) -> None:
        """Waits until the running commit has succeeded or failed, but not for brokers that do not answer."""
        self._closing.set()
        self._thread.shutdown()

    def _append(self, batch: Batch) -> Appended:
        """Appends the batch without the records of recreated topics.

        librdkafka goes on reading a recreated topic without an error, so only the topic's id, asked for after
        reading, shows it.
        """
        try:
            ids = self._topic_ids(batch)
        except AwayError:
            text = "Kafka does not answer, so what was in hand is left there, to be read again: %d records"
            log.warning(text, batch.num_rows)
            return Appended()
        recreated = [
            partition
            for partition, part in batch.slices.items()
            if is_recreated(part.topic_id, ids.get(partition.topic))
        ]
        batch.drop(recreated)
        started = time.monotonic()
        with span("sync_from.commit", raw=self._location) as current:
            appended = self._appender.append(batch)
            current.set(
                records=appended.rows,
                bytes=appended.num_bytes,
                first_seqno=appended.first_seqno,
                last_seqno=None if not appended.rows else (appended.first_seqno or 0) + appended.rows - 1,
                version=appended.version,
                retries=appended.retries,
                refused=len(appended.refused),
            )
        appended.seconds = time.monotonic() - started
        appended.refused.update(dict.fromkeys(recreated))
        return appended

    def _topic_ids(self, batch: Batch) -> dict[str, int]:
        """Returns the topics' current ids. Waits for the brokers until the process is to stop.

        Raises:
            AwayError: The process is to stop, and no broker has answered.
        """
        topics = {partition.topic for partition, part in batch.slices.items() if part.topic_id is not None}
        warned = False
        while True:
            try:
                return self._brokers.topic_ids(topics)
            except AwayError:
                if self._brokers.stopping or self._closing.is_set():
                    raise
            if not warned:
                text = "%d records wait until Kafka says whether they are of the topics that raw knows"
                log.warning(text, batch.num_rows)
                warned = True
