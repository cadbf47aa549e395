"""sync-to tables: each output topic as a typed table, exactly once, and versions of all tables that belong together."""

import itertools
import json
import os
import random
import shutil
import signal
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.conftest import BRISK, start, zync
from tests.deliver.conftest import Row, Staging, row
from tests.kafka.conftest import wait_until
from zync.config.model import Config
from zync.deliver.tables import apply, delivery, pruning, snapshots, writer
from zync.deliver.tables.snapshots import Snapshot
from zync.errors import OwnedError, UsageError, ZyncError
from zync.lake.lock import owned
from zync.lake.table import open_table
from zync.operate.explain import explain
from zync.operate.maintain import maintain
from zync.operate.status import status
from zync.project.load import load
from zync.raw.table import ensure_raw
from zync.rules.type_changes import is_wider

CONFIG = """\
topics: {{records: {{id: "value:txn", as: arriving}}}}
outputs:
  - {{topic: accounts, sql: accounts.sql, key: [{key}]}}
  - {{topic: history, sql: history.sql}}
{more}"""
ACCOUNTS = "SELECT seqno, value:id::int AS id, value:balance::decimal(10, 2) AS balance, value:note::string AS note"
HISTORY = "SELECT seqno, value:id::int AS id, value:delta::decimal(10, 2) AS delta"

PRESET = "transactions: {preset: debezium, topic: records.transaction}\n"
LEFT_OUT = "__debezium_unavailable_value"

Tables = Callable[..., "Lake"]


class Lake:
    """A staging, and the tables that it is delivered to."""

    def __init__(self, staging: Staging, spark: Any) -> None:
        self.staging, self.spark = staging, spark
        self.config()

    def config(self, more: str = "", accounts: str = ACCOUNTS, key: str = "id") -> None:
        self.staging.config(CONFIG.format(more=more, key=key))
        for name, text in (("accounts", accounts), ("history", HISTORY)):
            (self.staging.folder / f"{name}.sql").write_text(f"{text} FROM arriving")

    @property
    def folder(self) -> Path:
        return self.staging.folder / "lake" / "tables"

    def deliver(self, **options: Any) -> Snapshot:
        config = load(self.staging.folder / "zync.yaml")
        found = delivery.sync_to_tables(
            self.spark,
            config,
            self.staging.path,
            str(self.folder),
            threading.Event(),
            **{"until_caught_up": True, **options},
        )
        assert found
        return found

    def rows(self, topic: str, version: int | None = None) -> list[dict[str, Any]]:
        found = DeltaTable(str(self.folder / topic), version=version).to_pyarrow_table()
        return found.sort_by([("id", "ascending"), ("_seqno", "ascending")]).to_pylist()

    def versions(self) -> list[Snapshot]:
        return snapshots._all(snapshots._rows(DeltaTable(str(self.folder / snapshots.NAME))))  # noqa: SLF001


@pytest.fixture
def lake(tmp_path: Path, spark: Any) -> Lake:
    return Lake(Staging(tmp_path, "localhost:1"), spark)


def account(key: int, balance: str | None, note: str | None = None) -> Row:
    """A row of `accounts`; no balance: deleted."""
    name = json.dumps({"id": key}, separators=(",", ":"))
    value = f'{{"id":{key},"balance":{balance},"note":{json.dumps(note)}}}'
    return "accounts", name, None if balance is None else value


def history(key: int, delta: str) -> Row:
    return "history", None, f'{{"id":{key},"delta":{delta}}}'


def test_rows_have_the_rules_types_and_the_newest_of_a_key_is_there(lake: Lake) -> None:
    lake.staging.sync([[account(1, "10.50"), history(1, "10.50")], [account(1, "9.25", "x"), account(2, "1")]])
    snapshot = lake.deliver()
    assert (snapshot.sync, snapshot.versions) == (1, {"accounts": 1, "history": 1})
    schema = {one.name: str(one.type) for one in DeltaTable(str(lake.folder / "accounts")).to_pyarrow_table().schema}
    assert schema == {
        "id": "int32",
        "balance": "decimal128(10, 2)",
        "note": "string",
        "_position": "int64",
        "_seqno": "int64",
    }
    found = [(one["id"], str(one["balance"]), one["note"], one["_seqno"]) for one in lake.rows("accounts")]
    assert found == [(1, "9.25", "x", 2), (2, "1.00", None, 2)]
    assert [(one["id"], str(one["delta"]), one["_deleted"]) for one in lake.rows("history")] == [(1, "10.50", False)]

    lake.staging.sync([[account(2, None), account(3, "7")]])
    snapshot = lake.deliver()
    assert (snapshot.sync, snapshot.versions) == (2, {"accounts": 2, "history": 1})  # nothing for history: no commit
    assert [one["id"] for one in lake.rows("accounts")] == [1, 3]
    assert lake.deliver() == snapshot
    told = status("nowhere", lake.staging.path, Config(lake=str(lake.folder.parent)))
    assert told.delivered == {"tables": {"sync": 2, "behind": 0}}


@pytest.mark.parametrize("apply", ["upsert", "history"])
def test_only_files_that_may_have_the_keys_that_arrived_are_read(lake: Lake, apply: str) -> None:
    lake.config(f"deliver: {{tables: {{accounts: {{apply: {apply}}}}}}}\n")
    lake.staging.sync([[account(1, "1"), account(2, "2")]])
    lake.deliver()
    low = set((lake.folder / "accounts").glob("*.parquet"))
    lake.staging.sync([[account(101, "1"), account(102, "2")]])
    lake.deliver()
    high = set((lake.folder / "accounts").glob("*.parquet")) - low
    taken_away = {one: one.rename(lake.staging.folder / one.name) for one in high}
    lake.staging.sync([[account(2, "3"), account(3, "3")], [account(1, None)]])
    lake.deliver()  # without them
    for one, there in taken_away.items():
        there.rename(one)
    now = [(one["id"], int(one["balance"])) for one in lake.rows("accounts") if one.get("current", True)]
    assert now == [(2, 3), (3, 3), (101, 1), (102, 2)]


