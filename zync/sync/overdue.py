"""What the order of commit waits for longer than `transactions.incomplete` allows: zync decides, on record in raw."""

import json
import logging

from deltalake import DeltaTable

from zync.config.model import Config
from zync.config.units import duration_text
from zync.log import event
from zync.raw.append import Appender
from zync.raw.batch import Batch
from zync.raw.jsonl import Line, as_batch
from zync.raw.table import DECISIONS
from zync.staging.bookkeeping import Known
from zync.staging.held import held, waited_for

log = logging.getLogger(__name__)

WHO = "zync"
"""Who decided, on record."""


def overdue(config: Config, known: Known, clock: int) -> str | None:
    """The id of the transaction that others wait for longer than the config allows; None where there is none.

    `clock`: raw's, the newest `ingested`, in microseconds. While nothing is taken in, no time passes.
    """
    said = config.transactions.incomplete
    if said is None or said.do != "release" or config.transactions.order != "commit":
        return None
    if not any(held(known.in_flight).to_pylist()):
        return None
    txn = waited_for(known.in_flight)
    since = next((one["since"] for one in known.in_flight.to_pylist() if one["txn"] == txn), None)
    if since is None or since.timestamp() + said.after.total_seconds() > clock / 1e6:
        return None
    return txn


def release(raw: str, txn: str, config: Config) -> None:
    """Appends to raw that zync released that transaction, as `zync txn release` would; the next sync acts on it."""
    said = config.transactions.incomplete
    after = duration_text(said.after) if said else ""
    why = f"others waited for it, longer than {after} (transactions.incomplete)"
    value = {"decision": "release", "txn": txn, "who": WHO, "why": why}

    def plan(table: DeltaTable) -> Batch:
        return as_batch([Line(f"decision on {txn}", DECISIONS, value=json.dumps(value).encode())], table)

    Appender(raw).append_planned(plan)
    log.warning(
        "transaction %s is not whole, and goes out with what is there of it: %s",
        txn,
        why,
        extra=event("overdue", txn=txn),
    )
