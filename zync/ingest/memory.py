"""`--max-memory`: the bytes that `sync-from` may hold at once, so that the process stays below a limit."""

from zync.config.units import size

DEFAULT = 1_000_000_000
LEAST = 300_000_000
"""The smallest limit in bytes that sync-from accepts."""

_BASE_BYTES = 180_000_000
"""The bytes of a process that has consumed hardly any message: Python, Arrow, delta-rs, librdkafka."""

_SHARES = 26
"""How many shares are in memory in the worst case, as measured with messages of 5 MB and of 20 kB that do not compress.

A share is prefetched and another is being received. The messages of one call exist as messages, as Python's bytes and
as Arrow. A batch of two shares is gathered while the writer copies, buffers and compresses another batch.
"""

_MIN_FETCH_BYTES = 1_000_000
"""The smallest `fetch.max.bytes` to set; a larger message is still fetched, alone."""

_MAX_SHARE_BYTES = 500_000_000
"""The largest share in bytes. A batch gathers two and a call may add a third; three are below
`zync.raw.batch.MOST_BYTES`.
"""


def limit(text: str) -> int:
    """Parses a size like `1GB` to bytes.

    Raises:
        ValueError: The text is no size, or less than LEAST.
    """
    num_bytes = size(text)
    if num_bytes < LEAST:
        msg = f"{text} is too little to work with: 300MB is the least"
        raise ValueError(msg)
    return num_bytes


def share(max_memory: int) -> int:
    """Returns a share: the bytes of keys and values that one call may take, also the prefetch limit; half a batch."""
    return min((max_memory - _BASE_BYTES) // _SHARES, _MAX_SHARE_BYTES)


def properties(share: int) -> dict[str, str]:
    """Returns librdkafka's properties that limit its prefetching to `share` bytes."""
    return {
        "queued.max.messages.kbytes": str(share // 1000),
        "fetch.max.bytes": str(max(share, _MIN_FETCH_BYTES)),
    }
