"""Python's cyclic garbage collector, off while messages are taken: it would scan millions of them."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_collecting() -> Iterator[None]:
    """Keeps Python from looking for cycles: hot loops make none, and going through millions of messages costs."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()