@pytest.mark.parametrize("note", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_a_partition_would_have_as_null_is_refused(lake: Lake, note: str) -> None:
    lake.config("deliver: {tables: {accounts: {partition_by: [note]}}}\n")
    lake.staging.sync([[account(1, "1", "x"), account(2, "1", None)]])
    lake.deliver()
    lake.staging.sync([[account(3, "1", note)]])
    with pytest.raises(ZyncError, match=f"column note is '{note}' in a row, which partitions have as null"):
        lake.deliver()
    assert [(one["id"], one["note"]) for one in lake.rows("accounts")] == [(1, "x"), (2, None)]


def test_a_raw_is_no_staging_nor_waited_for_as_one(lake: Lake) -> None:
    ensure_raw(lake.staging.path)
    with pytest.raises(UsageError, match="is no staging"):
        lake.deliver(until_caught_up=False)


OF_ACCOUNTS = "id INT, balance DECIMAL(10, 2), note STRING"


def test_a_column_that_a_sync_made_is_delivered_whether_the_rules_here_have_it_or_not(lake: Lake) -> None:
    """They may have been changed since this began to deliver, or before it did."""
    lake.staging.sync([[account(1, "1", "x")]], columns={"accounts": OF_ACCOUNTS})
    lake.deliver()
    _, key, value = account(2, "2", "y")
    more: Row = ("accounts", key, str(value).replace("}", ',"limit":7}'))
    lake.staging.sync([[more]], columns={"accounts": f"{OF_ACCOUNTS}, limit INT"})
    lake.deliver()
    found = [(one["id"], one["note"], one["limit"]) for one in lake.rows("accounts")]
    assert found == [(1, "x", None), (2, "y", 7)]


@pytest.mark.parametrize("made", ["id INT, balance DECIMAL(10, 4), note STRING", "id INT, Balance DECIMAL(10, 2)"])
def test_what_a_sync_made_of_another_type_is_refused_not_rounded(lake: Lake, made: str) -> None:
    lake.staging.sync([[account(1, "1.2345")]], columns={"accounts": made})
    with pytest.raises(UsageError, match=r"output accounts: sync 1 made '[bB]alance' as decimal.*zync replay"):
        lake.deliver()
    assert not (lake.folder / "accounts").exists()


@pytest.mark.parametrize(
    ("ends", "bits", "around"),
    [
        ((3, 499_997), 32, (0, 524_288)),
        ((100, 499_000), 32, (0, 524_288)),
        ((101, 103), 32, (101, 103)),
        ((7, 7), 64, (7, 7)),
        ((-100, 101), 8, (-128, 127)),
        ((-(2**63), 2**63 - 1), 64, (-(2**63), 2**63 - 1)),
    ],
)
def test_keys_are_looked_for_in_a_range_that_batches_alike_share(
    ends: tuple[int, int], bits: int, around: tuple[int, int]
) -> None:
    assert pruning._around(*ends, bits) == around  # noqa: SLF001


def test_of_a_file_that_holds_several_syncs_only_the_new_ones_are_delivered(lake: Lake) -> None:
    for number in range(4):
        lake.staging.sync([[history(number, "1"), account(number, "1")]])
        if number == 1:
            lake.deliver()
    maintain(lake.staging.path, compact=True, vacuum=False)
    assert len(DeltaTable(lake.staging.path).file_uris()) == 1
    lake.deliver()
    for topic in ("history", "accounts"):
        assert [one["id"] for one in lake.rows(topic)] == [0, 1, 2, 3]


@pytest.mark.parametrize("with_positions", [True, False])
def test_of_what_was_deleted_only_that_is_read_which_may_be_newer(lake: Lake, *, with_positions: bool) -> None:
    """Or each batch would read all that was ever deleted."""

    def positions(first: int) -> Iterator[int | None]:
        return itertools.count(first) if with_positions else itertools.repeat(None)

    lake.staging.sync([[account(1, "1")], [account(2, "2")], [account(3, "3")]], positions=positions(100))
    lake.deliver()
    lake.staging.sync([[account(1, None), account(2, None)]], positions=positions(200))
    lake.deliver()
    deleted = {*(lake.folder / "_deleted" / "accounts").glob("*.parquet")}
    taken_away = {one: one.rename(lake.staging.folder / one.name) for one in deleted}
    lake.staging.sync([[account(1, "4")], [account(3, None)]], positions=positions(300))
    lake.deliver()  # without it
    assert [one["id"] for one in lake.rows("accounts")] == [1]
    if with_positions:
        lake.staging.sync([[account(2, "5"), account(3, "5")]], positions=positions(150))
        with pytest.raises(ZyncError, match=r"could not be delivered"):
            lake.deliver()
        for one, there in taken_away.items():
            there.rename(one)
        lake.deliver()
        assert [row["id"] for row in lake.rows("accounts")] == [1]


def test_what_the_first_batch_deleted_is_remembered(lake: Lake) -> None:
    lake.staging.sync([[account(1, "1")], [account(1, None)]], positions=itertools.count(200))
    lake.deliver()
    lake.staging.sync([[account(1, "2")]], positions=itertools.count(100))
    lake.deliver()
    assert lake.rows("accounts") == []


def test_a_column_that_had_not_changed_keeps_its_value(lake: Lake) -> None:
    """Debezium leaves out large values that an update did not touch (TOAST)."""
    lake.config(PRESET)
    lake.staging.sync([[account(1, "1", "long")], [account(2, "2", "text")], [account(2, "3", LEFT_OUT)]])
    lake.deliver()
    assert [(one["id"], one["note"]) for one in lake.rows("accounts")] == [(1, "long"), (2, "text")]
    lake.staging.sync([[account(1, "5", LEFT_OUT)], [account(3, "6", LEFT_OUT)]])
    lake.deliver()
    found = [(one["id"], str(one["balance"]), one["note"]) for one in lake.rows("accounts")]
    assert found == [(1, "5.00", "long"), (2, "3.00", "text"), (3, "6.00", None)]


@pytest.mark.parametrize("apply", ["upsert", "history"])
def test_a_column_that_had_not_changed_has_the_value_before_it_that_arrives_later(lake: Lake, apply: str) -> None:
    lake.config(f"{PRESET}deliver: {{tables: {{accounts: {{apply: {apply}}}}}}}")
    for position, note in ((50, "a"), (100, LEFT_OUT), (200, LEFT_OUT), (80, "b"), (150, LEFT_OUT), (70, "no")):
        lake.staging.sync([[account(1, f"{position}", note)]], positions=iter([position]))
        lake.deliver()
    by_place = sorted((one["_position"], str(one["balance"]), one["note"]) for one in lake.rows("accounts"))
    assert by_place[-1] == (200, "200.00", "b")
    if apply == "history":
        assert [(one[0], one[2]) for one in by_place[:-1]] == [(50, "a"), (70, "no"), (80, "b"), (100, "b"), (150, "b")]


def test_a_placeholder_is_one_in_any_type_that_it_comes_in(lake: Lake) -> None:
    """As PostgreSQL's text, bytea, json, arrays and hstore come."""
    code = [*LEFT_OUT.encode()]
    base64 = b64encode(LEFT_OUT.encode()).decode()
    columns: dict[str, tuple[str, list[Any], Any]] = {
        "texts": ("array<string>", [[LEFT_OUT], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]], ["x"]),
        "blobs": ("array<binary>", [[base64]], ["aGk="]),
        "numbers": ("array<int>", [code], [1]),
        "longs": ("array<bigint>", [code], [2]),
        "pairs": ("map<string, string>", [{LEFT_OUT: LEFT_OUT}], {"a": "b"}),
        "bytes": ("binary", [base64], "aGk="),
        "base64": ("string", [base64, LEFT_OUT.encode().hex(), LEFT_OUT], "aGk="),
        "json": ("variant", [LEFT_OUT, base64, [LEFT_OUT], code, {LEFT_OUT: LEFT_OUT}], {"a": LEFT_OUT}),
    }
    selected = ", ".join(
        (f"value:{one}" if kind == "variant" else f"from_json(to_json(value), '{one} {kind}').{one}") + f" AS {one}"
        for one, (kind, _, _) in columns.items()
    )
    lake.config(PRESET, f"SELECT seqno, value:id::int AS id, {selected}")

    def deliver(values: dict[str, Any]) -> dict[str, Any]:
        lake.staging.sync([[("accounts", '{"id":1}', json.dumps({"id": 1, **values}))]])
        lake.deliver()
        rows = lake.spark.read.format("delta").load(str(lake.folder / "accounts"))
        (found,) = rows.selectExpr("to_json(struct(*)) AS one").collect()
        return {one: value for one, value in json.loads(found.one).items() if one in columns}

    values = {one: value for one, (_, _, value) in columns.items()}
    assert deliver(values) == values
    for number in range(max(len(its) for _, its, _ in columns.values())):
        assert deliver({one: its[number % len(its)] for one, (_, its, _) in columns.items()}) == values


