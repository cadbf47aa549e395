"""Harm at random to all that there is, for ten minutes by `make soak`, for a short while by `make test`.

To processes, broker, disk, clock, table and topics. Whatever is sent to topic `t` lands once. Of two others records are
lost by what is done to them, and it is known of each which ones: `short`, whose unread records retention takes, and
`anew`, which is deleted and made again.
"""

import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from tests.conftest import TopicMaker, produce, start, zync
from tests.kafka.conftest import Lake, wait_until
from tests.kafka.harms import (
    MB,
    Clock,
    delete_below,
    disk,
    full,
    kill_and_start_again,
    make_anew,
    paused,
    read_only,
)
from tests.store.proxy import Outage, running_proxy
from tests.store.s3 import BUCKET, running_s3
from zync.errors import INTERRUPTED
from zync.kafka.admin import Brokers
from zync.kafka.dev_broker import DevKafka
from zync.kafka.partition import Partition
from zync.raw.table import INGESTED, Gap, stored_id, stored_position

SECONDS = float(os.environ.get("ZYNC_TEST_SOAK_SECONDS", "20"))
LONG = 300
"""Seconds in which all kinds of harm are met."""
SEED = int(os.environ.get("ZYNC_TEST_SOAK_SEED", time.time() if "ZYNC_TEST_SOAK_SECONDS" in os.environ else 836))
"""Of the short form one whose first harms are of many kinds, and quick."""
STORE = os.environ.get("ZYNC_TEST_SOAK_STORE", "")
"""Where the lake is: "s3" for a server that speaks S3, without it on a disk."""
SHORT, ANEW = Partition("short", 0), Partition("anew", 0)
STOPPED = (0, INTERRUPTED, -signal.SIGTERM, -signal.SIGINT)
"""What a process exits with that was told to end; by the signal, where that came before it could know of it."""
AWAY = re.compile(r"zync: (no Kafka broker answers at|Kafka at \S+ does not answer:)")
"""How what a process says begins if it began while the broker was away."""
GAP = re.compile(
    r"(were deleted before they were read|was deleted and made anew|topic 'anew' (is gone from|at localhost))"
)
DISK = re.compile(r"(No space left on device|Read-only file system)")
"""What the last line says of one that ended because of what was done to topics, or to the disk."""
STORE_AWAY = re.compile(r"the store\b.* does not answer|the store fails or is overloaded")
"""Likewise of one that began while the store was away."""


