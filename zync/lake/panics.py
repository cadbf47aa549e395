"""Keeps what Rust prints of its own panics off standard error."""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile

from zync.lake.paths import is_local

_PANIC = re.compile(
    rb"\n?thread '[^\n]*panicked at [^\n]*object_store[^\n]*\n[^\n]*\n"
    rb"(stack backtrace:\n)?( +[^\n]*\n)*(note: [^\n]*\n)*"
)
_redirecting = threading.Lock()


@contextmanager
def without_panics(location: str) -> Iterator[None]:
    """Keeps reports of Rust's panics off standard error while delta-rs writes data files to an object store.

    When a put fails, object_store 0.13 shuts its BufWriter down twice, which panics in a thread of delta-rs's. Rust
    reports that on standard error by itself; the caller gets the put's error as an exception anyway. Everything else
    that is written to standard error meanwhile appears after the write.
    """
    if is_local(location) or not _redirecting.acquire(blocking=False):
        yield
        return
    try:
        with TemporaryFile() as file:
            sys.stderr.flush()
            stderr = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                yield
            finally:
                sys.stderr.flush()
                os.dup2(stderr, 2)
                os.close(stderr)
                file.seek(0)
                os.write(2, _PANIC.sub(b"", file.read()))
    finally:
        _redirecting.release()
