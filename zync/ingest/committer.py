"""Commits to raw beside the consuming thread, one at a time, while it gathers the next batch."""

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait

from zync.kafka.admin import AwayError, Brokers
from zync.kafka.partition import made_anew
from zync.raw.append import Appended, Appender
from zync.raw.batch import Batch

log = logging.getLogger(__name__)


class Committer:
    """A thread that appends. `batch`: what it commits now, empty if nothing."""

    def __init__(self, location: str, brokers: Brokers) -> None:
        self._appender, self._brokers = Appender(location), brokers
        self.batch = Batch()
        self._closing = threading.Event()
        self._thread = ThreadPoolExecutor(1, "append")
        self._under_way: Future[Appended] | None = None

    @property
    def busy(self) -> bool:
        """Whether a commit was started whose result nobody has taken yet."""
        return self._under_way is not None

    def done(self, within: float | None = 0.0) -> bool:
        """Whether there is a result to take, after at most so many seconds; None: however many."""
        return self._under_way is not None and bool(wait([self._under_way], within).done)

    def start(self, batch: Batch) -> None:
        """Begins to commit; the one before must have been taken."""
        self.batch, self._under_way = batch, self._thread.submit(self._append, batch)

    def result(self) -> Appended | None:
        """Waits for the commit under way and says what became of it; None where there is none."""
        under_way, self._under_way = self._under_way, None
        try:
            return under_way.result() if under_way else None
        finally:
            self.batch = Batch()

    def close(self) -> None:
        """Waits for the commit under way, whatever becomes of it, but for no brokers."""
        self._closing.set()
        self._thread.shutdown()

    def _append(self, batch: Batch) -> Appended:
        """Appends what is still of the topics it was to be read from.

        A topic made anew is read on as if nothing had happened: only its id, looked at after reading, tells.
        """
        try:
            ids = self._topic_ids(batch)
        except AwayError:
            what = "Kafka does not answer, so what was in hand is left there, to be read again: %d records"
            log.warning(what, batch.num_rows)
            return Appended()
        anew = [source for source, one in batch.slices.items() if made_anew(one.topic_id, ids.get(source.topic))]
        batch.drop(anew)
        started = time.monotonic()
        appended = self._appender.append(batch)
        appended.seconds = time.monotonic() - started
        appended.refused.update(dict.fromkeys(anew))
        return appended

    def _topic_ids(self, batch: Batch) -> dict[str, int]:
        """The ids that the brokers give the topics now, waited for until all is to end: AwayError then."""
        topics = {source.topic for source, one in batch.slices.items() if one.topic_id is not None}
        waited = False
        while True:
            try:
                return self._brokers.topic_ids(topics)
            except AwayError:
                if self._brokers.stopping or self._closing.is_set():
                    raise
            if not waited:
                what = "%d records wait until Kafka says whether they are of the topics that raw knows"
                log.warning(what, batch.num_rows)
                waited = True
