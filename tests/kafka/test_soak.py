"""Harm at random to processes, broker and table: for ten minutes by `make soak`, for a short while by `make test`."""

import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.conftest import start, zync
from tests.kafka.conftest import Lake, wait_until
from zync.devkafka import DevKafka

SECONDS = float(os.environ.get("ZYNC_TEST_SOAK_SECONDS", "20"))
SEED = int(time.time()) if "ZYNC_TEST_SOAK_SECONDS" in os.environ else 3
AWAY = re.compile(r"zync: (no Kafka broker answers at|Kafka at \S+ does not answer:)")
"""How what a process says begins if it began while the broker was away."""


class Soak:
    """A broker, a raw, three processes of sync-from, and one that produces."""

    def __init__(self, folder: Path) -> None:
        self.chance = random.Random(SEED)
        self.kafka = DevKafka(folder / "broker")
        self.lake = Lake(folder, self.kafka.start())
        self.admin = AdminClient({"bootstrap.servers": self.lake.broker, "log_level": 0})
        self.admin.create_topics([NewTopic("t", 4, 1)])["t"].result(20)
        self.partitions = 4
        self.lake.config(session_timeout_ms=6000, topic_metadata_refresh_interval_ms=1000)
        self.running: list[subprocess.Popen[str]] = []
        self.says: dict[subprocess.Popen[str], Path] = {}
        self.sent, self.enough = 0, threading.Event()

    def begin(self) -> None:
        args = ("--topic", "t", "--commit-every", "50ms")
        before = self._logs()
        one = start("sync-from", "kafka", "raw", *args, cwd=self.lake.folder)
        self.running.append(one)
        (self.says[one],) = self._logs() - before

    def _logs(self) -> set[Path]:
        return set(self.lake.folder.glob("sync-from*.log"))

    def begin_again(self) -> None:
        """Instead of those that began while the broker was away: they say so and end, and what watches them goes on."""
        for one in list(self.running):
            if one.poll() == 1 and AWAY.match(self.says[one].read_text()):
                self.running.remove(one)
                self.begin()

    def produce(self) -> None:
        """Each number once, whatever becomes of the broker."""
        producer = Producer({"bootstrap.servers": self.lake.broker, "enable.idempotence": True, "log_level": 0})
        while not self.enough.wait(0.005):
            producer.produce("t", json.dumps(self.sent))
            self.sent += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def kill(self) -> None:
        one = self.running.pop(self.chance.randrange(3))
        one.kill()
        one.wait()
        self.begin()

    def stop(self) -> None:
        one = self.running.pop(self.chance.randrange(3))
        one.send_signal(self.chance.choice([signal.SIGTERM, signal.SIGINT]))
        assert one.wait(60) in (0, -signal.SIGTERM, -signal.SIGINT)  # those before it could know of them
        self.begin()

    def suspend(self) -> None:
        one = self.chance.choice(self.running)
        one.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.choice([1, 8]))  # the longer one makes it a zombie
        one.send_signal(signal.SIGCONT)

    def kill_broker(self) -> None:
        pid = self.kafka.pid()
        assert pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.kafka.pid() is None)
        self.kafka.start(int(self.lake.broker.rpartition(":")[2]))

    def suspend_broker(self) -> None:
        pid = self.kafka.pid()
        assert pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chance.choice([1, 8]))
        os.kill(pid, signal.SIGCONT)

    def maintain(self) -> None:
        zync("maintain", "raw", cwd=self.lake.folder)

    def add_a_partition(self) -> None:
        self.partitions += 1
        self.admin.create_partitions([NewPartitions("t", self.partitions)])["t"].result(20)


def test_whatever_happens_every_record_is_there_once(tmp_path: Path) -> None:
    soak = Soak(tmp_path)
    harms = [soak.kill, soak.stop, soak.suspend, soak.kill_broker, soak.suspend_broker, soak.maintain]
    harms.append(soak.add_a_partition)
    done: list[str] = [f"seed {SEED}"]
    producing = threading.Thread(target=soak.produce)
    try:
        for _ in range(3):
            soak.begin()
        producing.start()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            before = soak.lake.count()
            wait_until(lambda before=before: soak.lake.count() > before)  # type: ignore[misc]
            harm = soak.chance.choice(harms)
            done.append(harm.__name__)
            harm()
            soak.begin_again()
            assert [one.poll() for one in soak.running] == [None, None, None], done
        soak.enough.set()
        producing.join()
        for one in soak.running:
            one.terminate()
            assert one.wait(60) in (0, -signal.SIGTERM), done
        zync("sync-from", "kafka", "raw", "--topic", "t", "--until-caught-up", cwd=tmp_path)
    finally:
        soak.enough.set()
        for one in soak.running:
            one.kill()
        soak.kafka.stop()
    print(*done)
    found = Counter(json.loads(value or b"") for value in soak.lake.values())
    assert found == Counter(range(soak.sent)), done
    zync("verify", "raw", cwd=tmp_path)