def transfers(count: int, first: int) -> list[list[Row]]:
    return [[account(n % 5, f"{n}.00"), history(n, f"{n}.00")] for n in range(first, first + count)]


def assert_together(lake: Lake) -> None:
    """At each snapshot, the accounts have what the newest history row of each says."""
    for one in lake.versions():
        newest: dict[int, int] = {}
        for change in lake.rows("history", one.versions["history"]):
            newest[change["id"] % 5] = change["id"]
        rows = [row for row in lake.rows("accounts", one.versions["accounts"]) if row.get("current", True)]
        assert len(rows) == len(newest)
        assert {row["id"]: int(row["balance"]) for row in rows} == newest


@pytest.mark.parametrize("after", ["the first table", "all tables"])
def test_who_was_killed_in_between_goes_on_and_no_snapshot_is_half(
    lake: Lake, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.staging.sync(transfers(4, 0))
    lake.deliver()

    class KilledError(Exception):
        pass

    with monkeypatch.context() as patch:
        if after == "all tables":
            patch.setattr(snapshots, "take", lambda *_: (_ for _ in ()).throw(KilledError()))
        else:
            real = delivery.deliver

            def once(spark: Any, target: Any, *rest: Any, **more: Any) -> int:
                if target.topic == "history":
                    raise KilledError
                return real(spark, target, *rest, **more)

            patch.setattr(delivery, "deliver", once)
        lake.staging.sync(transfers(4, 4))
        with pytest.raises(KilledError):
            lake.deliver()
    assert len(lake.versions()) == 1
    lake.staging.sync(transfers(4, 8))
    snapshot = lake.deliver()
    assert [one.sync for one in lake.versions()] == [1, 2, 3]
    assert snapshot.sync == 3
    assert_together(lake)
    assert len(lake.rows("history")) == 12


@pytest.mark.timeout(300)
def test_kill_9_of_the_real_process(lake: Lake) -> None:
    lake.config(BRISK)
    lake.staging.sync(transfers(6, 0))
    process = start("sync-to", "tables", "staging", cwd=lake.staging.folder, start_new_session=True)
    try:
        wait_until(lambda: _version(lake, "accounts") > 0, 120)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (lake.staging.folder / "spark-warehouse").exists()  # Spark's own would be left where the user works
    lake.deliver()
    assert_together(lake)
    assert len(lake.rows("history")) == 6


@pytest.mark.timeout(600)
def test_kill_9_at_random_moments_loses_and_repeats_nothing_and_no_snapshot_is_half(lake: Lake) -> None:
    """In or between two tables' commits, or before their snapshot; one of them keeps all versions of its rows."""
    lake.config(f"deliver: {{tables: {{accounts: {{apply: history}}}}}}\n{BRISK}")
    chance, count, kills = random.Random(11), 0, 4

    def more() -> None:
        nonlocal count
        lake.staging.sync(transfers(6, count))
        count += 6

    for _ in range(kills):
        more()
        before = _version(lake, "accounts")
        process = start("sync-to", "tables", "staging", cwd=lake.staging.folder, start_new_session=True)
        try:
            wait_until(lambda before=before: _version(lake, "accounts") > max(before, 0), 120)
            until = time.monotonic() + chance.uniform(0, 5)
            while time.monotonic() < until:
                more()
                time.sleep(0.1)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lake.deliver()
    assert len(lake.versions()) > kills
    assert_together(lake)
    assert [row["id"] for row in lake.rows("history")] == list(range(count))
    assert len({row["_seqno"] for row in lake.rows("accounts")}) == len(lake.rows("accounts")) == count


@pytest.mark.timeout(300)
def test_kill_9_when_a_delete_is_on_record_and_not_done(lake: Lake) -> None:
    lake.staging.sync([[account(1, "1"), account(2, "2")]])
    lake.deliver()
    lake.staging.sync([[account(2, None)]])
    lake.config(BRISK)
    process = start("sync-to", "tables", "staging", cwd=lake.staging.folder, start_new_session=True)
    try:
        wait_until(lambda: _version(lake, "_deleted/accounts") > 0, 120)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lake.deliver()
    assert [one["id"] for one in lake.rows("accounts")] == [1]


def _version(lake: Lake, topic: str) -> int:
    table = open_table(str(lake.folder / topic))
    return table.version() if table else -1


def test_snapshots_stay_few_files_and_those_of_long_ago_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "TIDY_EVERY", 10)
    location, now = str(tmp_path / "_snapshots"), snapshots.now()
    for number in range(1, 36):
        taken = Snapshot(number, now - timedelta(days=70 - 2 * number), "s", {"t": number})
        snapshots.take(location, taken)
        assert snapshots.newest(location) == taken
        table = DeltaTable(location)
        assert len(table.file_uris()) <= 10
    assert len(list((tmp_path / "_snapshots" / "_delta_log").glob("*.checkpoint.parquet"))) == 3
    for number in range(16, 36):
        assert snapshots.at(location, number).versions == {"t": number}
    with pytest.raises(UsageError, match="there is no snapshot as old as 14"):
        snapshots.at(location, 14)


