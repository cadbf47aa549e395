"""A bad environment: one line that says what was found and where, the right exit code, nothing written."""

import signal
import socket
import threading
import time
from pathlib import Path
from uuid import UUID

import pytest

from tests.conftest import TopicMaker, produce, start, zync
from tests.kafka.conftest import Lake, get, wait_until
from tests.kafka.harms import kill_and_start_again
from zync.config.model import Transactions
from zync.errors import UsageError
from zync.kafka.admin import Bounds, Brokers
from zync.kafka.dev_broker import DevKafka, free_port
from zync.kafka.partition import Partition


def refused(lake: Lake, *args: str, code: int) -> str:
    """The one line with which `sync-from` ends."""
    done = zync("sync-from", "kafka", "raw", *args, "--until-caught-up", cwd=lake.folder, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_a_broker_that_does_not_answer_is_an_error_within_30_seconds(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        servers = f"localhost:{free.getsockname()[1]}"
    began = time.monotonic()
    said = refused(Lake(tmp_path, ""), "--bootstrap-servers", servers, "--topic", "t", code=1)
    assert time.monotonic() - began < 30
    assert f"no Kafka broker answers at {servers}" in said
    assert not (tmp_path / "lake").exists()


def test_no_broker_and_no_topic_named_is_the_users_mistake(lake: Lake) -> None:
    assert "--bootstrap-servers" in refused(lake, "--topic", "t", code=2)
    assert "--topic" in refused(lake, "--bootstrap-servers", lake.broker, code=2)


def test_the_order_of_commit_needs_one_partition_that_says_it(lake: Lake, topic: TopicMaker) -> None:
    name = topic(partitions=2)
    with pytest.raises(UsageError, match=f"{name} to have one partition.* 2: "):
        lake.sync_from(name, transactions=Transactions(preset="debezium", topic=name, order="commit"))


def test_a_missing_topic_is_named_with_those_that_are_there(lake: Lake, topic: TopicMaker) -> None:
    there = topic("aaa")
    said = refused(lake, "--bootstrap-servers", lake.broker, "--topic", "missing", code=2)
    assert "'missing'" in said
    assert there in said
    assert not Path(lake.raw).exists()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"fetch_wait_max_mss": 5}, "fetch.wait.max.mss"),
        ({"fetch_wait_max_ms": "soon"}, "fetch.wait.max.ms"),
        ({"group_id": "mine"}, "kafka.group.id"),
        ({"isolation_level": "read_uncommitted"}, "kafka.isolation.level"),
    ],
)
def test_a_property_that_is_unknown_wrong_or_zyncs_own_is_named(
    lake: Lake, topic: TopicMaker, config: dict[str, object], says: str
) -> None:
    lake.config(**config)
    assert says in refused(lake, "--topic", topic(), code=2)


def test_what_is_no_regular_expression_is_the_users_mistake(lake: Lake) -> None:
    lake.config()
    assert "'^(a' is not a regular expression" in refused(lake, "--topic", "^(a", code=2)


def test_zyncs_own_topic_is_not_to_be_had_from_kafka(lake: Lake, topic: TopicMaker) -> None:
    produce(lake.broker, [("__zync", 0, b"no decision")])
    lake.config()
    assert "'__zync'" in refused(lake, "--topic", "__zync", code=2)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_no_table_is_left_alone(lake: Lake, topic: TopicMaker, kind: str) -> None:
    lake.config()
    theirs = Path(lake.raw) / "theirs" if kind == "folder" else Path(lake.raw)
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    name = topic()
    assert "is not a Delta table" in refused(lake, "--topic", name, code=2)
    assert [path.name for path in theirs.parent.iterdir()] == [theirs.name]


def test_a_port_that_was_taken_meanwhile_is_left_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = DevKafka(tmp_path / "broker")
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        ports = [free_port(), taken.getsockname()[1]]
        monkeypatch.setattr("zync.kafka.dev_broker.free_port", lambda *_: ports.pop(0) if ports else free_port())
        try:
            TopicMaker(kafka.start()).create("t")
        finally:
            kafka.stop()
    assert not ports


