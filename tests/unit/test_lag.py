"""How far raw is behind Kafka, by partition, in offsets and in seconds, is told of the partitions held now."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from zync.ingest import lag
from zync.ingest.assignment import Assignment
from zync.ingest.lag import Lag
from zync.kafka.partition import Partition
from zync.raw.batch import Batch, Slice

ORDERS, LINES = Partition("orders", 0), Partition("lines", 0)


@dataclass
class Clock:
    """The time of this machine, which goes on only as a test says."""

    now: float = 1_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class Ends:
    """Of a consumer, what it says of where partitions end."""

    ends: dict[Partition, int | None]

    def get_watermark_offsets(
        self, topic_partition: TopicPartition, *, timeout: float, cached: bool
    ) -> tuple[int, int]:
        assert timeout
        end = self.ends[Partition(topic_partition.topic, topic_partition.partition)]
        if end is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))  # noqa: SLF001
        return (0, end) if not cached or end >= 0 else (-1001, -1001)


@dataclass
class Told:
    """Of metrics, what they were told last."""

    offsets: dict[Partition, int] = field(default_factory=dict)
    waiting: dict[Partition, float] = field(default_factory=dict)

    def behind(self, offsets: dict[Partition, int], waiting: dict[Partition, float]) -> None:
        self.offsets, self.waiting = offsets, waiting


@dataclass
class Measured:
    clock: Clock
    ends: Ends = field(default_factory=lambda: Ends({ORDERS: 10, LINES: 10}))
    told: Told = field(default_factory=Told)
    held: Assignment = field(default_factory=lambda: Assignment(*(None,) * 4))  # type: ignore[arg-type]
    lag: Lag = field(init=False)

    def __post_init__(self) -> None:
        self.lag = Lag(self.told)  # type: ignore[arg-type]

    def hold(self, **landed: int) -> None:
        """Has these partitions, of which raw has so much, and no others."""
        self.held.forget([*self.held.expected])
        for topic, offset in landed.items():
            self.held.expected[Partition(topic, 0)] = Slice(offset, offset)
            self.held.landed[Partition(topic, 0)] = offset

    def after(self, seconds: float, *in_hand: Batch, fetching: bool = True) -> Told:
        self.clock.now += seconds
        self.lag.measure(self.ends, self.held, in_hand, fetching=fetching)  # type: ignore[arg-type]
        return self.told


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    clock = Clock()
    monkeypatch.setattr(lag, "time", clock)
    return Measured(clock)


def test_a_partition_is_behind_by_what_is_not_in_raw(measured: Measured) -> None:
    measured.hold(orders=3, lines=10)
    told = measured.after(2)
    assert told.offsets == {ORDERS: 7, LINES: 0}
    assert told.waiting == {ORDERS: measured.clock.now}


def test_its_age_is_that_of_standing_still_while_kafka_has_more(measured: Measured) -> None:
    measured.hold(orders=3)
    began = measured.after(2).waiting[ORDERS]
    assert measured.after(60).waiting == {ORDERS: began}
    measured.hold(orders=4)
    assert measured.after(2).waiting == {ORDERS: measured.clock.now}
    measured.hold(orders=10)
    assert measured.after(2).waiting == {}


def test_a_partition_that_comes_back_at_the_same_offset_is_not_days_old(measured: Measured) -> None:
    measured.hold(orders=3, lines=3)
    measured.after(2)
    measured.hold(lines=3)
    assert measured.after(2).offsets == {LINES: 7}
    measured.hold(orders=3, lines=3)
    told = measured.after(3 * 86_400)
    assert told.waiting[ORDERS] == measured.clock.now
    assert told.waiting[LINES] < told.waiting[ORDERS]  # which was held, and stood still all the time


def test_a_partition_is_no_older_than_its_first_record_in_hand(measured: Measured) -> None:
    measured.hold(orders=3)
    batch = Batch(slices={ORDERS: Slice(3, 5, first=999_000.0)})
    assert measured.after(2, batch).waiting == {ORDERS: 999_000.0}


def test_it_is_measured_once_a_second(measured: Measured) -> None:
    measured.hold(orders=3)
    measured.after(2)
    measured.hold(orders=9)
    assert measured.after(0.5).offsets == {ORDERS: 7}
    assert measured.after(0.6).offsets == {ORDERS: 1}


def test_a_partition_that_nothing_was_fetched_of_is_left_out(measured: Measured) -> None:
    measured.ends.ends[LINES] = -1
    measured.hold(orders=3, lines=3)
    assert measured.after(2).offsets == {ORDERS: 7}


def test_while_kafka_is_away_what_was_known_stays(measured: Measured) -> None:
    measured.hold(orders=3)
    measured.after(2)
    measured.ends.ends[ORDERS] = None
    measured.hold(orders=5)
    assert measured.after(2, fetching=False).offsets == {ORDERS: 7}
