"""What an operator sees of a transaction that is stuck, and what happens when it is decided."""

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cdc.captures import read
from tests.cdc.test_captures import pipeline, sync_in_cuts
from tests.conftest import rows, zync
from zync.config.model import Config, Topic, Transactions
from zync.debezium.missing import Seen, missing
from zync.errors import UsageError
from zync.lake.table import commit_properties
from zync.operate.decide import decide, undecided
from zync.operate.txn import transactions
from zync.operate.txn_show import describe, show
from zync.raw.jsonl import load
from zync.staging.table import STAGING_SCHEMA, SYNC
from zync.sync.syncer import Syncer

SHORT = "15023"


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Path:
    folder = tmp_path_factory.mktemp("stuck")
    sync_in_cuts(folder, read("copy360_kill9_midoffset"), 1, spark)
    return folder


@pytest.fixture
def stuck(tmp_path: Path, synced: Path) -> Path:
    """A lake in which one transaction lacks 74 of its rows for good."""
    return shutil.copytree(synced, tmp_path / "lake")


def test_a_stuck_transaction_says_what_it_waits_for(stuck: Path) -> None:
    raw, staging = str(stuck / "raw"), str(stuck / "staging")
    (one,) = transactions(raw, staging, state="in-flight")
    assert (one.id, one.count) == (SHORT, 1128 + 4)  # its rows, two BEGIN and two END
    assert {topic.rpartition(".")[2]: count for topic, count in one.topics.items()} == {
        "big": 1126,
        "slim2": 2,
        "transaction": 4,
    }
    assert transactions(raw, staging, older=timedelta(hours=1)) == []
    assert transactions(raw, staging, topic="nowhere") == []
    config = pipeline(stuck, "dbz.copy360_kill9_midoffset")
    seen = show(raw, staging, SHORT, config)
    assert seen["partitions"]["dbz.copy360_kill9_midoffset.m.big/0"] == 1126
    assert "END counts 1200 in m.big, 1126 are here" in seen["missing"]
    assert [record["seqno"] for record in seen["records"]] == sorted(record["seqno"] for record in seen["records"])
    with pytest.raises(UsageError, match="no transaction 'nothing'"):
        show(raw, staging, "nothing", config)


@pytest.mark.parametrize(("action", "kind", "rows_out"), [("release", "released", 1128), ("discard", "discarded", 0)])
def test_a_decision_acts_once_and_stays_on_record(
    stuck: Path, spark: Any, action: Any, kind: str, rows_out: int
) -> None:
    raw, staging = str(stuck / "raw"), str(stuck / "staging")
    with pytest.raises(UsageError, match="no transaction 'nothing'"):
        undecided(raw, staging, ["nothing"], None, None)
    for found in (undecided(raw, staging, [], "in-flight", None), undecided(raw, staging, [SHORT], None)):
        assert [*found.chosen] == [SHORT]
    assert undecided(raw, staging, [], "in-flight", timedelta(hours=1)).chosen == {}
    seqno = decide(raw, [SHORT, SHORT], action, "agreed with the owners", who="ann").first_seqno
    config = pipeline(stuck, "dbz.copy360_kill9_midoffset")
    (one,) = transactions(raw, staging)
    assert one.decided == f"{action} by ann: agreed with the owners"
    assert f"decided: {one.decided}; the next sync acts on it" in describe(show(raw, staging, SHORT, config))
    before = len([row for row in rows(stuck / "staging") if row["kind"] == "output"])
    outcome = Syncer(config, raw, staging, spark).sync()
    assert (outcome.in_flight, outcome.cursor) == (0, outcome.head)
    found = rows(stuck / "staging")
    (decided,) = [row for row in found if row["kind"] == kind]
    assert (decided["seqno"], decided["txn"], decided["count"]) == (seqno, SHORT, 1128 + 4)
    assert decided["reason"] == "ann: agreed with the owners"
    made = [row for row in found if row["kind"] == "output"]
    assert len(made) - before == rows_out
    assert [row for row in found if row["kind"] == "ignored" and row["seqno"] == seqno + 1]  # the second says nothing
    again = Syncer(config, raw, str(stuck / "again"), spark)
    again.sync()
    place = [(row["seqno"], row["kafka"]["offset"], row["value"]) for row in made]
    assert place == [
        (row["seqno"], row["kafka"]["offset"], row["value"]) for row in rows(stuck / "again") if row["kind"] == "output"
    ]