def test_files_of_many_batches_become_one(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MANY", 2)
    for number in range(5):
        lake.staging.sync([[account(1, "1") if number % 2 else account(1, None), history(number, "1.00")]])
        lake.deliver()
        for name in ("_deleted/accounts", "history"):
            assert len(DeltaTable(str(lake.folder / name)).file_uris()) <= 2
    assert "OPTIMIZE" in [one["operation"] for one in DeltaTable(str(lake.folder / "history")).history()]
    assert [one["id"] for one in lake.rows("history")] == list(range(5))
    assert lake.rows("accounts") == []


def test_one_deliverer_at_a_time(lake: Lake) -> None:
    lake.staging.sync(transfers(1, 0))
    with owned(str(lake.folder)), pytest.raises(OwnedError):
        lake.deliver()


def test_what_others_did_to_a_table_is_recognised(lake: Lake) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    path = str(lake.folder / "accounts")
    lake.spark.sql(f"OPTIMIZE delta.`{path}`")
    lake.staging.sync(transfers(3, 3))
    lake.deliver()  # rows are the same after OPTIMIZE
    lake.spark.sql(f"UPDATE delta.`{path}` SET balance = 0 WHERE id = 1")  # noqa: S608
    lake.staging.sync(transfers(3, 6))
    with pytest.raises(ZyncError, match=r"somebody else changed the table at .*accounts: its version \d+ is UPDATE"):
        lake.deliver()
    (lake.folder / "accounts").rename(lake.folder / "elsewhere")
    with pytest.raises(ZyncError, match="accounts, of output accounts, is gone: put it back"):
        lake.deliver()


def test_what_others_did_is_recognised_without_a_new_sync(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_LOOK_AFTER_SECONDS", 0.0)
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    path = str(lake.folder / "accounts")
    lake.spark.sql(f"OPTIMIZE delta.`{path}` ZORDER BY (id)")
    before, now = lake.versions()[-1], lake.deliver()  # the older version's files may be vacuumed
    assert now.versions == {**before.versions, "accounts": before.versions["accounts"] + 1}
    assert [one.sync for one in lake.versions()] == [1, 1]
    assert lake.deliver() == now
    lake.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")  # noqa: S608
    with pytest.raises(ZyncError, match=r"somebody else changed the table at .*accounts: its version \d+ is DELETE"):
        lake.deliver()
    shutil.rmtree(path)
    with pytest.raises(ZyncError, match="accounts, of output accounts, is gone"):
        lake.deliver()


def test_who_compacts_a_table_meanwhile_only_delays_the_delivery(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """delta-rs, which puts files together while Spark merges what it has read of them."""
    caplog.set_level("INFO", "zync")
    for number in range(3):
        lake.staging.sync(transfers(3, 3 * number))
        lake.deliver()
    lake.staging.sync(transfers(3, 9))
    merge, table = writer.Writer.merge, str(lake.folder / "accounts")

    def disturbed(self: writer.Writer, text: str) -> None:
        monkeypatch.undo()  # once
        over = threading.Event()

        def compact() -> None:
            while not over.is_set():
                DeltaTable(table).optimize.z_order(["id"])

        thread = threading.Thread(target=compact)
        thread.start()
        try:
            merge(self, text)
        finally:
            over.set()
            thread.join()

    monkeypatch.setattr(writer.Writer, "merge", disturbed)
    assert lake.deliver().sync == 4
    (said,) = [one for one in caplog.messages if "trying again" in one]
    assert "output accounts could not be delivered" in said
    assert "[DELTA_CONCURRENT" in said
    assert "calling" not in said  # Java's method
    assert [one["_seqno"] for one in lake.rows("accounts")] == [11, 12, 8, 9, 10]


def test_views_have_names_that_spark_takes() -> None:
    found = Snapshot(1, snapshots.now(), "id", {"a.b-c": 1, "a_b.c": 2, "A_B_C": 3, "x": 4})
    views = [one.split("`")[1::2] for one in snapshots.views(found, "/lake")]
    assert views == [
        ["A_B_C", "/lake/A_B_C"],
        ["a_b_c_2", "/lake/a.b-c"],
        ["a_b_c_3", "/lake/a_b.c"],
        ["x", "/lake/x"],
    ]


def test_what_others_did_is_recognised_without_a_snapshot_on_record(lake: Lake) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    lake.spark.sql(f"DELETE FROM delta.`{lake.folder}/accounts` WHERE id = 1")  # noqa: S608
    shutil.rmtree(lake.folder / "_snapshots")
    with pytest.raises(ZyncError, match=r"somebody else changed the table .*: its version 2 is DELETE"):
        lake.deliver()


def test_what_others_did_meanwhile_is_recognised(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    lake.staging.sync(transfers(3, 3))

    def disturbed(*args: Any, **options: Any) -> int:
        count = apply.deliver(*args, **options)
        table = DeltaTable(str(lake.folder / "history"))
        write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append")
        return count

    monkeypatch.setattr(delivery, "deliver", disturbed)
    with pytest.raises(ZyncError, match=r"somebody else changed the table .*history: its version \d+ is WRITE"):
        lake.deliver()
    monkeypatch.undo()
    with pytest.raises(ZyncError, match="somebody else changed the table"):
        lake.deliver()
    assert [one.sync for one in lake.versions()] == [1]


def test_that_what_was_deleted_is_not_known_any_more_is_recognised(lake: Lake) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    shutil.rmtree(lake.folder / "_deleted" / "accounts")
    lake.staging.sync(transfers(3, 3))
    with pytest.raises(ZyncError, match=r"_deleted/accounts, of output accounts, is gone: put it back"):
        lake.deliver()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"more": "deliver: {tables: {accounts: {apply: history}}}"}, "apply is history, and was upsert when"),
        ({"more": "deliver: {tables: {accounts: {partition_by: [id]}}}"}, "partition_by is id, and was none when"),
        ({"key": "id, note"}, "key is id, note, and was id when"),
    ],
)
def test_a_table_stays_what_it_was_made_as(lake: Lake, change: dict[str, str], says: str) -> None:
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    lake.config(**change)
    lake.staging.sync(transfers(3, 3))
    with pytest.raises(UsageError, match=says):
        lake.deliver()
    lake.config()
    lake.deliver()


