"""Prints the events that are in Kafka, a line for each transaction, as a read_committed consumer gets them."""

import json
import os
import sys
from collections import defaultdict

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

TOPICS = ("shop.order-events", "shop.stock-events")

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
        "group.id": "outbox-example",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
)
partitions = [
    TopicPartition(topic, partition, OFFSET_BEGINNING)
    for topic in TOPICS
    for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions
]
consumer.assign(partitions)

events: dict[str, list[str]] = defaultdict(list)
open_partitions = len(partitions)
while open_partitions:
    message = consumer.poll(10)
    if message is None:
        sys.exit("Kafka does not answer")
    if message.error():
        if message.error().code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public name
            raise KafkaException(message.error())
        open_partitions -= 1
        continue
    event = json.loads(message.value())
    transaction = dict(message.headers())["zync.txn"].decode()
    events[transaction].append(f"{event['aggregate_id']} {event['event_type']}")
consumer.close()

for transaction, its_events in sorted(events.items()):
    print(f"{transaction}: {', '.join(sorted(its_events))}")
