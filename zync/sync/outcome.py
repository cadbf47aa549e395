"""What a sync did, and its line of text."""

from dataclasses import dataclass, field
from datetime import datetime

from zync.text import amount


@dataclass(frozen=True)
class Outcome:
    """What a sync did. `sync` is its number; where nothing was new, nothing was written and all counts are 0.

    `oldest`: since when the oldest of those in flight is.
    Records and transactions are counts, `outputs` rows by topic, `set_aside` records (transactions for
    quarantined rules) by kind, `seconds` by stage.
    """

    sync: int
    cursor: int
    head: int
    records: int = 0
    transactions: int = 0
    outputs: dict[str, int] = field(default_factory=dict)
    in_flight: int = 0
    expired: int = 0
    oldest: datetime | None = None
    set_aside: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def describe(done: Outcome) -> str:
    """A sync's outcome in a line."""
    if not done.seconds:
        return f"nothing new: cursor {done.cursor:,}, head {done.head:,}, in flight {done.in_flight:,}"
    outputs = ", ".join(f"{topic} {count:,}" for topic, count in done.outputs.items()) or "none"
    aside = ", ".join(f"{kind} {count:,}" for kind, count in done.set_aside.items()) or "none"
    expired = f" (and {done.expired:,} expired)" if done.expired else ""
    return (
        f"sync {done.sync}: {amount(done.transactions, 'transaction')} of {amount(done.records, 'record')}; "
        f"output rows: {outputs}; in flight {done.in_flight:,}{expired}; set aside: {aside}; "
        f"cursor {done.cursor:,}, head {done.head:,}"
    )
