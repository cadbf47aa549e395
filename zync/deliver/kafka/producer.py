"""A transactional producer: consumers see all of a transaction or nothing, and each name has a single live producer."""

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

_LIBRDKAFKA_LOG = logging.getLogger("librdkafka")
_STOPPING_SECONDS = 5.0
_NO_ANSWER = "Kafka did not answer before the end"
_COMMITS = 3
"""Attempts to commit a transaction, each of which may take transaction.timeout.ms."""
_FENCED = (
    KafkaError._FENCED,  # noqa: SLF001 - the library's public name
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
_PERMANENT = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
)
"""Errors that a second attempt does not mend."""
_HINTS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "deliver.kafka.properties: message.max.bytes; and the topic's max.message.bytes",
    KafkaError.INVALID_RECORD: "a topic that is compacted takes none without a key",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "it needs WRITE on the topics of all outputs, and on the progress topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "it needs WRITE on the transactional id of the delivery's name",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "the brokers' transaction.max.timeout.ms is less",
}
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001 - the library's public names
"""The errors in delivery reports of messages that were discarded because of another message's error."""
_ABORT_SECONDS = 5
_REPORT_SECONDS = 1.0
_DEFAULTS = {
    "linger.ms": "5",
    "batch.num.messages": "10000",
    "queue.buffering.max.messages": "100000",
    "queue.buffering.max.kbytes": "65536",
    "log_level": "0",
}
_FIXED_PROPERTIES = {
    # The partitioner of the Java clients, so that topics written by either client can be joined by partition.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    "enable.idempotence": "true",
    # Otherwise the brokers silently recreate a deleted topic when a message is sent to it.
    "allow.auto.create.topics": "false",
}

_BY_KEY_NOW = (-1, None, None, 0)
"""Partition, callbacks and timestamp, left to librdkafka: passing them makes headers a positional argument, which is
faster than a keyword argument."""

T = TypeVar("T")
Headers = list[tuple[str, bytes]]
Message = tuple[str, str | bytes | None, str | bytes | None, Headers]
"""Topic, key, value, headers."""


class TransactionAbortedError(Exception):
    """The open transaction was aborted, or its outcome is unknown: start again from the stored progress."""


def check_properties(properties: Mapping[str, str]) -> None:
    """Raises UsageError if the config sets a property that zync fixes."""
    check_ours(properties, (*_FIXED_PROPERTIES, "transactional.id"), "deliver.kafka.properties")