def test_a_server_does_not_get_one_port_for_two_things(monkeypatch: pytest.MonkeyPatch) -> None:
    one, another = free_port(), free_port()
    drawn = [one, another]
    monkeypatch.setattr("zync.kafka.dev_broker.random.SystemRandom.randrange", lambda *_: drawn.pop(0))
    assert free_port(one) == another


def test_a_broker_that_goes_and_comes_back_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "zync.kafka.dev_broker.uuid.uuid4", lambda: UUID(int=0xFB << 120)
    )  # an id of the cluster with - in front
    kafka = DevKafka(tmp_path / "broker")
    lake = Lake(tmp_path, kafka.start())
    try:
        TopicMaker(lake.broker).create("t")
        produce(lake.broker, [("t", 0, b"1")])
        lake.config(reconnect_backoff_max_ms=200)
        port = free_port()
        args = ("--topic", "t", "--commit-every", "50ms", "--metrics", f"localhost:{port}")
        process = start("sync-from", "kafka", "raw", *args, cwd=tmp_path)
        try:
            wait_until(lambda: lake.count() == 1)
            kafka.stop()
            assert kafka.pid() is None
            assert kafka.start(int(lake.broker.rpartition(":")[2])) == lake.broker
            produce(lake.broker, [("t", 0, b"2")])
            wait_until(lambda: lake.count() == 2)
            wait_until(lambda: get(port, "/readyz") == (200, "ready\n"))
            kafka.stop()
            wait_until(lambda: get(port, "/readyz") == (503, "stuck: no Kafka broker answers\n"))
            time.sleep(3)  # in which librdkafka has some hundred errors to tell
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            (said,) = [path.read_text() for path in tmp_path.glob("sync-from-kafka-*.log")]
            assert "no answer from Kafka" in said
            assert "no partitions yet" not in said  # it had them in all that time
        finally:
            process.kill()
    finally:
        kafka.stop()
    assert lake.values() == [b"1", b"2"]
    said = next(tmp_path.glob("sync-from-*.log")).read_text().splitlines()
    warnings = [line for line in said if "no answer from Kafka" in line]
    assert len(warnings) == 1, said
    assert sum("answers again" in line for line in said) == 1, said
    assert sum("now read here: t/0" in line for line in said) == 1, said
    assert len(said) <= 8, said


def test_which_topic_it_is_is_asked_until_the_broker_is_back(tmp_path: Path) -> None:
    """As when one dies between giving a process its partitions and being asked of them, longer than a question."""
    kafka = DevKafka(tmp_path / "broker")
    servers = kafka.start()
    try:
        TopicMaker(servers).create("t")
        brokers = Brokers({"bootstrap.servers": servers, "reconnect.backoff.max.ms": "200"})
        known = brokers.topic_ids(["t"])
        kafka.stop()
        back = threading.Timer(18, kafka.start, [int(servers.rpartition(":")[2])])
        back.start()
        assert brokers.topic_ids(["t"], patience=60) == known != {}
        back.join()
    finally:
        kafka.stop()


def test_a_partition_whose_leader_was_elected_anew_is_asked_for_its_ends_all_the_same(tmp_path: Path) -> None:
    """As after a broker was killed: the library would ask by the election that it knows."""
    kafka, partition = DevKafka(tmp_path / "broker"), Partition("t", 0)
    servers = kafka.start()
    try:
        TopicMaker(servers).create("t")
        produce(servers, [("t", 0, b"1")])
        brokers = Brokers({"bootstrap.servers": servers})
        before = brokers.bounds([partition])
        kill_and_start_again(kafka)
        assert brokers.bounds([partition]) == before == {partition: Bounds(0, 1)}
    finally:
        kafka.stop()
