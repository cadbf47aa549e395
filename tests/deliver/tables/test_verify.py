"""What `zync verify` says of delivered tables: each damage by name, and nothing where there is none."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.conftest import zync
from tests.deliver.conftest import Staging
from tests.deliver.tables.conftest import Lake, account, history
from zync.deliver.tables import snapshots
from zync.operate.verify.tables import tables_claims
from zync.raw.table import ensure_raw

VERSIONS = {"accounts": 2, "history": 3}
"""In the newest snapshot."""


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Path:
    """The folder of two tables by three syncs, each with a snapshot; the last sync has no accounts."""
    lake = Lake(Staging(tmp_path_factory.mktemp("delivered"), "localhost:1"), spark)
    lake.staging.sync([[account(1, "1"), history(1, "1")], [account(2, "2"), history(2, "2")]])
    lake.deliver()
    lake.staging.sync([[account(1, "3"), history(3, "3")], [account(2, None), history(4, "4")]])
    lake.deliver()
    lake.staging.sync([[history(5, "5")]])
    assert lake.deliver().versions == VERSIONS
    return lake.staging.folder


@pytest.fixture
def tables(delivered: Path, tmp_path: Path) -> Path:
    """A copy of them, to be damaged."""
    shutil.copytree(delivered, tmp_path, dirs_exist_ok=True)
    return tmp_path / "lake" / "tables"


def violations(tables: Path, staging: Path | None = None) -> list[str]:
    claims = tables_claims(str(tables), str(staging or tables.parent / "staging"))
    return [text for claim in claims for text in claim.violations]


def entry(tables: Path, topic: str, version: int) -> Path:
    return tables / topic / "_delta_log" / f"{version:020}.json"


def delete_entry(tables: Path, topic: str, version: int) -> None:
    """Without the checksum that Spark puts beside it: by that the table could not be read at all."""
    entry(tables, topic, version).unlink()
    entry(tables, topic, version).with_suffix(".crc").unlink(missing_ok=True)


def replace_entry(tables: Path, topic: str, operation: str) -> None:
    """What a store does that does not keep writers apart: the newest entry is another engine's."""
    info = {"timestamp": 0, "operation": operation, "operationParameters": {}}
    entry(tables, topic, VERSIONS[topic]).write_text(json.dumps({"commitInfo": info}) + "\n")


def test_all_claims_hold_and_say_what_was_looked_at(tables: Path) -> None:
    claims = [*tables_claims(str(tables), str(tables.parent / "staging"))]
    assert {claim.text: (claim.count, claim.violations) for claim in claims} == {
        "versions of delivered tables that snapshots name are there": (6, []),
        "files of delivered tables are there, with the rows that the log says": (5, []),
        "nobody else changed the delivered tables since the newest snapshot": (2, []),
        "delivered tables are through the sync of their newest snapshot, by their txn": (2, []),
        "delivered tables have the rows that staging has for them, by transaction": (6, []),
    }


@pytest.mark.parametrize("topic", ["accounts", "history", "_deleted/accounts"])
def test_a_data_file_that_is_gone_is_named(tables: Path, topic: str) -> None:
    file = DeltaTable(str(tables / topic)).file_uris()[0]
    Path(file.removeprefix("file://")).unlink()
    (violation,) = violations(tables)
    assert violation.startswith(f"{topic}: {Path(file).name}: FileNotFoundError")


def test_a_file_with_other_rows_than_the_log_says_is_named(tables: Path) -> None:
    files = [Path(uri.removeprefix("file://")) for uri in DeltaTable(str(tables / "history")).file_uris()]
    least, *_, most = sorted(files, key=lambda file: pq.read_metadata(file).num_rows)
    shutil.copy(most, least)
    assert violations(tables)[0] == f"history: {least.name}: 1 rows by the log, 2 in the file"


def test_a_row_that_another_engine_deleted_is_told(tables: Path) -> None:
    DeltaTable(str(tables / "history")).delete("id = 1")
    assert violations(tables) == ["history: version 4 is DELETE"]
    located = snapshots.read(str(tables / snapshots.NAME))[-1]
    table = snapshots.ensure_snapshots(str(tables / snapshots.NAME))
    snapshots.take(table, snapshots.Snapshot(3, snapshots.now(), located.staging, {**located.versions, "history": 4}))
    assert violations(tables) == ["history: rows of sync 1: 1 missing, as of the transaction at seqno 1"]