class Soak:
    """A broker, a raw on a disk of its own where that may be, three processes of sync-from, and one that produces."""

    def __init__(self, folder: Path, undo: ExitStack) -> None:
        self.chance = random.Random(SEED)
        self.kafka = DevKafka(folder / "broker")
        undo.callback(self.kafka.stop)
        self.outage = Outage()
        store = self._store(folder, undo) if STORE else ""
        self.lake = Lake(folder, self.kafka.start(), store)
        self.brokers, self.topic = Brokers({"bootstrap.servers": self.lake.broker}), TopicMaker(self.lake.broker)
        for name, count in (("t", 4), (SHORT.topic, 1), (ANEW.topic, 1)):
            self.topic.create(name, count)
        self.lake.config(session_timeout_ms=6000, topic_metadata_refresh_interval_ms=1000)
        self.clock, self.disk = Clock(folder), folder / "lake"
        if STORE:
            proxy = undo.enter_context(running_proxy(os.environ["AWS_ENDPOINT_URL"]))
            proxy.rule = self.outage
            self.clock.env["AWS_ENDPOINT_URL"] = proxy.url
        try:
            if STORE:
                raise OSError  # noqa: TRY301 - nothing is on a disk
            undo.enter_context(disk(self.disk, 4000 * MB))
            self.has_disk = True
        except OSError:
            self.has_disk = False
        self.running: list[subprocess.Popen[str]] = []
        self.says: dict[subprocess.Popen[str], Path] = {}
        self.partitions, self.sent, self.enough = 4, 0, threading.Event()
        self.short, self.taken, self.anew = 0, set[int](), [0]
        self._produce_short(5)  # what is taken before anything was read is no gap
        self._produce_anew()
        undo.callback(self.end)

    def _store(self, folder: Path, undo: ExitStack) -> str:
        """Starts a store, and returns the lake in it."""
        (folder / "s3").mkdir()
        variables = undo.enter_context(running_s3(folder / "s3"))
        patch = undo.enter_context(pytest.MonkeyPatch.context())
        for name, value in variables.items():
            patch.setenv(name, value)
        return f"s3://{BUCKET}/soak"

    def kinds(self) -> list[Callable[[], None]]:
        """All harms that can be done here."""
        harms = [self.kill, self.stop, self.interrupt_twice, self.suspend, self.kill_broker, self.suspend_broker]
        harms += [self.maintain, self.add_a_partition, self.set_the_clock_back, self.take_unread, self.make_anew]
        harms += [self.take_the_store_away, self.hang_the_store] if STORE else []
        return harms + ([self.fill_the_disk, self.make_it_read_only] if self.has_disk else [])

    def harms(self) -> Iterator[Callable[[], None]]:
        """All of them in random order, and again."""
        order = random.Random(SEED)
        while True:
            yield from order.sample(self.kinds(), len(self.kinds()))

    # Processes: three run all the time

    def begin(self, on_gap: str | None = None) -> None:
        on_gap = on_gap or self.chance.choice(["stop", "skip"])
        topics = ("--topic", "t", "--topic", SHORT.topic, "--topic", ANEW.topic)
        args = ("--commit-every", "50ms", "--on-gap", on_gap)
        before = self._logs()
        one = start("sync-from", "kafka", "raw", *topics, *args, cwd=self.lake.folder, env=self.clock.env)
        self.running.append(one)
        (self.says[one],) = self._logs() - before

    def _logs(self) -> set[Path]:
        return set(self.lake.folder.glob("sync-from*.log"))

    def begin_again(self) -> None:
        """Instead of those that ended for what was done to broker, disk or topics: an operator starts others."""
        for one in [one for one in self.running if one.poll() is not None]:
            assert self.rightly(one), f"exit {one.returncode}: {self.says[one].read_text()[-2000:]}"
            self.running.remove(one)
            self.begin("skip" if GAP.search(self.last_line(one)) else None)

    def rightly(self, one: "subprocess.Popen[str]") -> bool:
        """Whether a process that ended says that harm which it cannot get over was done."""
        last = self.last_line(one)
        said = AWAY.match(self.says[one].read_text()) or AWAY.match(last) or GAP.search(last) or DISK.search(last)
        said = said or (STORE and STORE_AWAY.search(last))
        return one.returncode in (1, 2) and bool(said)  # 2 of one that begins while there is no such topic

    def last_line(self, one: "subprocess.Popen[str]") -> str:
        return (self.says[one].read_text().splitlines() or [""])[-1]

    def any_one(self) -> "subprocess.Popen[str]":
        """One of them, whose place is to be taken."""
        return self.running.pop(self.chance.randrange(3))

    def ends(self, one: "subprocess.Popen[str]") -> None:
        assert one.wait(60) in STOPPED or self.rightly(one), f"exit {one.returncode}: {self.says[one].read_text()}"

    def end(self) -> None:
        self.enough.set()
        for one in self.says:
            one.kill()

    def meanwhile(self, holds: Callable[[], object]) -> None:
        """Waits for that, while others take the places of those that end."""

        def now() -> object:
            self.begin_again()
            return holds()

        wait_until(now, 90)

    def lands(self) -> None:
        """Waits for more records in raw."""
        before = self.lake.count()
        self.meanwhile(lambda: self.lake.count() > before)

    def has_landed(self, partition: Partition, count: int) -> bool:
        """Whether raw has that many records of the partition as it is now."""
        table, topic_ids = self.lake.table(), self.brokers.topic_ids([partition.topic])
        stored = stored_position(table, partition), stored_id(table, partition)
        return stored == ((count, topic_ids[partition.topic]) if count else (None, None))

    def produce(self) -> None:
        """Each number once, whatever becomes of the broker."""
        properties = {"bootstrap.servers": self.lake.broker, "enable.idempotence": True, "log_level": 0}
        producer = Producer({**properties, "topic.metadata.refresh.interval.ms": 1000})  # to know of new partitions
        while not self.enough.wait(0.005):
            producer.produce("t", json.dumps(self.sent))
            self.sent += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    # Harms

    def kill(self) -> None:
        one = self.any_one()
        one.kill()
        one.wait()
        self.begin()

    def stop(self) -> None:
        one = self.any_one()
        one.send_signal(self.chance.choice([signal.SIGTERM, signal.SIGINT]))
        self.ends(one)
        self.begin()

    def interrupt_twice(self) -> None:
        one = self.any_one()
        one.send_signal(signal.SIGINT)
        time.sleep(self.chance.choice([0.01, 0.1]))
        one.send_signal(signal.SIGINT)
        self.ends(one)
        self.begin()

    def suspend(self) -> None:
        with paused(self.chance.choice(self.running).pid):
            time.sleep(self.chance.choice([1, 8]))  # the longer one makes it a zombie

    def kill_broker(self) -> None:
        kill_and_start_again(self.kafka)

    def suspend_broker(self) -> None:
        with paused(self.kafka.pid()):
            time.sleep(self.chance.choice([1, 8]))

    def maintain(self) -> None:
        """Compacts, vacuums and leaves a checkpoint, while others read and write."""
        reading = start("cat", "raw", cwd=self.lake.folder)
        zync("maintain", "raw", cwd=self.lake.folder)
        assert reading.wait(60) == 0

    def add_a_partition(self) -> None:
        self.partitions += 1
        self.topic.admin.create_partitions([NewPartitions("t", self.partitions)])["t"].result(20)

    def fill_the_disk(self) -> None:
        with full(self.disk):
            self._until_one_says("No space left on device")

    def make_it_read_only(self) -> None:
        with ExitStack() as undo:
            with paused(self.kafka.pid()):  # or one of three always has a file open, which makes the disk busy
                undo.enter_context(read_only(self.disk))
            self._until_one_says("Read-only file system")

    def take_the_store_away(self) -> None:
        self._without_store(hang=False)

    def hang_the_store(self) -> None:
        self._without_store(hang=True)

    def _without_store(self, *, hang: bool) -> None:
        """For longer than delta-rs tries, now and then: then they wait for it."""
        self.outage.begin(hang=hang)
        try:
            time.sleep(self.chance.choice([3, 40]))
        finally:
            self.outage.end()

    def _until_one_says(self, what: str) -> None:
        wait_until(lambda: any(one.poll() is not None and what in self.last_line(one) for one in self.running))

    def set_the_clock_back(self) -> None:
        """By an hour, until two commits say the same time of themselves, which no others do."""

        def stands() -> bool:
            before = self.lake.table().transaction_version(INGESTED)
            self.lands()
            return before == self.lake.table().transaction_version(INGESTED)

        self.clock.set(-3600)
        wait_until(stands)
        self.clock.set(self.chance.choice([0, -3600]))  # it may stay so for what follows

    def take_unread(self) -> None:
        """Records come while nobody can read them, and retention takes most, or all.

        (A broker that is killed before it has written that down has them again.)
        """
        self.meanwhile(lambda: self.has_landed(SHORT, self.short))
        with paused(*(one.pid for one in self.running)):
            time.sleep(0.3)  # in which the broker has answered what it was asked before
            first = self.short
            self._produce_short(30)
            below = self.short - self.chance.choice([0, 5])
            delete_below(self.topic, SHORT.topic, below)
            self.taken.update(range(first, below))

    def _produce_short(self, count: int) -> None:
        first, self.short = self.short, self.short + count
        produce(self.lake.broker, [(*SHORT, number) for number in range(first, self.short)])

    def make_anew(self) -> None:
        """While what has just come is being read."""
        self.meanwhile(lambda: self.has_landed(ANEW, self.anew[-1]))
        self._produce_anew()
        make_anew(self.topic, ANEW.topic)
        self.anew.append(0)
        self._produce_anew()

    def _produce_anew(self) -> None:
        first, self.anew[-1] = self.anew[-1], self.anew[-1] + self.chance.randrange(1, 30)
        made = len(self.anew) - 1
        produce(self.lake.broker, [(*ANEW, [made, number]) for number in range(first, self.anew[-1])])

    # What must be so in the end

    def figures(self) -> str:
        gaps = [gap for gap in self.lake.positions().gaps if gap.partition == SHORT]
        return (
            f"{self.sent} records of t in {self.partitions} partitions, by {len(self.says)} processes in turn, in "
            f"{self.lake.table().version()} versions; of {self.short} records of {SHORT.topic} "
            f"{sum(gap.end - gap.start for gap in gaps)} in {len(gaps)} gaps; {len(self.anew)} topics {ANEW.topic}"
        )

    def assert_all_that_remained_is_there_once(self) -> None:
        values = [(row["kafka"]["topic"], json.loads(row["value"])) for row in self.lake.rows()]
        assert Counter(value for topic, value in values if topic == "t") == Counter(range(self.sent))
        gaps = self.lake.positions().gaps
        self._assert_short([value for topic, value in values if topic == SHORT.topic], gaps)
        self._assert_anew([value for topic, value in values if topic == ANEW.topic], gaps)
        assert {gap.partition for gap in gaps} <= {SHORT, ANEW}
        said = json.loads(zync("status", "--json", cwd=self.lake.folder).stdout)["gaps"]
        assert said == [{**gap.partition._asdict(), "from": gap.start, "to": gap.end} for gap in gaps]
        zync("verify", "raw", "--kafka", cwd=self.lake.folder)

    def _assert_short(self, landed: list[int], gaps: tuple[Gap, ...]) -> None:
        """Each record is in raw, or in a gap and was taken."""
        gone = [number for gap in gaps if gap.partition == SHORT for number in range(gap.start, gap.end)]
        assert sorted([*landed, *gone]) == list(range(self.short))
        assert set(gone) <= self.taken

    def _assert_anew(self, landed: list[list[int]], gaps: tuple[Gap, ...]) -> None:
        """Of each topic of that name the first ones, up to a gap, are in raw; of the last all."""
        of = [[number for made, number in landed if made == wanted] for wanted in range(len(self.anew))]
        assert of == [list(range(len(one))) for one in of]
        assert [made for made, _ in landed] == sorted(made for made, _ in landed)
        assert len(of[-1]) == self.anew[-1]
        assert [gap for gap in gaps if gap.partition == ANEW] == sorted(
            (Gap(ANEW, len(one), 0) for one in of[:-1]), key=lambda gap: gap.start
        )


