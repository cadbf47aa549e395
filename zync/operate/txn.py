"""Transactions that are not simply done, listed, with where their records are and what was decided. No Spark."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
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
from zync.raw.decisions import decisions
from zync.raw.table import RAW_SCHEMA, existing_raw
from zync.staging.bookkeeping import read_cursor, read_known
from zync.staging.held import waited_for
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
"""States of a transaction by the names that commands use, and the kinds of rows that staging has for them."""
_IN_FLIGHT, _QUARANTINED = ("release", "discard"), ("redrive", "drop")
_DECIDED_BY = {"in-flight": _IN_FLIGHT, "expired": _IN_FLIGHT, "quarantined": _QUARANTINED, "late": ("late",)}
"""What a decision about one in that state says; of what came late, that it is about that."""


@dataclass(frozen=True)
class Transaction:
    """A transaction that is not simply done. `id` is its place in Kafka where it has no other.

    seqno: of its first record in flight, or of what settled it. records: seqnos as (first, last). since: when its
    first record was ingested. topics: where its records are, counted. held: it is whole, and waits for its turn in the
    order of commit; waits_for: the id of the first before it that is not whole. so_far: the values of `done`'s
    aggregates as they stand in its text, where they are kept. decided: what was decided about it, where no sync has met
    that yet.
    """

    id: str
    state: str
    seqno: int
    records: tuple[tuple[int, int], ...]
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
    """Those of that state (all that are not done, if none is named), oldest first.

    `older`: whose first record was ingested at least so long ago. `topic`: with a record in that topic.
    """
    if state is not None and state not in STATES:
        msg = f"there is no state {state!r}: states are {', '.join(STATES)}"
        raise UsageError(msg)
    raw_table = existing_raw(raw)
    found = with_decisions(find(staging, [state] if state else STATES, older), raw_table, staging)
    if older is None and topic is None:
        return with_places(found[:limit], raw_table)
    found = with_places(found, raw_table)
    now = datetime.now(UTC)
    found = [one for one in found if older is None or (one.since is not None and now - one.since >= older)]
    return [one for one in found if topic is None or topic in one.topics][:limit]


def find(staging: str, states: Collection[str], older: timedelta | None = None) -> list[Transaction]:
    """Those in one of these states, oldest first, as staging alone has them: `topics` is empty.

    `older`: without those in flight that began later. Of the others staging does not know when they began.
    """
    found = sorted(all_of(existing_staging(staging), states), key=lambda one: one.seqno)
    now = datetime.now(UTC)
    return [one for one in found if older is None or one.since is None or now - one.since >= older]


def all_of(table: DeltaTable, states: Collection[str], txn: str | None = None) -> Iterator[Transaction]:
    """Those in one of the states; where an id is given, those of that id alone, done or not."""
    names = {kind: name for name, kind in STATES.items()}
    wanted = {STATES[state] for state in states}
    kinds = wanted & {"released", "discarded"} | ({"done"} if txn is not None else set())
    settled = ds.field("kind").isin(pa.array(kinds, pa.string()))
    in_flight = read_known(table, 0).in_flight
    awaited = waited_for(in_flight)
    if txn is not None:
        in_flight, settled = in_flight.filter(pc.equal(in_flight["txn"], txn)), settled & _is(txn)
    for row in [*in_flight.to_pylist(), *_rows(table, settled)]:
        if row["kind"] in wanted | kinds:
            one = _transaction(row, names.get(row["kind"], row["kind"]))
            yield replace(one, waits_for=awaited) if one.held else one
    if wanted & {"quarantined", "late"}:
        aside = read_set_aside(table, None if txn is None else {txn})
        for state, rows in (("quarantined", chain(*aside.quarantined.values())), ("late", aside.late.values())):
            yield from (_transaction(row, state) for row in rows if state in wanted)


def _is(txn: str) -> ds.Expression:
    """Rows with that id; of records by themselves, that with this place in Kafka."""
    mine = ds.field("txn") == txn
    if place := re.fullmatch(r"(.+)/(\d{1,18})/(\d{1,18})", txn, re.DOTALL):
        topic, partition, offset = (ds.field("kafka", name) for name in ("topic", "partition", "offset"))
        there = (topic == place[1]) & (partition == int(place[2])) & (offset == int(place[3]))
        mine |= ds.field("txn").is_null() & there
    return mine


def _rows(table: DeltaTable, wanted: ds.Expression) -> list[dict[str, Any]]:
    paths = [file.path for file in data_files(table, "seqno")]
    if not paths:
        return []
    columns = ["kind", "seqno", "txn", "kafka", "records", "count", "reason", "rule", "since", "state"]
    rows = dataset(table, paths, STAGING_SCHEMA).to_table(columns=columns, filter=wanted)
    return rows.sort_by("seqno").to_pylist()  # type: ignore[no-any-return]


def _transaction(row: dict[str, Any], state: str) -> Transaction:
    kept = json.loads(row["state"] or "{}")
    ranges = sorted({(one["first"], one["last"]) for one in [*row["records"], *kept.get(REVISITS, [])]})
    reason, rule = row["reason"], row.get("rule")
    return Transaction(
        id_of(row),
        state,
        row["seqno"],
        tuple(ranges),
        row["count"],
        row["since"],
        reason,
        rule,
        held=bool(kept.get("held")),
        so_far=tuple(value for name, value in kept.get("done", {}).items() if name.startswith("p")),
    )


def with_places(some: list[Transaction], raw: DeltaTable) -> list[Transaction]:
    """With what raw says of their records: in which topics they are, and when the first was ingested."""
    lengths = [sum(last - first + 1 for first, last in one.records) for one in some]
    owners = np.repeat(np.arange(len(some)), lengths)
    seqnos = np.fromiter((seqno for one in some for seqno in _seqnos(one.records)), np.int64, len(owners))
    topics: list[Counter[str]] = [Counter() for _ in some]
    since = [one.since for one in some]
    for file in data_files(raw, "seqno", above=int(seqnos.min()) - 1, upto=int(seqnos.max())) if len(seqnos) else ():
        mine = np.flatnonzero((seqnos >= file.lowest) & (seqnos <= file.highest))
        if not len(mine):
            continue
        rows = dataset(raw, [file.path], RAW_SCHEMA).to_table(columns=["seqno", "kafka", "ingested"]).sort_by("seqno")
        there = rows["seqno"].to_numpy()
        mine = mine[np.isin(seqnos[mine], there)]  # zync maintain may have taken others away
        rows = rows.take(np.searchsorted(there, seqnos[mine]))
        names = pc.struct_field(rows["kafka"].combine_chunks(), "topic").to_pylist()
        for owner, name, ingested in zip(owners[mine].tolist(), names, rows["ingested"].to_pylist(), strict=True):
            topics[owner][name] += 1
            since[owner] = since[owner] or ingested
    return [replace(one, since=at, topics=dict(where)) for one, at, where in zip(some, since, topics, strict=True)]


def with_decisions(some: list[Transaction], raw: DeltaTable, staging: str) -> list[Transaction]:
    """With what was decided about them behind what the newest sync has seen.

    Of several of one id and state all are to be among them, in order: the first is decided about first.
    """
    said: dict[tuple[str, str], list[str]] = {}
    for _, one in decisions(raw, above=read_cursor(existing_staging(staging)).head):
        about = "late" if one.get("late") else str(one.get("decision"))
        text = f"{one.get('decision')} by {one.get('who')}: {one.get('why')}"
        said.setdefault((about, str(one.get("txn"))), []).append(text)
    found = []
    for each in some:
        mine = [said[about, each.id] for about in _DECIDED_BY.get(each.state, ()) if said.get((about, each.id))]
        found.append(replace(each, decided=mine[0].pop(0) if mine else None))
    return found


def raw_rows(
    raw: DeltaTable, ranges: tuple[tuple[int, int], ...], columns: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Raw's rows with those seqnos, in order; only files that can hold some are read."""
    for file in data_files(raw, "seqno", above=min(ranges)[0] - 1, upto=max(ranges)[1]) if ranges else ():
        mine = [(first, last) for first, last in ranges if first <= file.highest and last >= file.lowest]
        if mine:
            seqnos = pa.array(list(_seqnos(tuple(mine))), pa.int64())
            rows = dataset(raw, [file.path], RAW_SCHEMA).to_table(
                columns=columns, filter=(ds.field("seqno") >= mine[0][0]) & (ds.field("seqno") <= mine[-1][1])
            )
            yield from rows.filter(pc.is_in(rows["seqno"], seqnos)).sort_by("seqno").to_pylist()


def _seqnos(ranges: tuple[tuple[int, int], ...]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)
