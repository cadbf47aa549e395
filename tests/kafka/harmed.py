"""A sync-from to be harmed: begun, ended, and what it left."""

import os
import signal
import subprocess

from tests.conftest import start, zync
from tests.kafka.conftest import Lake


def begin(lake: Lake, name: str, *args: str) -> "subprocess.Popen[str]":
    return start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", *args, cwd=lake.folder)


def end(lake: Lake, running: "subprocess.Popen[str]") -> str:
    """Stops it, and returns what it said."""
    running.send_signal(signal.SIGTERM)
    try:
        assert running.wait(60) == 0, said(lake)
    finally:
        running.kill()
    return said(lake)


def said(lake: Lake) -> str:
    return "".join(log.read_text() for log in lake.folder.glob("sync-from-*.log"))


def assert_whole(lake: Lake, name: str, count: int) -> None:
    """Each record is in raw once, in order, and `verify` finds nothing."""
    assert lake.offsets(name) == list(range(count))
    zync("verify", "raw", cwd=lake.folder)


def random(count: int, size: int) -> list[bytes]:
    return [os.urandom(size) for _ in range(count)]
