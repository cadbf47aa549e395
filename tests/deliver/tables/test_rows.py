"""sync-to tables: each output topic as a typed table, the newest row of each key, and what was deleted."""

import itertools
import shutil
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from tests.deliver.tables.conftest import Lake, account, history
from zync.config.model import Config
from zync.deliver.tables import pruning, writer
from zync.errors import ZyncError
from zync.operate.maintain import maintain
from zync.operate.status import status


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
    lake.deliver(damaged=True)  # without them
    for one, there in taken_away.items():
        there.rename(one)
    now = [(one["id"], int(one["balance"])) for one in lake.rows("accounts") if one.get("current", True)]
    assert now == [(2, 3), (3, 3), (101, 1), (102, 2)]


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
    lake.deliver(damaged=True)  # without it
    assert [one["id"] for one in lake.rows("accounts")] == [1]
    if with_positions:
        lake.staging.sync([[account(2, "5"), account(3, "5")]], positions=positions(150))
        with pytest.raises(ZyncError, match=r"could not be delivered"):
            lake.deliver()
        for one, there in taken_away.items():
            there.rename(one)
        lake.deliver()
        assert [row["id"] for row in lake.rows("accounts")] == [1]


def test_a_row_without_position_comes_after_what_went_out_before_it(lake: Lake) -> None:
    """As rows of a Debezium snapshot without LSN come."""
    lake.config("transactions: {preset: debezium, topic: records.transaction}\n")
    lake.staging.sync([[account(1, "1"), account(2, "1")], [account(2, None)]], positions=itertools.count(100))
    lake.deliver()
    lake.staging.sync([[account(1, "2"), account(2, "2")]], positions=itertools.repeat(None))
    lake.deliver()
    assert [(row["id"], int(row["balance"]), row["_position"]) for row in lake.rows("accounts")] == [
        (1, 2, 100),
        (2, 2, 101),
    ]


def test_what_the_first_batch_deleted_is_remembered(lake: Lake) -> None:
    lake.staging.sync([[account(1, "1")], [account(1, None)]], positions=itertools.count(200))
    lake.deliver()
    lake.staging.sync([[account(1, "2")]], positions=itertools.count(100))
    lake.deliver()
    assert lake.rows("accounts") == []


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
