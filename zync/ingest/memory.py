"""`--max-memory`: how much may be in hand at once, for the process to stay below a limit."""

from zync.config.units import size

DEFAULT = 1_000_000_000
LEAST = 300_000_000
"""What sync-from can be asked to stay below, in bytes."""

_BASE = 180_000_000
"""What a process takes that has consumed next to nothing: Python, Arrow, delta-rs, librdkafka."""

_PARTS = 26
"""How often a share is there at worst, as measured with messages of 5 MB and of 20 kB that do not compress.

One is fetched ahead, and one on the way; a call's worth is there as messages, as Python's bytes and as Arrow; a batch
of two is gathered, and another copied, buffered and compressed by the writer.
"""

_FETCH_LEAST = 1_000_000
"""What librdkafka wants to be allowed to fetch, in bytes; a larger message comes all the same, alone."""


_FETCH_MOST = 2_000_000_000


def limit(text: str) -> int:
    """The bytes that `1GB` says; ValueError for what is no size, or too small."""
    found = size(text)
    if found < LEAST:
        msg = f"{text} is too little to work with: 300MB is the least"
        raise ValueError(msg)
    return found


def share(max_memory: int) -> int:
    """The bytes of keys and values that one call may take and that may be fetched ahead, half of what a batch may."""
    return (max_memory - _BASE) // _PARTS


def properties(share: int) -> dict[str, str]:
    """What librdkafka is to be told for that."""
    return {
        "queued.max.messages.kbytes": str(min(share, _FETCH_MOST) // 1000),
        "fetch.max.bytes": str(min(max(share, _FETCH_LEAST), _FETCH_MOST)),
    }
