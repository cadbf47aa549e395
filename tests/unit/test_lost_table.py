"""A table that is deleted or replaced under a process is noticed by name, and never taken for the same."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from zync.errors import TableLostError
from zync.kafka.partition import Partition
from zync.lake.delta_log import app_transactions
from zync.lake.table import checkpoint, ensure_table, existing_table, poll, refresh
from zync.raw.append import Appender
from zync.raw.jsonl import Line, as_batch
from zync.raw.table import ensure_raw

SCHEMA = pa.schema([("n", pa.int64())])


def append(location: str, number: int) -> None:
    write_deltalake(location, pa.table({"n": [number]}, SCHEMA), mode="append")


def append_record(appender: Appender) -> None:
    line = Line("a line", Partition("t", 0), value=b"{}")
    appender.append_planned(lambda table: as_batch([line], table))


@pytest.mark.parametrize("look", [refresh, poll])
def test_a_deleted_table_is_named(tmp_path: Path, look: object) -> None:
    location = str(tmp_path / "table")
    table = ensure_table(location, SCHEMA, "numbers")
    shutil.rmtree(location)
    with pytest.raises(TableLostError, match="the table at .*table was deleted while zync used it"):
        look(table)  # type: ignore[operator]


def test_a_table_in_the_place_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    location = str(tmp_path / "table")
    ensure_table(location, SCHEMA, "numbers")
    for number in range(3):
        append(location, number)
    table = existing_table(location, "the test")
    shutil.rmtree(location)
    ensure_table(location, SCHEMA, "other numbers")
    with pytest.raises(TableLostError, match="was replaced by another table while zync used it"):
        refresh(table)


def test_a_raw_in_the_place_of_another_gets_no_records(tmp_path: Path) -> None:
    location = str(tmp_path / "raw")
    ensure_raw(location)
    appender = Appender(location)
    append_record(appender)
    shutil.rmtree(location)
    ensure_raw(location)
    other = Appender(location)
    for _ in range(2):  # as many commits as the old one had, and one more
        append_record(other)
    with pytest.raises(TableLostError, match="raw was replaced by another table"):
        append_record(appender)


def test_a_raw_that_is_gone_with_its_lake_is_not_begun_anew(tmp_path: Path) -> None:
    location = str(tmp_path / "lake" / "raw")
    ensure_raw(location)
    appender = Appender(location)
    append_record(appender)
    shutil.rmtree(tmp_path / "lake")
    with pytest.raises(TableLostError, match="lake/raw was deleted while zync used it"):
        append_record(appender)
    (tmp_path / "lake").mkdir()
    for _ in range(2):
        with pytest.raises(TableLostError, match="lake/raw was deleted while zync used it"):
            append_record(appender)


def test_a_log_that_was_cleaned_up_under_a_handle_is_not_a_lost_table(tmp_path: Path) -> None:
    location = str(tmp_path / "table")
    table = ensure_table(location, SCHEMA, "numbers")
    append(location, 1)
    existing_table(location, "the test").create_checkpoint()
    for version in range(2):
        (tmp_path / "table" / "_delta_log" / f"{version:020}.json").unlink()
    refresh(table)
    assert table.version() == 1


def test_positions_are_read_by_the_hint_and_without_it(tmp_path: Path) -> None:
    """`_last_checkpoint` may be missing, or name a checkpoint whose later entries were cleaned up."""
    location = str(tmp_path / "raw")
    ensure_raw(location)
    appender = Appender(location)
    for _ in range(12):
        append_record(appender)
    log = tmp_path / "raw" / "_delta_log"
    expected = app_transactions(existing_table(location, "the test"))
    assert expected["zync/t/0"] == 12
    existing_table(location, "the test").create_checkpoint()
    stale = log / "_last_checkpoint"
    hint = stale.read_text()
    assert app_transactions(existing_table(location, "the test")) == expected
    stale.unlink()
    assert app_transactions(existing_table(location, "the test")) == expected
    stale.write_text("torn")
    assert app_transactions(existing_table(location, "the test")) == expected
    table = existing_table(location, "the test")
    stale.write_text(hint.replace('"version":12', '"version":3'))
    for version in range(12):
        (log / f"{version:020}.json").unlink()
    assert app_transactions(table) == expected


def test_a_commit_that_landed_does_not_fail_for_its_checkpoint(tmp_path: Path) -> None:
    location = str(tmp_path / "table")
    table = ensure_table(location, SCHEMA, "numbers")
    shutil.rmtree(location)
    checkpoint(table)
