"""Brokers that are killed, paused or deaf, and clocks that are set back, cost time only."""

import json
import logging
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import TopicMaker, produce, start, zync
from tests.kafka.conftest import Lake, wait_until
from tests.kafka.harmed import assert_whole, begin, end
from tests.kafka.harms import Clock, kill_and_start_again, paused
from zync.errors import ZyncError
from zync.ingest import group
from zync.kafka import admin
from zync.kafka.admin import Brokers
from zync.kafka.dev_broker import DevKafka, free_port
from zync.kafka.partition import Partition


@pytest.mark.parametrize("harm", ["killed", "paused"])
def test_a_broker_that_is_harmed_while_records_come_costs_time_only(tmp_path: Path, harm: str) -> None:
    """Killed -9 and back; or paused for longer than the group's session."""
    kafka = DevKafka(tmp_path / "broker")
    lake = Lake(tmp_path, kafka.start())
    running: Any = None
    try:
        admin = AdminClient({"bootstrap.servers": lake.broker})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(20)
        lake.config(session_timeout_ms=6000)
        produced = threading.Thread(target=produce_slowly, args=(lake.broker,))
        produced.start()
        running = begin(lake, "t", "--topic", "t")
        wait_until(lambda: lake.count() > 100)
        if harm == "killed":
            kill_and_start_again(kafka)
        else:
            with paused(kafka.pid()):
                time.sleep(30)
        produced.join()
        wait_until(lambda: lake.count() >= 1000, 180)
        end(lake, running)
        zync("sync-from", "kafka", "raw", "--topic", "t", "--until-caught-up", cwd=lake.folder)
    finally:
        if running:
            running.kill()
        kafka.stop()
    values = [json.loads(value or b"") for value in lake.values()]
    assert sorted(values) == list(range(1000))
    for partition in (0, 1):
        mine = lake.offsets("t", partition)
        assert mine == list(range(len(mine)))
    zync("verify", "raw", cwd=lake.folder)


def test_a_consumer_that_knows_no_broker_any_more_is_replaced(
    lake: Lake, topic: TopicMaker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As librdkafka may forget it for good, when it asks while the only one comes back: at times in the test above."""
    name, made = topic(), []

    class DeafAtFirst(Consumer):
        def __init__(self, settings: dict[str, Any], **options: Any) -> None:
            made.append(self)
            deaf = {"bootstrap.servers": f"localhost:{free_port()}"} if len(made) == 1 else {}
            super().__init__({**settings, **deaf}, **options)

    monkeypatch.setattr(group, "Consumer", DeafAtFirst)
    monkeypatch.setattr(group, "_WITHOUT_SECONDS", 0.5)
    monkeypatch.setattr(group, "_ANSWER_SECONDS", 0.5)
    produce(lake.broker, [(name, 0, b"1")])
    with caplog.at_level(logging.INFO, "zync"):
        assert lake.sync_from(name).records == 1
    assert len(made) == 2
    assert "connecting anew" in caplog.text


def test_questions_that_nobody_answers_are_asked_anew_on_another_connection(
    lake: Lake, topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    brokers = Brokers({"bootstrap.servers": lake.broker})

    def deaf() -> AdminClient:
        return AdminClient({"bootstrap.servers": f"localhost:{free_port()}", "log_level": 0})

    with monkeypatch.context() as hasty:
        hasty.setattr(admin, "_TIMEOUT", 1.0)
        brokers.admin = deaf()
        assert brokers.topic_ids([name], patience=20)
        brokers.admin = deaf()
        threading.Timer(0.3, brokers.begin_anew).start()  # as by another thread, which asked something, too
        assert brokers.topic_ids([name], patience=20)
    for ask in (brokers.topics, brokers.cluster, lambda: brokers.bounds([Partition(name, 0)])):
        brokers.admin = deaf()
        with monkeypatch.context() as hasty:
            hasty.setattr(admin, "_TIMEOUT", 1.0)
            with pytest.raises(ZyncError, match="answer"):
                ask()
        assert ask()


def produce_slowly(servers: str) -> None:
    """1,000 records in five seconds, each once, whatever becomes of the broker."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for number in range(1000):
        producer.produce("t", str(number), partition=number % 2)
        producer.poll(0.005)
    assert producer.flush(60) == 0


def test_a_clock_that_is_set_back_under_a_writer_and_before_the_next_costs_nothing(
    lake: Lake, topic: TopicMaker
) -> None:
    """By ten minutes, and ten more; `ingested` stands still till the clock is there again."""
    name, clock = topic(), Clock(lake.folder)
    lake.config()
    words = ["sync-from", "kafka", "raw", "--topic", name]

    def more() -> None:
        produce(lake.broker, [(name, 0, b"%d" % number) for number in range(10)])

    running = start(*words, "--commit-every", "50ms", cwd=lake.folder, env=clock.env)
    try:
        for number, seconds in enumerate((0, -600), 1):
            clock.set(seconds)
            more()
            wait_until(lambda number=number: lake.count() == 10 * number)
    finally:
        end(lake, running)
    for seconds in (-1200, 600):
        clock.set(seconds)
        more()
        zync(*words, "--until-caught-up", cwd=lake.folder, env=clock.env)
    assert_whole(lake, name, 40)
    stamps = [row["ingested"] for row in lake.rows()]
    assert len(set(stamps[:30])) < len(set(stamps))
    assert stamps[29] - stamps[0] < timedelta(minutes=1)
    assert stamps[30] - stamps[29] > timedelta(minutes=9)
