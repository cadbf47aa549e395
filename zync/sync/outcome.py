"""The result of a sync, and its description in a line."""

from dataclasses import dataclass, field
from datetime import datetime

from zync.text import amount

SET_ASIDE_KINDS = ("late", "duplicate", "quarantined", "discarded", "ignored")
"""The kinds of `Outcome.set_aside`."""


@dataclass(frozen=True)
class Outcome:
    """The result of a sync. If raw had nothing new, nothing was written, and all counts are 0.

    Attributes:
        sync: The sync's number.
        cursor: The largest seqno up to which every record is settled, or part of an expired transaction.
        head: The largest seqno that was read.
        records: The number of new records.
        transactions: The number of transactions that went out whole.
        outputs: The number of output rows by topic.
        in_flight: The number of transactions in flight after the sync, without the expired ones.
        expired: The number of expired transactions.
        oldest: When the oldest transaction in flight began.
        set_aside: The number of records set aside, by kind; a quarantined or discarded transaction counts once.
        seconds: The duration of each stage.
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


def describe(outcome: Outcome) -> str:
    """Returns a line of text about a sync's outcome."""
    if not outcome.seconds:
        return f"nothing new: cursor {outcome.cursor:,}, head {outcome.head:,}, in flight {outcome.in_flight:,}"
    outputs = ", ".join(f"{topic} {count:,}" for topic, count in outcome.outputs.items()) or "none"
    aside = ", ".join(f"{kind} {count:,}" for kind, count in outcome.set_aside.items()) or "none"
    expired = f" (and {outcome.expired:,} expired)" if outcome.expired else ""
    return (
        f"sync {outcome.sync}: {amount(outcome.transactions, 'transaction')} of {amount(outcome.records, 'record')}; "
        f"output rows: {outputs}; in flight {outcome.in_flight:,}{expired}; set aside: {aside}; "
        f"cursor {outcome.cursor:,}, head {outcome.head:,}"
    )
