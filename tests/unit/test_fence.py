"""A batch is applied only to the table that it was planned for."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql.types import StructType

from zync.config.model import DeliveredTable
from zync.deliver.tables.fence import check_planned
from zync.deliver.tables.target import TableTarget
from zync.errors import ConflictError
from zync.lake.delivered import APP

STAGING = "5a6e"


@pytest.fixture
def target(tmp_path: Path) -> TableTarget:
    return TableTarget("a", str(tmp_path / "tables" / "a"), StructType().add("n", "long"), ("n",), DeliveredTable())


def commit(location: str, sync: int) -> DeltaTable:
    properties = CommitProperties(app_transactions=[Transaction(APP + STAGING, sync)])
    write_deltalake(location, pa.table({"n": [sync]}), mode="append", commit_properties=properties)
    return DeltaTable(location)


def planned(target: TableTarget, table: DeltaTable | None, after: int, upto: int) -> dict[str, int | None]:
    tables = check_planned(target, table, STAGING, after=after, upto=upto)
    return {location: one.version() if one else None for location, one in tables.items()}


def test_the_versions_are_those_that_the_batch_was_planned_from(target: TableTarget) -> None:
    assert planned(target, None, after=0, upto=2) == {target.location: None, target.deleted: 0}
    table = commit(target.location, 2)
    assert planned(target, table, after=2, upto=3) == {target.location: 0, target.deleted: 0}


def test_a_table_that_got_a_later_sync_meanwhile_is_left_alone(target: TableTarget) -> None:
    table = commit(target.location, 3)
    with pytest.raises(ConflictError, match="another process delivered sync 3 to .*/tables/a meanwhile"):
        check_planned(target, table, STAGING, after=2, upto=4)


def test_tombstones_of_a_later_sync_than_the_batch_are_not_taken_for_its_own(target: TableTarget) -> None:
    """They would hide rows that are there at the batch's last sync, and are deleted after it."""
    table = commit(target.location, 2)
    commit(str(target.deleted), 5)
    assert check_planned(target, table, STAGING, after=2, upto=5)
    with pytest.raises(ConflictError, match="another process delivered sync 5 to .*/_deleted/a meanwhile"):
        check_planned(target, table, STAGING, after=2, upto=4)
