"""A batch is applied only to the table that it was planned for."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql.types import StructType

from zync.config.model import DeliveredTable
from zync.deliver.tables.fence import FencedSession, check_planned
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


class Session:
    """What a fence tells Spark."""

    def __init__(self) -> None:
        self.conf, self.told = self, dict[str, str]()

    def set(self, key: str, value: str) -> None:
        self.told[key.removeprefix("zync.base.")] = value

    def unset(self, key: str) -> None:
        del self.told[key.removeprefix("zync.base.")]


def test_spark_is_told_of_what_was_committed_before_it_started_and_after(tmp_path: Path) -> None:
    a, b, spark = "s3://lake/a", "s3://lake/b", Session()
    with FencedSession(lambda: spark, {a: commit(str(tmp_path), 1), b: None, str(tmp_path): None}) as session:  # type: ignore[arg-type, return-value]
        session.follow(a, 4)
        assert spark.told == {}
        assert session.spark is session.spark
        assert spark.told == {a: "4", b: "-1"}
        session.follow(b, 0)
        assert spark.told == {a: "4", b: "0"}
    assert spark.told == {}


def test_a_batch_that_needs_no_spark_starts_none() -> None:
    with FencedSession(pytest.fail, {"s3://lake/a": None}) as session:
        session.follow("s3://lake/a", 0)
