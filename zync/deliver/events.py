"""BEGIN and END of transactions, as Debezium sends them, so that whoever reads the topics can tell what is whole.

See https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-transaction-metadata
"""

import json
import time
from collections.abc import Mapping
from typing import Any


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
