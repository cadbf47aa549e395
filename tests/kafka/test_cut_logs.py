"""A leader that lagged (an unclean election) puts other records at offsets that were read: told of, never skipped."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import TopicMaker, start, zync
from tests.kafka.conftest import Lake, transaction, wait_until
from tests.kafka.harms import cut_logs, delete_below, kill_and_start_again
from zync.errors import GapError
from zync.kafka.admin import Brokers
from zync.kafka.dev_broker import DevKafka
from zync.kafka.partition import Partition
from zync.raw.table import Gap, stored_last, stored_position

THEN = {"empty": 0, "shorter": 3, "as long": 5, "longer": 7}
"""How many records a log of ten got anew after it was cut to five: so long it is then, by what was read."""
PARTITIONS = 3
_PARTED = Partition("parted", 1)
"""Of its three partitions, of six records each, this one's log was cut to four."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevKafka]:
    """A broker of these tests' own, to stop and to cut the logs of: each has a topic of its own there."""
    kafka = DevKafka(tmp_path_factory.mktemp("kafka") / "broker")
    kafka.start()
    yield kafka
    kafka.stop()


@pytest.fixture
def lake(tmp_path: Path, kafka: DevKafka) -> Lake:
    return Lake(tmp_path, str(kafka.servers()))


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory, kafka: DevKafka) -> dict[str, Lake]:
    """Of each topic the lake that was read into before its log was cut (all logs at once) and grew again."""
    servers = str(kafka.servers())
    topics = TopicMaker(servers)
    lakes = {name: Lake(tmp_path_factory.mktemp("lake"), servers) for name in (*map(topic_of, THEN), _PARTED.topic)}
    for case in THEN:
        topics.create(topic_of(case))
        send(servers, topic_of(case), range(10))
    topics.create(_PARTED.topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        send(servers, _PARTED.topic, range(6), partition)
    for name, lake in lakes.items():
        lake.sync_from(name)
    cut_logs(kafka, {**{Partition(topic_of(case), 0): 5 for case in THEN}, _PARTED: 4})
    for case, then in THEN.items():
        send(servers, topic_of(case), range(100, 100 + then))
    return lakes


def topic_of(case: str) -> str:
    return case.replace(" ", "-")


def send(broker: str, name: str, numbers: range, partition: int = 0) -> None:
    """Each in a batch of its own."""
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 0})
    for number in numbers:
        producer.produce(name, b"%d" % number, partition=partition)
        assert producer.flush(20) == 0


def await_marker(broker: str, partition: Partition, end: int) -> None:
    """Waits for the marker of a transaction that was committed, which comes a little later."""
    brokers = Brokers({"bootstrap.servers": broker})
    wait_until(lambda: brokers.bounds([partition])[partition].stable == end)


@pytest.mark.parametrize("case", THEN)
def test_other_records_at_offsets_already_read_stop_it_and_skip_reads_them(cut: dict[str, Lake], case: str) -> None:
    name, then = topic_of(case), THEN[case]
    lake = cut[name]
    version = lake.table().version()
    with pytest.raises(GapError, match=f"{name}/0: .* offsets 5 to 9 were cut off"):
        lake.sync_from(name)
    assert lake.table().version() == version
    lake.config()
    seen = zync("verify", "raw", "--kafka", cwd=lake.folder, check=False)
    assert (seen.returncode, f"{name}/0: raw has records up to offset 9" in seen.stdout) == (1, True)
    lake.sync_from(name, on_gap="skip")
    assert lake.values() == [b"%d" % number for number in (*range(10), *range(100, 100 + then))]
    assert lake.offsets(name) == [*range(10), *range(5, 5 + then)]
    assert lake.positions().gaps == (Gap(Partition(name, 0), 10, 5),)
    send(lake.broker, name, range(200, 203))
    lake.sync_from(name)
    assert lake.offsets(name)[10:] == [*range(5, 8 + then)]
    zync("verify", "raw", "--kafka", cwd=lake.folder)


def test_a_log_that_is_cut_while_it_is_read_stops_it(lake: Lake, kafka: DevKafka) -> None:
    name = "read"
    TopicMaker(lake.broker).create(name)
    lake.config(topic_metadata_refresh_interval_ms=500)
    send(lake.broker, name, range(10))
    process = start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 10)
        cut_logs(kafka, {Partition(name, 0): 5})
        send(lake.broker, name, range(100, 107))
        assert process.wait(60) == 1
    finally:
        process.kill()
    (log,) = lake.folder.glob("sync-from-*.log")
    assert "offsets 5 to 9 were cut off" in log.read_text()
    assert lake.values() == [b"%d" % number for number in range(10)]


def test_a_new_leader_that_has_all_that_was_read_is_no_gap(lake: Lake, kafka: DevKafka) -> None:
    """The position is beyond markers that a later leader appended, so the last record's epoch ends below it."""
    name, partition = "led", Partition("led", 0)
    TopicMaker(lake.broker).create(name)
    for turn in range(2):
        with transaction(lake.broker, "writer") as producer:
            producer.produce(name, b"%d" % turn, partition=0)
            producer.flush(20)
            kill_and_start_again(kafka)
        await_marker(lake.broker, partition, 2 * turn + 2)
        lake.sync_from(name)
        last = stored_last(lake.table(), partition, stored_position(lake.table(), partition))
        assert last
        assert last.offset == 2 * turn
        assert lake.positions().next == {partition: 2 * turn + 2}
    lake.sync_from(name)
    assert lake.values() == [b"0", b"1"]
    assert lake.positions().gaps == ()
    lake.config()
    zync("verify", "raw", "--kafka", cwd=lake.folder)


def test_markers_that_retention_took_away_are_no_gap(lake: Lake, kafka: DevKafka) -> None:
    """The position is beyond them, and the offset behind the last record is gone."""
    name, topic = "retained", TopicMaker(str(kafka.servers()))
    topic.create(name)
    with transaction(lake.broker, "writer") as producer:
        producer.produce(name, b"0", partition=0)
    await_marker(lake.broker, Partition(name, 0), 2)
    lake.sync_from(name)
    assert lake.positions().next == {Partition(name, 0): 2}
    delete_below(topic, name, 2)
    lake.sync_from(name)
    with transaction(lake.broker, "writer") as producer:
        producer.produce(name, b"1", partition=0)
    await_marker(lake.broker, Partition(name, 0), 4)
    lake.sync_from(name)
    assert lake.values() == [b"0", b"1"]
    assert lake.positions().gaps == ()
    lake.config()
    zync("verify", "raw", "--kafka", cwd=lake.folder)


def test_of_several_partitions_the_one_that_was_cut_is_named(cut: dict[str, Lake]) -> None:
    name = _PARTED.topic
    lake = cut[name]
    lake.config()
    seen = zync("verify", "raw", "--kafka", cwd=lake.folder, check=False)
    assert seen.returncode == 1
    assert [f"{name}/{partition}:" in seen.stdout for partition in range(PARTITIONS)] == [False, True, False]
    with pytest.raises(GapError, match=f"{_PARTED}: .* offsets 4 to 5 were cut off"):
        lake.sync_from(name)
