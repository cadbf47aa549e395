"""What the tests of `sync-from` share: a lake of one's own, and what must always hold in its raw."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import rows
from zync.ingest.consume import Ingest, sync_from_kafka
from zync.ingest.outcome import Ingested
from zync.kafka.partition import Partition
from zync.lake.table import open_table
from zync.raw.batch import RECORD_SCHEMA, Batch, Slice
from zync.raw.table import Positions, ensure_raw, next_seqno, positions


@dataclass(frozen=True)
class Lake:
    """A folder with a lake in it, or one whose config names a lake in an object store; and a broker to fill its raw."""

    folder: Path
    broker: str
    store: str = ""

    @property
    def raw(self) -> str:
        return f"{self.store or self.folder / 'lake'}/raw"

    def sync_from(self, *topics: str, kafka: dict[str, str] | None = None, **options: Any) -> Ingested:
        """`sync-from kafka raw --until-caught-up`, in this process."""
        properties = {"bootstrap.servers": self.broker, **(kafka or {})}
        return sync_from_kafka(Ingest(self.raw, properties, topics, **{"until_caught_up": True, **options}))

    def config(self, **kafka: Any) -> None:
        """A zync.yaml in the folder, with these librdkafka properties."""
        given = {"bootstrap_servers": self.broker, **kafka}
        lines = [f"  {key.replace('_', '.')}: {value}" for key, value in given.items()]
        (self.folder / "zync.yaml").write_text("\n".join([f"lake: {self.store or 'lake'}", "kafka:", *lines, ""]))

    def rows(self) -> list[dict[str, Any]]:
        """Raw's rows, which are as raw promises."""
        found = rows(Path(self.raw)) if not self.store else _rows_of(self.table())
        assert_sound(found, self.positions())
        return found

    def values(self) -> list[bytes | None]:
        return [row["value"] for row in self.rows()]

    def offsets(self, topic: str, partition: int = 0) -> list[int]:
        places = [row["kafka"] for row in self.rows()]
        return [at["offset"] for at in places if (at["topic"], at["partition"]) == (topic, partition)]

    def table(self) -> DeltaTable:
        return ensure_raw(self.raw)

    def positions(self) -> Positions:
        return positions(self.table())

    def count(self) -> int:
        """How many records are in raw by now; 0 where there is no raw."""
        table = open_table(self.raw)
        return next_seqno(table) - 1 if table else 0


def _rows_of(table: DeltaTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pyarrow_table().sort_by("seqno").to_pylist()
    return found


@pytest.fixture
def lake(tmp_path: Path, broker: str) -> Lake:
    return Lake(tmp_path, broker)


@pytest.fixture
def plain(tmp_path: Path) -> Lake:
    """A lake without a broker, whose raw is there."""
    lake = Lake(tmp_path, "")
    lake.table()
    return lake


def assert_sound(found: list[dict[str, Any]], stored: Positions) -> None:
    """What holds in every raw: seqno 1..n, offsets rise with it, `ingested` never falls, positions are beyond."""
    assert [row["seqno"] for row in found] == list(range(1, len(found) + 1))
    assert stored.seqno == len(found) + 1
    assert [row["ingested"] for row in found] == sorted(row["ingested"] for row in found)
    anew = {gap.partition for gap in stored.gaps if gap.end < gap.start}
    last: dict[Partition, int] = {}
    for row in found:
        partition = Partition(row["kafka"]["topic"], row["kafka"]["partition"])
        assert partition in anew or row["kafka"]["offset"] > last.get(partition, -1), partition
        last[partition] = row["kafka"]["offset"]
    for partition, offset in last.items():
        assert partition in anew or stored.next[partition] > offset, partition


def batch(*slices: tuple[Partition, int | None, int]) -> Batch:
    """A batch as sync-from makes it: of each partition the offsets from `begin` up to `next`; values say whence."""
    made = Batch()
    for partition, begin, end in slices:
        made.slices[partition] = Slice(begin, end)
        made.add(records(partition, range(begin or 0, end)))
    return made


def records(partition: Partition, offsets: range) -> pa.RecordBatch:
    kafka = [{**partition._asdict(), "offset": at, "timestamp": at} for at in offsets]
    columns = [kafka, [None for _ in offsets], [value(partition, at) for at in offsets], [[] for _ in offsets]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def value(partition: Partition, offset: int) -> bytes:
    return f"{partition}/{offset}".encode()


def get(port: int, path: str) -> tuple[int, str]:
    """What `--metrics` answers there."""
    try:
        with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=10) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def connections(pid: int) -> int:
    """How many clients of librdkafka that process has, by the name of the thread that each has."""
    return sum(one.read_text().strip() == "rdk:main" for one in Path(f"/proc/{pid}/task").glob("*/comm"))


def figures(port: int) -> dict[tuple[str, ...], float]:
    """Each sample by its name, topic and partition; none while nobody answers yet."""
    try:
        families = text_string_to_metric_families(get(port, "/metrics")[1])
    except urllib.error.URLError:
        return {}
    return {
        (one.name, *(one.labels[label] for label in ("topic", "partition") if label in one.labels)): one.value
        for family in families
        for one in family.samples
    }


def wait_until(holds: Callable[[], Any], seconds: float = 60) -> None:
    """Waits for something another process does; most of the time, as looking may take what that needs to do it."""
    until = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if holds():
            return
        now = time.monotonic()
        assert now < until, "did not happen in time"
        time.sleep(min(max(0.05, 4 * (now - began)), 2))


@contextmanager
def transaction(broker: str, name: str, *, commit: bool = True) -> Iterator[Producer]:
    """A Kafka transaction around what the producer sends."""
    producer = Producer({"bootstrap.servers": broker, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    yield producer
    producer.flush(20)
    if commit:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)
