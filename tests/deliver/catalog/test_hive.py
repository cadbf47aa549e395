"""Delivered tables in a real Hive metastore: found by name, as their columns are, with views of whole transactions."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.deliver.catalog.metastore import MetastoreServer
from tests.deliver.tables.conftest import ACCOUNTS, Lake, transfers, version_of
from tests.kafka.conftest import wait_until
from zync.deliver.catalog import registration
from zync.deliver.catalog.entries import NameTakenError
from zync.deliver.tables import delivery
from zync.project.load import load
from zync.spark.metastore import Metastore
from zync.spark.session import hive_session

AS_COMMENTED = "ALTER TABLE delta.`{}` ALTER COLUMN id COMMENT 'number of the account'"


def catalog(lake: Lake, metastore: MetastoreServer, more: str = "", **config: str) -> str:
    """Has the lake's config name a database of the metastore that no other test has, and returns its name."""
    database = f"db_{lake.staging.folder.name}".lower()
    settings = f'{{type: hive, uri: "{metastore.uri}", database: {database}{more}}}'
    lake.config(f"deliver: {{tables: {{catalog: {settings}}}}}\n", **config)
    return database


def in_hive(reader: Any, database: str, table: str) -> dict[str, tuple[str, str | None]]:
    """Types and comments of a table's columns, as a program that is not Spark reads them from the metastore."""
    return {name: (kind, comment) for name, kind, comment in Metastore(reader).columns(database, table)}


def count(reader: Any, table: str) -> int:
    return int(reader.table(table).count())


def test_tables_are_found_by_name_and_have_the_columns_that_they_come_to_have(
    lake: Lake, metastore: MetastoreServer, reader: Any
) -> None:
    database = catalog(lake, metastore)
    lake.staging.sync(transfers(3, 0))
    lake.deliver()
    assert {row.id: int(row.balance) for row in reader.table(f"{database}.accounts").collect()} == {0: 0, 1: 1, 2: 2}
    details = {row.col_name: row.data_type for row in reader.sql(f"DESCRIBE EXTENDED {database}.accounts").collect()}
    assert (details["Type"], details["Provider"]) == ("EXTERNAL", "delta")
    assert list(in_hive(reader, database, "accounts")) == ["id", "balance", "note", "_position", "_seqno"]
    version = version_of(lake, "accounts")
    lake.spark.sql(AS_COMMENTED.format(lake.folder / "accounts"))
    catalog(lake, metastore, accounts=f"{ACCOUNTS}, value:since::date AS since")
    lake.staging.sync(transfers(1, 3))
    lake.deliver()
    assert version_of(lake, "accounts") == version + 3  # a comment, a column, a batch: what is registered is no commit
    columns = in_hive(reader, database, "accounts")
    assert columns["since"] == ("date", None)
    assert columns["id"] == ("int", "number of the account")
    assert reader.table(f"{database}.accounts").columns[-1] == "since"


def test_names_follow_the_patterns(lake: Lake, metastore: MetastoreServer, reader: Any) -> None:
    database = catalog(lake, metastore, ', table: "t_{name}", views: true, view_database: "{topic}_views", view: v')
    lake.staging.sync(transfers(1, 0))
    lake.deliver()
    assert count(reader, f"{database}.t_accounts") == count(reader, "accounts_views.v") == 1


def test_views_are_of_whole_transactions_and_never_gone(
    lake: Lake, metastore: MetastoreServer, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the replacements of two views, a reader of both sees two snapshots that follow each other."""
    database = catalog(lake, metastore, ", views: true")
    lake.staging.sync(transfers(2, 0))
    lake.deliver()
    views = [f"{database}.{topic}_consistent" for topic in ("accounts", "history")]
    around: list[tuple[int, ...]] = []
    read: list[int] = []
    replace, stop = SparkSession.sql, threading.Event()

    def watched(session: SparkSession, text: str) -> Any:
        if not text.startswith("ALTER VIEW"):
            return replace(session, text)
        around.append(tuple(count(reader, view) for view in views))
        result = replace(session, text)
        around.append(tuple(count(reader, view) for view in views))
        return result

    def read_on() -> None:
        while not stop.is_set():
            read.append(count(reader, views[0]))

    with ThreadPoolExecutor(1) as executor:
        reading = executor.submit(read_on)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(SparkSession, "sql", watched)
                lake.staging.sync(transfers(4, 2))
                lake.deliver()
        finally:
            stop.set()
        reading.result()  # raises if the view was ever gone
    assert around == [(2, 2), (5, 2), (5, 2), (5, 6)]
    assert set(read) == {2, 5}


def test_a_name_that_somebody_else_has_is_left_alone(
    lake: Lake, metastore: MetastoreServer, reader: Any, tmp_path: Path
) -> None:
    database = catalog(lake, metastore, ", views: true")
    reader.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path}/db'")
    reader.sql(f"CREATE TABLE {database}.accounts (a INT) USING delta LOCATION '{tmp_path}/theirs'")
    reader.sql(f"CREATE VIEW {database}.history_consistent AS SELECT 'theirs' AS a")
    lake.staging.sync(transfers(2, 0))
    with pytest.raises(NameTakenError) as refused:
        lake.deliver()
    (name,) = set(re.findall(rf"{database}\.\w+(?= in the catalog)", str(refused.value)))
    assert name in (f"{database}.accounts", f"{database}.history_consistent")
    assert reader.table(f"{database}.accounts").columns == ["a"]
    assert reader.table(f"{database}.history_consistent").columns == ["a"]
    assert count(reader, f"{database}.history") == 2
    assert len(lake.rows("accounts")) == 2


def test_a_metastore_that_is_away_stops_no_delivery_and_has_the_tables_when_it_is_back(
    lake: Lake, metastore: MetastoreServer, warm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_AGAIN_SECONDS", 0.5)
    database = catalog(lake, metastore)
    lake.staging.sync(transfers(2, 0))
    metastore.stop()
    done = warm("sync-to", "tables", "staging", "--until-caught-up", cwd=lake.staging.folder, check=False)
    assert done.returncode == 1
    refused = f"zync: the Hive metastore {metastore.uri} cannot be reached: Connection refused"
    assert done.stderr.strip().splitlines()[-1].startswith(refused)
    assert len(lake.rows("history")) == 2
    stop = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        following = executor.submit(follow, lake, stop)
        try:
            lake.staging.sync(transfers(2, 2))
            wait_until(lambda: [one.sync for one in lake.versions()] == [1, 2] or following.done(), 60)
            assert len(lake.rows("history")) == 4
            metastore.start()
            metastore.wait()
            reader = hive_session(lake.spark, {"hive.metastore.uris": metastore.uri})
            wait_until(lambda: Metastore(reader).table(database, "history") is not None or following.done(), 60)
        finally:
            stop.set()
        following.result()
    assert count(reader, f"{database}.history") == 4


def follow(lake: Lake, stop: threading.Event) -> None:
    """Delivers until it is stopped."""
    config = load(lake.staging.folder / "zync.yaml")
    delivery.sync_to_tables(lake.spark, config, lake.staging.path, str(lake.folder), stop)
