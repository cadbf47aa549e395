"""`zync replay`: staging made anew from raw."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from zync.config.model import Config
from zync.errors import UsageError
from zync.lake.files import data_files, dataset
from zync.lake.lock import owned
from zync.lake.table import open_table
from zync.raw.decisions import decisions
from zync.raw.table import existing_raw, first_seqno, next_seqno
from zync.staging.table import STAGING_SCHEMA
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer
from zync.transactions.summary import REVISITING

_STEP = 2_000_000
"""Records of raw that one sync of a replay takes."""


@dataclass(frozen=True)
class Replayed:
    """What a replay made. `different`: what of the config is not as it was in the staging compared with.

    start: from there on raw has all records.
    """

    cursor: int
    head: int
    syncs: int
    transactions: int
    outputs: dict[str, int]
    different: list[str]
    start: int


def replay(
    spark: SparkSession,
    config: Config,
    raw: str,
    into: str,
    upto: int | None,
    beside: str,
    on_sync: Callable[[Outcome], None],
) -> Replayed:
    """Makes the staging `into` anew from raw, up to seqno `upto`; compares digests with those of staging `beside`.

    UsageError where `into` is a staging already.
    """
    if open_table(into) is not None:
        msg = f"{into} is there already: a replay makes a staging anew, name one that is not there"
        raise UsageError(msg)
    raw_table = existing_raw(raw)
    last = next_seqno(raw_table) - 1
    last = last if upto is None else min(upto, last)
    outputs: dict[str, int] = {}
    trimmed = first_seqno(raw_table) - 1
    cuts = [*_before_revisits(raw_table), last]
    syncs = transactions = head = cursor = 0
    with owned(into):
        syncer = Syncer(config.without_limit(), raw, into, spark)  # as syncs are larger than they were
        while head < last:
            step = max(head + _STEP, trimmed)
            outcome = syncer.sync(upto=min(step, next(cut for cut in cuts if cut > head), last))
            on_sync(outcome)
            syncs, transactions = syncs + 1, transactions + outcome.transactions
            head, cursor = outcome.head, outcome.cursor
            for topic, count in outcome.outputs.items():
                outputs[topic] = outputs.get(topic, 0) + count
    return Replayed(cursor, head, syncs, transactions, outputs, _different(into, beside), trimmed + 1)


def _before_revisits(raw: DeltaTable) -> list[int]:
    """Where a sync has to end, for what an operator redrove or dropped to be set aside in staging before that.

    Decisions that follow each other need one such end, up to the second about one id.
    """
    cuts, last, together = [], 0, set[str]()
    for seqno, one in decisions(raw):
        if one.get("decision") in REVISITING:
            txn = str(one.get("txn"))
            if seqno != last + 1 or txn in together:
                cuts.append(seqno - 1)
                together.clear()
            last = seqno
            together.add(txn)
    return cuts


def _different(one: str, other: str) -> list[str]:
    """Names of digests that the syncs of two stagings do not all share."""
    tables = [open_table(one), open_table(other)]
    if any(table is None for table in tables):
        return []
    found = [digests for table in tables if table is not None for digests in _digests(table)]
    return sorted(name for name in {*chain(*found)} if len({digests.get(name) for digests in found}) > 1)


def _digests(table: DeltaTable) -> list[dict[str, str]]:
    """Those of each sync."""
    rows = dataset(table, [one.path for one in data_files(table, "sync")], STAGING_SCHEMA)
    cursors = rows.to_table(columns=["digests"], filter=ds.field("kind") == "cursor")
    return [dict(one) for one in cursors["digests"].to_pylist()]
