"""Envelopes as the documentation and the source of Debezium's connectors have them: each completes, and reads right."""

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import rows
from zync.config.model import Config
from zync.deliver.tables.delivery import sync_to_tables
from zync.operate.status import describe, status
from zync.operate.txn import transactions
from zync.operate.txn_show import show
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.sync.outcome import Outcome
from zync.sync.syncer import Syncer
from zync.transactions import gather

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
    """A config, and what was loaded and synced by it."""

    def __init__(self, folder: Path, spark: Any, config: str, rule: str = RULE) -> None:
        (folder / "rule.sql").write_text(rule)
        (folder / "zync.yaml").write_text(f"{config}\noutputs: [{{topic: out, sql: rule.sql}}]\n")
        self.folder, self.spark = folder, spark
        self.raw, self.staging = str(folder / "raw"), str(folder / "staging")
        self.waiting: dict[str, list[str]] = {}
        self.syncer: Any = None

    @property
    def config(self) -> Config:
        return read_config(self.folder / "zync.yaml")

    def sync(self, *records: dict[str, Any]) -> Outcome:
        (self.folder / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        load(self.raw, [str(self.folder / "in.jsonl")])
        self.syncer = Syncer(self.config, self.raw, self.staging, self.spark)
        outcome: Outcome = self.syncer.sync()
        return outcome

    def out(self) -> list[dict[str, Any]]:
        """The output rows in order, by what the rule selects."""
        found = [one for one in rows(self.staging) if one["kind"] == "output"]
        return [json.loads(one["value"]) for one in sorted(found, key=lambda one: one["kafka"]["offset"])]

    def kinds(self) -> dict[str, str]:
        """The kind and the reason of each transaction, and each record by itself, that is done or set aside."""
        found = [one for one in rows(self.staging) if one["kind"] not in ("output", "cursor")]
        return {one["txn"] or one["kafka"]["topic"]: f"{one['kind']}: {one['reason'] or ''}" for one in found}

    def missing(self, txn: str) -> list[str]:
        found: list[str] = show(self.raw, self.staging, txn, self.config)["missing"]
        return found


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Pipeline:
    """A transaction of each connector, synced half, looked at, and synced to its end; all into one staging."""
    topics = ", ".join(f"{{topic: {prefix(name)}.transaction}}" for name in CONNECTORS)
    pipeline = Pipeline(
        tmp_path_factory.mktemp("envelopes"), spark, f"transactions: {{preset: debezium, connectors: [{topics}]}}"
    )
    early, late = [], []
    for name, one in CONNECTORS.items():
        first, second = one.tables
        early += [*ends(name, {first: 2, second: 1}), row(name, first, 1), row(name, second, 3)]
        late += [row(name, first, 2)]
    pipeline.sync(*early)
    pipeline.waiting = {name: pipeline.missing(f"{prefix(name)}/{one.txn}") for name, one in CONNECTORS.items()}
    pipeline.sync(*late)
    return pipeline


@pytest.mark.parametrize("name", CONNECTORS)
def test_a_transaction_as_documented_lands_whole_and_reads_right(landed: Pipeline, name: str) -> None:
    one = CONNECTORS[name]
    txn = f"{prefix(name)}/{one.txn}"
    assert landed.kinds()[txn] == "done: "
    first, second = (f"{prefix(name)}.{table}" for table in one.tables)
    identity = "_id" if name == "mongodb" else "id"
    assert [(out["topic"], out["op"], out["row"]) for out in landed.out() if out["txn"] == txn] == [
        (first, "c", {identity: 1}),
        (first, "c", {identity: 2}),
        (second, "c", {identity: 3}),
    ]


@pytest.mark.parametrize("name", CONNECTORS)
def test_a_transaction_as_documented_waits_for_a_row_of_the_table_that_has_less(landed: Pipeline, name: str) -> None:
    first, _ = CONNECTORS[name].tables.values()
    assert landed.waiting[name] == [f"END counts 2 in {first}, 1 are here"]


DOCUMENT = """{"_id": {"$oid": "596e275826f08b2730779e1f"}, "qty": {"$numberLong": "9007199254740993"},
 "n": {"$numberInt": "-7"}, "price": {"$numberDecimal": "12.50"}, "big": {"$numberDecimal": "1E+40"},
 "x": {"$numberDouble": "1.5E10"}, "nan": {"$numberDouble": "NaN"}, "made": {"$date": 1577836800123},
 "seen": {"$date": "2020-01-01T00:00:00Z"}, "old": {"$date": {"$numberLong": "-1"}}, "far": {"$date": 253402300800000},
 "bin": {"$binary": "AQI=", "$type": "00"}, "bin2": {"$binary": {"base64": "AQI=", "subType": "04"}},
 "text": "{\\"$numberLong\\": \\"5\\"}", "in": [{"a": {"$numberLong": "1"}}], "plain": 3, "none": null}"""
PLAIN = {
    "_id": "596e275826f08b2730779e1f",
    "qty": 9007199254740993,
    "n": -7,
    "price": 12.5,
    "big": "1E+40",
    "x": 1.5e10,
    "nan": "NaN",
    "made": "2020-01-01T00:00:00.123Z",
    "seen": "2020-01-01T00:00:00Z",
    "old": "1969-12-31T23:59:59.999Z",
    "far": {"$date": 253402300800000},
    "bin": "AQI=",
    "bin2": "AQI=",
    "text": '{"$numberLong": "5"}',
    "in": [{"a": 1}],
    "plain": 3,
    "none": None,
}


@pytest.mark.parametrize("recent", [gather.RECENT, 0], ids=["at once", "read again when its END comes"])
def test_a_document_of_mongodb_is_read_as_what_its_extended_json_means(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, recent: int
) -> None:
    monkeypatch.setattr(gather, "RECENT", recent)
    rule = """SELECT seqno, record_seqno AS _order, row, before, row:_id::string AS id, row:qty::bigint AS qty,
              row:price::decimal(10, 2) AS price, row:made::timestamp AS made FROM `mongodb.a`"""
    pipeline = Pipeline(tmp_path, spark, "transactions: {preset: debezium, topic: mongodb.transaction}", rule)
    ids = {"_id": {"$oid": "596e275826f08b2730779e1f"}}
    written = row("mongodb", "a", 1, after=DOCUMENT)
    changed = row("mongodb", "a", 2, "u", before=json.dumps(ids), after=DOCUMENT)
    deleted = row("mongodb", "a", 3, "d", after=None)
    deleted["key"] = {"id": json.dumps(ids["_id"])}
    if not recent:
        pipeline.sync(written, changed, deleted)
    pipeline.sync(*([written, changed, deleted] if recent else []), *ends("mongodb", {"a": 3}))
    first, second, third = pipeline.out()
    assert first["row"] == second["row"] == PLAIN
    assert (first["before"], second["before"]) == (None, {"_id": ids["_id"]["$oid"]})
    assert (first["id"], first["qty"]) == (ids["_id"]["$oid"], 9007199254740993)
    assert (first["price"], first["made"]) == (12.5, "2020-01-01T00:00:00.123000Z")
    assert third["row"] == {"_id": ids["_id"]["$oid"]}  # a deletion has no document, but for its key


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"op": "u", "after": None, "updateDescription": {"updatedFields": '{"qty": 3}'}}, "an update without the row"),
        ({"op": "c", "after": None}, "an insert (op c or r) without the row in after"),
        ({"op": "c", "after": '{"_id": 1, "x": NaN}'}, "the document is no JSON"),
    ],
)
def test_a_document_that_is_not_there_to_be_read_sets_its_transaction_aside(
    tmp_path: Path, spark: Any, more: dict[str, Any], reason: str
) -> None:
    rule = "SELECT seqno, row FROM `mongodb.a`"
    pipeline = Pipeline(tmp_path, spark, "transactions: {preset: debezium, topic: mongodb.transaction}", rule)
    pipeline.sync(row("mongodb", "a", 1, **more), *ends("mongodb", {"a": 1}))
    assert pipeline.out() == []
    assert pipeline.kinds()[LSID].startswith(f"quarantined: {reason}")


