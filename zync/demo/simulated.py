"""A simulated bank, which sends the records that Debezium would send, so that the demo needs no database.

The records are those of a PostgreSQL connector 3.7 (see tests/data/debezium). Each partition delays them differently,
as real partitions do.
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
    """Makes transfers from `start` until `end`.

    Args:
        servers: `bootstrap.servers`.
        rate: Transfers a second.
        slowest: The largest delay of a row after its transfer, in seconds.
    """

    says = (
        "A bank makes transfers. Each changes three balances and adds a row of history: four topics, 3 partitions each."
    )

    def __init__(self, servers: str, rate: float = 50, slowest: float = 1.0) -> None:
        self.servers, self.rate, self.slowest = servers, rate, slowest
        self.total = 0
        """The sum of all transfers so far."""
        self.committed: dict[str, float] = {}
        """The time of each transfer, by its transaction's id (of `time.time`)."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="bank", daemon=True)

    def start(self) -> None:
        """Creates the topics and starts the transfers."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        topics = [NewTopic(f"bank.public.{table}", _PARTITIONS, 1) for table in _KEYS]
        for future in admin.create_topics([NewTopic("bank.transaction", 1, 1), *topics]).values():
            future.result(20)
        self._thread.start()

    def end(self) -> None:
        """Stops the transfers, and returns when all their records are in Kafka; `truth` does not change any more."""
        self._ended.set()
        self._thread.join()

    def close(self) -> None:
        """Stops the transfers if `end` was not called."""
        if self._thread.is_alive():
            self.end()

    def truth(self) -> int:
        """Returns the correct sum of all accounts, which is also that of all tellers, all branches and history."""
        return self.total

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        delays = random.Random()  # noqa: S311 - no secret
        queues: dict[tuple[str, int], deque[tuple[float, Event]]] = {}
        transfers, due = _transfers(), time.monotonic()
        while not self._ended.is_set() or any(queues.values()):
            now = time.monotonic()
            while now >= due and not self._ended.is_set():
                due += 1 / self.rate
                txn, delta, events = next(transfers)
                self.total, self.committed[txn] = self.total + delta, time.time()
                for event in events:
                    queue = queues.setdefault(event[:2], deque())
                    earliest = max(now, queue[-1][0]) if queue else now
                    queue.append((max(earliest, now + delays.uniform(0, self.slowest)), event))
            for queue in queues.values():
                while queue and queue[0][0] <= now:
                    topic, partition, key, value = queue.popleft()[1]
                    producer.produce(topic, value, key, partition, headers=_HEADERS)
            producer.poll(0.002)
        producer.flush(30)


def _transfers() -> Iterator[tuple[str, int, list[Event]]]:
    """Yields transfers without end: the transaction's id, the amount, and the records that Debezium sends."""
    generator = random.Random()  # noqa: S311 - no secret
    balances: dict[tuple[str, int], int] = {}
    lsn, number = 10_000, 700
    while True:
        number += 1
        ids = {
            "aid": generator.randrange(ACCOUNTS),
            "tid": generator.randrange(TELLERS),
            "bid": generator.randrange(BRANCHES),
        }
        delta = generator.randint(-5000, 5000)
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
        end = {"status": "END", "event_count": len(rows), "data_collections": counts}
        yield str(number), delta, [*events, _event(number, lsn + 10, end)]


def _event(number: int, lsn: int, fields: dict[str, Any]) -> Event:
    key = {"id": f"{number}:{lsn}"}
    return "bank.transaction", 0, _bytes(key), _bytes({**fields, **key, "ts_ms": round(time.time() * 1000)})


def _row(number: int, lsn: int, table: str, order: int, row: dict[str, int]) -> Event:
    now, column = round(time.time() * 1000), _KEYS[table]
    source = {"version": "3.7.0.Final", "connector": "postgresql", "name": "bank", "ts_ms": now, "snapshot": "false"}
    source |= {"db": "bank", "schema": "public", "table": table, "txId": number, "lsn": lsn}
    transaction = {"id": f"{number}:{lsn}", "total_order": order, "data_collection_order": 1}
    value: dict[str, Any] = {"before": None, "after": row, "source": source, "transaction": transaction, "ts_ms": now}
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