def a_lake(folder: Path, lines: list[Any], kept: list[dict[str, Any]]) -> tuple[str, str]:
    """Raw with these lines and a staging of one sync with these rows, written without one."""
    raw, staging = str(folder / "raw"), str(folder / "staging")
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    load(raw, [str(folder / "in.jsonl")])
    cursor = {"kind": "cursor", "seqno": 0, "head": len(lines), "full": 1, "raw": {"id": "x", "version": 1}}
    table = pa.Table.from_pylist([{**row, "sync": 1} for row in [*kept, cursor]], schema=STAGING_SCHEMA)
    write_deltalake(staging, table, commit_properties=commit_properties({SYNC: 1}))
    return raw, staging


def test_a_record_by_itself_is_shown_by_its_place(tmp_path: Path) -> None:
    place = {"topic": "a", "partition": 0, "offset": 1}
    done = {"kind": "done", "seqno": 2, "kafka": place, "records": [{"first": 2, "last": 2}], "count": 1}
    raw, staging = a_lake(tmp_path, [{"topic": "a", "value": 1}] * 2, [done])
    seen = show(raw, staging, "a/0/1", Config())
    assert (seen["state"], [record["seqno"] for record in seen["records"]]) == ("done", [2])
    with pytest.raises(UsageError, match="no transaction 'a/0/0'"):
        show(raw, staging, "a/0/0", Config())


def test_what_is_no_text_in_a_header_or_a_value_is_shown_all_the_same(tmp_path: Path) -> None:
    bytes_ = {"base64": "/w=="}
    begin = {"topic": "shop.transaction", "value": {"status": "BEGIN"}}
    lines = [begin | {"headers": [["__debezium.context.runId", bytes_]]}, {"topic": "shop.a", "value": bytes_}]
    pending = {"kind": "pending", "seqno": 1, "txn": "7", "records": [{"first": 1, "last": 2}], "count": 2}
    raw, staging = a_lake(tmp_path, lines, [pending])
    config = Config(transactions=Transactions(preset="debezium", topic="shop.transaction"))
    seen = show(raw, staging, "7", config)
    assert (seen["state"], seen["missing"]) == ("in-flight", ["no END yet; 0 rows are here"])
    assert seen["records"][1]["value"] == bytes_


def test_logical_messages_that_are_here_are_not_said_to_be_missing(tmp_path: Path) -> None:
    """END counts each in a collection of its own, and here one was sent again."""

    def message(order: int) -> dict[str, Any]:
        source = {"version": "3.7.0.Final", "connector": "postgresql", "db": "bench"}
        value = {"op": "m", "source": source, "transaction": {"id": f"7:{order}", "total_order": order}}
        return {"topic": "shop.message", "value": value}

    ids = [f"io.debezium.connector.postgresql.LogicalDecodingMessageId@{one}" for one in ("1f", "2e")]
    said = [{"data_collection": name, "event_count": 1} for name in (*ids, "s.t")]
    end = {"status": "END", "id": "7:9", "event_count": 3, "data_collections": said}

    def missing(name: str, *messages: int) -> list[str]:
        lines = [*map(message, messages), {"topic": "shop.transaction", "value": end}]
        count = len(lines)
        pending = {"kind": "pending", "seqno": 1, "txn": "7", "records": [{"first": 1, "last": count}], "count": count}
        folder = tmp_path / name
        folder.mkdir()
        raw, staging = a_lake(folder, lines, [pending])
        config = Config(transactions=Transactions(preset="debezium", topic="shop.transaction"))
        found: list[str] = show(raw, staging, "7", config)["missing"]
        return found

    of_the_table = "END counts 1 in s.t, 0 are here"
    assert missing("all", 1, 2, 1) == [of_the_table]
    assert missing("one", 1, 1) == ["END counts 2 in logical messages, 1 are here", of_the_table]


