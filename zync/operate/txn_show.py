"""All that is known of one transaction: its records, and what it waits for. No Spark."""

import json
from collections import Counter
from typing import Any

from zync.config.model import Config
from zync.debezium.missing import Seen, missing
from zync.errors import UsageError, ZyncError
from zync.kafka.admin import Brokers
from zync.operate.cat import json_value
from zync.operate.json_errors import REASONS, why_no_json
from zync.operate.txn import STATES, Transaction, all_of, raw_rows, with_decisions, with_places
from zync.raw.table import existing_raw
from zync.staging.table import existing_staging
from zync.text import amount, printable


def show(raw: str, staging: str, txn: str, config: Config) -> dict[str, Any]:
    """All that is known of one transaction: its state, its records in order, and what it waits for.

    UsageError where staging knows of no such transaction that is not done.
    """
    raw_table, table = existing_raw(raw), existing_staging(staging)
    mine = with_decisions([*all_of(table, STATES, txn)], raw_table, staging)
    if not mine:
        msg = f"no transaction {txn!r} is in flight, set aside, or settled in {staging}: `zync txn list` names some"
        raise UsageError(msg)
    newest = max(mine, key=lambda one: (one.state != "late", one.seqno))
    records = [*raw_rows(raw_table, newest.records)]
    (one,) = with_places([newest], raw_table)
    waits_for = _missing(records, one, config)
    return {
        "txn": one.id,
        "state": one.state,
        "seqno": one.seqno,
        "since": one.since,
        "reason": one.reason,
        "rule": one.rule,
        "decided": one.decided,
        "waits_for": one.waits_for,
        "missing": [*waits_for, *(_compacted(records, config) if waits_for and not one.held else [])],
        "partitions": dict(Counter(f"{row['kafka']['topic']}/{row['kafka']['partition']}" for row in records)),
        "late": [
            {**_record(row), "reason": other.reason}
            for other in mine
            if other.state == "late" and other is not newest
            for row in raw_rows(raw_table, other.records)
        ],
        "records": [{**_record(row), "why": _why(row, one)} for row in records],
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
    why = f" ({record['why']})" if record.get("why") else ""
    return "{seqno} {topic}/{partition}/{offset} {value}".format(**record) + why


def _why(row: dict[str, Any], one: Transaction) -> str | None:
    """What is wrong with this record, where its transaction was set aside for one that is no JSON."""
    said = any(reason in (one.reason or "") for reason in REASONS)
    return why_no_json(row["value"]) if said and row["value"] is not None else None


def _missing(records: list[dict[str, Any]], one: Transaction, config: Config) -> list[str]:
    if one.state not in ("in-flight", "expired"):
        return []
    if one.held:
        awaited = f", first of all for {one.waits_for}: see `zync txn show {one.waits_for}`" if one.waits_for else ""
        return [f"it is whole: it waits for transactions that were committed before it (order: commit){awaited}"]
    said = config.transactions
    if said.preset == "debezium":
        return missing([_debezium_record(row) for row in records], said.end_topics, said.uncounted)
    by_now = f", whose aggregates are {', '.join(map(json.dumps, one.so_far))} by now" if one.so_far else ""
    return [f"it does not hold that {config.transactions.done}{by_now}"]


def _compacted(records: list[dict[str, Any]], config: Config) -> list[str]:
    """The topics of these records that Kafka compacts, if it is asked and answers: what is missing may be gone."""
    if not config.kafka.get("bootstrap.servers"):
        return []
    try:
        brokers = Brokers(config.kafka)
        there = brokers.topics(patient=False)
        found = brokers.compacted({row["kafka"]["topic"] for row in records} & there.keys())
    except ZyncError:
        return []
    return [f"topic {name} is compacted: rows of it may have been taken away before they were read" for name in found]


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
        "key": json_value(row["key"]),
        "value": json_value(row["value"]),
    }