def test_rows_that_another_engine_added_are_told(tables: Path) -> None:
    rows = DeltaTable(str(tables / "accounts")).to_pyarrow_table()
    write_deltalake(str(tables / "accounts"), rows, mode="append")
    foreign = rows.set_column(rows.column_names.index("_seqno"), rows.field("_seqno"), [[77] * len(rows)])
    write_deltalake(str(tables / "accounts"), foreign, mode="append")
    snapshot = snapshots.read(str(tables / snapshots.NAME))[-1]
    table = snapshots.ensure_snapshots(str(tables / snapshots.NAME))
    snapshots.take(table, snapshots.Snapshot(3, snapshots.now(), snapshot.staging, {"accounts": 4, "history": 3}))
    assert violations(tables) == [
        "accounts: rows that staging does not have: 1 too many, as of the transaction at seqno 77",
        "accounts: rows of sync 2: 1 too many, as of the transaction at seqno 3",
    ]


def test_what_others_compact_is_no_damage(tables: Path) -> None:
    DeltaTable(str(tables / "history")).optimize.compact()
    assert violations(tables) == []


def test_a_commit_that_another_engine_replaced_is_told(tables: Path) -> None:
    replace_entry(tables, "history", "OPTIMIZE")
    assert violations(tables) == [
        "history: it is through sync 2, and has to have rows of sync 3",
        "history: rows of sync 3: 1 missing, as of the transaction at seqno 5",
    ]
    replace_entry(tables, "accounts", "OPTIMIZE")
    assert violations(tables)[1:3] == [
        "accounts: rows of sync 1: 2 too many, as of the transaction at seqno 1",
        "accounts: rows of sync 2: 1 missing, as of the transaction at seqno 3",
    ]


def test_a_txn_that_was_lost_is_told_though_the_rows_are_there(tables: Path) -> None:
    for topic, sync in (("history", 3), ("accounts", 2)):
        path = entry(tables, topic, VERSIONS[topic])
        path.write_text(path.read_text().replace('"appId":"zync/delivered/', '"appId":"of/another/'))
        assert f"{topic}: it is through sync {sync - 1}, and has to have rows of sync {sync}" in violations(tables)


def test_a_table_that_was_put_back_or_taken_away_is_told(tables: Path) -> None:
    delete_entry(tables, "history", 3)
    shutil.rmtree(tables / "accounts")
    assert violations(tables) == [
        "accounts: there is no table, and the snapshot of sync 3 names version 2",
        "history: the table is at version 2, and the snapshot of sync 3 names version 3",
    ]


def test_versions_of_older_snapshots_may_be_cleaned_away_but_not_between_others(tables: Path) -> None:
    table = DeltaTable(str(tables / "history"))
    table.create_checkpoint()
    for version in (0, 1):
        entry(tables, "history", version).unlink()
    claims = [*tables_claims(str(tables), str(tables.parent / "staging"))]
    assert [text for claim in claims for text in claim.violations] == []
    assert claims[0].text.endswith("are there (of older snapshots 1 others were cleaned away)")
    shutil.copy(entry(tables, "history", 3), entry(tables, "history", 1))
    entry(tables, "history", 2).unlink()
    assert violations(tables) == ["history: version 2 of the snapshot of sync 2 is not in the log"]


def test_tables_of_another_staging_are_not_compared(tables: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Staging(tmp_path / "other", "localhost:1")
    other.sync([[history(1, "1")]])
    claims = [*tables_claims(str(tables), other.path)]
    assert "not compared: they are of another staging" in claims[-1].text
    assert not any(claim.violations for claim in claims)


def test_the_deleted_keys_that_are_gone_and_a_staging_that_is_older_are_told(tables: Path) -> None:
    shutil.rmtree(tables / "_deleted" / "accounts")
    max((tables.parent / "staging" / "_delta_log").glob("*.json")).unlink()
    assert violations(tables) == [
        "_deleted/accounts, which has what was deleted of accounts, is gone",
        "the newest snapshot is of sync 3, and staging's last is 2",
    ]


def test_the_command_tells_it_with_exit_code_1(tables: Path) -> None:
    folder = tables.parents[1]
    ensure_raw(str(tables.parent / "raw"))

    def failed() -> list[str]:
        done = zync("verify", "--json", cwd=folder, check=False)
        assert done.returncode == 1  # this raw is empty
        return [text for claim in json.loads(done.stdout)["claims"] for text in claim["violations"]]

    before = failed()
    delete_entry(tables, "history", 3)
    assert [text for text in failed() if text not in before] == [
        "history: the table is at version 2, and the snapshot of sync 3 names version 3"
    ]