def test_rows_of_oracle_that_differ_only_in_their_place_are_two() -> None:
    """Both came of runs of the connector that sent one of them."""

    def row(ssn: int, run: str) -> Seen:
        source = {"version": "3.6.0.Final", "connector": "oracle", "schema": "S", "table": "T", "scn": "9", "ssn": ssn}
        value = {"op": "c", "after": {"x": 1}, "source": source, "transaction": {"id": "7", "total_order": 1}}
        return Seen("db.S.T", value, run)

    end = {"status": "END", "id": "7", "event_count": 2, "data_collections": None}
    records = [row(0, "A"), row(1, "B"), Seen("db.transaction", end, "")]
    (text,) = missing(records, ["db.transaction"])
    assert text.startswith("every END's counts are here, but not as one run of the connector has them")
    assert missing([*records[:1], records[2]], ["db.transaction"]) == ["END counts 2 rows, 1 are here"]


@pytest.mark.parametrize(("gtid", "here"), [("a:1", 1), (None, 2)])
def test_a_row_of_mysql_that_another_replica_sends_again_is_one(gtid: str | None, here: int) -> None:
    """Its binlog has other positions; without a GTID they are those of two rows."""

    def row(position: int, run: str) -> Seen:
        source = {"version": "3.7.0.Final", "connector": "mysql", "db": "d", "table": "t", "gtid": gtid}
        source |= {"file": "binlog.1", "pos": position, "row": 0, "ts_ms": 5}
        value = {"op": "c", "after": {"x": 1}, "source": source, "transaction": {"id": "a:1", "total_order": 1}}
        return Seen("d.t", value, run)

    end = Seen("d.transaction", {"status": "END", "event_count": 3, "data_collections": None}, "")
    assert missing([row(4, "A"), row(9, "B"), end], ["d.transaction"]) == [f"END counts 3 rows, {here} are here"]


def test_rows_of_uncounted_tables_are_left_out_where_end_counts_all() -> None:
    def row(table: str) -> Seen:
        source = {"version": "3.7.0.Final", "connector": "mysql", "db": "d", "table": table}
        return Seen(f"d.{table}", {"op": "c", "source": source, "transaction": {"total_order": 1}}, "A")

    end = Seen("d.transaction", {"status": "END", "event_count": 2, "data_collections": None}, "")
    records = [row("kept"), row("audit"), end]
    assert missing(records, ["d.transaction"], ["d.audit"]) == ["END counts 2 rows, 1 are here"]


@pytest.mark.parametrize("settings", [{"value": "avro"}, {"value": "protobuf"}, {"compression": "gzip"}])
def test_of_records_in_another_format_nothing_is_said_to_be_missing(tmp_path: Path, settings: dict[str, Any]) -> None:
    pending = {"kind": "pending", "seqno": 1, "txn": "7", "records": [{"first": 1, "last": 2}], "count": 2}
    lines = [{"topic": "shop.transaction", "value": "x"}, {"topic": "shop.a", "value": {"base64": "AAA="}}]
    raw, staging = a_lake(tmp_path, lines, [pending])
    config = Config(
        transactions=Transactions(preset="debezium", topic="shop.transaction"),
        topics={"^shop": Topic(envelope=True, **settings), "shop.transaction": Topic()},
    )
    texts = show(raw, staging, "7", config)["missing"]
    assert texts == ["what is missing is not computed, as the values of shop.a are not plain JSON"]


