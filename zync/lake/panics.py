"""Keeps what Rust prints of its own panics off standard error."""

import os
import re
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from zync.lake.paths import is_local

_PANIC = re.compile(
    rb"\n?thread '[^\n]*panicked at [^\n]*object_store[^\n]*\n[^\n]*\n"
    rb"(stack backtrace:\n)?( +[^\n]*\n)*(note: [^\n]*\n)*"
)
_redirecting = threading.Lock()
_PAUSE_SECONDS, _REPORT_SECONDS = 0.1, 5.0
"""A pause after which lines are shown, and how long the end of a report is waited for: to find the names of a backtrace
takes a second."""


@contextmanager
def without_panics(location: str) -> Iterator[None]:
    """Keeps reports of Rust's panics off standard error while delta-rs writes data files to an object store.

    When a put fails, object_store 0.13 shuts its BufWriter down twice, which panics in a thread of delta-rs's. Rust
    reports that on standard error by itself; the caller gets the put's error as an exception anyway. Everything else
    that is written to standard error meanwhile appears a fraction of a second later.
    """
    if is_local(location) or not _redirecting.acquire(blocking=False):
        yield
        return
    try:
        sys.stderr.flush()
        stderr, (source, sink), over = os.dup(2), os.pipe(), threading.Event()
        forwarding = threading.Thread(target=_forward, args=(source, stderr, over), name="stderr", daemon=True)
        forwarding.start()
        os.dup2(sink, 2)
        os.close(sink)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            over.set()
            forwarding.join()
            for descriptor in (source, stderr):
                os.close(descriptor)
    finally:
        _redirecting.release()


def _forward(source: int, target: int, over: threading.Event) -> None:
    """Writes what comes from `source` to `target`, without reports of panics, until it is `over` and all was read.

    A child process that was started meanwhile may keep the pipe open.
    """
    data, read_at = b"", time.monotonic()
    while True:
        ready, _, _ = select.select([source], [], [], 0 if over.is_set() else _PAUSE_SECONDS)
        if ready and (chunk := os.read(source, 1 << 16)):
            data, read_at = data + chunk, time.monotonic()
        elif over.is_set() or not _may_go_on(data) or time.monotonic() - read_at > _REPORT_SECONDS:
            os.write(target, _PANIC.sub(b"", data))
            data = b""
            if over.is_set():
                return


def _may_go_on(data: bytes) -> bool:
    """Returns whether the data ends with a report of a panic, of which more may come."""
    begin = data.rfind(b"thread '")
    match = _PANIC.search(data, max(0, begin - 1)) if begin >= 0 else None
    return begin >= 0 and (match is None or match.end() == len(data))
