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

_SHARE_MOST = 500_000_000
"""The largest share, in bytes, whatever the memory: a batch gathers two, a call may add one, and three are below
`zync.raw.batch.MOST_BYTES`.
"""


def limit(text: str) -> int:
    """The bytes that `1GB` says; ValueError for what is no size, or too small."""
    found = size(text)
    if found < LEAST:
        msg = f"{text} is too little to work with: 300MB is the least"
        raise ValueError(msg)
    return found


def share(max_memory: int) -> int:
    """The bytes of keys and values that one call may take and that may be fetched ahead, half of what a batch may."""
    return min((max_memory - _BASE) // _PARTS, _SHARE_MOST)


def properties(share: int) -> dict[str, str]:
    """What librdkafka is to be told for that."""
    return {
        "queued.max.messages.kbytes": str(share // 1000),
        "fetch.max.bytes": str(max(share, _FETCH_LEAST)),
    }
