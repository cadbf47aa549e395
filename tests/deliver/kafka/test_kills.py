"""Deliverers that are killed, stopped, fenced, or without their broker lose and repeat nothing."""

import json
import os
import random
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.conftest import start
from tests.deliver.conftest import Staging, assert_all_there, assert_whole, committed
from tests.deliver.kafka.conftest import transfers
from tests.kafka.conftest import connections, get, wait_until
from zync.errors import OwnedError
from zync.kafka.dev_broker import DevKafka, free_port


def test_the_first_deliverer_is_fenced_by_the_second(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 2000))
    first = start("sync-to", "kafka", "staging", "--one-by-one", cwd=staging.folder)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) > 30)
        first.send_signal(signal.SIGSTOP)
        done = staging.deliver()
        assert 0 < done.transactions < 2000
        first.send_signal(signal.SIGCONT)
        assert first.wait(60) == OwnedError.exit_code
    finally:
        first.kill()
    said = "".join(path.read_text() for path in staging.folder.glob("sync-to*.log"))
    assert "another sync-to took over" in said
    assert_all_there(committed(staging.broker, *names), staging)


def test_a_standby_leaves_the_first_alone_and_takes_over_when_it_is_killed(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 2000))
    first = start("sync-to", "kafka", "staging", "--one-by-one", cwd=staging.folder)
    logs = set(staging.folder.glob("sync-to*.log"))
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) > 30)
        standby = start("sync-to", "kafka", "staging", "--standby", "--until-caught-up", cwd=staging.folder)
        (log,) = set(staging.folder.glob("sync-to*.log")) - logs
        wait_until(
            lambda: (
                f"waiting as standby: zync sync-to kafka on {socket.gethostname()} (pid {first.pid})" in log.read_text()
            )
        )
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
    assert standby.wait(60) == 0
    assert "took over" in log.read_text()
    assert_all_there(committed(staging.broker, *names), staging)


@pytest.mark.parametrize("how", ["--one-by-one", "--group-rows=20"])
def test_kill_9_at_any_moment_neither_loses_nor_repeats(staging: Staging, names: list[str], how: str) -> None:
    chance = random.Random(7)
    for number in range(5):
        staging.sync(transfers(names, 2000, first=2000 * number))
        process = start("sync-to", "kafka", "staging", how, cwd=staging.folder)
        count = len(committed(staging.broker, *names))
        wait_until(lambda count=count: len(committed(staging.broker, *names)) > count)  # type: ignore[misc]
        time.sleep(chance.random() * 0.1)
        process.kill()
        process.wait()
        assert_whole(committed(staging.broker, *names), staging)
    done = staging.deliver()
    assert done.transactions > 0
    assert_all_there(committed(staging.broker, *names), staging)


def test_a_broker_that_dies_and_comes_back(tmp_path: Path, names: list[str]) -> None:
    kafka = DevKafka(tmp_path / "broker")
    staging = Staging(tmp_path, kafka.start(free_port()))
    staging.config()
    staging.sync(transfers(names, 6000))
    process = start("sync-to", "kafka", "staging", "--group-rows", "30", "--until-caught-up", cwd=tmp_path)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) > 30)
        os.kill(kafka.pid() or 0, signal.SIGKILL)
        time.sleep(3)
        kafka.start(int(staging.broker.rpartition(":")[2]))
        assert process.wait(120) == 0
        assert_all_there(committed(staging.broker, *names), staging)
    finally:
        process.kill()
        kafka.stop()


def test_while_kafka_takes_nothing_it_is_not_ready_and_behind(tmp_path: Path, names: list[str]) -> None:
    kafka, port = DevKafka(tmp_path / "broker"), free_port()
    staging = Staging(tmp_path, kafka.start(free_port()))
    staging.config("deliver: {kafka: {properties: {transaction.timeout.ms: 3000}}}\n")
    staging.sync(transfers(names, 10))
    process = start("sync-to", "kafka", "staging", "--metrics", f"localhost:{port}", cwd=tmp_path)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) == 30)
        wait_until(lambda: "zync_delivery_sync 1.0" in get(port, "/metrics")[1])
        assert get(port, "/readyz")[0] == 200
        before = connections(process.pid)
        os.kill(kafka.pid() or 0, signal.SIGKILL)
        staging.sync(transfers(names, 10, first=10))
        wait_until(lambda: get(port, "/readyz")[0] == 503, 60)
        assert "no Kafka transaction has gone through" in get(port, "/readyz")[1]
        assert "zync_delivery_lag_syncs 1.0" in get(port, "/metrics")[1]
        staging.sync(transfers(names, 10, first=20))
        wait_until(lambda: "zync_delivery_lag_syncs 2.0" in get(port, "/metrics")[1], 60)
        # Each attempt's producer has ended: one that lives on would fence its successor once brokers are back.
        assert connections(process.pid) <= before + 1
        kafka.start(int(staging.broker.rpartition(":")[2]))
        wait_until(lambda: get(port, "/readyz")[0] == 200, 60)
        wait_until(lambda: "zync_delivery_lag_syncs 0.0" in get(port, "/metrics")[1], 60)
        assert_all_there(committed(staging.broker, *names), staging)
    finally:
        process.kill()
        kafka.stop()


def test_it_follows_staging_and_ends_cleanly(staging: Staging, names: list[str]) -> None:
    port = free_port()
    process = start("sync-to", "kafka", "staging", "--metrics", f"localhost:{port}", cwd=staging.folder)
    try:
        time.sleep(1)  # there is no staging yet
        for number in range(3):
            staging.sync(transfers(names, 10, first=10 * number))
            wait_until(lambda n=number: len(committed(staging.broker, *names)) == 30 * (n + 1))  # type: ignore[misc]
        wait_until(lambda: "zync_delivery_transactions_total 30.0" in get(port, "/metrics")[1])
        assert get(port, "/readyz")[0] == 200
        said = get(port, "/metrics")[1]
        assert f'zync_delivery_rows_total{{topic="{names[0]}"}} 60.0' in said
        assert "zync_delivery_lag_syncs 0.0" in said
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert_all_there(committed(staging.broker, *names), staging)


def test_ctrl_c_in_the_middle_commits_what_is_in_hand(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 6000))
    process = start("sync-to", "kafka", "staging", "--one-by-one", "--json", cwd=staging.folder)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) > 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
    said = "".join(path.read_text() for path in staging.folder.glob("sync-to*.log"))
    assert 0 < json.loads(re.findall(r"^\{.*\}$", said, re.M)[-1])["transactions"] < 6000
    assert_whole(committed(staging.broker, *names), staging)
    staging.deliver()
    assert_all_there(committed(staging.broker, *names), staging)