def test_a_staging_that_was_made_anew_or_is_older_is_refused(lake: Lake) -> None:
    for number in range(3):
        lake.staging.sync(transfers(1, number))
    lake.deliver()
    staging = Path(lake.staging.path)
    shutil.move(staging, staging.with_name("before"))
    again = Staging(lake.staging.folder, "localhost:1")
    again.sync(transfers(1, 0))
    with pytest.raises(UsageError, match="the tables are of another staging"):
        lake.deliver()
    shutil.rmtree(staging)
    shutil.move(staging.with_name("before"), staging)
    max((staging / "_delta_log").glob("*.json")).unlink()
    with pytest.raises(UsageError, match="the tables are through sync 3, and .* has 2"):
        lake.deliver()


def test_an_output_that_was_left_out_for_a_while_gets_all_its_rows(lake: Lake) -> None:
    lake.staging.sync(transfers(2, 0))
    lake.deliver()
    lake.staging.sync(transfers(2, 2))
    config = lake.staging.folder / "zync.yaml"
    whole = config.read_text()
    config.write_text("".join(line for line in whole.splitlines(keepends=True) if "topic: history" not in line))
    assert lake.deliver().versions == {"accounts": 2}
    config.write_text(whole)
    lake.staging.sync(transfers(2, 4))
    assert lake.deliver().sync == 3
    assert [one["id"] for one in lake.rows("history")] == list(range(6))


def test_a_table_of_an_older_zync_gets_what_new_ones_are_made_with(lake: Lake) -> None:
    lake.staging.sync([[account(1, "1")]])
    lake.deliver()
    tag = "spark.databricks.delta.commitInfo.userMetadata"
    lake.spark.conf.set(tag, '{"zync": {"sync": 1}}')
    lake.spark.sql(f"ALTER TABLE delta.`{lake.folder}/accounts` UNSET TBLPROPERTIES ('zync.key', 'zync.apply')")
    lake.spark.conf.unset(tag)
    shutil.rmtree(lake.folder / "_deleted")
    lake.config("", ACCOUNTS.replace("value:id::int", "value:id::bigint"))  # which rewrites it
    for balance in ("2", "3"):
        lake.staging.sync([[account(1, balance)]])
        lake.deliver()
    assert [int(one["balance"]) for one in lake.rows("accounts")] == [3]
    assert DeltaTable(str(lake.folder / "accounts")).metadata().configuration["zync.key"] == "id"


def test_a_table_that_is_not_ours_is_left_alone(lake: Lake) -> None:
    lake.staging.sync(transfers(1, 0))
    path = str(lake.folder / "accounts")
    lake.spark.range(3).write.format("delta").save(path)
    with pytest.raises(UsageError, match="is not zync's"):
        lake.deliver()
    assert DeltaTable(path).version() == 0


