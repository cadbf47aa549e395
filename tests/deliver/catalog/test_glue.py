"""Delivered tables in Glue's Data Catalog, by the API as moto serves it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.deliver.tables.conftest import ACCOUNTS, Lake, transfers
from zync.deliver.catalog.entries import CatalogError, NameTakenError

REGION = "eu-central-1"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running moto."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = int(free.getsockname()[1])
    log = tmp_path_factory.mktemp("moto") / "moto.log"
    with log.open("w") as out:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=out, stderr=out)
    try:
        until = time.monotonic() + 60
        while True:
            with socket.socket() as client:
                if client.connect_ex(("localhost", port)) == 0:
                    break
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        yield f"http://localhost:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def glue(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of Glue's, and the keys in the environment."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name.startswith("AWS_") and name not in KEYS]:
        monkeypatch.delenv(name)
    return boto3.client("glue", region_name=REGION, endpoint_url=endpoint)


def catalog(lake: Lake, endpoint: str, **config: str) -> str:
    """Has the lake's config name a database of Glue that no other test has, and returns its name."""
    database = f"db_{lake.staging.folder.name}".lower()
    settings = f'{{type: glue, region: {REGION}, endpoint: "{endpoint}", database: {database}}}'
    lake.config(f"deliver: {{tables: {{catalog: {settings}}}}}\n", **config)
    return database


def table(glue: Any, database: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = glue.get_table(DatabaseName=database, Name=name)["Table"]
    return found


def test_tables_are_registered_with_the_columns_that_they_come_to_have(lake: Lake, glue: Any, endpoint: str) -> None:
    database = catalog(lake, endpoint)
    lake.staging.sync(transfers(2, 0))
    lake.deliver()
    first = table(glue, database, "accounts")
    assert first["StorageDescriptor"]["Location"] == str(lake.folder / "accounts")
    assert first["StorageDescriptor"]["SerdeInfo"]["Parameters"]["path"] == str(lake.folder / "accounts")
    assert first["TableType"] == "EXTERNAL_TABLE"
    assert first["Parameters"]["spark.sql.sources.provider"] == "delta"
    columns = {"id": "int", "balance": "decimal(10,2)", "note": "string", "_position": "bigint", "_seqno": "bigint"}
    assert {column["Name"]: column["Type"] for column in first["StorageDescriptor"]["Columns"]} == columns
    keys = ("Name", "TableType", "StorageDescriptor")
    theirs = {key: first[key] for key in keys} | {"Parameters": {**first["Parameters"], "team": "us"}}
    glue.update_table(DatabaseName=database, TableInput={**theirs, "Description": "of accounts"})
    lake.spark.sql(f"ALTER TABLE delta.`{lake.folder / 'accounts'}` ALTER COLUMN id COMMENT 'number of the account'")
    catalog(lake, endpoint, accounts=f"{ACCOUNTS}, named_struct('a', array(value:since::timestamp_ntz)) AS since")
    lake.staging.sync(transfers(1, 2))
    lake.deliver()
    second = table(glue, database, "accounts")
    columns_now = {column["Name"]: column for column in second["StorageDescriptor"]["Columns"]}
    assert columns_now["since"]["Type"] == "struct<a:array<timestamp>>"
    assert columns_now["id"]["Comment"] == "number of the account"
    assert (second["Description"], second["Parameters"]["team"]) == ("of accounts", "us")


def test_a_name_that_somebody_else_has_is_left_alone(lake: Lake, glue: Any, endpoint: str, tmp_path: Path) -> None:
    database = catalog(lake, endpoint)
    glue.create_database(DatabaseInput={"Name": database})
    theirs = {"Name": "accounts", "StorageDescriptor": {"Location": "s3://bucket/theirs", "Columns": []}}
    glue.create_table(DatabaseName=database, TableInput=theirs)
    lake.staging.sync(transfers(1, 0))
    with pytest.raises(NameTakenError, match=rf"{database}.accounts in the catalog is the table at s3://bucket/theirs"):
        lake.deliver()
    assert table(glue, database, "accounts")["StorageDescriptor"]["Location"] == "s3://bucket/theirs"
    assert table(glue, database, "history")["Parameters"]["zync.topic"] == "history"


def test_glue_that_is_away_loses_no_row_and_has_the_tables_afterwards(lake: Lake, glue: Any, endpoint: str) -> None:
    catalog(lake, "http://localhost:1")
    lake.staging.sync(transfers(1, 0))
    with pytest.raises(CatalogError, match=r"the Glue Data Catalog: Could not connect to the endpoint URL"):
        lake.deliver()
    assert len(lake.rows("accounts")) == 1
    database = catalog(lake, endpoint)
    lake.deliver()
    assert table(glue, database, "accounts")
