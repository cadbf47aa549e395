"""Envelopes of Debezium's connectors as documented: each completes, and reads right."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.cdc.envelopes import CONNECTORS, LSID, Pipeline, ends, prefix, renumbered, row
from zync.config.model import Limits
from zync.deliver.tables.delivery import sync_to_tables
from zync.operate.status import describe, status
from zync.operate.txn import transactions
from zync.project.load import load as read_config
from zync.raw.jsonl import load
from zync.sync.outcome import Outcome
from zync.sync.process import follow
from zync.sync.syncer import Syncer
from zync.transactions import gather


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
IDS = {"_id": {"$oid": "596e275826f08b2730779e1f"}}
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


OF_MONGODB = """SELECT seqno, txn, record_seqno AS _order, row, before, row:_id::string AS id, row:qty::bigint AS qty,
    row:price::decimal(10, 2) AS price, row:made::timestamp AS made FROM `mongodb.a`"""
READ = ("at once", "read again when its END comes")
NOT_THERE = [
    ({"op": "u", "after": None, "updateDescription": {"updatedFields": '{"qty": 3}'}}, "an update without the row"),
    ({"op": "c", "after": None}, "an insert (op c or r) without the row in after"),
    ({"op": "c", "after": '{"_id": 1, "x": NaN}'}, "the document is no JSON"),
]


def lsid(what: str) -> str:
    """The id of a transaction of MongoDB's, in which another has that place."""
    return LSID[:-1] + str(100 + [*READ, *(reason for _, reason in NOT_THERE)].index(what))