def test_whatever_happens_every_record_is_there_once(tmp_path: Path) -> None:
    done = [f"seed {SEED}"]
    with ExitStack() as undo:
        soak = Soak(tmp_path, undo)
        producing = threading.Thread(target=soak.produce)
        producing.start()
        for _ in range(3):
            soak.begin()
        began = time.monotonic()
        try:
            for harm in soak.harms():
                soak.lands()
                if time.monotonic() > began + SECONDS:
                    break
                done.append(f"{harm.__name__} {time.monotonic() - began:.0f}s")
                harm()
            soak.enough.set()
            producing.join()
            partitions = [Partition("t", partition) for partition in range(soak.partitions)]
            ends = {partition: one.stable for partition, one in soak.brokers.bounds(partitions).items()}
            ends |= {SHORT: soak.short, ANEW: soak.anew[-1]}
            for partition, end in ends.items():
                soak.meanwhile(lambda partition=partition, end=end: soak.has_landed(partition, end))  # type: ignore[misc]
            for one in soak.running:
                one.terminate()
                soak.ends(one)
            soak.assert_all_that_remained_is_there_once()
            done.append(soak.figures())
            met = {one.split()[0] for one in done[1:-1]}
            assert len(met) == len(soak.kinds()) if SECONDS >= LONG else len(met) >= 3
        finally:
            print(*done)