SHOP = "transactions: {preset: debezium, topic: postgresql.transaction%s}"
OF_A = "SELECT seqno, row, op, row:id::int AS id FROM `postgresql.a`"


@pytest.mark.parametrize(
    "more", [{}, {"after": "x", "before": "y", "source": "web"}, {"__op": "c", "__deleted": "false"}], ids=str
)
def test_a_flattened_row_of_a_table_with_a_column_op_is_set_aside_and_the_transform_is_named(
    tmp_path: Path, spark: Any, more: dict[str, Any]
) -> None:
    pipeline = Pipeline(tmp_path, spark, SHOP % "", OF_A)
    pipeline.sync({"topic": "postgresql.a", "value": {"id": 1, "op": "c", **more}})
    (reason,) = pipeline.kinds().values()
    assert reason.startswith("quarantined: value is no envelope of Debezium")
    assert "ExtractNewRecordState" in reason
    assert pipeline.out() == []


def test_a_topic_of_a_format_of_its_own_is_read_in_that_under_the_preset(tmp_path: Path, spark: Any) -> None:
    """Connect JSON has decimals in base64, and says so in the schema beside them."""
    decimal = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
        "field": "id",
    }
    image = {"type": "struct", "optional": True, "fields": [decimal]}
    struct = {"type": "struct", "fields": [{"type": "string", "field": "connector"}]}
    fields = [
        {**image, "field": "before"},
        {**image, "field": "after"},
        {**struct, "field": "source"},
        {"type": "string", "field": "op"},
    ]
    value = {"before": None, "after": {"id": "MDk="}, "source": {"connector": "postgresql"}, "op": "c"}
    record = {"schema": {"type": "struct", "fields": fields}, "payload": value}
    config = f"{SHOP % ''}\ntopics: {{postgresql.a: {{value: connect-json, key: string}}}}"
    pipeline = Pipeline(tmp_path, spark, config, "SELECT seqno, row:id::decimal(9, 2) AS id, key FROM `postgresql.a`")
    pipeline.sync({"topic": "postgresql.a", "key": "5", "value": record}, row("postgresql", "b", 1))
    assert pipeline.out() == [{"id": 123.45, "key": "5"}]