def test_columns_may_come_and_go_and_types_may_not_change(lake: Lake) -> None:
    lake.staging.sync([[account(1, "1", "a")]])
    lake.deliver()
    more = ACCOUNTS + ", value:more::bigint AS more"
    lake.config("deliver: {tables: {accounts: {schema_changes: fail}}}\n", more)
    lake.staging.sync([[("accounts", '{"id":2}', '{"id":2,"balance":2,"note":null,"more":7}')]])
    with pytest.raises(UsageError, match="select 'more', which the table"):
        lake.deliver()
    lake.config("", more)
    lake.deliver()
    assert [(one["id"], one["more"]) for one in lake.rows("accounts")] == [(1, None), (2, 7)]
    lake.config("", more.replace("AS more", "AS More"))
    lake.staging.sync([[account(1, "4", "b"), account(4, "4")]])
    with pytest.raises(UsageError, match="select 'More', and the table at .* has 'more': call it that"):
        lake.deliver()
    lake.config("deliver: {tables: {accounts: {schema_changes: fail}}}\n")
    with pytest.raises(UsageError, match="do not select 'more' any more"):
        lake.deliver()
    lake.config("", "SELECT seqno, value:id::int AS id, value:note::string AS note")
    lake.deliver()
    found = [
        (one["id"], one["note"], one["balance"] and int(one["balance"]), one["more"]) for one in lake.rows("accounts")
    ]
    assert found == [(1, "b", None, None), (2, None, 2, 7), (4, None, None, None)]
    lake.config("deliver: {tables: {}}\n", ACCOUNTS.replace("value:id::int", "value:id::smallint"))
    with pytest.raises(UsageError, match=r"has it as int: cast it in the rule, before a sync makes it so"):
        explain(lake.spark, load(lake.staging.folder / "zync.yaml"))
    lake.staging.sync([[account(3, "3")]])
    with pytest.raises(UsageError, match=r"make 'id' a smallint, and the table at .* has it as int"):
        lake.deliver()


