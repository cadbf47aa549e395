"""A bank that sends what Debezium would send of it, for the demo to need no database.

Its records are like those of a PostgreSQL connector 3.7 (see tests/data/debezium), and each partition gets them at its
own pace, as partitions do.
"""

import json
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

ACCOUNTS, TELLERS, BRANCHES = 1000, 20, 2
_PARTITIONS = 3
_HEADERS = [("__debezium.context.runId", b"simulated")]
_KEYS = {"pgbench_accounts": "aid", "pgbench_tellers": "tid", "pgbench_branches": "bid", "pgbench_history": None}

Event = tuple[str, int, bytes | None, bytes]
"""Topic, partition, key, value."""


class SimulatedBank:
    """Transfers, `rate` of them a second, from `start` until `end`; rows come up to `slowest` seconds after them."""

    says = (
        "A bank makes transfers. Each changes three balances and adds a row of history: four topics, 3 partitions each."
    )

    def __init__(self, servers: str, rate: float = 50, slowest: float = 1.0) -> None:
        self.servers, self.rate, self.slowest = servers, rate, slowest
        self.total = 0
        """What all transfers so far come to: the truth."""
        self.committed: dict[str, float] = {}
        """When each transfer, by its transaction's id, was made (of `time.time`)."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="bank", daemon=True)

    def start(self) -> None:
        """Makes the topics, and begins."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        topics = [NewTopic(f"bank.public.{table}", _PARTITIONS, 1) for table in _KEYS]
        for made in admin.create_topics([NewTopic("bank.transaction", 1, 1), *topics]).values():
            made.result(20)
        self._thread.start()

    def end(self) -> None:
        """Returns once all is in Kafka, after the last transfer; `truth` is what it is then."""
        self._ended.set()
        self._thread.join()

    def close(self) -> None:
        """As `end`; nothing is left."""
        if self._thread.is_alive():
            self.end()

    def truth(self) -> int:
        """The sum of all balances of a kind, and of history."""
        return self.total

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        paces = random.Random()  # noqa: S311 - no secret
        lanes: dict[tuple[str, int], deque[tuple[float, Event]]] = {}
        transfers, due = _transfers(), time.monotonic()
        while not self._ended.is_set() or any(lanes.values()):
            now = time.monotonic()
            if now >= due and not self._ended.is_set():
                due += 1 / self.rate
                txn, delta, events = next(transfers)
                self.total, self.committed[txn] = self.total + delta, time.time()
                for event in events:
                    lane = lanes.setdefault(event[:2], deque())
                    earliest = max(now, lane[-1][0]) if lane else now
                    lane.append((max(earliest, now + paces.uniform(0, self.slowest)), event))
            for lane in lanes.values():
                while lane and lane[0][0] <= now:
                    topic, partition, key, value = lane.popleft()[1]
                    producer.produce(topic, value, key, partition, headers=_HEADERS)
            producer.poll(0.002)
        producer.flush(30)


def _transfers() -> Iterator[tuple[str, int, list[Event]]]:
    """For ever: a transfer's id, what it comes to, and what Debezium sends of it."""
    chance = random.Random()  # noqa: S311 - no secret
    balances: dict[tuple[str, int], int] = {}
    lsn, number = 10_000, 700
    while True:
        number += 1
        ids = {"aid": chance.randrange(ACCOUNTS), "tid": chance.randrange(TELLERS), "bid": chance.randrange(BRANCHES)}
        delta = chance.randint(-5000, 5000)
        rows: dict[str, dict[str, int]] = {}
        for table, key in _KEYS.items():
            if key is None:
                rows[table] = {**ids, "delta": delta}
                continue
            balance = balances[table, ids[key]] = balances.get((table, ids[key]), 0) + delta
            rows[table] = {key: ids[key], "bid": ids["bid"], f"{key[0]}balance": balance}
        lsn += 10
        events = [_event(number, lsn, {"status": "BEGIN", "event_count": None, "data_collections": None})]
        for order, (table, row) in enumerate(rows.items(), 1):
            lsn += 10
            events.append(_row(number, lsn, table, order, row))
        counts = [{"data_collection": f"public.{table}", "event_count": 1} for table in rows]
        counted = {"status": "END", "event_count": len(rows), "data_collections": counts}
        yield str(number), delta, [*events, _event(number, lsn + 10, counted)]


def _event(number: int, lsn: int, said: dict[str, Any]) -> Event:
    key = {"id": f"{number}:{lsn}"}
    return "bank.transaction", 0, _bytes(key), _bytes({**said, **key, "ts_ms": round(time.time() * 1000)})


def _row(number: int, lsn: int, table: str, order: int, row: dict[str, int]) -> Event:
    now, column = round(time.time() * 1000), _KEYS[table]
    source = {"version": "3.7.0.Final", "connector": "postgresql", "name": "bank", "ts_ms": now, "snapshot": "false"}
    source |= {"db": "bank", "schema": "public", "table": table, "txId": number, "lsn": lsn}
    place = {"id": f"{number}:{lsn}", "total_order": order, "data_collection_order": 1}
    value: dict[str, Any] = {"before": None, "after": row, "source": source, "transaction": place, "ts_ms": now}
    value["op"] = "u" if column else "c"
    key = row[column] if column else number
    return (
        f"bank.public.{table}",
        key % _PARTITIONS,
        _bytes({column: key}) if column else None,
        _bytes(value),
    )


def _bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()
