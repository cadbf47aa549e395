"""Tables carry their format; a zync that does not know it stops before it reads a row or writes anything."""

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tests.conftest import zync
from tests.other_versions import UNKNOWN, upgrade
from zync.deliver.tables.snapshots import ensure_snapshots
from zync.errors import FormatError
from zync.kafka.partition import Partition
from zync.lake.commit import Commit, Landed
from zync.lake.table import existing_table, open_table, poll, refresh
from zync.lake.table_format import FORMATS
from zync.raw.append import Appender
from zync.raw.batch import Batch
from zync.raw.jsonl import Line, as_batch
from zync.raw.table import ensure_raw
from zync.staging.commit import add_rows, commit_files
from zync.staging.table import STAGING_SCHEMA, ensure_staging

REFUSED = rf"has format {UNKNOWN}, and zync {version('zync')} knows .*1: install zync 99.1.0 or newer$"


def as_by_an_older_zync(location: Path) -> None:
    """Takes the properties of the format out of the log, as those tables are that have none."""
    entry = location / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        configuration = action.get("metaData", {}).get("configuration", {})
        assert configuration.pop("zync.format", "1") == "1"
        configuration.pop("zync.format_since", None)
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions))


def one_record(table: DeltaTable) -> Batch:
    return as_batch([Line("a line", Partition("t", 0), value=b"{}")], table)


