"""What tests do to brokers, topics, disks, clocks and processes, and how it is undone."""

import errno
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import TopicPartition

from tests.conftest import TopicMaker
from tests.kafka.conftest import wait_until
from zync.kafka.dev_broker import DevKafka
from zync.kafka.partition import Partition

MB = 1_000_000


def call(*args: str | Path) -> None:
    """Runs a program of the system's; OSError with what it said where it fails."""
    done = subprocess.run(list(map(str, args)), check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip() or f"{args[0]} exited {done.returncode}")


@contextmanager
def disk(folder: Path, size: int) -> Iterator[None]:
    """A disk of so many bytes at that folder, as root may have one; OSError where none can be mounted."""
    image = folder.with_suffix(".img")
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    call("mkfs.ext4", "-q", "-m", "0", image)
    call("mount", "-o", "loop", image, folder)
    try:
        yield
    finally:
        call("umount", "-l", folder)


@contextmanager
def full(folder: Path, but: int = 0) -> Iterator[None]:
    """No room on the disk mounted there, but for so many bytes."""
    filler = folder / "filler"
    try:
        with filler.open("wb", 0) as file:
            for size in (10 * MB, 4096):
                _take(file.fileno(), size)
            file.truncate(os.fstat(file.fileno()).st_size - but)
            os.fsync(file.fileno())  # or what was let go is not there yet
        yield
    finally:
        filler.unlink(missing_ok=True)


def _take(file: int, size: int) -> None:
    """Makes the file longer by so many bytes, again and again, until there is no room for that."""
    try:
        while True:
            os.posix_fallocate(file, os.fstat(file).st_size, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@contextmanager
def frozen(folder: Path) -> Iterator[None]:
    """Whoever writes to the disk mounted there waits."""
    call("fsfreeze", "-f", folder)
    try:
        yield
    finally:
        call("fsfreeze", "-u", folder)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The disk mounted there not to be written to."""
    wait_until(lambda: _becomes_read_only(folder))
    try:
        yield
    finally:
        call("mount", "-o", "remount,rw", folder)


def _becomes_read_only(folder: Path) -> bool:
    """It is refused while somebody has a file of that disk open for writing."""
    try:
        call("mount", "-o", "remount,ro", folder)
    except OSError as error:
        if "busy" not in str(error):
            raise
        return False
    return True


@contextmanager
def paused(*pids: int | None) -> Iterator[None]:
    """Those processes stopped where they are."""
    there = [pid for pid in pids if pid]
    assert len(there) == len(pids)
    try:
        for pid in there:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in there:
            os.kill(pid, signal.SIGCONT)


def kill_and_start_again(kafka: DevKafka) -> None:
    """Kills the broker with -9, and has it back at its address."""
    pid, servers = kafka.pid(), kafka.servers()
    assert pid
    assert servers
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: kafka.pid() is None)
    assert kafka.start(int(servers.rpartition(":")[2])) == servers


def delete_below(topic: TopicMaker, name: str, offset: int, partition: int = 0) -> None:
    """Takes records away as retention does."""
    for future in topic.admin.delete_records([TopicPartition(name, partition, offset)]).values():
        future.result(20)


def make_anew(topic: TopicMaker, name: str) -> None:
    """Deletes the topic and makes another of its name."""
    topic.admin.delete_topics([name])[name].result(20)
    wait_until(lambda: name not in topic.admin.list_topics(timeout=10).topics)
    topic.create(name)


class Clock:
    """The machine's, as those processes see it that are started with `env`; `set` makes it wrong by some seconds."""

    def __init__(self, folder: Path) -> None:
        self._off_by = folder / "clock"
        self.set(0)
        self.env = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent / "clock"),
            "ZYNC_TEST_CLOCK": str(self._off_by),
        }

    def set(self, seconds: int) -> None:
        """All of them see it at once."""
        written = self._off_by.with_suffix(".new")
        written.write_text(str(seconds))
        written.replace(self._off_by)


def cut_logs(kafka: DevKafka, ends: dict[Partition, int]) -> None:
    """Has the broker back at its address with those logs cut at those offsets, as if replicas that lagged led them now.

    Records that were sent each by itself are batches of their own, between which a log can be cut.
    """
    servers = str(kafka.servers())
    kafka.stop()
    for (name, number), end in ends.items():
        _cut(kafka.folder / "data" / f"{name}-{number}", end)
    (kafka.folder / "data" / ".kafka_cleanshutdown").unlink()  # or it trusts what it knew of the logs
    assert kafka.start(int(servers.rpartition(":")[2])) == servers


def _cut(folder: Path, end: int) -> None:
    (segment,) = folder.glob("*.log")
    content, at = segment.read_bytes(), 0
    while at < len(content):
        base, length = struct.unpack_from(">qi", content, at)
        if base >= end:
            break
        at += struct.calcsize(">qi") + length
    segment.write_bytes(content[:at])
    for derived in [*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")]:
        derived.unlink()
