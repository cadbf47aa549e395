"""Reads transactions that are not simply done, where their records are, and what was decided. No Spark."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.errors import UsageError
from zync.lake.files import data_files, dataset
from zync.lake.ranges import SeqnoRanges, pairs_of
from zync.raw.decisions import decisions
from zync.raw.table import RAW_SCHEMA, existing_raw
from zync.staging.bookkeeping import read_bookkeeping, read_cursor
from zync.staging.held import waited_for
from zync.staging.kinds import UNDECIDED_KINDS
from zync.staging.set_aside import REVISITS, id_of, read_set_aside
from zync.staging.table import STAGING_SCHEMA, existing_staging

STATES = {
    "in-flight": "pending",
    "expired": "expired",
    "quarantined": "quarantined",
    "late": "late",
    "released": "released",
    "discarded": "discarded",
}
"""The kinds of staging's rows, by the names of states that commands use."""
_IN_FLIGHT, _QUARANTINED = ("release", "discard"), ("redrive", "drop")
_DECIDED_BY = {"in-flight": _IN_FLIGHT, "expired": _IN_FLIGHT, "quarantined": _QUARANTINED, "late": ("late",)}
"""The decisions that apply to a state; `late` stands for any decision about late records."""

Range = tuple[int, int]
"""The first and the last seqno of consecutive records."""


@dataclass(frozen=True)
class Transaction:
    """A transaction that is not simply done.

    Attributes:
        id: the transaction id; of a record without one, its topic/partition/offset.
        state: a key of `STATES`, or `done`.
        seqno: of its first record in flight, or of what settled it.
        records: the seqnos of its records as ranges.
        count: number of its records.
        since: when its first record was ingested, if known.
        reason: why it is set aside.
        rule: the rule that failed.
        topics: number of its records by topic.
        held: it is complete, and waits for its turn in commit order.
        waits_for: the id of the first transaction before it that is not complete.
        so_far: the values of the aggregates in `done`, in the order of its text, if they are kept.
        decided: a decision about it that no sync has read yet.
    """

    id: str
    state: str
    seqno: int
    records: tuple[Range, ...]
    count: int
    since: datetime | None = None
    reason: str | None = None
    rule: str | None = None
    topics: dict[str, int] = field(default_factory=dict)
    held: bool = False
    waits_for: str | None = None
    so_far: tuple[Any, ...] = ()
    decided: str | None = None


def transactions(
    raw: str,
    staging: str,
    *,
    state: str | None = None,
    older: timedelta | None = None,
    topic: str | None = None,
    limit: int | None = None,
) -> list[Transaction]:
    """Lists transactions that are not simply done, oldest first.

    Args:
        raw: the location of raw.
        staging: the location of staging.
        state: only those in this state, a key of `STATES`.
        older: only those whose first record was ingested at least so long ago.
        topic: only those with a record in this topic.
        limit: at most this many.

    Raises:
        UsageError: the state is unknown, or a table does not exist.

    Example:
        >>> [(transaction.id, transaction.state) for transaction in zync.list_transactions("lake/raw", "lake/staging")]
        [('10001', 'in-flight')]
    """
    if state is not None and state not in STATES:
        msg = f"there is no state {state!r}: states are {', '.join(STATES)}"
        raise UsageError(msg)
    raw_table = existing_raw(raw)
    result = with_decisions(find(staging, [state] if state else STATES, older), raw_table, staging)
    if older is None and topic is None:
        return with_topics(result[:limit], raw_table)
    result = with_topics(result, raw_table)
    now = datetime.now(UTC)
    if older is not None:
        result = [
            transaction for transaction in result if transaction.since is not None and now - transaction.since >= older
        ]
    return [transaction for transaction in result if topic is None or topic in transaction.topics][:limit]


def find(staging: str, states: Collection[str], older: timedelta | None = None) -> list[Transaction]:
    """Returns the transactions in these states, oldest first, by staging alone: their `topics` are empty.

    `older` leaves out those in flight that began later. Of other transactions staging does not store the beginning.
    """
    result = sorted(read_transactions(existing_staging(staging), states), key=lambda transaction: transaction.seqno)
    now = datetime.now(UTC)
    return [
        transaction
        for transaction in result
        if older is None or transaction.since is None or now - transaction.since >= older
    ]


def read_transactions(table: DeltaTable, states: Collection[str], txn: str | None = None) -> Iterator[Transaction]:
    """Yields the transactions in these states; if an id is given, only that transaction's, also if it is done."""
    state_names = {kind: name for name, kind in STATES.items()}
    kinds = {STATES[state] for state in states}
    settled_kinds = kinds & {"released", "discarded"} | ({"done"} if txn is not None else set())
    settled = ds.field("kind").isin(pa.array(settled_kinds, pa.string()))
    in_flight = read_bookkeeping(table, 0).in_flight
    waits_for = waited_for(in_flight)
    if txn is not None:
        in_flight, settled = in_flight.filter(pc.equal(in_flight["txn"], txn)), settled & _has_id(txn)
    for row in [*in_flight.to_pylist(), *_rows(table, settled)]:
        if row["kind"] in kinds | settled_kinds:
            transaction = _transaction(row, pairs_of(row["records"]), state_names.get(row["kind"], row["kind"]))
            yield replace(transaction, waits_for=waits_for) if transaction.held else transaction
    if kinds & {*UNDECIDED_KINDS}:
        set_aside = read_set_aside(table, None if txn is None else {txn})
        by_state = (("quarantined", chain(*set_aside.quarantined.values())), ("late", set_aside.late.values()))
        for state, rows in by_state:
            yield from (_transaction(row, row["records"], state) for row in rows if state in kinds)


