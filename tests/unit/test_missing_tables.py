"""Where a table is not there, or is something else, the message says which command makes it, or what names it."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from zync.cli.pipeline import check_tables_of_sync
from zync.errors import UsageError
from zync.operate.cat import cat
from zync.raw.append import Appender
from zync.raw.batch import Batch
from zync.raw.table import existing_raw
from zync.rules.lookups import newest_version
from zync.staging.table import existing_staging


def test_a_lookup_that_is_not_there_is_named_with_the_key_that_names_it(tmp_path: Path) -> None:
    expected = rf"lookup 'rates' \(lookups.rates.delta in zync.yaml\): there is no Delta table at {tmp_path}/rates: "
    with pytest.raises(UsageError, match=expected):
        newest_version("rates", str(tmp_path / "rates"))


def test_a_lookup_that_is_something_else_is_named_with_the_key_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "rates").mkdir()
    (tmp_path / "rates" / "rates.csv").touch()
    with pytest.raises(UsageError, match=r"lookup 'rates' .*zync.yaml.*rates is not a Delta table: name another place"):
        newest_version("rates", str(tmp_path / "rates"))
    with pytest.raises(UsageError, match=r"lookup 'rates' .*zync.yaml.*rates.csv is a file, so there can be no table"):
        newest_version("rates", str(tmp_path / "rates" / "rates.csv" / "below"))


def test_a_lookup_is_at_its_newest_version(tmp_path: Path) -> None:
    for version in (0, 1):
        write_deltalake(str(tmp_path), pa.table({"n": [1]}), mode="append")
        assert newest_version("rates", str(tmp_path)) == version


@pytest.mark.parametrize("name", ["raw", "raw2"])
def test_a_raw_that_is_not_there_is_made_by_sync_from(tmp_path: Path, name: str) -> None:
    expected = f"no table at {tmp_path}/{name} yet: `zync sync-from kafka {name}` makes it"
    with pytest.raises(UsageError, match=expected):
        existing_raw(str(tmp_path / name))
    with pytest.raises(UsageError, match=expected):
        Appender(str(tmp_path / name)).append_planned(lambda _: Batch())


@pytest.mark.parametrize("name", ["staging", "staging2"])
def test_a_staging_that_is_not_there_is_made_by_sync(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"no table at {tmp_path}/{name} yet: `zync sync raw {name}` makes it"):
        existing_staging(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("raw", "`zync sync-from kafka raw` makes it"),
        ("staging", "`zync sync raw staging` makes it"),
        ("order", "name one that is there, like raw or staging"),
    ],
)
def test_cat_of_what_is_not_there_says_what_makes_it_or_to_name_another(
    tmp_path: Path, name: str, expected: str
) -> None:
    with pytest.raises(UsageError, match=f"no table at {tmp_path}/{name} yet: {expected}"):
        next(cat(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("raw", "staging", "expected"),
    [
        ("kafka", "raw", "kafka is no table: `zync sync-from kafka raw` brings records from Kafka to the table raw"),
        ("raw", "kafka", "kafka is no table to sync into: `zync sync-to kafka staging` delivers what is in staging"),
        ("staging", "kafka", "`zync sync-to kafka staging` delivers what is in staging"),
        ("staging", "tables", "`zync sync-to tables staging` delivers what is in staging"),
    ],
)
def test_sync_is_from_table_to_table_and_names_the_command_that_is_not(raw: str, staging: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        check_tables_of_sync(raw, staging)


def test_sync_takes_any_other_names_and_paths() -> None:
    check_tables_of_sync("raw", "staging")
    check_tables_of_sync("./kafka", "lake/tables")
