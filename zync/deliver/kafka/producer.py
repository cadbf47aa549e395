"""A transactional producer: what it sends is seen when it commits, all of it or nothing; and there is one of a name."""

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from zync.errors import OwnedError, ZyncError
from zync.kafka.admin import bad_property, check_ours, reason

_ITS_LOG = logging.getLogger("librdkafka")
_STOPPING_SECONDS = 5.0
_NO_ANSWER = "Kafka did not answer before the end"
_COMMITS = 3
"""Calls for one commit, each as long as the transaction may last."""
_FENCED = (
    KafkaError._FENCED,  # noqa: SLF001 - the library's public name
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
_LASTING = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
)
"""What no second try mends."""
_HINTS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "deliver.kafka.properties: message.max.bytes; and the topic's max.message.bytes",
    KafkaError.INVALID_RECORD: "a topic that is compacted takes none without a key",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "it needs WRITE on the topics of all outputs, and on the progress topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "it needs WRITE on the transactional id of the delivery's name",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "the brokers' transaction.max.timeout.ms is less",
}
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001 - the library's public names
"""What is reported of messages that were thrown away for what happened to another."""
_ABORT_SECONDS = 5
_REPORT_SECONDS = 1.0
_DEFAULTS = {
    "linger.ms": "5",
    "batch.num.messages": "10000",
    "queue.buffering.max.messages": "100000",
    "queue.buffering.max.kbytes": "65536",
    "log_level": "0",
}
_OURS = {
    # As the Java clients choose them, so that topics written by either can be joined by partition.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    "enable.idempotence": "true",
    # Else one that was deleted is made anew by the brokers, in silence, as soon as it is sent to.
    "allow.auto.create.topics": "false",
}

_BY_KEY_NOW = (-1, None, None, 0)
"""Partition, callbacks, timestamp: librdkafka's to choose. With them headers go by place, quicker than by name."""

T = TypeVar("T")
Headers = list[tuple[str, bytes]]
Message = tuple[str, str | bytes | None, str | bytes | None, Headers]
"""Topic, key, value, headers."""


class AgainError(Exception):
    """The transaction under way came to nothing, or nobody knows: begin anew from what is committed."""


def check_properties(properties: Mapping[str, str]) -> None:
    """UsageError where the config sets what is zync's own to set."""
    check_ours(properties, (*_OURS, "transactional.id"), "deliver.kafka.properties")


class Sender:
    """The producer of that transactional id, to be closed before another of that name is made here.

    All methods raise OwnedError where another came after it, AgainError where a new Sender may have more luck, and
    ZyncError where none would.
    """

    def __init__(self, properties: Mapping[str, str], name: str, stop: threading.Event) -> None:
        self._name, self._stop = name, stop
        self._refused: tuple[KafkaError, str] | None = None
        self._open = False
        self._stopped: float | None = None
        try:
            self._producer = Producer(
                {**_DEFAULTS, **properties, **_OURS, "transactional.id": name, "on_delivery": self._on_delivery},
                logger=_ITS_LOG,
            )
        except KafkaException as error:
            raise bad_property(error) from error

    def take_over(self) -> None:
        """Fences all before it, and ends what they left open. To be called first."""
        self._wait(self._producer.init_transactions, lambda: None)

    def send(self, messages: Iterable[Message]) -> None:
        """Sends messages in the transaction under way, which begins if there is none."""
        produce, poll = self._producer.produce, self._producer.poll
        if not self._open:
            self._patiently(self._producer.begin_transaction)
            self._open = True
        for topic, key, value, headers in messages:
            while True:
                try:
                    produce(topic, value, key, *_BY_KEY_NOW, headers)
                    break
                except BufferError:
                    poll(0.05)
                    if self._stopped_long_ago():
                        raise AgainError(_NO_ANSWER) from None
                except KafkaException as error:
                    if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - that is of a message before this one
                        self._refused = self._refused or (error.args[0], _place(topic, key))
                    raise self._judged(error) from error
        poll(0)

    def commit(self, meanwhile: Callable[[], T]) -> tuple[T, float]:
        """Commits the transaction under way: when this returns, all of it is there.

        What `meanwhile` gives, which is called while Kafka is at it, and how many seconds the commit took.
        """
        return self._wait(self._commit, meanwhile)

    def _commit(self) -> None:
        self._producer.commit_transaction()
        self._open = False  # even where what is done meanwhile fails

    def close(self) -> None:
        """Ends the transaction under way, if there is one, as if it had not been; and the producer.

        One that lived on would, once brokers are back, go on to take over from its successor. It ends with the last
        reference to it, those of errors that were caught among them; its own close() waits for brokers that are away.
        """
        if self._open:
            with contextlib.suppress(KafkaException):  # then the next Sender does, or transaction.timeout.ms
                self._producer.abort_transaction(_ABORT_SECONDS)
        self._producer.purge()
        del self._producer
        gc.collect()

    def _wait(self, call: Callable[[], Any], meanwhile: Callable[[], T]) -> tuple[T, float]:
        """Calls what waits for the brokers, in another thread, for this one to do something else and to hear signals.

        What `meanwhile` gives, and how many seconds the call took.
        """
        failed: list[BaseException] = []
        started = time.monotonic()
        ended = started

        def work() -> None:
            nonlocal ended
            try:
                self._patiently(call)
            except BaseException as error:  # noqa: BLE001 - it is raised over there
                failed.append(error)
            ended = time.monotonic()

        thread = threading.Thread(target=work, name="kafka", daemon=True)
        thread.start()
        try:
            found = meanwhile()
        finally:
            while thread.is_alive():
                thread.join(0.1)
                if self._refused and self._refused[0].code() in _LASTING:
                    self._producer.purge()  # or messages after it are tried again until transaction.timeout.ms
                if self._stopped_long_ago():
                    raise AgainError(_NO_ANSWER)
            if failed:
                raise failed[0]
        return found, ended - started

    def _stopped_long_ago(self) -> bool:
        """Whether it is for too long that nobody wants this any more."""
        if self._stop.is_set():
            self._stopped = self._stopped or time.monotonic()
        return self._stopped is not None and time.monotonic() - self._stopped > _STOPPING_SECONDS

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
        self._hear_why()
        refused, where = self._refused or (found, "")
        if refused.code() in _LASTING:
            hint = f" ({hint})" if (hint := _HINTS.get(refused.code())) else ""
            said = f"{where or f'delivery {self._name}'}: {refused.str()}{hint}"
            return ZyncError(f"{said}. Nothing of that transaction is in Kafka")
        return AgainError(f"{where}: {refused.str()}" if where else text)

    def _hear_why(self) -> None:
        """Takes the report of the message that was refused, which may come after the error that it makes elsewhere."""
        last = time.monotonic() + _REPORT_SECONDS
        with contextlib.suppress(KafkaException):  # the fatal error that this is about
            while not self._refused and time.monotonic() < last:
                self._producer.poll(0.1)

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error and error.code() not in _PURGED:
            self._refused = self._refused or (error, _place(message.topic(), message.key()))


def _place(topic: str, key: str | bytes | None) -> str:
    """Which message that is; a delivery report has no headers, which would say it better."""
    text = key.decode(errors="replace") if isinstance(key, bytes) else key
    return f"topic {topic}, key {text}"