def test_topics_may_be_called_as_topic_transaction_topic_delimiter_and_a_router_call_them(
    tmp_path: Path, spark: Any
) -> None:
    named = {"delimited": "topic: bank_meta, prefix: bank, delimiter: _", "routed": 'topic: meta, tables: ["^cdc-", b]'}
    for kind, said in named.items():
        (tmp_path / kind).mkdir()
        pipeline = Pipeline(tmp_path / kind, spark, f"transactions: {{preset: debezium, {said}}}")
        topics = {"delimited": ("bank_s1_a", "bank_s1_b", "bank_meta"), "routed": ("cdc-a", "b", "meta")}[kind]
        first, second = row("postgresql", "a", 1), row("postgresql", "b", 2)
        records = [first | {"topic": topics[0]}, second | {"topic": topics[1]}]
        outcome = pipeline.sync(*records, *ends("postgresql", {"a": 1, "b": 1}, topics[2]))
        assert (outcome.transactions, outcome.in_flight) == (1, 0), kind
        assert [one["topic"] for one in pipeline.out()] == [*topics[:2]]


A1, B2, A3 = row("postgresql", "a", 1), row("postgresql", "b", 2), row("postgresql", "a", 3)


def of_connector(name: str, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """The records as another connector of the same kind sends them."""
    return [one | {"topic": one["topic"].replace("postgresql.", f"{name}.")} for one in records]


def test_transactions_of_two_connectors_with_one_id_are_apart(tmp_path: Path, spark: Any) -> None:
    config = "transactions: {preset: debezium, connectors: [{topic: shop.transaction}, {topic: crm.transaction}]}"
    pipeline = Pipeline(tmp_path, spark, config)
    both = [row("postgresql", "a", 1), *ends("postgresql", {"a": 1, "b": 1})]
    outcome = pipeline.sync(*of_connector("shop", *both), *of_connector("crm", *both, row("postgresql", "b", 2)))
    assert (outcome.transactions, outcome.in_flight) == (1, 1)
    assert [(one["txn"], one["topic"]) for one in pipeline.out()] == [("crm/571", "crm.a"), ("crm/571", "crm.b")]
    assert pipeline.missing("shop/571") == ["END counts 1 in s1.b, 0 are here"]


def test_one_snapshot_has_the_tables_of_several_connectors(tmp_path: Path, spark: Any) -> None:
    for name in ("shop", "crm"):
        (tmp_path / f"{name}.sql").write_text(f"SELECT seqno, _order, txn, row:id::int AS id FROM `{name}.a`")
    (tmp_path / "zync.yaml").write_text(
        "transactions: {preset: debezium, connectors: [{topic: shop.transaction}, {topic: crm.transaction}]}\n"
        "outputs: [{topic: shop, sql: shop.sql, key: [id]}, {topic: crm, sql: crm.sql, key: [id]}]\n"
    )
    records = [one for name in ("shop", "crm") for one in of_connector(name, A1, *ends("postgresql", {"a": 1}))]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    load(str(tmp_path / "raw"), [str(tmp_path / "in.jsonl")])
    config, staging = read_config(tmp_path / "zync.yaml"), str(tmp_path / "staging")
    Syncer(config, str(tmp_path / "raw"), staging, spark).sync()
    folder = tmp_path / "tables"
    snapshot = sync_to_tables(spark, config, staging, str(folder), threading.Event(), until_caught_up=True)
    assert snapshot is not None
    at = {name: DeltaTable(folder / name, version=version) for name, version in snapshot.versions.items()}
    assert {name: table.to_pyarrow_table()["txn"].to_pylist() for name, table in at.items()} == {
        "shop": ["shop/571"],
        "crm": ["crm/571"],
    }


def test_a_second_connector_leaves_the_ids_of_the_first_as_they_are_where_that_has_no_name(
    tmp_path: Path, spark: Any
) -> None:
    pipeline = Pipeline(tmp_path, spark, "transactions: {preset: debezium, topic: shop.transaction}")
    begun = [row("postgresql", "a", 1), *ends("postgresql", {"a": 1, "b": 1})]
    pipeline.sync(*of_connector("shop", *begun))
    several = '[{topic: shop.transaction, name: ""}, {topic: crm.transaction}]'
    pipeline = Pipeline(tmp_path, spark, f"transactions: {{preset: debezium, connectors: {several}}}")
    pipeline.sync(*of_connector("shop", row("postgresql", "b", 2)), *of_connector("crm", *begun))
    assert {txn: kind for txn, kind in pipeline.kinds().items() if kind.startswith("done")} == {"571": "done: "}
    assert pipeline.missing("crm/571") == ["END counts 1 in s1.b, 0 are here"]


def test_in_order_of_commit_connectors_are_in_the_order_of_their_ends_and_who_waits_says_for_whom(
    tmp_path: Path, spark: Any
) -> None:
    both = "[{topic: shop.transaction}, {topic: crm.transaction}]"
    config = f"transactions: {{preset: debezium, order: commit, connectors: {both}}}"
    pipeline = Pipeline(tmp_path, spark, config)
    stuck = of_connector("shop", *ends("postgresql", {"a": 1}))
    outcome = pipeline.sync(*stuck, *of_connector("crm", row("postgresql", "b", 1), *ends("postgresql", {"b": 1})))
    assert (outcome.transactions, outcome.in_flight) == (0, 2)
    (held,) = [one for one in transactions(pipeline.raw, pipeline.staging) if one.held]
    assert (held.id, held.waits_for) == ("crm/571", "shop/571")
    (text,) = pipeline.missing("crm/571")
    assert "waits for transactions that were committed before it (order: commit), first of all for shop/571" in text
    now = status(pipeline.raw, pipeline.staging, pipeline.config)
    assert now.in_flight["held"] == {"count": 1, "waits_for": "shop/571"}
    assert "1 whole, behind shop/571 (order: commit)" in describe(now)
    outcome = pipeline.sync(*of_connector("shop", row("postgresql", "a", 1)))
    assert (outcome.transactions, outcome.in_flight) == (2, 0)
    assert [one["txn"] for one in pipeline.out()] == ["shop/571", "crm/571"]


@pytest.mark.parametrize("do", ["hold", "release"])
def test_the_order_waits_as_long_as_the_config_says_and_a_release_is_on_record(
    tmp_path: Path, spark: Any, do: str
) -> None:
    said = f", order: commit, incomplete: {{after: 1ms, do: {do}}}"
    pipeline = Pipeline(tmp_path, spark, SHOP % said)
    stuck = [*ends("postgresql", {"a": 2}), row("postgresql", "a", 1)]
    pipeline.sync(*stuck)
    assert not pipeline.syncer.release_overdue()  # nobody waits for it
    second = json.loads(json.dumps([*ends("postgresql", {"b": 1}), row("postgresql", "b", 1)]).replace("571:", "572:"))
    assert pipeline.sync(*second).transactions == 0
    assert pipeline.syncer.release_overdue() == (do == "release")
    outcome = pipeline.syncer.sync()
    assert outcome.transactions == (2 if do == "release" else 0)
    if do == "release":
        why = "others waited for it, longer than 1ms (transactions.incomplete)"
        assert pipeline.kinds()["571"] == f"released: zync: {why}"
        assert [one["txn"] for one in pipeline.out()] == ["571", "572"]
        assert not pipeline.syncer.release_overdue()


UNCOUNTED = SHOP % ", uncounted: [s1.b]"


@pytest.mark.parametrize("order", ["", ", order: commit"])
def test_rows_that_a_known_filter_drops_are_not_waited_for(tmp_path: Path, spark: Any, order: str) -> None:
    pipeline = Pipeline(tmp_path, spark, SHOP % f", uncounted: [s1.b]{order}")
    outcome = pipeline.sync(A1, *ends("postgresql", {"a": 2, "b": 1}))
    assert (outcome.transactions, outcome.in_flight) == (0, 1)  # what is counted is waited for
    assert pipeline.missing("571") == ["END counts 2 in s1.a, 1 are here"]
    outcome = pipeline.sync(A3)
    assert (outcome.transactions, outcome.in_flight) == (1, 0)
    assert [one["row"]["id"] for one in pipeline.out()] == [1, 3]


def test_rows_of_an_uncounted_table_that_do_come_are_part_of_their_transaction(tmp_path: Path, spark: Any) -> None:
    pipeline = Pipeline(tmp_path, spark, UNCOUNTED)
    outcome = pipeline.sync(A1, B2, *ends("postgresql", {"a": 2, "b": 1}), A3, B2)
    assert (outcome.transactions, outcome.set_aside) == (1, {"duplicate": 1})
    assert [one["row"]["id"] for one in pipeline.out()] == [1, 2, 3]


def test_a_transaction_with_nothing_but_uncounted_rows_is_whole_with_its_end(tmp_path: Path, spark: Any) -> None:
    pipeline = Pipeline(tmp_path, spark, UNCOUNTED)
    outcome = pipeline.sync(*ends("postgresql", {"b": 3}))
    assert (outcome.transactions, outcome.in_flight) == (1, 0)
