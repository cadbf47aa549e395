"""`zync replay`: makes a staging anew from raw."""

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
from zync.sync.backlog import sync_end
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer
from zync.transactions.summary import REVISITING


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Attributes:
        cursor: the new staging's cursor.
        head: its head.
        syncs: number of syncs.
        transactions: number of transactions that went out.
        outputs: number of output rows by topic.
        different: names of the digests (transactions, config, rules, lookup <name>) that not all syncs of both
            stagings share.
        start: the seqno from which on raw has all records.
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
    upto: int | None = None,
    beside: str | None = None,
    on_sync: Callable[[Outcome], None] = lambda _: None,
) -> Replayed:
    """Makes a staging anew from raw.

    Args:
        spark: the session to run in.
        config: the config to sync by; its limit on what is quarantined is not applied.
        raw: the location of raw.
        into: the location of the new staging.
        upto: the last seqno to read; None: raw's head.
        beside: the location of a staging to compare digests with; None: with none.
        on_sync: called with the outcome of each sync.

    Raises:
        UsageError: `into` exists already.

    Example:
        >>> replayed = zync.replay(spark, config, "lake/raw", into="lake/again", beside="lake/staging")
        >>> replayed.transactions, replayed.outputs
        (2, {'order': 1})
    """
    if open_table(into) is not None:
        msg = f"{into} is there already: a replay makes a staging anew, name one that is not there"
        raise UsageError(msg)
    raw_table = existing_raw(raw)
    last = next_seqno(raw_table) - 1
    last = last if upto is None else min(upto, last)
    outputs: dict[str, int] = {}
    cuts = [*_revisit_cuts(raw_table), last]
    syncs = transactions = head = cursor = 0
    with owned(into, what="replay"):
        # The limit is for a single sync, and a replay's syncs are larger than the original ones.
        syncer = Syncer(config.without_limit(), raw, into, spark)
        while head < last:
            step_end = sync_end(raw_table, head, config.limits.records_per_sync)
            outcome = syncer.sync(upto=min(step_end, next(cut for cut in cuts if cut > head), last))
            on_sync(outcome)
            syncs, transactions = syncs + 1, transactions + outcome.transactions
            head, cursor = outcome.head, outcome.cursor
            for topic, count in outcome.outputs.items():
                outputs[topic] = outputs.get(topic, 0) + count
    different = _different_digests(into, beside) if beside is not None else []
    return Replayed(cursor, head, syncs, transactions, outputs, different, first_seqno(raw_table))


def _revisit_cuts(raw: DeltaTable) -> list[int]:
    """Returns the seqnos at which a sync has to end, because a redrive or drop follows.

    A redrive or drop finds only what an earlier sync has set aside in staging. Consecutive decisions share a cut, until
    an id occurs for the second time.
    """
    cuts, last, ids = [], 0, set[str]()
    for seqno, decision in decisions(raw):
        if decision.get("decision") in REVISITING:
            txn = str(decision.get("txn"))
            if seqno != last + 1 or txn in ids:
                cuts.append(seqno - 1)
                ids.clear()
            last = seqno
            ids.add(txn)
    return cuts


def _different_digests(*stagings: str) -> list[str]:
    """Returns the names of digests that are not the same in all syncs of the stagings; none if a staging is missing."""
    tables = [open_table(staging) for staging in stagings]
    if any(table is None for table in tables):
        return []
    digests_by_sync = [digests for table in tables if table is not None for digests in _digests(table)]
    names = {*chain(*digests_by_sync)}
    return sorted(name for name in names if len({digests.get(name) for digests in digests_by_sync}) > 1)


def _digests(table: DeltaTable) -> list[dict[str, str]]:
    """Returns the digests of each sync, by name."""
    rows = dataset(table, data_files(table, "sync"), STAGING_SCHEMA)
    cursors = rows.to_table(columns=["digests"], filter=ds.field("kind") == "cursor")
    return [dict(digests) for digests in cursors["digests"].to_pylist()]
