"""BEGIN and END of transactions, as Debezium sends them, so that whoever reads the topics can tell what is whole.

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


def with_events(sent: Iterable[Message], transactions: Iterable[Transaction], topic: str) -> Iterator[Message]:
    """The messages of those transactions, with what announces and ends each, to that topic."""
    rest = iter(sent)
    for one in transactions:
        rows = list(islice(rest, one.rows))
        yield topic, *begin(one.id), one.headers
        yield from rows
        yield topic, *end(one.id, Counter(target for target, *_ in rows)), one.headers


def begin(number: str) -> tuple[str, str]:
    """Key and value of the message before the first row of the transaction `number`."""
    return _message(number, "BEGIN")


def end(number: str, counts: Mapping[str, int]) -> tuple[str, str]:
    """Key and value of the message after its last row; `counts`: its rows by topic."""
    collections = [{"data_collection": topic, "event_count": count} for topic, count in counts.items()]
    return _message(number, "END", event_count=sum(counts.values()), data_collections=collections)


def _message(number: str, status: str, **counted: Any) -> tuple[str, str]:
    value = {"status": status, "id": number, "event_count": None, "data_collections": None} | counted
    value["ts_ms"] = round(time.time() * 1000)
    return json.dumps({"id": number}), json.dumps(value)
