"""What a Debezium transaction in flight waits for, in words for an operator; in plain Python, without Spark."""

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seen:
    """A record of a transaction as Python has it: `value` is its JSON, `run` the header of its connector's run."""

    topic: str
    value: dict[str, Any]
    run: str


def missing(records: list[Seen], topics: Collection[str], uncounted: Collection[str] = ()) -> list[str]:
    """What a transaction of the preset still waits for, in words; `topics` are those of BEGIN and END.

    `uncounted`: tables whose rows it does not wait for.
    """
    left_out = {_short(name.split(".")) for name in uncounted}
    bodies = [(one, _body(one.value)) for one in records]
    ends = [body for one, body in bodies if one.topic in topics and body.get("status") == "END"]
    here = _rows_here([(one, body) for one, body in bodies if one.topic not in topics])
    if not ends:
        return [f"no END yet; {sum(here.values())} rows are here"]
    found = []
    for end in ends:
        found += _missing_of(end, here, left_out)
    return found or ["every END's counts are here, but not as one run of the connector has them, nor as all together"]


def _missing_of(end: dict[str, Any], here: dict[str, int], left_out: Collection[str]) -> list[str]:
    """What one END counts that is not there; `here`: how many rows of each table are; `left_out`: uncounted tables."""
    found, count, said = list[str](), end.get("event_count"), end.get("data_collections")
    if not _is_count(count) or not (said is None or (isinstance(said, list) and all(map(_counts, said)))):
        return [f"END makes no sense: event_count {count}, data_collections {json.dumps(said)}"]
    if said is None:  # it does not count by table
        rows = sum(here.values())
        return [] if rows == count else [f"END counts {count} rows, {rows} are here"]
    counted, called = Counter[str](), dict[str, str]()
    for one in said:
        table = _short(str(one["data_collection"]).split("."))
        counted[table] += one["event_count"]  # each logical message has a collection of its own
        called[table] = str(one["data_collection"]) if table else "logical messages"
    if counted.total() != count:
        found.append(f"END counts {count} rows, and by table {counted.total()}")
    for table, rows in counted.items():
        if table not in left_out and here.get(table, 0) != rows:
            found.append(f"END counts {rows} in {called[table]}, {here.get(table, 0)} are here")
    return found


def _rows_here(bodies: list[tuple[Seen, dict[str, Any]]]) -> dict[str, int]:
    """How many different rows of each table there are among these records."""
    rows: dict[str, dict[str, dict[str, set[Any]]]] = {}
    for one, body in bodies:
        source, said = body.get("source"), body.get("transaction")
        if isinstance(source, dict) and isinstance(said, dict):
            schema = source.get("schema") or source.get("keyspace")
            names = [source.get("db"), schema, source.get("table") or source.get("collection")]
            table = "" if body.get("op") == "m" else _short(names)  # a logical message
            mine = rows.setdefault(table, {}).setdefault(one.run, {})
            identity, order = _identity(body), said.get("total_order")
            times = mine.setdefault(identity, set())
            times.add(order if _is_numbered(body) or one.run else len(times))
    here: dict[str, int] = {}
    for table, runs in rows.items():
        together: Counter[str] = Counter()
        for run in runs.values():
            together |= Counter({identity: len(times) for identity, times in run.items()})
        here[table] = together.total()
    return here


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _counts(one: Any) -> bool:
    """Whether it says how many rows of a table there are."""
    return isinstance(one, dict) and "data_collection" in one and _is_count(one.get("event_count"))


def _body(value: dict[str, Any]) -> dict[str, Any]:
    return value["payload"] if isinstance(value.get("payload"), dict) and "schema" in value else value


def _short(names: list[Any]) -> str:
    name = ".".join(str(one) for one in names if one)
    return "" if "LogicalDecodingMessageId@" in name else ".".join(name.split(".")[-2:])


def _identity(body: dict[str, Any]) -> str:
    """What RECORD_ID is in SQL: by it rows are told from what was sent again."""
    source = body["source"]
    keys = ["lsn", "file", "pos", "row", "change_lsn", "event_serial_no", "scn"]
    numbered: list[Any] = []
    if _is_numbered(body):
        numbered = [body["transaction"].get("total_order"), source.get("ts_ms"), body.get("message")]
        keys = [key for key in keys if key not in ("file", "pos", "row") or not source.get("gtid")]
    place = {key: source.get(key) for key in keys}
    return json.dumps([place, body.get("op"), body.get("before"), body.get("after"), *numbered], sort_keys=True)


def _is_numbered(body: dict[str, Any]) -> bool:
    """What NUMBERED is in SQL: whether the row's total_order is for good."""
    version = re.match(r"(\d+)\.(\d+)", str(body["source"].get("version")))
    return version is not None and (int(version[1]), int(version[2])) >= (3, 7)
