"""Sends two orders and their payments in Avro, as a registry's clients write it; payments have two schema versions."""

import io
import json
import os
import urllib.request
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
from confluent_kafka import Producer

TRANSACTION = [{"name": "txn", "type": "string"}, {"name": "records", "type": "int"}]
ORDER = {
    "type": "record",
    "name": "cafe.Order",
    "fields": [
        *TRANSACTION,
        {"name": "order_id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
AMOUNT = {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}}
PAYMENT = {"type": "record", "name": "cafe.Payment", "fields": [*TRANSACTION, AMOUNT]}
METHOD = {"name": "method", "type": ["null", "string"], "default": None}
PAYMENT_WITH_METHOD = {**PAYMENT, "fields": [*PAYMENT["fields"], METHOD]}

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def register(topic: str, schema: dict[str, Any]) -> int:
    """Makes the schema a version of the topic's values, and returns its id."""
    request = urllib.request.Request(  # noqa: S310 - the registry that the user names
        f"{os.environ['REGISTRY_URL']}/subjects/{topic}-value/versions",
        json.dumps({"schema": json.dumps(schema), "schemaType": "AVRO"}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
        return int(json.load(response)["id"])


def encode(topic: str, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    """The value as registry clients write it: a zero byte, the schema's id in four bytes, the value in Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + register(topic, schema).to_bytes(4, "big") + out.getvalue()


def send(topic: str, schema: dict[str, Any], txn: str, **value: Any) -> None:
    """Sends one of the two records of a transaction."""
    producer.produce(topic, encode(topic, schema, {"txn": txn, "records": 2, **value}), key=txn)


producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"]})
send("cafe.payments", PAYMENT, "t1", amount=Decimal("2.50"))
send("cafe.payments", PAYMENT_WITH_METHOD, "t2", amount=Decimal("24.90"), method="card")
send("cafe.orders", ORDER, "t1", order_id=1001, item="tea", ordered_at=NOON)
send("cafe.orders", ORDER, "t2", order_id=1002, item="cake", ordered_at=NOON)
producer.flush(30)
print("sent 2 orders and 2 payments")