@pytest.fixture(scope="module")
def mongodb(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Pipeline:
    """Transactions with documents: one that comes at once, one whose END comes later, and some that lack a document."""
    folder = tmp_path_factory.mktemp("mongodb")
    pipeline = Pipeline(folder, spark, "transactions: {preset: debezium, topic: mongodb.transaction}", OF_MONGODB)
    written = row("mongodb", "a", 1, after=DOCUMENT)
    changed = row("mongodb", "a", 2, "u", before=json.dumps(IDS), after=DOCUMENT)
    deleted = row("mongodb", "a", 3, "d", after=None)
    deleted["key"] = {"id": json.dumps(IDS["_id"])}
    last = ends("mongodb", {"a": 3})
    at_once, later = map(lsid, READ)
    missing: list[dict[str, Any]] = []
    for more, reason in NOT_THERE:
        missing += renumbered(lsid(reason), row("mongodb", "a", 1, **more), *ends("mongodb", {"a": 1}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "RECENT", 0)
        pipeline.sync(*renumbered(later, written, changed, deleted))
        pipeline.sync(*renumbered(at_once, written, changed, deleted, *last), *missing, *renumbered(later, *last))
    return pipeline


@pytest.mark.parametrize("when", READ)
def test_a_document_of_mongodb_is_read_as_what_its_extended_json_means(mongodb: Pipeline, when: str) -> None:
    first, second, third = [one for one in mongodb.out() if one["txn"] == lsid(when)]
    assert first["row"] == second["row"] == PLAIN
    assert (first["before"], second["before"]) == (None, {"_id": IDS["_id"]["$oid"]})
    assert (first["id"], first["qty"]) == (IDS["_id"]["$oid"], 9007199254740993)
    assert (first["price"], first["made"]) == (12.5, "2020-01-01T00:00:00.123000Z")
    assert third["row"] == {"_id": IDS["_id"]["$oid"]}  # a deletion has no document, but for its key


@pytest.mark.parametrize("reason", [reason for _, reason in NOT_THERE])
def test_a_document_that_is_not_there_to_be_read_sets_its_transaction_aside(mongodb: Pipeline, reason: str) -> None:
    assert [one for one in mongodb.out() if one["txn"] == lsid(reason)] == []
    assert mongodb.kinds()[lsid(reason)].startswith(f"quarantined: {reason}")


SHOP = "transactions: {preset: debezium, topic: postgresql.transaction%s}"
FLATTENED: dict[str, dict[str, Any]] = {
    "op": {},
    "names": {"after": "x", "before": "y", "source": "web"},
    "marks": {"__op": "c", "__deleted": "false"},
}
OF_FLATTENED = " UNION ALL ".join(
    f"SELECT seqno, row, op, row:id::int AS id FROM `postgresql.{what}`" for what in FLATTENED
)
CONNECT_JSON = "topics: {postgresql.a: {value: connect-json, key: string}}"


def decimal_in_connects_json() -> dict[str, Any]:
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
    return {"schema": {"type": "struct", "fields": fields}, "payload": value}


@pytest.fixture(scope="module")
def of_topics(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Pipeline:
    """Topics of one connector that are not as the others: flattened ones, and one of a format of its own."""
    decimals = "SELECT seqno, row:id::decimal(9, 2) AS id, key FROM `postgresql.a`"
    folder = tmp_path_factory.mktemp("topics")
    pipeline = Pipeline(folder, spark, f"{SHOP % ''}\n{CONNECT_JSON}", OF_FLATTENED, decimals=decimals)
    flattened = [
        {"topic": f"postgresql.{what}", "value": {"id": 1, "op": "c", **more}} for what, more in FLATTENED.items()
    ]
    own = {"topic": "postgresql.a", "key": "5", "value": decimal_in_connects_json()}
    pipeline.sync(*flattened, own, row("postgresql", "b", 1))
    return pipeline


@pytest.mark.parametrize("what", FLATTENED)
def test_a_flattened_row_of_a_table_with_a_column_op_is_set_aside_and_the_transform_is_named(
    of_topics: Pipeline, what: str
) -> None:
    reason = of_topics.kinds()[f"postgresql.{what}"]
    assert reason.startswith("quarantined: value is no envelope of Debezium")
    assert "ExtractNewRecordState" in reason
    assert of_topics.out() == []


def test_a_topic_of_a_format_of_its_own_is_read_in_that_under_the_preset(of_topics: Pipeline) -> None:
    assert of_topics.out("decimals") == [{"id": 123.45, "key": "5"}]


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
    records = [
        one
        for name in ("shop", "crm")
        for one in of_connector(name, row("postgresql", "a", 1), *ends("postgresql", {"a": 1}))
    ]
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


def test_the_order_waits_as_long_as_the_config_says_and_a_release_is_on_record(tmp_path: Path, spark: Any) -> None:
    said = ", order: commit, incomplete: {after: 1ms, do: %s}"
    pipeline = Pipeline(tmp_path, spark, SHOP % said % "hold")
    pipeline.sync(*ends("postgresql", {"a": 2}), row("postgresql", "a", 1))
    assert not pipeline.syncer.release_overdue()  # nobody waits for it
    second = renumbered("572", *ends("postgresql", {"b": 1}), row("postgresql", "b", 1))
    assert pipeline.sync(*second).transactions == 0
    assert not pipeline.syncer.release_overdue()
    assert pipeline.syncer.sync().transactions == 0
    pipeline = Pipeline(tmp_path, spark, SHOP % said % "release")
    third = renumbered("573", *ends("postgresql", {"b": 1}), row("postgresql", "b", 1))
    assert pipeline.sync(*third).transactions == 0
    assert pipeline.syncer.release_overdue()
    assert pipeline.syncer.sync().transactions == 3
    why = "others waited for it, longer than 1ms (transactions.incomplete)"
    assert pipeline.kinds()["571"] == f"released: zync: {why}"
    assert [one["txn"] for one in pipeline.out()] == ["571", "572", "573"]
    assert not pipeline.syncer.release_overdue()


def test_nothing_is_released_for_what_the_next_sync_of_a_backlog_may_have(tmp_path: Path, spark: Any) -> None:
    pipeline = Pipeline(tmp_path, spark, SHOP % ", order: commit, incomplete: {after: 1ms, do: release}")
    first = ends("postgresql", {"a": 2})
    second = renumbered("572", *ends("postgresql", {"b": 1}), row("postgresql", "b", 1))
    parts = [*first, row("postgresql", "a", 1)], second, [row("postgresql", "a", 2)]
    for part in parts:
        pipeline.load(*part)
    config = replace(pipeline.config, limits=Limits(records_per_sync=len(parts[0]) + len(second)))
    stop, seen = threading.Event(), list[Outcome]()

    def look(outcome: Outcome) -> None:
        seen.append(outcome)
        if not outcome.behind:
            stop.set()

    follow(config, pipeline.raw, pipeline.staging, stop, look)
    assert [outcome.transactions for outcome in seen] == [0, 2]
    assert seen[-1].head == sum(map(len, parts)), "a decision was added to raw"


A1, B2, A3 = row("postgresql", "a", 1), row("postgresql", "b", 2), row("postgresql", "a", 3)
UNCOUNTED = SHOP % ", uncounted: [s1.b]"
LATER, WITH_ROWS, ALONE = "571", "572", "573"


class Uncounted:
    """Transactions of a pipeline that does not wait for rows of table b; the first lacks a row of a at first."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.pipeline = Pipeline(folder, spark, UNCOUNTED)
        both = renumbered(WITH_ROWS, A1, B2, *ends("postgresql", {"a": 2, "b": 1}), A3, B2)
        alone = renumbered(ALONE, *ends("postgresql", {"b": 3}))
        self.first = self.pipeline.sync(A1, *ends("postgresql", {"a": 2, "b": 1}), *both, *alone)
        self.missing = self.pipeline.missing(LATER)
        self.second = self.pipeline.sync(A3)

    def ids(self, txn: str) -> list[int]:
        return [one["row"]["id"] for one in self.pipeline.out() if one["txn"] == txn]


@pytest.fixture(scope="module")
def uncounted(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Uncounted:
    return Uncounted(tmp_path_factory.mktemp("uncounted"), spark)


def test_rows_that_a_known_filter_drops_are_not_waited_for(uncounted: Uncounted) -> None:
    assert uncounted.first.in_flight == 1  # what is counted is waited for
    assert uncounted.missing == ["END counts 2 in s1.a, 1 are here"]
    assert (uncounted.second.transactions, uncounted.second.in_flight) == (1, 0)
    assert uncounted.ids(LATER) == [1, 3]


def test_rows_that_a_known_filter_drops_are_not_waited_for_in_order_of_commit(tmp_path: Path, spark: Any) -> None:
    pipeline = Pipeline(tmp_path, spark, SHOP % ", uncounted: [s1.b], order: commit")
    outcome = pipeline.sync(A1, *ends("postgresql", {"a": 2, "b": 1}))
    assert (outcome.transactions, outcome.in_flight) == (0, 1)
    assert pipeline.missing("571") == ["END counts 2 in s1.a, 1 are here"]
    outcome = pipeline.sync(A3)
    assert (outcome.transactions, outcome.in_flight) == (1, 0)
    assert [one["row"]["id"] for one in pipeline.out()] == [1, 3]


def test_rows_of_an_uncounted_table_that_do_come_are_part_of_their_transaction(uncounted: Uncounted) -> None:
    assert uncounted.first.set_aside == {"duplicate": 1}
    assert uncounted.ids(WITH_ROWS) == [1, 2, 3]


def test_a_transaction_with_nothing_but_uncounted_rows_is_whole_with_its_end(uncounted: Uncounted) -> None:
    assert uncounted.first.transactions == 2  # this one and the one with rows
    assert uncounted.pipeline.kinds()[ALONE] == "done: "