@pytest.mark.parametrize("layout", ["cluster_by", "partition_by"])
def test_a_wider_type_rewrites_the_table_once_as_if_made_anew(
    lake: Lake, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = ACCOUNTS.replace("id::int", "id::bigint").replace("decimal(10, 2)", "decimal(12, 3)")
    laid_out = f"deliver: {{tables: {{accounts: {{{layout}: [id]CHANGES}}}}}}\n"
    lake.config(laid_out.replace("CHANGES", ""))
    lake.staging.sync([[account(1, "1.25", "a"), account(2, "2"), account(3, "3")], [account(2, None)]])
    before = lake.deliver()
    old = lake.rows("accounts")
    lake.staging.sync([[account(3, "3.5"), account(4_000_000_000, "4.125")]])
    lake.config(laid_out.replace("CHANGES", ", schema_changes: fail"), wider)
    with pytest.raises(UsageError, match=r"make 'id' a bigint, .* has it as int: schema_changes is fail"):
        lake.deliver()
    lake.config(laid_out.replace("CHANGES", ""), wider)
    with monkeypatch.context() as cut:
        cut.setattr(apply._Apply, "upsert", _interrupt)  # noqa: SLF001
        with pytest.raises(KeyboardInterrupt):
            lake.deliver()
    table = DeltaTable(str(lake.folder / "accounts"))
    assert table.transaction_version(f"zync/delivered/{before.staging}") == before.sync
    lake.deliver()
    table.update_incremental()
    replaced = "CREATE OR REPLACE TABLE AS SELECT"
    assert [one["operation"] for one in table.history(3)] == ["MERGE", replaced, "WRITE"]
    found = [(one["id"], str(one["balance"]), one["note"]) for one in lake.rows("accounts")]
    assert found == [(1, "1.250", "a"), (3, "3.500", None), (4_000_000_000, "4.125", None)]
    assert lake.rows("accounts", before.versions["accounts"]) == old
    detail = lake.spark.sql(f"DESCRIBE DETAIL delta.`{lake.folder / 'accounts'}`").collect()[0]
    assert [detail["clusteringColumns"], detail["partitionColumns"]][layout == "partition_by"] == ["id"]

    lake.staging.sync([[account(2, "5"), account(1, None)]])
    lake.deliver()
    table.update_incremental()
    assert [one["operation"] for one in table.history(2)] == ["MERGE", "MERGE"]
    assert table.version() == before.versions["accounts"] + 3
    widened, known = lake.rows("accounts"), DeltaTable(str(lake.folder / "accounts")).schema()
    lake.folder.rename(lake.folder.with_name("widened"))
    lake.deliver()
    assert lake.rows("accounts") == widened
    assert DeltaTable(str(lake.folder / "accounts")).schema() == known


def _interrupt(_: object) -> None:
    raise KeyboardInterrupt


def test_what_is_nested_is_the_same_the_next_time(lake: Lake) -> None:
    """Rules make lists and structs whose parts are never null, and no table says so of its own."""
    note = "split(value:note::string, ',') AS note, named_struct('x', 1, 'of', array(seqno)) AS nested"
    lake.config(accounts=f"SELECT seqno, value:id::int AS id, {note}")
    for number in (1, 2, 3):
        key, value = json.dumps({"id": number}), f'{{"id":{number},"note":["a","b"],"nested":{{"x":1,"of":[7]}}}}'
        lake.staging.sync([[("accounts", key, value)]])
        lake.deliver()
    assert [(one["id"], one["note"], one["nested"]) for one in lake.rows("accounts")] == [
        (number, ["a", "b"], {"x": 1, "of": [7]}) for number in (1, 2, 3)
    ]


def test_which_types_are_wider() -> None:
    from pyspark.sql.types import _parse_datatype_string  # noqa: PLC0415

    def wider(was: str, to: str, *, is_key: bool = False) -> bool:
        return is_wider(_kind(to), _kind(was), is_key=is_key)

    def _kind(text: str) -> Any:
        return _parse_datatype_string(text)

    for was, to in (
        ("tinyint", "smallint"),
        ("int", "bigint"),
        ("int", "decimal(10, 0)"),
        ("bigint", "decimal(21, 2)"),
    ):
        assert wider(was, to)
        assert not wider(to, was)
    assert wider("int", "double")
    assert not wider("int", "double", is_key=True)
    assert wider("decimal(10, 2)", "decimal(12, 3)")
    assert not wider("decimal(10, 2)", "decimal(12, 3)", is_key=True)
    assert wider("decimal(10, 2)", "decimal(12, 2)", is_key=True)
    for was, to in (("bigint", "double"), ("float", "double"), ("decimal(10, 2)", "decimal(10, 3)"), ("string", "int")):
        assert not wider(was, to)
    assert wider("int", "string")
    assert wider("array<int>", "array<string>")
    assert not wider("int", "string", is_key=True)


def test_tables_are_laid_out_as_the_config_says(lake: Lake) -> None:
    lake.config("deliver: {tables: {accounts: {cluster_by: [id]}, history: {partition_by: [id]}}}\n")
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    table = open_table(str(lake.folder / "history"))
    assert table is not None
    assert table.metadata().partition_columns == ["id"]
    assert clustering(lake) == ["id"]
    for number, columns in enumerate((["balance", "id"], [], ["id"]), 1):
        said = f"{{accounts: {{cluster_by: [{', '.join(columns)}]}}, history: {{partition_by: [id]}}}}"
        lake.config(f"deliver: {{tables: {said}}}\n")
        lake.staging.sync(transfers(3, 3 * number))
        lake.deliver()
        assert clustering(lake) == columns
        assert_together(lake)
    operations = [one["operation"] for one in DeltaTable(str(lake.folder / "accounts")).history()]
    assert operations.count("CLUSTER BY") == 3
    assert operations.count("MERGE") == 3


def clustering(lake: Lake) -> list[str]:
    detail = lake.spark.sql(f"DESCRIBE DETAIL delta.`{lake.folder / 'accounts'}`").collect()[0]
    return list(detail["clusteringColumns"])


def test_the_commands(lake: Lake, warm: Any) -> None:
    lake.staging.sync(transfers(3, 0))
    folder = lake.staging.folder
    none = warm("snapshot", cwd=folder, check=False)
    assert none.returncode == 2
    said = warm("sync-to", "tables", "staging", "--until-caught-up", "--json", cwd=folder)
    assert json.loads(said.stdout)["versions"] == {"accounts": 1, "history": 1}
    assert "delivered through sync 1, rows: accounts 3, history 3" in said.stderr
    lake.staging.sync(transfers(3, 3))
    lake.deliver()
    assert json.loads(warm("snapshot", "--at", "1", "--json", cwd=folder).stdout)["versions"]["accounts"] == 1
    assert json.loads(warm("snapshot", "--json", cwd=folder).stdout)["sync"] == 2
    assert warm("snapshot", "--at", "2001-01-01", cwd=folder, check=False).returncode == 2
    first = json.loads(warm("snapshot", "--at", "1", "--json", cwd=folder).stdout)
    assert json.loads(warm("snapshot", "--at", first["at"], "--json", cwd=folder).stdout) == first
    views = warm("snapshot", "--sql", cwd=folder).stdout.splitlines()
    assert views == json.loads(warm("snapshot", "--sql", "--json", cwd=folder).stdout)["sql"]
    for number, kind in itertools.product(range(2), ("VIEW", "TEMPORARY VIEW")):
        for view in views if number else warm("snapshot", "--sql", "--at", "1", cwd=folder).stdout.splitlines():
            lake.spark.sql(view.replace("VIEW", kind, 1).rstrip(";"))
        joined = lake.spark.sql("SELECT count(DISTINCT a.id), sum(delta) FROM accounts a, history")
        assert joined.collect() == [(5, 5 * 15) if number else (3, 3 * 3)]
        for name in ("accounts", "history"):
            lake.spark.sql(f"DROP VIEW {name}")
    query = warm("query", "--consistent", "--json", "SELECT sum(delta) AS total FROM history", cwd=folder)
    assert json.loads(query.stdout) == {"total": 15.0}
    for file in (lake.folder / "history").glob("*.parquet"):
        file.unlink()
    vacuumed = warm("query", "--consistent", "SELECT sum(delta) AS total FROM history", cwd=folder, check=False)
    assert "a file of a table is gone" in vacuumed.stderr
    assert "`zync sync-to tables staging` names newer versions" in vacuumed.stderr
    shutil.rmtree(lake.folder / "accounts")
    gone = warm("query", "--consistent", "SELECT 1", cwd=folder, check=False)
    assert gone.returncode == 1
    assert "version 2 of" in gone.stderr
    assert "accounts, which the newest snapshot names" in gone.stderr
    wrong = warm("sync-to", "tables", "staging", "--one-by-one", cwd=folder, check=False)
    assert wrong.returncode == 2


def test_it_follows(lake: Lake) -> None:
    stop, seen = threading.Event(), list[delivery.Batch]()
    config = load(lake.staging.folder / "zync.yaml")

    def follow() -> None:
        delivery.sync_to_tables(lake.spark, config, lake.staging.path, str(lake.folder), stop, seen.append)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        for number in range(2):
            lake.staging.sync(transfers(2, 2 * number))
            wait_until(lambda n=number: len(seen) > n, 60)  # type: ignore[misc]
        time.sleep(0.5)
    finally:
        stop.set()
        thread.join()
    assert [(one.after, one.sync, one.rows) for one in seen] == [
        (0, 1, {"accounts": 2, "history": 2}),
        (1, 2, {"accounts": 2, "history": 2}),
    ]


def test_rules_that_make_no_table_are_the_users_mistake(lake: Lake) -> None:
    lake.staging.sync([[row("accounts", 1)]])
    for column, says in (
        ("1 AS _seqno", "selects '_seqno', which is a column of zync's own"),
        ("1 AS _LEFT_out", "selects '_LEFT_out', which is a column of zync's own"),
        ("1 AS _deleted", "selects '_deleted', which is a column of zync's own"),
        ("1 AS _known_note", "selects '_known_note', which is a column of zync's own"),
        ("1 AS `a b`", "selects 'a b', and tables have no ' ' in the name of a column"),
        ("map(1, 2) AS pairs", "column 'pairs' is map<int,int>: cast its keys to string"),
    ):
        lake.config("", f"{ACCOUNTS}, {column}")
        with pytest.raises(UsageError, match=says):
            lake.deliver()
    lake.config("", "SELECT seqno, value:id AS id")
    with pytest.raises(UsageError, match="column 'id' is variant, by which no row is found: cast it"):
        lake.deliver()
    lake.config("deliver: {tables: {history: {cluster_by: [iid]}}}\n")
    with pytest.raises(
        UsageError, match=r"deliver.tables.history.cluster_by: 'iid' is no column of it: \['_deleted', "
    ):
        lake.deliver()
    lake.config()
    config = lake.staging.folder / "zync.yaml"
    config.write_text(config.read_text().replace("topic: history", "topic: Accounts"))
    with pytest.raises(UsageError, match="outputs 'accounts' and 'Accounts' are alike but for case"):
        lake.deliver()
    lake.config("deliver: {tables: {history: {apply: upsert}}}\n")
    with pytest.raises(UsageError, match="has no key, which apply: upsert needs"):
        lake.deliver()


def test_files_are_as_the_users_umask_says(lake: Lake) -> None:
    lake.config(BRISK)
    lake.staging.sync([[account(1, "1")], [account(2, None)]])
    zync("sync-to", "tables", "staging", "--until-caught-up", cwd=lake.staging.folder, umask=0o027)
    found = {path.stat().st_mode & 0o777 for path in lake.folder.rglob("*") if path.is_file()}
    folders = {path.stat().st_mode & 0o777 for path in lake.folder.rglob("*") if path.is_dir()}
    assert (found, folders) == ({0o640}, {0o750})


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("partition_by: [code]", r"partition_by: 'code' is binary, by which Delta does not lay out a table"),
        ("partition_by: [a.b]", r"partition_by: 'a.b' has a dot in its name"),
        ("cluster_by: [yes]", r"cluster_by: 'yes' is boolean, by which Delta does not lay out a table"),
        ("cluster_by: [id, n1, n2, n3, n4]", r"Delta clusters by 4 columns at most, not 5"),
    ],
)
def test_what_a_table_cannot_be_laid_out_by_is_said_before_there_is_one(lake: Lake, said: str, why: str) -> None:
    more = "unhex(value:b::string) AS code, value:x::int AS `a.b`, true AS yes, 1 AS n1, 1 AS n2, 1 AS n3, 1 AS n4"
    lake.config(f"deliver: {{tables: {{accounts: {{{said}}}}}}}\n", accounts=f"{ACCOUNTS}, {more}")
    lake.staging.sync([[account(1, "1")]])
    with pytest.raises(UsageError, match=why):
        lake.deliver()
    with pytest.raises(UsageError, match=why):
        explain(lake.spark, load(lake.staging.folder / "zync.yaml"))
    assert not (lake.folder / "accounts").exists()


