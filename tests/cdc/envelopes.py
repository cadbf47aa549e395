"""Envelopes as the documentation and the source of Debezium's connectors have them, and pipelines that take them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import rows
from zync.operate.txn_show import show
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer

RULE = "SELECT seqno, txn, topic, op, row, _order.total_order AS _order FROM records WHERE op IS NOT NULL"


@dataclass(frozen=True)
class Envelopes:
    """What differs from connector to connector.

    ids: of BEGIN, of a row and of END. txn: what zync calls that transaction. source: what a row has beside `table`.
    tables: of each of two tables its name in `source` and in END. table: the key of `source` with it.
    """

    ids: tuple[str, str, str]
    txn: str
    source: dict[str, Any]
    tables: dict[str, str]
    table: str = "table"


def same(txn: str) -> dict[str, Any]:
    return {"ids": (txn, txn, txn), "txn": txn}


GTID = "3E11FA47-71CA-11E1-9E33-C80AA9429562:23"
VGTID = '[{"keyspace":"commerce","shard":"-80","gtid":"MariaDB/0-1592148-47"}]'
LSID = '{"id": {"$binary": "FA7YEzXgQXSX9OxmzllH2w==","$type": "04"},"uid": {"$binary": "47DEQ==","$type": "00"}}:5'
BINLOG = {"db": "inventory", "server_id": 223344, "pos": 154, "row": 0, "thread": 7, "query": None}
LSNS = {"change_lsn": "00000027:00000758:0003", "commit_lsn": "00000027:00000758:0005"}
POSTGRESQL = {"connector": "postgresql", "db": "bank", "sequence": '["24023119","24023128"]', "txId": 571, "xmin": None}
CONNECTORS = {
    "postgresql": Envelopes(
        ("571:53195829", "571:53195830", "571:53195832"),
        "571",
        {**POSTGRESQL, "schema": "s1", "lsn": 24023128},
        {"a": "s1.a", "b": "s1.b"},
    ),
    "mysql": Envelopes(
        **same(GTID),
        source={**BINLOG, "connector": "mysql", "gtid": GTID, "file": "mysql-bin.000003"},
        tables={"a": "inventory.a", "b": "inventory.b"},
    ),
    "mysql without GTID": Envelopes(
        **same("file=mysql-bin.1000000,pos=484"),
        source={**BINLOG, "connector": "mysql", "gtid": None, "file": "mysql-bin.1000000"},
        tables={"a": "inventory.a", "b": "inventory.b"},
    ),
    "mariadb": Envelopes(
        **same("0-1-5"),
        source={**BINLOG, "connector": "mariadb", "gtid": "0-1-5", "file": "mariadb-bin.000003"},
        tables={"a": "inventory.a", "b": "inventory.b"},
    ),
    "sqlserver": Envelopes(
        **same("00000025:00000d08:0025"),
        source={**LSNS, "connector": "sqlserver", "db": "testDB", "schema": "dbo", "event_serial_no": 1},
        tables={"a": "testDB.dbo.a", "b": "testDB.dbo.b"},
    ),
    "oracle": Envelopes(
        **same("5.6.641"),
        source={
            "connector": "oracle",
            "db": "ORCLPDB1",
            "schema": "DEBEZIUM",
            "txId": "5.6.641",
            "scn": "1513734",
            "commit_scn": "1513735",
            "rs_id": "001234.00012345.0124",
            "ssn": 1,
            "redo_thread": 1,
        },
        tables={"A": "ORCLPDB1.DEBEZIUM.A", "B": "ORCLPDB1.DEBEZIUM.B"},
    ),
    "db2": Envelopes(
        **same("00000025:00000d08:0025"),
        source={**LSNS, "connector": "db2", "db": "testDB", "schema": "DB2INST1"},
        tables={"A": "testDB.DB2INST1.A", "B": "testDB.DB2INST1.B"},
    ),
    "informix": Envelopes(
        ("571:53195829", "571:53195832", "571:53195832"),
        "571",
        {"connector": "informix", "db": "testdb", "schema": "informix", "txId": "571", "begin_lsn": "53195829"},
        {"a": "testdb.informix.a", "b": "testdb.informix.b"},
    ),
    "vitess": Envelopes(
        **same(VGTID),
        source={"connector": "vitess", "db": "", "keyspace": "commerce", "shard": "-80", "vgtid": VGTID},
        tables={"a": "commerce.a", "b": "commerce.b"},
    ),
    "yugabytedb": Envelopes(  # by its logical replication, through a connector made of PostgreSQL's
        ("571:5", "571:6", "571:9"),
        "571",
        {**POSTGRESQL, "schema": "public", "lsn": 6},
        {"a": "public.a", "b": "public.b"},
    ),
    "mongodb": Envelopes(
        **same(LSID),
        source={"connector": "mongodb", "db": "inventory", "ord": 31, "lsid": "{}", "txnNumber": 5},
        tables={"a": "inventory.a", "b": "inventory.b"},
        table="collection",
    ),
}


def prefix(name: str) -> str:
    return name.replace(" ", "_")


def row(name: str, table: str, total_order: int, op: str = "c", **more: Any) -> dict[str, Any]:
    """A row of that connector's as Debezium writes it."""
    one = CONNECTORS[name]
    source = {"version": "3.7.0.Final", "name": prefix(name), "ts_ms": 1589355606100, "snapshot": "false", **one.source}
    image: Any = {"id": total_order}
    if name == "mongodb":
        image = json.dumps({"_id": {"$numberLong": str(total_order)}})
    value = {
        "before": None,
        "after": image,
        "source": {**source, one.table: table},
        "op": op,
        "ts_ms": 1589355606476,
        "transaction": {"id": one.ids[1], "total_order": total_order, "data_collection_order": 1},
        **more,
    }
    return {"topic": f"{prefix(name)}.{table}", "key": {"id": str(total_order)}, "value": value}