def files_of(location: Path) -> list[str]:
    return sorted(path.name for path in location.rglob("*"))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake of a record and a sync of it, and a config."""
    lake = tmp_path / "lake"
    ensure_raw(str(lake / "raw"))
    Appender(str(lake / "raw")).append_planned(one_record)
    staging = ensure_staging(str(lake / "staging"))
    cursor = {"kind": "cursor", "seqno": 1, "sync": 1, "head": 1, "full": 1, "raw": {"id": "x", "version": 1}}
    add_sync(staging, 1, cursor)
    ensure_snapshots(str(lake / "tables" / "_snapshots"))
    (tmp_path / "zync.yaml").write_text('lake: lake\ntopics: {t: {id: "value:x"}}\ntransactions: {done: "true"}\n')
    return lake


def add_sync(staging: DeltaTable, number: int, row: dict[str, object]) -> None:
    folder = Path(staging.table_uri.removeprefix("file://")) / f"sync-{number}-x"
    folder.mkdir()
    add_rows(staging, folder.name, pa.Table.from_pylist([row], STAGING_SCHEMA))
    commit_files(staging, folder.name, number, "x", rows=1)


TABLES = ("raw", "staging", "tables/_snapshots")


@pytest.mark.parametrize("name", TABLES)
def test_a_new_table_says_its_format_and_who_began_it(lake: Path, name: str) -> None:
    properties = DeltaTable(str(lake / name)).metadata().configuration
    newest = max(FORMATS)
    assert (properties["zync.format"], properties["zync.format_since"]) == (str(newest), FORMATS[newest])


def test_a_table_without_a_format_has_the_first_and_is_gone_on_with(tmp_path: Path) -> None:
    raw, staging = tmp_path / "raw", tmp_path / "staging"
    ensure_raw(str(raw))
    ensure_staging(str(staging))
    for table in (raw, staging):
        as_by_an_older_zync(table)
        assert "zync.format" not in DeltaTable(str(table)).metadata().configuration
    for first in (1, 2):
        assert Appender(str(raw)).append_planned(one_record).first_seqno == first
    assert ensure_staging(str(staging)).version() == 0


@pytest.mark.parametrize("name", TABLES)
def test_no_newer_format_is_opened(lake: Path, name: str) -> None:
    upgrade(lake / name)
    with pytest.raises(FormatError, match=f"/lake/{name} {REFUSED}"):
        open_table(str(lake / name))


def test_what_no_zync_wrote_is_no_known_format(lake: Path) -> None:
    table = DeltaTable(str(lake / "raw"))
    table.alter.set_table_properties({"zync.format": "one"}, raise_if_not_exists=False)
    with pytest.raises(FormatError, match="has format one, and zync"):
        open_table(str(lake / "raw"))


COMMANDS = [
    ("raw", "cat raw"),
    ("raw", "status"),
    ("raw", "verify"),
    ("raw", "maintain raw"),
    ("raw", "maintain raw --retain 1d"),
    ("raw", "txn list"),
    ("raw", "txn show 1"),
    ("raw", "txn release 1 --reason x"),
    ("raw", "dlq list"),
    ("raw", "load raw more.jsonl"),
    ("staging", "cat staging"),
    ("staging", "status"),
    ("staging", "verify"),
    ("staging", "maintain staging"),
    ("staging", "maintain raw --retain 1d"),
    ("staging", "txn list"),
    ("staging", "txn show 1"),
    ("staging", "txn release 1 --reason x"),
    ("staging", "dlq list"),
    ("tables/_snapshots", "status"),
    ("tables/_snapshots", "snapshot"),
]


@pytest.mark.parametrize(("table", "command"), COMMANDS)
def test_each_command_names_the_version_to_install_and_leaves_all_as_it_was(
    lake: Path, table: str, command: str
) -> None:
    (lake.parent / "more.jsonl").write_text('{"topic": "t", "value": {}}\n')
    upgrade(lake / table)
    for file in (lake / table).rglob("*.parquet"):  # who reads rows now ends with another error
        file.unlink()
    before = files_of(lake / "raw"), files_of(lake / "staging")
    done = zync(*command.split(), cwd=lake.parent, check=False)
    assert done.returncode == FormatError.exit_code
    assert "install zync 99.1.0 or newer" in done.stderr.splitlines()[-1]
    assert f"lake/{table} has format {UNKNOWN}" in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) == 1
    assert (files_of(lake / "raw"), files_of(lake / "staging")) == before


@pytest.mark.parametrize("look", [refresh, poll])
def test_a_process_that_runs_notices_a_new_format(lake: Path, look: Callable[[DeltaTable], None]) -> None:
    table = open_table(str(lake / "raw"))
    assert table
    upgrade(lake / "raw")
    with pytest.raises(FormatError, match=REFUSED):
        look(table)


def test_an_append_does_not_land_in_a_format_that_began_meanwhile(lake: Path) -> None:
    def upgraded_meanwhile(table: DeltaTable) -> Batch:
        upgrade(lake / "raw")
        return one_record(table)

    appender = Appender(str(lake / "raw"))
    for plan in (upgraded_meanwhile, one_record):
        with pytest.raises(FormatError, match=REFUSED):
            appender.append_planned(plan)
    assert DeltaTable(str(lake / "raw")).to_pyarrow_table().num_rows == 1


def test_the_handle_that_commits_is_checked_itself(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_then_upgrade(location: str, made_by: str) -> DeltaTable:
        table = existing_table(location, made_by)
        upgrade(location)
        return table

    monkeypatch.setattr("zync.raw.append.existing_table", open_then_upgrade)
    with pytest.raises(FormatError, match=REFUSED):
        Appender(str(lake / "raw")).append_planned(one_record)
    assert DeltaTable(str(lake / "raw")).to_pyarrow_table().num_rows == 1


def test_a_sync_does_not_land_in_a_format_that_began_meanwhile(lake: Path) -> None:
    staging = ensure_staging(str(lake / "staging"))
    upgrade(lake / "staging")
    cursor = {"kind": "cursor", "seqno": 1, "sync": 2, "head": 1, "full": 1, "raw": {"id": "x", "version": 1}}
    with pytest.raises(FormatError, match=REFUSED):
        add_sync(staging, 2, cursor)
    assert DeltaTable(str(lake / "staging")).to_pyarrow_table().num_rows == 1


def test_what_landed_before_the_new_format_is_known_to_have_landed(lake: Path) -> None:
    table = ensure_raw(str(lake / "raw"))

    def lands_and_fails(properties: CommitProperties) -> None:
        rows = DeltaTable(str(lake / "raw")).to_pyarrow_table()
        write_deltalake(table, rows, mode="append", commit_properties=properties)
        upgrade(lake / "raw")
        raise OSError

    commit = Commit(table, {"app": 1}, "mine", "it cannot be written", "the commit of 1", "the next one")
    assert isinstance(commit.attempt(lands_and_fails), Landed)