def _has_id(txn: str) -> ds.Expression:
    """Filters rows by id; rows of records without an id by topic/partition/offset."""
    has_id = ds.field("txn") == txn
    if match := re.fullmatch(r"(.+)/(\d{1,18})/(\d{1,18})", txn, re.DOTALL):
        topic, partition, offset = (ds.field("kafka", name) for name in ("topic", "partition", "offset"))
        is_record = (topic == match[1]) & (partition == int(match[2])) & (offset == int(match[3]))
        has_id |= ds.field("txn").is_null() & is_record
    return has_id


def _rows(table: DeltaTable, condition: ds.Expression) -> list[dict[str, Any]]:
    files = data_files(table, "seqno")
    if not files:
        return []
    columns = ["kind", "seqno", "txn", "kafka", "records", "count", "reason", "rule", "since", "state"]
    rows = dataset(table, files, STAGING_SCHEMA).to_table(columns=columns, filter=condition)
    return rows.sort_by("seqno").to_pylist()  # type: ignore[no-any-return]


def _transaction(row: dict[str, Any], records: Iterable[Range], state: str) -> Transaction:
    row_state = json.loads(row["state"] or "{}")
    return Transaction(
        id_of(row),
        state,
        row["seqno"],
        tuple(sorted({*records, *pairs_of(row_state.get(REVISITS, []))})),
        row["count"],
        row["since"],
        row["reason"],
        row.get("rule"),
        held=bool(row_state.get("held")),
        so_far=tuple(value for name, value in row_state.get("done", {}).items() if name.startswith("p")),
    )


def with_topics(transaction_list: list[Transaction], raw: DeltaTable) -> list[Transaction]:
    """Adds to transactions what raw has of their records: the topics, and when the first was ingested."""
    ranges = [SeqnoRanges.of(transaction.records) for transaction in transaction_list]
    owners = np.repeat(np.arange(len(ranges)), [part.count for part in ranges])  # each seqno's index in the list
    seqnos = SeqnoRanges.concat(ranges).seqnos
    topics: list[Counter[str]] = [Counter() for _ in transaction_list]
    since = [transaction.since for transaction in transaction_list]
    for file in data_files(raw, "seqno", above=int(seqnos.min()) - 1, upto=int(seqnos.max())) if len(seqnos) else ():
        indices = np.flatnonzero((seqnos >= file.lowest) & (seqnos <= file.highest))
        if not len(indices):
            continue
        rows = dataset(raw, [file], RAW_SCHEMA).to_table(columns=["seqno", "kafka", "ingested"]).sort_by("seqno")
        file_seqnos = rows["seqno"].to_numpy()
        indices = indices[np.isin(seqnos[indices], file_seqnos)]  # `zync maintain` may have trimmed the others
        rows = rows.take(np.searchsorted(file_seqnos, seqnos[indices]))
        names = pc.struct_field(rows["kafka"].combine_chunks(), "topic").to_pylist()
        for owner, name, ingested in zip(owners[indices].tolist(), names, rows["ingested"].to_pylist(), strict=True):
            topics[owner][name] += 1
            since[owner] = since[owner] or ingested
    return [
        replace(transaction, since=ingested, topics=dict(counts))
        for transaction, ingested, counts in zip(transaction_list, since, topics, strict=True)
    ]


def with_decisions(transaction_list: list[Transaction], raw: DeltaTable, staging: str) -> list[Transaction]:
    """Adds to transactions the decisions about them that the newest sync has not read.

    If several transactions have the same id and state, the first decision is about the first of them, and so on: so
    all of them have to be in the list, in order.
    """
    texts: dict[tuple[str, str], list[str]] = {}
    for _, decision in decisions(raw, above=read_cursor(existing_staging(staging)).head):
        action = "late" if decision.get("late") else str(decision.get("decision"))
        text = f"{decision.get('decision')} by {decision.get('who')}: {decision.get('why')}"
        texts.setdefault((action, str(decision.get("txn"))), []).append(text)
    decided = []
    for transaction in transaction_list:
        actions = _DECIDED_BY.get(transaction.state, ())
        pending = [texts[action, transaction.id] for action in actions if texts.get((action, transaction.id))]
        decided.append(replace(transaction, decided=pending[0].pop(0) if pending else None))
    return decided


def raw_rows(raw: DeltaTable, records: tuple[Range, ...], columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yields raw's rows in ranges of seqnos, in order. Only files that can hold such rows are read."""
    ranges = SeqnoRanges.of(records)
    for file in data_files(raw, "seqno", above=(ranges.lowest or 0) - 1, upto=ranges.highest or 0):
        in_file = ranges.between(file.lowest, file.highest)
        if in_file:
            rows = dataset(raw, [file], RAW_SCHEMA).to_table(
                columns=columns, filter=(ds.field("seqno") >= in_file.lowest) & (ds.field("seqno") <= in_file.highest)
            )
            yield from rows.filter(pa.array(in_file.contains(rows["seqno"].to_numpy()))).sort_by("seqno").to_pylist()
