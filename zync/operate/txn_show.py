"""Shows a transaction: its records, and what it waits for. No Spark."""

import json
from collections import Counter
from typing import Any

from zync.config.model import Config
from zync.config.topics import claiming
from zync.debezium.missing import missing, seen
from zync.errors import UsageError, ZyncError
from zync.kafka.admin import Brokers
from zync.operate.cat import json_value
from zync.operate.json_errors import REASONS, why_no_json
from zync.operate.txn import STATES, Transaction, raw_rows, read_transactions, with_decisions, with_topics
from zync.raw.table import existing_raw
from zync.staging.table import existing_staging
from zync.text import amount, listed, printable


def show(raw: str, staging: str, txn: str, config: Config) -> dict[str, Any]:
    """Reads the state of a transaction, its records in order, and what it waits for.

    Args:
        raw: the location of raw.
        staging: the location of staging.
        txn: the transaction's id; of a record without one, its topic/partition/offset.
        config: the config of the pipeline.

    Raises:
        UsageError: staging has no transaction of this id.

    Example:
        >>> zync.show_transaction("lake/raw", "lake/staging", "10001", config)["state"]
        'in-flight'
    """
    raw_table, table = existing_raw(raw), existing_staging(staging)
    with_id = with_decisions([*read_transactions(table, STATES, txn)], raw_table, staging)
    if not with_id:
        msg = f"no transaction {txn!r} is in flight, set aside, or settled in {staging}: `zync txn list` names some"
        raise UsageError(msg)
    newest = max(with_id, key=lambda transaction: (transaction.state != "late", transaction.seqno))
    records = [*raw_rows(raw_table, newest.records)]
    (transaction,) = with_topics([newest], raw_table)
    missing_texts = _missing(records, transaction, config)
    if missing_texts and not transaction.held:
        missing_texts += _compaction_warnings(records, config)
    return {
        "txn": transaction.id,
        "state": transaction.state,
        "seqno": transaction.seqno,
        "since": transaction.since,
        "reason": transaction.reason,
        "rule": transaction.rule,
        "decided": transaction.decided,
        "waits_for": transaction.waits_for,
        "missing": missing_texts,
        "partitions": dict(Counter(f"{row['kafka']['topic']}/{row['kafka']['partition']}" for row in records)),
        "late": [
            {**_record(row), "reason": other.reason}
            for other in with_id
            if other.state == "late" and other is not newest
            for row in raw_rows(raw_table, other.records)
        ],
        "records": [{**_record(row), "why": _json_error(row, transaction)} for row in records],
    }


def describe(transaction: dict[str, Any]) -> str:
    """Returns the result of `show` as lines for people."""
    total = amount(len(transaction["records"]), "record")
    lines = [f"transaction {transaction['txn']}: {transaction['state']} since {transaction['since']}, {total}"]
    if transaction["reason"]:
        rule = f" (rule {transaction['rule']})" if transaction["rule"] else ""
        lines.append(f"  because {transaction['reason']}{rule}")
    if transaction["decided"]:
        lines.append(f"  decided: {transaction['decided']}; the next sync acts on it")
    lines += [f"  missing: {text}" for text in transaction["missing"]]
    lines += [f"  {partition}: {amount(count, 'record')}" for partition, count in transaction["partitions"].items()]
    lines += [f"  {_line(record)}" for record in transaction["records"]]
    lines += [f"  late ({record['reason']}): {_line(record)}" for record in transaction["late"]]
    return "\n".join(map(printable, lines))


def _line(record: dict[str, Any]) -> str:
    why = f" ({record['why']})" if record.get("why") else ""
    return "{seqno} {topic}/{partition}/{offset} {value}".format(**record) + why


def _json_error(row: dict[str, Any], transaction: Transaction) -> str | None:
    """Returns why the record's value is not JSON, if that is why its transaction was set aside."""
    is_not_json = any(reason in (transaction.reason or "") for reason in REASONS)
    return why_no_json(row["value"]) if is_not_json and row["value"] is not None else None


def _missing(records: list[dict[str, Any]], transaction: Transaction, config: Config) -> list[str]:
    """Returns what a transaction in flight waits for, as texts for people."""
    if transaction.state not in ("in-flight", "expired"):
        return []
    if transaction.held:
        waits_for = transaction.waits_for
        first = f", first of all for {waits_for}: see `zync txn show {waits_for}`" if waits_for else ""
        return [f"it is whole: it waits for transactions that were committed before it (order: commit){first}"]
    settings = config.transactions
    if settings.preset == "debezium":
        if unread := _topics_not_in_json(records, config):
            return [f"what is missing is not computed, as the values of {listed(unread)} are not plain JSON"]
        return missing(
            [seen(row["kafka"]["topic"], row["value"], row["headers"]) for row in records],
            settings.end_topics,
            settings.uncounted,
        )
    values = ", ".join(map(json.dumps, transaction.so_far))
    aggregates = f", whose aggregates are {values} by now" if transaction.so_far else ""
    return [f"it does not hold that {settings.done}{aggregates}"]


def _topics_not_in_json(records: list[dict[str, Any]], config: Config) -> list[str]:
    """Returns the topics of these records whose values are in another format, or compressed."""
    names = {name: claiming(config, name) for name in sorted({row["kafka"]["topic"] for row in records})}
    topics = {name: config.topics[entry] for name, entry in names.items() if entry is not None}
    return [
        name
        for name, topic in topics.items()
        if config.format(topic, "value") not in ("json", "connect-json") or topic.compression != "none"
    ]


def _compaction_warnings(records: list[dict[str, Any]], config: Config) -> list[str]:
    """Warns of the records' topics that Kafka compacts: missing rows may be gone. Empty if no broker answers."""
    if not config.kafka.get("bootstrap.servers"):
        return []
    try:
        brokers = Brokers(config.kafka)
        kafka_topics = brokers.topics(patient=False)
        compacted = brokers.compacted({row["kafka"]["topic"] for row in records} & kafka_topics.keys())
    except ZyncError:
        return []
    return [
        f"topic {topic} is compacted: rows of it may have been taken away before they were read" for topic in compacted
    ]


def _record(row: dict[str, Any]) -> dict[str, Any]:
    coordinates = row["kafka"]
    return {
        "seqno": row["seqno"],
        "topic": coordinates["topic"],
        "partition": coordinates["partition"],
        "offset": coordinates["offset"],
        "ingested": row["ingested"],
        "key": json_value(row["key"]),
        "value": json_value(row["value"]),
    }
