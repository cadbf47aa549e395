"""The result of a sync, and its description in a line."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from zync.text import amount

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Outcome:
    """The result of a sync. If raw had nothing new, nothing was written, and all counts are 0.

    Attributes:
        sync: The sync's number; of several syncs the last one's.
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
        syncs: The number of syncs that this is the outcome of; 0 if there was nothing new.
        behind: The number of records of raw that were left for later syncs (`limits.records_per_sync`).
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
    syncs: int = 0
    behind: int = 0

    def followed_by(self, later: "Outcome") -> "Outcome":
        """Returns the outcome of this sync and a later one together: the state after the later, and the sums."""
        return replace(
            later,
            records=self.records + later.records,
            transactions=self.transactions + later.transactions,
            outputs=_sums(self.outputs, later.outputs),
            set_aside=_sums(self.set_aside, later.set_aside),
            seconds={stage: round(total, 3) for stage, total in _sums(self.seconds, later.seconds).items()},
            syncs=self.syncs + later.syncs,
        )


def _sums(first: dict[str, Number], second: dict[str, Number]) -> dict[str, Number]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}


def describe(outcome: Outcome) -> str:
    """Returns a line of text about a sync's outcome."""
    if not outcome.seconds:
        return f"nothing new: cursor {outcome.cursor:,}, head {outcome.head:,}, in flight {outcome.in_flight:,}"
    outputs = ", ".join(f"{topic} {count:,}" for topic, count in outcome.outputs.items()) or "none"
    aside = ", ".join(f"{kind} {count:,}" for kind, count in outcome.set_aside.items()) or "none"
    expired = f" (and {outcome.expired:,} expired)" if outcome.expired else ""
    name = f"sync {outcome.sync}" if outcome.syncs == 1 else f"{outcome.syncs} syncs, the last of them {outcome.sync}"
    behind = f"; {amount(outcome.behind, 'record')} left for the next syncs" if outcome.behind else ""
    return (
        f"{name}: {amount(outcome.transactions, 'transaction')} of {amount(outcome.records, 'record')}; "
        f"output rows: {outputs}; in flight {outcome.in_flight:,}{expired}; set aside: {aside}; "
        f"cursor {outcome.cursor:,}, head {outcome.head:,}{behind}"
    )
