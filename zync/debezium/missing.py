"""Explains to an operator what a Debezium transaction in flight waits for, in plain Python without Spark."""

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from zync.debezium.envelope import CONTINUES_SINCE, RUN_HEADER, connector_of_source
from zync.text import json_object


@dataclass(frozen=True)
class Seen:
    """A record of a transaction.

    Attributes:
        topic: The record's topic.
        value: Its value, parsed from JSON.
        run: The header that names the run of the connector; empty without it.
    """

    topic: str
    value: dict[str, Any]
    run: str


def seen(topic: str, value: bytes | None, headers: list[dict[str, Any]] | None) -> Seen:
    """Returns a record of raw as `missing` takes it; a value that is no JSON object counts as an empty one."""
    runs = (header["value"] for header in headers or () if header["key"] == RUN_HEADER)
    run = next(runs, None) or b""
    return Seen(topic, json_object(value) or {}, run.decode(errors="replace"))


def missing(records: list[Seen], topics: Collection[str], uncounted: Collection[str] = ()) -> list[str]:
    """Explains what a transaction of the preset still waits for.

    Args:
        records: The transaction's records.
        topics: The topics of BEGIN and END.
        uncounted: The tables whose rows the transaction does not wait for (`transactions.uncounted`).

    Returns:
        A text for each thing that is missing.
    """
    uncounted_tables = {_table_name(name.split(".")) for name in uncounted}
    bodies = [(record, _body(record.value)) for record in records]
    ends = [body for record, body in bodies if record.topic in topics and body.get("status") == "END"]
    row_counts = _row_counts([(record, body) for record, body in bodies if record.topic not in topics])
    if not ends:
        return [f"no END yet; {sum(row_counts.values())} rows are here"]
    texts = []
    for end in ends:
        texts += _missing_of(end, row_counts, uncounted_tables)
    return texts or ["every END's counts are here, but not as one run of the connector has them, nor as all together"]


def _missing_of(end: dict[str, Any], row_counts: dict[str, int], uncounted_tables: Collection[str]) -> list[str]:
    """Compares the counts of an END with the rows that have arrived.

    Args:
        end: The END's body.
        row_counts: The number of rows by table.
        uncounted_tables: The tables to ignore.

    Returns:
        A text for each difference.
    """
    texts, count, collections = list[str](), end.get("event_count"), end.get("data_collections")
    if not _is_count(count) or not (
        collections is None or (isinstance(collections, list) and all(map(_has_count, collections)))
    ):
        return [f"END makes no sense: event_count {count}, data_collections {json.dumps(collections)}"]
    if collections is None:  # this END counts all rows, not the rows of each table
        total = sum(rows for table, rows in row_counts.items() if table not in uncounted_tables)
        return [] if total == count else [f"END counts {count} rows, {total} are here"]
    counted, display_names = Counter[str](), dict[str, str]()
    for collection in collections:
        table = _table_name(str(collection["data_collection"]).split("."))
        counted[table] += collection["event_count"]  # each logical message has a collection of its own
        display_names[table] = str(collection["data_collection"]) if table else "logical messages"
    if counted.total() != count:
        texts.append(f"END counts {count} rows, and by table {counted.total()}")
    for table, rows in counted.items():
        if table not in uncounted_tables and row_counts.get(table, 0) != rows:
            texts.append(f"END counts {rows} in {display_names[table]}, {row_counts.get(table, 0)} are here")
    return texts


def _row_counts(bodies: list[tuple[Seen, dict[str, Any]]]) -> dict[str, int]:
    """Counts the different rows of each table; a row that a run of the connector sent again counts once."""
    orders: dict[str, dict[str, dict[str, set[Any]]]] = {}  # by table, run and identity
    for record, body in bodies:
        source, transaction = body.get("source"), body.get("transaction")
        if isinstance(source, dict) and isinstance(transaction, dict):
            schema = source.get("schema") or source.get("keyspace")
            names = [source.get("db"), schema, source.get("table") or source.get("collection")]
            table = "" if body.get("op") == "m" else _table_name(names)  # "" stands for logical messages
            run_orders = orders.setdefault(table, {}).setdefault(record.run, {})
            identity, order = _identity(body), transaction.get("total_order")
            row_orders = run_orders.setdefault(identity, set())
            row_orders.add(order if _is_numbered(body) or record.run else len(row_orders))
    row_counts: dict[str, int] = {}
    for table, runs in orders.items():
        union: Counter[str] = Counter()
        for run in runs.values():
            union |= Counter({identity: len(row_orders) for identity, row_orders in run.items()})
        row_counts[table] = union.total()
    return row_counts


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _has_count(collection: Any) -> bool:
    """Whether an element of `data_collections` is valid: it names a table and its number of rows."""
    return isinstance(collection, dict) and "data_collection" in collection and _is_count(collection.get("event_count"))


def _body(value: dict[str, Any]) -> dict[str, Any]:
    """Returns the record's value without the JSON converter's `schema` and `payload` around it."""
    return value["payload"] if isinstance(value.get("payload"), dict) and "schema" in value else value


def _table_name(names: list[Any]) -> str:
    """Returns the schema and the table, or "" for a logical message."""
    name = ".".join(str(part) for part in names if part)
    return "" if "LogicalDecodingMessageId@" in name else ".".join(name.split(".")[-2:])


def _identity(body: dict[str, Any]) -> str:
    """Returns what is the same in a row and its repeats, as RECORD_ID does in SQL (zync.debezium.envelope)."""
    source = body["source"]
    connector = connector_of_source(source)
    fields, numbered = connector.image if connector else (), list[Any]()
    if _is_numbered(body):
        numbered = [body["transaction"].get("total_order"), source.get("ts_ms"), body.get("message")]
        if connector and connector.numbered_unless and source.get(connector.numbered_unless) is not None:
            fields = ()
    position = [source.get(name) for name in fields]
    return json.dumps([position, body.get("op"), body.get("before"), body.get("after"), *numbered], sort_keys=True)


def _is_numbered(body: dict[str, Any]) -> bool:
    """Whether no other row of the transaction has the row's total_order, as NUMBERED says in SQL."""
    version = re.match(r"(\d+)\.(\d+)", str(body["source"].get("version")))
    return version is not None and (int(version[1]), int(version[2])) >= CONTINUES_SINCE