@pytest.mark.parametrize(("version", "run", "here"), [("3.6.0", "A", 2), ("3.7.0", "", 2), ("3.6.0", "", 3)])
def test_a_row_that_was_sent_twice_is_here_once_where_that_can_be_told(version: str, run: str, here: int) -> None:
    def row(order: int) -> Seen:
        source = {"version": f"{version}.Final", "connector": "postgresql", "schema": "s", "table": "t", "lsn": 1}
        value = {"op": "c", "after": {"x": 1}, "source": source, "transaction": {"id": "7:1", "total_order": order}}
        return Seen("shop.s.t", value, run)

    said = [{"data_collection": "s.t", "event_count": 4}]
    end = {"status": "END", "id": "7:9", "event_count": 4, "data_collections": said}
    records = [row(1), row(2), row(1), Seen("shop.transaction", end, "")]
    assert missing(records, ["shop.transaction"]) == [f"END counts 4 in s.t, {here} are here"]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (None, []),
        (-1, []),
        (1, [{"data_collection": "s.t", "event_count": None}]),
        (1, [{"event_count": 1}]),
        (1, ["s.t"]),
        (1, "s.t"),
        (2, [{"data_collection": "s.t", "event_count": 1}]),
    ],
)
def test_an_end_that_makes_no_sense_is_told_as_that(count: Any, said: Any) -> None:
    end = {"status": "END", "id": "7:9", "event_count": count, "data_collections": said}
    (first, *_) = missing([Seen("shop.transaction", end, "")], ["shop.transaction"])
    assert first.startswith(("END makes no sense: event_count", "END counts 2 rows, and by table 1"))


def test_ids_do_not_break_lines_or_tell_the_terminal_what_to_do(tmp_path: Path, warm: Any) -> None:
    odd = "a\nb\x1b[2J\u2028"
    pending = {"kind": "pending", "seqno": 1, "txn": odd, "records": [{"first": 1, "last": 1}], "count": 1}
    folder = tmp_path / "lake"
    folder.mkdir()
    a_lake(folder, [{"topic": "t", "value": {"txn": odd}}], [pending])
    (tmp_path / "zync.yaml").write_text("topics: {t: {id: value:txn}}\n")
    assert "in-flight  a\\nb\\x1b[2J\\u2028  since" in warm("txn", "list", cwd=tmp_path).stdout
    (head, *_) = warm("txn", "show", odd, cwd=tmp_path).stdout.split("\n")
    assert head.startswith("transaction a\\nb\\x1b[2J\\u2028: in-flight")
    assert json.loads(warm("txn", "list", "--json", cwd=tmp_path).stdout)["txn"] == odd


def test_the_commands_list_show_and_decide(demo: Path, warm: Any) -> None:
    warm("load", "raw", "consume-1.jsonl", cwd=demo)
    warm("sync", "raw", "staging", cwd=demo)
    (one,) = [json.loads(line) for line in warm("txn", "list", "--json", cwd=demo).stdout.splitlines()]
    assert (one["txn"], one["state"], one["count"]) == ("10001", "in-flight", 1)
    assert "10001" in warm("txn", "list", "--state", "in-flight", cwd=demo).stdout
    shown = json.loads(warm("txn", "show", "10001", "--json", cwd=demo).stdout)
    assert shown["records"][0]["topic"] == "order"
    assert shown["missing"][0].endswith("bool_or(topic = 'menu'), whose aggregates are null, true, false by now")
    assert json.loads(warm("txn", "show", "10000", "--json", cwd=demo).stdout)["state"] == "done"
    assert warm("txn", "show", "nobody", cwd=demo, check=False).returncode == 2
    assert warm("txn", "list", "--state", "nowhere", cwd=demo, check=False).returncode == 2
    assert warm("txn", "release", "nobody", "--reason", "x", cwd=demo, check=False).returncode == 2
    declined = zync("txn", "discard", "--state", "in-flight", "--reason", "x", cwd=demo, check=False, input="n\n")
    assert declined.returncode == 1
    assert "1 transaction" in declined.stderr
    said = warm("txn", "discard", "--state", "in-flight", "--reason", "x", "--yes", "--json", cwd=demo).stdout
    assert json.loads(said) == {"decision": "discard", "transactions": ["10001"]}
    warm("sync", "raw", "staging", cwd=demo)
    (one,) = [json.loads(line) for line in warm("txn", "list", "--json", cwd=demo).stdout.splitlines()]
    assert one["state"] == "discarded"