class Sender:
    """The producer of a transactional id.

    Close it before this process creates another of the same name. All methods raise:
        OwnedError: a newer producer fenced it.
        TransactionAbortedError: the transaction failed, and a new Sender may succeed.
        ZyncError: the transaction failed, and a new Sender would fail, too.
    """

    def __init__(self, properties: Mapping[str, str], name: str, stop: threading.Event) -> None:
        self._name, self._stop = name, stop
        self._refusal: tuple[KafkaError, str] | None = None  # the first message error, and which message it is of
        self._in_transaction = False
        self._stopped_at: float | None = None
        try:
            self._producer = Producer(
                {
                    **_DEFAULTS,
                    **properties,
                    **_FIXED_PROPERTIES,
                    "transactional.id": name,
                    "on_delivery": self._on_delivery,
                },
                logger=_LIBRDKAFKA_LOG,
            )
        except KafkaException as error:
            raise bad_property(error) from error

    def take_over(self) -> None:
        """Fences all earlier producers of the name and aborts their open transactions. Call it first."""
        self._wait(self._producer.init_transactions, lambda: None)

    def send(self, messages: Iterable[Message]) -> None:
        """Sends messages in the open transaction; begins a transaction if none is open."""
        produce, poll = self._producer.produce, self._producer.poll
        if not self._in_transaction:
            self._retry(self._producer.begin_transaction)
            self._in_transaction = True
        for topic, key, value, headers in messages:
            while True:
                try:
                    produce(topic, value, key, *_BY_KEY_NOW, headers)
                    break
                except BufferError:
                    poll(0.05)
                    if self._stop_timed_out():
                        raise TransactionAbortedError(_NO_ANSWER) from None
                except KafkaException as error:
                    if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - _STATE follows an earlier message's error
                        self._refusal = self._refusal or (error.args[0], _describe(topic, key))
                    raise self._classify(error) from error
        poll(0)

    def commit(self, meanwhile: Callable[[], T]) -> tuple[T, float]:
        """Commits the open transaction, and calls `meanwhile` while Kafka works on it.

        Returns:
            The result of `meanwhile`, and how many seconds the commit took.
        """
        return self._wait(self._commit, meanwhile)

    def _commit(self) -> None:
        self._producer.commit_transaction()
        self._in_transaction = False  # set here, so that it holds even if `meanwhile` fails

    def close(self) -> None:
        """Aborts the open transaction, if there is one, and destroys the producer.

        A producer left alive would, once the brokers return, fence its own successor. librdkafka destroys it with the
        last Python reference, and the traceback of a caught exception holds one: hence `del` and `gc.collect()`. The
        producer's own close() would wait for brokers that are away.
        """
        if self._in_transaction:
            with contextlib.suppress(KafkaException):  # then the next Sender aborts it, or transaction.timeout.ms does
                self._producer.abort_transaction(_ABORT_SECONDS)
        self._producer.purge()
        del self._producer
        gc.collect()

    def _wait(self, call: Callable[[], Any], meanwhile: Callable[[], T]) -> tuple[T, float]:
        """Runs a blocking call in another thread, so that this one can run `meanwhile` and receive signals.

        Returns:
            The result of `meanwhile`, and how many seconds the call took.
        """
        errors: list[BaseException] = []
        started = time.monotonic()
        ended = started

        def work() -> None:
            nonlocal ended
            try:
                self._retry(call)
            except BaseException as error:  # noqa: BLE001 - the calling thread raises it
                errors.append(error)
            ended = time.monotonic()

        thread = threading.Thread(target=work, name="kafka", daemon=True)
        thread.start()
        try:
            result = meanwhile()
        finally:
            while thread.is_alive():
                thread.join(0.1)
                if self._refusal and self._refusal[0].code() in _PERMANENT:
                    self._producer.purge()  # otherwise later messages are retried until transaction.timeout.ms
                if self._stop_timed_out():
                    raise TransactionAbortedError(_NO_ANSWER)
            if errors:
                raise errors[0]
        return result, ended - started

    def _stop_timed_out(self) -> bool:
        """Returns whether `stop` has been set for longer than `_STOPPING_SECONDS`."""
        if self._stop.is_set():
            self._stopped_at = self._stopped_at or time.monotonic()
        return self._stopped_at is not None and time.monotonic() - self._stopped_at > _STOPPING_SECONDS

    def _retry(self, call: Callable[[], Any]) -> None:
        """Calls up to `_COMMITS` times, as long as errors are retriable."""
        for attempts_left in reversed(range(_COMMITS)):
            try:
                call()
            except KafkaException as error:
                if not (attempts_left and error.args[0].retriable()):
                    raise self._classify(error) from error
            else:
                return

    def _classify(self, error: KafkaException) -> Exception:
        """Turns an error of librdkafka into OwnedError, TransactionAbortedError or ZyncError."""
        kafka_error = error.args[0]
        fatal = KafkaError._FATAL  # noqa: SLF001 - the library's public name
        text = reason(error)
        if kafka_error.code() in _FENCED or (kafka_error.code() == fatal and "fenced" in text.lower()):
            return OwnedError(
                f"another sync-to took over the delivery {self._name}, or this one was suspended for longer than "
                "transaction.timeout.ms. What was not committed is not in Kafka"
            )
        self._await_refusal()
        cause, message_text = self._refusal or (kafka_error, "")
        if cause.code() in _PERMANENT:
            hint = f" ({hint})" if (hint := _HINTS.get(cause.code())) else ""
            error_text = f"{message_text or f'delivery {self._name}'}: {cause.str()}{hint}"
            return ZyncError(f"{error_text}. Nothing of that transaction is in Kafka")
        return TransactionAbortedError(f"{message_text}: {cause.str()}" if message_text else text)

    def _await_refusal(self) -> None:
        """Polls for the delivery report of a refused message, which may come after the error of another call."""
        deadline = time.monotonic() + _REPORT_SECONDS
        with contextlib.suppress(KafkaException):  # the fatal error that is being classified
            while not self._refusal and time.monotonic() < deadline:
                self._producer.poll(0.1)

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error and error.code() not in _PURGED:
            self._refusal = self._refusal or (error, _describe(message.topic(), message.key()))


def _describe(topic: str, key: str | bytes | None) -> str:
    """Names a message by topic and key: a delivery report has no headers, which would name it better."""
    text = key.decode(errors="replace") if isinstance(key, bytes) else key
    return f"topic {topic}, key {text}"
