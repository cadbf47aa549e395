"""What operators see of transactions that are not simply done, and why they are not. Read without Spark."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from zync.cat import shown
from zync.config import Config
from zync.errors import UsageError
from zync.files import data_files, dataset
from zync.ingest.raw import RAW_SCHEMA, existing_raw
from zync.output import amount, printable
from zync.staging.table import STAGING_SCHEMA, existing_staging
from zync.transactions.debezium.missing import Seen, missing
from zync.transactions.decisions import decisions
from zync.transactions.known import read_cursor, read_known
from zync.transactions.set_aside import REVISITS, id_of, read_set_aside

STATES = {
    "in-flight": "pending",
    "expired": "expired",
    "quarantined": "quarantined",
    "late": "late",
    "released": "released",
    "discarded": "discarded",
}
"""States of a transaction by the names that commands use, and the kinds of rows that staging has for them."""
_UNDECIDED = ("in-flight", "expired", "quarantined", "late")


@dataclass(frozen=True)
class Transaction:
    """A transaction that is not simply done. `id` is its place in Kafka where it has no other.

    seqno: of its first record in flight, or of what settled it. records: seqnos as (first, last). since: when its
    first record was ingested. topics: where its records are, counted. held: it is whole, and waits for its turn in the
    order of commit. so_far: the values of `done`'s aggregates as they stand in its text, where they are kept.
    decided: what was decided about it, where no sync has met that yet.
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
    found = find(staging, [state] if state else STATES, older)
    if older is None and topic is None:
        return _with_decisions(_with_places(found[:limit], raw_table), raw_table, staging)
    found = _with_decisions(_with_places(found, raw_table), raw_table, staging)
    now = datetime.now(UTC)
    found = [one for one in found if older is None or (one.since is not None and now - one.since >= older)]
    return [one for one in found if topic is None or topic in one.topics][:limit]


def find(staging: str, states: Collection[str], older: timedelta | None = None) -> list[Transaction]:
    """Those in one of these states, oldest first, as staging alone has them: `topics` is empty.

    `older`: without those in flight that began later. Of the others staging does not know when they began.
    """
    found = sorted(_all(existing_staging(staging), states), key=lambda one: one.seqno)
    now = datetime.now(UTC)
    return [one for one in found if older is None or one.since is None or now - one.since >= older]


def show(raw: str, staging: str, txn: str, config: Config) -> dict[str, Any]:
    """All that is known of one transaction: its state, its records in order, and what it waits for.

    UsageError where staging knows of no such transaction that is not done.
    """
    raw_table, table = existing_raw(raw), existing_staging(staging)
    mine = [*_all(table, STATES, txn)]
    if not mine:
        msg = f"no transaction {txn!r} is in flight, set aside, or settled in {staging}: `zync txn list` names some"
        raise UsageError(msg)
    newest = max(mine, key=lambda one: (one.state != "late", one.seqno))
    records = [*_raw_rows(raw_table, newest.records)]
    (one,) = _with_decisions(_with_places([newest], raw_table), raw_table, staging)
    return {
        "txn": one.id,
        "state": one.state,
        "seqno": one.seqno,
        "since": one.since,
        "reason": one.reason,
        "rule": one.rule,
        "decided": one.decided,
        "missing": _missing(records, one, config),
        "partitions": dict(Counter(f"{row['kafka']['topic']}/{row['kafka']['partition']}" for row in records)),
        "late": [
            {**_record(row), "reason": other.reason}
            for other in mine
            if other.state == "late" and other is not newest
            for row in _raw_rows(raw_table, other.records)
        ],
        "records": [_record(row) for row in records],
    }


def describe(one: dict[str, Any]) -> str:
    """What `show` found, as lines for people."""
    lines = [f"transaction {one['txn']}: {one['state']} since {one['since']}, {amount(len(one['records']), 'record')}"]
    if one["reason"]:
        lines.append(f"  because {one['reason']}" + (f" (rule {one['rule']})" if one["rule"] else ""))
    if one["decided"]:
        lines.append(f"  decided: {one['decided']}; the next sync acts on it")
    lines += [f"  missing: {text}" for text in one["missing"]]
    lines += [f"  {place}: {amount(count, 'record')}" for place, count in one["partitions"].items()]
    lines += [f"  {_line(record)}" for record in one["records"]]
    lines += [f"  late ({record['reason']}): {_line(record)}" for record in one["late"]]
    return "\n".join(map(printable, lines))


