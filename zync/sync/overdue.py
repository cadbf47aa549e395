"""Releases, by a decision in raw, the transaction that others await longer than `transactions.incomplete` allows."""

import logging

import pyarrow.compute as pc
from deltalake import DeltaTable

from zync.config.model import Config
from zync.config.units import duration_text
from zync.log import event
from zync.raw.append import Appender
from zync.raw.batch import Batch
from zync.raw.decisions import decision_line
from zync.raw.jsonl import as_batch
from zync.staging.bookkeeping import Bookkeeping
from zync.staging.held import awaits_turn, waited_for

log = logging.getLogger(__name__)

WHO = "zync"
"""The name in a decision's `who` where zync itself decided."""


def overdue(config: Config, bookkeeping: Bookkeeping, clock: int) -> str | None:
    """Returns the id of the transaction that others wait for longer than the config allows, or None.

    Args:
        config: The config, with `transactions.incomplete` and `transactions.order`.
        bookkeeping: Staging's bookkeeping.
        clock: Raw's clock, which is the newest `ingested`, in microseconds. No time passes while nothing is ingested.
    """
    policy = config.transactions.incomplete
    if policy is None or policy.do != "release" or config.transactions.order != "commit":
        return None
    if not any(awaits_turn(bookkeeping.in_flight).to_pylist()):
        return None
    txn = waited_for(bookkeeping.in_flight)
    transaction = bookkeeping.in_flight.filter(pc.equal(bookkeeping.in_flight["txn"], txn))
    since = transaction["since"][0].as_py() if transaction.num_rows else None
    if since is None or since.timestamp() + policy.after.total_seconds() > clock / 1e6:
        return None
    return txn


def release(raw: str, txn: str, config: Config) -> None:
    """Appends to raw a decision to release the transaction, as `zync txn release` does; the next sync acts on it.

    Args:
        raw: The location of raw.
        txn: The transaction's id.
        config: The config, with `transactions.incomplete`.
    """
    policy = config.transactions.incomplete
    after = duration_text(policy.after) if policy else ""
    why = f"others waited for it, longer than {after} (transactions.incomplete)"

    def plan(table: DeltaTable) -> Batch:
        return as_batch([decision_line("release", txn, who=WHO, why=why)], table)

    Appender(raw).append_planned(plan)
    log.warning(
        "transaction %s is not whole, and goes out with what is there of it: %s",
        txn,
        why,
        extra=event("overdue", txn=txn),
    )
