"""A database whose connector leaves values out: tables with rules of their own, which one sync reads together."""

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.conftest import rows
from zync.deliver.tables.delivery import sync_to_tables
from zync.operate.verify.tables import tables_claims
from zync.project.load import load as load_config
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer

LEFT_OUT = "__debezium_unavailable_value"
CODE = list(LEFT_OUT.encode())

Record = dict[str, Any]


def change(op: str, key: int, old_key: int | None = None, **row: Any) -> Record:
    """A change of a row by that key, which an update may have had another key before."""
    image = {"id": key, **row}
    before, after = (image, None) if op == "d" else (None, image)
    source = {"version": "3.7.0.Final", "connector": "postgresql", "schema": "s"}
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_000}
    headers = [["__debezium.oldkey", json.dumps({"id": old_key})]] if old_key is not None else []
    return {"key": json.dumps({"id": key}), "headers": headers, "value": value}


def move(old: int, new: int, **row: Any) -> list[Record]:
    """An update of the primary key, as Debezium sends it: the row's deletion and a new row, with what was left out."""
    return [change("d", old), change("c", new, old_key=old, **row)]


def end_of(txn: str, counts: dict[str, int]) -> Record:
    """END of a transaction that has so many rows of each table."""
    tables = [{"data_collection": f"s.{table}", "event_count": count} for table, count in counts.items()]
    value = {"status": "END", "id": txn, "event_count": sum(counts.values()), "data_collections": tables}
    return {"topic": "p.transaction", "key": None, "value": json.dumps(value)}


@dataclass
class Table:
    """A table of PostgreSQL's.

    rules: by the output that they make, `{table}` standing for its view. steps: the changes before each sync. topic:
    what the config says of its topic. key: columns of its outputs' key. apply: what deliveries do with which output.
    """

    rules: dict[str, str]
    steps: list[list[Record]]
    topic: str = ""
    key: str = "id"
    apply: dict[str, str] = field(default_factory=dict)


def table(rule: str, *changes: Record, **more: Any) -> Table:
    """A table with one rule, whose output is called as the table, and one step."""
    return Table({"": rule}, [list(changes)], **more)


class Database:
    """Each change of its tables is a transaction by itself, and has a later LSN than those before.

    table_of: whose change each record of raw is, in order of seqno.
    """

    def __init__(self, folder: Path, spark: Any, tables: dict[str, Table], said: str = "") -> None:
        self.folder, self.spark, self.tables = folder, spark, tables
        self.raw, self.staging = str(folder / "raw"), str(folder / "staging")
        self.lsn = self.step = 0
        self.table_of: list[str] = []
        self.configure(said)

    def configure(self, said: str = "") -> None:
        """Writes the rules, and a config with all of them.

        In reverse: a sync tries the rules in turn, and finds the first on which one fails with the fewest trials where
        it is the newest.
        """
        outputs, topics, applied = [], [], []
        for name, one in reversed(self.tables.items()):
            topics.append(f"p.s.{name}: {{as: {name}{one.topic}}}")
            for more, text in one.rules.items():
                output = f"{name}{more}"
                kind, file = ("python", f"{output}.py") if text.startswith("def ") else ("sql", f"{output}.sql")
                (self.folder / file).write_text(text.replace("{table}", name))
                outputs.append(f"{{topic: {output}, {kind}: {file}, key: [{one.key}]}}")
                applied += [f"{output}: {{apply: {one.apply[more]}}}"] if more in one.apply else []
        (self.folder / "zync.yaml").write_text(
            f"transactions: {{preset: debezium, topic: p.transaction{said}}}\n"
            f"topics: {{{', '.join(topics)}}}\noutputs: [{', '.join(outputs)}]\n"
            f"deliver: {{tables: {{{', '.join(applied)}}}}}\n"
        )
        self.config = load_config(self.folder / "zync.yaml")

    def take(self, *more: Record) -> None:
        """Loads `more` and the next step of each table into raw: the first change of each, the second, and so on."""
        steps = {name: one.steps[self.step] for name, one in self.tables.items() if self.step < len(one.steps)}
        taken = []
        for number in range(max(map(len, steps.values()), default=0)):
            taken += [(name, step[number]) for name, step in steps.items() if number < len(step)]
        lines = [json.dumps(one) + "\n" for one in more]
        for name, one in taken:
            self.lsn += 10
            value = json.loads(json.dumps(one["value"]))
            envelope = value.get("payload", value)
            envelope["source"] |= {"table": name, "lsn": self.lsn}
            record = {**one, "topic": f"p.s.{name}", "value": json.dumps(value, separators=(",", ":"))}
            lines.append(json.dumps(record) + "\n")
        (self.folder / "in.jsonl").write_text("".join(lines))
        load(self.raw, [str(self.folder / "in.jsonl")])
        self.table_of += [""] * len(more) + [name for name, _ in taken]
        self.step += 1

    def sync(self) -> list[dict[str, Any]]:
        """Syncs what was taken. All rows of staging."""
        Syncer(self.config, self.raw, self.staging, self.spark).sync()
        return rows(self.folder / "staging")

    def deliver(self) -> None:
        """Syncs what was taken, and brings the tables up to that."""
        self.sync()
        tables = str(self.folder / "tables")
        sync_to_tables(self.spark, self.config, self.staging, tables, threading.Event(), until_caught_up=True)
        assert [text for claim in tables_claims(tables, self.staging) for text in claim.violations] == []

    def delivered(self, output: str) -> list[dict[str, Any]]:
        """The rows of that output's table."""
        found = DeltaTable(str(self.folder / "tables" / output)).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda one: (one["id"], one["_position"]))


Output = tuple[Any, list[str]]


def outputs(staging: list[dict[str, Any]], topic: str) -> list[Output]:
    """Of each row of an output: its value, and the columns that were left out of it."""
    found = [one for one in staging if one["kind"] == "output" and one["kafka"]["topic"] == topic]
    found.sort(key=lambda one: one["seqno"])
    return [(json.loads(one["value"]), json.loads(one["state"] or "{}").get("left_out", [])) for one in found]