def _line(record: dict[str, Any]) -> str:
    return "{seqno} {topic}/{partition}/{offset} {value}".format(**record)


def _all(table: DeltaTable, states: Collection[str], txn: str | None = None) -> Iterator[Transaction]:
    """Those in one of the states; where an id is given, those of that id alone, done or not."""
    names = {kind: name for name, kind in STATES.items()}
    wanted = {STATES[state] for state in states}
    kinds = wanted & {"released", "discarded"} | ({"done"} if txn is not None else set())
    settled = ds.field("kind").isin(pa.array(kinds, pa.string()))
    in_flight = read_known(table, 0).in_flight
    if txn is not None:
        in_flight, settled = in_flight.filter(pc.equal(in_flight["txn"], txn)), settled & _is(txn)
    for row in [*in_flight.to_pylist(), *_rows(table, settled)]:
        if row["kind"] in wanted | kinds:
            yield _transaction(row, names.get(row["kind"], row["kind"]))
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


def groups(raw: str, staging: str) -> list[dict[str, Any]]:
    """What is set aside, by rule and error (its numbers and quoted parts aside), the most frequent first.

    Each with its state, a count, an example of the error, some ids, and where the first one's records are in Kafka.
    """
    raw_table = existing_raw(raw)
    found: dict[tuple[str, str | None, str], list[Transaction]] = {}
    for one in _all(existing_staging(staging), ("quarantined", "late")):
        found.setdefault((one.state, one.rule, kind_of(one.reason or "")), []).append(one)
    return [
        {
            "state": state,
            "count": len(mine),
            "rule": rule,
            "error": mine[0].reason,
            "ids": [one.id for one in mine[:5]],
            "places": [
                "{topic}/{partition}/{offset}".format(**row["kafka"])
                for row in islice(_raw_rows(raw_table, mine[0].records, ["seqno", "kafka"]), 5)
            ],
        }
        for (state, rule, _), mine in sorted(found.items(), key=lambda item: -len(item[1]))
    ]


def kind_of(error: str) -> str:
    """The error without what differs from record to record: of Spark's errors what is quoted has its quotes escaped."""
    return re.sub(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d+""", "…", error)


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


def _with_places(some: list[Transaction], raw: DeltaTable) -> list[Transaction]:
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


def _with_decisions(some: list[Transaction], raw: DeltaTable, staging: str) -> list[Transaction]:
    """With what was decided of those that are not settled, behind what the newest sync has seen."""
    made = [one for _, one in decisions(raw, above=read_cursor(existing_staging(staging)).head)]
    said: dict[str, list[str]] = {}
    for one in made:
        said.setdefault(str(one.get("txn")), []).append(f"{one.get('decision')} by {one.get('who')}: {one.get('why')}")
    found = []
    for each in some:  # of several of one id, the first is decided about first
        mine = said.get(each.id) if each.state in _UNDECIDED else None
        found.append(replace(each, decided=mine.pop(0) if mine else None))
    return found


def _raw_rows(
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


def _missing(records: list[dict[str, Any]], one: Transaction, config: Config) -> list[str]:
    if one.state not in ("in-flight", "expired"):
        return []
    if one.held:
        return ["it is whole: it waits for transactions that were committed before it (order: commit)"]
    if config.transactions.preset == "debezium":
        return missing([_debezium_record(row) for row in records], str(config.transactions.topic))
    by_now = f", whose aggregates are {', '.join(map(json.dumps, one.so_far))} by now" if one.so_far else ""
    return [f"it does not hold that {config.transactions.done}{by_now}"]


def _debezium_record(row: dict[str, Any]) -> Seen:
    try:
        value = json.loads(row["value"]) if row["value"] else None
    except (ValueError, RecursionError):
        value = None
    value = value if isinstance(value, dict) else {}
    run = next((h["value"] for h in row["headers"] or () if h["key"] == "__debezium.context.runId"), None) or b""
    return Seen(row["kafka"]["topic"], value, run.decode(errors="replace"))


def _record(row: dict[str, Any]) -> dict[str, Any]:
    place = row["kafka"]
    return {
        "seqno": row["seqno"],
        "topic": place["topic"],
        "partition": place["partition"],
        "offset": place["offset"],
        "ingested": row["ingested"],
        "key": shown(row["key"]),
        "value": shown(row["value"]),
    }
