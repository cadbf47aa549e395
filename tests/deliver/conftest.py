"""What the tests of deliveries share: a staging with chosen transactions, and what readers see of what came out."""

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from tests.conftest import zync
from zync.deliver.kafka.delivery import Delivered, Delivery, sync_to_kafka
from zync.lake.table import open_table
from zync.project.load import load
from zync.staging.bookkeeping import read_cursor
from zync.staging.commit import add_rows, commit_files
from zync.staging.table import STAGING_SCHEMA, ensure_staging

Row = tuple[str, str | None, str | None] | tuple[str, str | None, str | None, str]
"""Topic, key, value; and the state, where it has one."""
TRUNCATED = ""
"""A key that stands for that of a truncation, which has none."""


@dataclass
class Staging:
    """A staging, written by zync's own commits, that holds the transactions that a test wants."""

    folder: Path
    broker: str
    offsets: dict[str, int] = field(default_factory=dict)
    seqno: int = 0
    committed: list[tuple[int, Row]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return str(self.folder / "lake" / "staging")

    def sync(
        self,
        transactions: Iterable[list[Row]],
        *,
        shuffled: Any = None,
        pieces: int = 1,
        positions: Iterator[int | None] | None = None,
        columns: dict[str, str] | None = None,
    ) -> None:
        """One sync with those transactions, which have ids t1, t2 …; in so many files, the rows in any order.

        `columns`: what it has on record of each topic's, as DDL.
        """
        table = ensure_staging(self.path)
        number = read_cursor(table).sync + 1
        rows: list[dict[str, Any]] = []
        for transaction in transactions:
            self.seqno += 1
            of = {"seqno": self.seqno, "sync": number}
            position = next(positions) if positions else 1000 + self.seqno
            for topic, key, value, *state in transaction:
                offset = self.offsets.get(topic, 0)
                self.offsets[topic] = offset + 1
                place = {"topic": topic, "partition": 0, "offset": offset}
                row = {**of, "kind": "output", "kafka": place, "key": key, "value": value, "position": position}
                whole = {"key": None, "reason": "truncate"} if key == TRUNCATED else {}
                rows.append({**row, "state": next(iter(state), None), **whole})
                self.committed.append((self.seqno, (topic, key, value)))
            ranges = [{"first": self.seqno, "last": self.seqno}]
            rows.append({**of, "kind": "done", "txn": f"t{self.seqno}", "records": ranges, "count": 1})
        if shuffled:
            shuffled.shuffle(rows)
        nonce = uuid.uuid4().hex
        cursor = {"kind": "cursor", "seqno": self.seqno, "head": self.seqno, "sync": number, "full": 1, "nonce": nonce}
        cursor |= {"offsets": list(self.offsets.items()), "raw": {"id": f"raw-{self.folder.name}", "version": 1}}
        if columns:
            made = {topic: {"value": StructType.fromDDL(one).jsonValue()} for topic, one in columns.items()}
            cursor["state"] = json.dumps({"columns": made})
        rows.append({**cursor, "digests": []})
        folder = f"sync-{number:08d}-{nonce[:8]}"
        tables = [pa.Table.from_pylist(rows[piece::pieces], STAGING_SCHEMA) for piece in range(pieces)]
        self.write(table, folder, tables)
        commit_files(open_table(self.path) or table, folder, number, nonce, rows=len(rows))

    def write(self, table: DeltaTable, folder: str, pieces: list[pa.Table]) -> None:
        """Writes a file for each piece into a folder of the table."""
        for number, piece in enumerate(pieces):
            (Path(self.path) / folder / str(number)).mkdir(parents=True)
            add_rows(table, f"{folder}/{number}", piece)
        for path in (Path(self.path) / folder).glob("*/*.parquet"):
            path.rename(path.parents[1] / f"{path.parent.name}.zstd.parquet")

    def config(self, text: str = "") -> None:
        """A zync.yaml beside the lake that names the broker."""
        kafka = f'lake: lake\nkafka: {{bootstrap.servers: "{self.broker}"}}\n'
        (self.folder / "zync.yaml").write_text(kafka + text)

    def deliver(self, **options: Any) -> Delivered:
        """`sync-to kafka staging --until-caught-up`, in this process."""
        config = load(self.folder / "zync.yaml")
        options = {"until_caught_up": True, **options}
        return sync_to_kafka(Delivery(self.path, config=config, **options))

    def zync(self, *args: str, **options: Any) -> Any:
        return zync("sync-to", "kafka", "staging", *args, cwd=self.folder, **options)

    def by_seqno(self) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = {}
        for seqno, row in self.committed:
            found.setdefault(seqno, []).append(row)
        return found


@pytest.fixture
def staging(tmp_path: Path, broker: str) -> Staging:
    made = Staging(tmp_path, broker)
    made.config()
    return made


@dataclass(frozen=True)
class Seen:
    """A message as a read_committed consumer sees it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]

    @property
    def seqno(self) -> int:
        return int(self.headers["zync.seqno"])

    @property
    def row(self) -> Row:
        return self.topic, _text(self.key), _text(self.value)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def committed(broker: str, *topics: str) -> list[Seen]:
    """All that is committed in those topics now, by topic and partition."""
    admin = AdminClient({"bootstrap.servers": broker})
    there = admin.list_topics(timeout=10).topics
    places = [
        TopicPartition(topic, number, OFFSET_BEGINNING)
        for topic in topics
        if topic in there
        for number in there[topic].partitions
    ]
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign(places)
    found: list[Seen] = []
    open_ = len(places)
    while open_:
        message = consumer.poll(10)
        assert message is not None, "Kafka does not answer"
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001 - the library's public name for it
            open_ -= 1
            continue
        headers = dict(message.headers() or [])
        found.append(
            Seen(message.topic(), message.partition(), message.offset(), message.key(), message.value(), headers)
        )
    consumer.close()
    return sorted(found, key=lambda one: (one.topic, one.partition, one.offset))


def assert_whole(seen: list[Seen], staging: Staging) -> None:
    """Of each transaction all rows were seen, once, or none; in each partition they are in order."""
    rows: dict[int, list[Row]] = {}
    for one in seen:
        rows.setdefault(one.seqno, []).append(one.row)
    expected = staging.by_seqno()
    for seqno, found in rows.items():
        assert sorted(map(repr, found)) == sorted(map(repr, expected[seqno])), seqno
    for place in {(one.topic, one.partition) for one in seen}:
        seqnos = [one.seqno for one in seen if (one.topic, one.partition) == place]
        assert seqnos == sorted(seqnos)


def assert_all_there(seen: list[Seen], staging: Staging) -> None:
    """All of staging was seen, each row once."""
    assert_whole(seen, staging)
    assert sorted(map(repr, (one.row for one in seen))) == sorted(map(repr, (row for _, row in staging.committed)))


def row(topic: str, key: Any, **value: Any) -> Row:
    return topic, json.dumps({"id": key}, separators=(",", ":")), json.dumps({"id": key, **value})