def test_a_key_may_have_a_dot_in_its_name(lake: Lake) -> None:
    select = "SELECT seqno, value:id::int AS `a.b`, value:balance::int AS balance"
    for kind in ("history", "upsert"):
        lake.config(f"deliver: {{tables: {{accounts: {{apply: {kind}}}}}}}\n", accounts=select, key='"a.b"')
        rows = [("accounts", '{"a.b":1}', f'{{"a.b":1,"balance":{n}}}') for n in (1, 2)]
        for one in rows:
            lake.staging.sync([[one]])
            lake.deliver()
        found = DeltaTable(str(lake.folder / "accounts")).to_pyarrow_table().sort_by("_seqno").to_pylist()
        assert [one["balance"] for one in found] == ([1, 2] if kind == "history" else [2])
        shutil.rmtree(lake.folder)
        shutil.rmtree(lake.staging.path)
        lake.staging.offsets, lake.staging.seqno = {}, 0


@pytest.mark.parametrize("kind", ["upsert", "history"])
def test_what_is_nested_may_gain_fields(lake: Lake, kind: str) -> None:
    """As databases' JSON does; and the rule of before may be put back until a sync has made it so."""

    def rule(more: str) -> str:
        one = f"struct(value:p::bigint AS p, value:at::timestamp AS at{more})"
        return f"SELECT seqno, value:id::int AS id, {one} AS one, array({one}) AS many, value:s::string AS s"

    def made(key: int, **fields: Any) -> Row:
        one = json.dumps({"at": "2026-01-02T03:04:05.000006Z", **fields})
        return "accounts", f'{{"id":{key}}}', f'{{"id":{key},"one":{one},"many":[{one}],"s":"x"}}'

    said = f"deliver: {{tables: {{accounts: {{apply: {kind}}}}}}}\n"
    lake.config(said, rule(""))
    lake.staging.sync([[made(1, p=2**60 + 1)], [made(2, p=2)]])
    lake.deliver()
    lake.config(said, rule(", value:q::decimal(10, 2) AS q"))
    lake.staging.sync([[made(2, p=3, q=1.5)], [made(3, p=4, q=2.25)]])
    lake.deliver()
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    found = [(row["id"], row["one"], row["many"]) for row in lake.rows("accounts")]
    ones = [(1, 2**60 + 1, None), (2, 2, None), (2, 3, Decimal("1.50")), (3, 4, Decimal("2.25"))]
    wanted = [(key, {"p": p, "at": at, "q": q}, [{"p": p, "at": at, "q": q}]) for key, p, q in ones]
    assert found == [one for one in wanted if kind == "history" or one[1]["p"] != 2]
    lake.config(said, rule(""))
    with pytest.raises(UsageError, match="'one' a struct<p:bigint,at:timestamp>, and the table at .* has it as struct"):
        explain(lake.spark, load(lake.staging.folder / "zync.yaml"))
