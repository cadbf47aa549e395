"""What a Debezium transaction in flight waits for, in words for an operator; in plain Python, without Spark."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seen:
    """A record of a transaction as Python has it: `value` is its JSON, `run` the header of its connector's run."""

    topic: str
    value: dict[str, Any]
    run: str


def missing(records: list[Seen], topic: str) -> list[str]:
    """What a transaction of the preset still waits for, in words; `topic` is that of BEGIN and END."""
    bodies = [(one, _body(one.value)) for one in records]
    ends = [body for one, body in bodies if one.topic == topic and body.get("status") == "END"]
    rows: dict[str, dict[str, dict[str, set[Any]]]] = {}
    for one, body in bodies:
        source, said = body.get("source"), body.get("transaction")
        if one.topic != topic and isinstance(source, dict) and isinstance(said, dict):
            names = [source.get("db"), source.get("schema"), source.get("table") or source.get("collection")]
            table = "" if body.get("op") == "m" else _short(names)  # a logical message
            mine = rows.setdefault(table, {}).setdefault(one.run, {})
            identity, order = _identity(body), said.get("total_order")
            times = mine.setdefault(identity, set())
            times.add(order if identity == str(order) or one.run else len(times))
    here: dict[str, int] = {}
    for table, runs in rows.items():
        together: Counter[str] = Counter()
        for run in runs.values():
            together |= Counter({identity: len(times) for identity, times in run.items()})
        here[table] = together.total()
    if not ends:
        return [f"no END yet; {sum(here.values())} rows are here"]
    found = []
    for end in ends:
        counted, called = Counter[str](), dict[str, str]()
        said = end.get("data_collections") or []
        if not _is_count(end.get("event_count")) or not isinstance(said, list) or not all(map(_counts, said)):
            found.append(
                f"END makes no sense: event_count {end.get('event_count')}, data_collections {json.dumps(said)}"
            )
            continue
        for one in said:
            table = _short(str(one["data_collection"]).split("."))
            counted[table] += one["event_count"]  # each logical message has a collection of its own
            called[table] = str(one["data_collection"]) if table else "logical messages"
        if counted.total() != end["event_count"]:
            found.append(f"END counts {end['event_count']} rows, and by table {counted.total()}")
        for table, count in counted.items():
            if here.get(table, 0) != count:
                found.append(f"END counts {count} in {called[table]}, {here.get(table, 0)} are here")
    return found or ["every END's counts are here, but not as one run of the connector has them, nor as all together"]


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
    version = re.match(r"(\d+)\.(\d+)", str(source.get("version")))
    if version and (int(version[1]), int(version[2])) >= (3, 7):
        return str(body["transaction"].get("total_order"))
    place = {key: source.get(key) for key in ("lsn", "file", "pos", "row", "change_lsn", "event_serial_no", "scn")}
    return json.dumps([place, body.get("op"), body.get("before"), body.get("after")], sort_keys=True)