def ends(name: str, counts: dict[str, int], topic: str | None = None) -> list[dict[str, Any]]:
    """BEGIN and END of the connector's transaction."""
    one = CONNECTORS[name]
    said = [{"data_collection": one.tables[table], "event_count": count} for table, count in counts.items()]
    begin = {"status": "BEGIN", "id": one.ids[0], "ts_ms": 1, "event_count": None, "data_collections": None}
    end = {"status": "END", "id": one.ids[2], "ts_ms": 2, "event_count": sum(counts.values()), "data_collections": said}
    return [{"topic": topic or f"{prefix(name)}.transaction", "value": value} for value in (begin, end)]


class Pipeline:
    """A config, and what was loaded and synced by it; `more`: rules by the output that they make, beside `out`."""

    def __init__(self, folder: Path, spark: Any, config: str, rule: str = RULE, **more: str) -> None:
        for topic, text in {"out": rule, **more}.items():
            (folder / f"{topic}.sql").write_text(text)
        outputs = ", ".join(f"{{topic: {topic}, sql: {topic}.sql}}" for topic in ("out", *more))
        (folder / "zync.yaml").write_text(f"{config}\noutputs: [{outputs}]\n")
        self.folder, self.spark = folder, spark
        self.raw, self.staging = str(folder / "raw"), str(folder / "staging")
        self.waiting: dict[str, list[str]] = {}
        self.config = read_config(folder / "zync.yaml")
        self.syncer = Syncer(self.config, self.raw, self.staging, spark)

    def load(self, *records: dict[str, Any]) -> None:
        (self.folder / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        load(self.raw, [str(self.folder / "in.jsonl")])

    def sync(self, *records: dict[str, Any]) -> Outcome:
        self.load(*records)
        return self.syncer.sync()

    def out(self, topic: str = "out") -> list[dict[str, Any]]:
        """The rows of an output in order, by what the rule selects."""
        found = [one for one in rows(self.staging) if one["kind"] == "output" and one["kafka"]["topic"] == topic]
        return [json.loads(one["value"]) for one in sorted(found, key=lambda one: one["kafka"]["offset"])]

    def kinds(self) -> dict[str, str]:
        """The kind and the reason of each transaction, and each record by itself, that is done or set aside."""
        found = [one for one in rows(self.staging) if one["kind"] not in ("output", "cursor")]
        return {one["txn"] or one["kafka"]["topic"]: f"{one['kind']}: {one['reason'] or ''}" for one in found}

    def missing(self, txn: str) -> list[str]:
        found: list[str] = show(self.raw, self.staging, txn, self.config)["missing"]
        return found


def renumbered(txn: str, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """The records as those of another transaction, which zync calls so."""
    made: list[dict[str, Any]] = json.loads(json.dumps(records))
    for one in made:
        holder = one["value"] if "status" in one["value"] else one["value"]["transaction"]
        holder["id"] = txn if "{" in txn else f"{txn}:{holder['id'].partition(':')[2]}"
    return made
