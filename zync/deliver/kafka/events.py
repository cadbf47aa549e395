"""BEGIN and END messages of transactions, in Debezium's format, by which a consumer knows when one is complete.

See https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-transaction-metadata
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from zync.deliver.kafka.messages import Transaction
from zync.deliver.kafka.producer import Message


def with_events(messages: Iterable[Message], transactions: Iterable[Transaction], topic: str) -> Iterator[Message]:
    """Yields the messages of the transactions, and to `topic` a BEGIN before and an END after those of each."""
    messages_left = iter(messages)
    for transaction in transactions:
        rows = list(islice(messages_left, transaction.rows))
        yield topic, *begin(transaction.id), transaction.headers
        yield from rows
        yield topic, *end(transaction.id, Counter(row_topic for row_topic, *_ in rows)), transaction.headers


def begin(transaction_id: str) -> tuple[str, str]:
    """Returns key and value of the message before the first row of a transaction."""
    return _message(transaction_id, "BEGIN")


def end(transaction_id: str, counts: Mapping[str, int]) -> tuple[str, str]:
    """Returns key and value of the message after the last row of a transaction; `counts` are its rows by topic."""
    collections = [{"data_collection": topic, "event_count": count} for topic, count in counts.items()]
    return _message(transaction_id, "END", event_count=sum(counts.values()), data_collections=collections)


def _message(transaction_id: str, status: str, **counts: Any) -> tuple[str, str]:
    value = {"status": status, "id": transaction_id, "event_count": None, "data_collections": None} | counts
    value["ts_ms"] = round(time.time() * 1000)
    return json.dumps({"id": transaction_id}), json.dumps(value)
