"""A transactional producer: what it sends is seen when it commits, all of it or nothing; and there is one of a name."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from zync.errors import OwnedError
from zync.ingest.broker import bad_property, reason

_ITS_LOG = logging.getLogger("librdkafka")
_STOPPING_SECONDS = 5.0
_POLL_EVERY = 1000
_COMMITS = 3
"""Calls for one commit, each as long as the transaction may last."""
_FENCED = (
    KafkaError._FENCED,  # noqa: SLF001 - the library's public name
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
_DEFAULTS = {
    "linger.ms": "5",
    "batch.num.messages": "10000",
    "queue.buffering.max.messages": "100000",
    "queue.buffering.max.kbytes": "65536",
    "log_level": "0",
}
_OURS = {"partitioner": "murmur2_random", "delivery.report.only.error": True, "enable.idempotence": "true"}
"""Partitions as the Java clients choose them, so that topics written by either can be joined by partition."""

Headers = list[tuple[str, bytes]]


class AgainError(Exception):
    """The transaction under way came to nothing, or nobody knows: begin anew from what is committed."""


class Sender:
    """The producer of that transactional id. Making it fences all before it, and ends what they left open.

    All methods raise OwnedError where another came after it, AgainError where a new Sender may have more luck.
    """

    def __init__(self, properties: Mapping[str, str], name: str, stop: threading.Event) -> None:
        self._name, self._stop = name, stop
        self._refused: KafkaError | None = None
        self._sent = 0
        self._open = False
        try:
            self._producer = Producer(
                {**_DEFAULTS, **properties, **_OURS, "transactional.id": name, "on_delivery": self._on_delivery},
                logger=_ITS_LOG,
            )
        except KafkaException as error:
            raise bad_property(error) from error
        self._wait(self._producer.init_transactions)

    def send(self, topic: str, key: str | None, value: str | bytes | None, headers: Headers) -> None:
        """Sends a message in the transaction under way, which begins if there is none."""
        if not self._open:
            self._call(self._producer.begin_transaction)
            self._open = True
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers)
                break
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                raise self._judged(error) from error
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)

    def commit(self) -> None:
        """Commits the transaction under way, if there is one: when this returns, all of it is there."""
        if self._open:
            self._wait(self._producer.commit_transaction)
            self._open = False

    def close(self) -> None:
        """Forgets what is not committed; the brokers do so at transaction.timeout.ms, or when the next Sender comes."""
        self._producer.purge()

    def _wait(self, call: Callable[[], Any]) -> None:
        """Calls what waits for the brokers, elsewhere, so that this thread hears signals meanwhile."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self._patiently(call)
            except BaseException as error:  # noqa: BLE001 - it is raised over there
                failed.append(error)

        thread = threading.Thread(target=work, name="kafka", daemon=True)
        thread.start()
        stopped = None
        while thread.is_alive():
            thread.join(0.1)
            if self._stop.is_set():
                stopped = stopped or time.monotonic()
                if time.monotonic() - stopped > _STOPPING_SECONDS:
                    msg = "no answer before the end"
                    raise AgainError(msg)
        if failed:
            raise failed[0]

    def _patiently(self, call: Callable[[], Any]) -> None:
        """Calls again after errors that pass."""
        for left in reversed(range(_COMMITS)):
            try:
                call()
            except KafkaException as error:
                if not (left and error.args[0].retriable()):
                    raise self._judged(error) from error
            else:
                return

    def _call(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except KafkaException as error:
            raise self._judged(error) from error

    def _judged(self, error: KafkaException) -> Exception:
        """What that error of librdkafka's means."""
        found = error.args[0]
        fatal = KafkaError._FATAL  # noqa: SLF001 - the library's public name
        text = reason(error)
        if found.code() in _FENCED or (found.code() == fatal and "fenced" in text.lower()):
            return OwnedError(
                f"another sync-to took over the delivery {self._name}, or this one was suspended for longer than "
                "transaction.timeout.ms. What was not committed is not in Kafka"
            )
        refused = f"{self._refused.str()}; " if self._refused else ""
        return AgainError(f"{refused}{text}")

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        self._refused = self._refused or error
