"""Delivered tables of a lake in S3 are found by name in a Hive metastore, and read by Iceberg's readers."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from tests.conftest import BRISK, zync
from tests.deliver.catalog.metastore import MetastoreServer
from tests.store.s3 import BUCKET
from zync.lake.storage import arrow_files

_SQL = """
import sys
from zync import spark_session
from zync.spark.session import hive_session

uri, lake, *statements = sys.argv[1:]
spark = hive_session(spark_session("local[1]", brief=True, lake=lake), {"hive.metastore.uris": uri})
for statement in statements:
    print(*[tuple(row) for row in spark.sql(statement).collect()])
"""


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[MetastoreServer]:
    """A metastore that knows nothing of S3."""
    server = MetastoreServer(tmp_path)
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.stop()


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("s3")
def test_tables_are_found_by_name_and_read_as_icebergs(
    demo: Path, metastore: MetastoreServer, environment: dict[str, str], tmp_path: Path
) -> None:
    lake = f"s3://{BUCKET}/{tmp_path.name}"
    catalog = f'{{type: hive, uri: "{metastore.uri}", database: shop}}'
    config = (demo / "zync.yaml").read_text().replace("lake: ./lake", f"lake: {lake}")
    deliver = f"deliver: {{tables: {{order: {{iceberg: true}}, catalog: {catalog}}}}}"
    (demo / "zync.yaml").write_text(f"{config}\n{deliver}\n{BRISK}")

    def sql(*statements: str) -> list[str]:
        command = [sys.executable, "-c", _SQL, metastore.uri, lake, *statements]
        return subprocess.run(command, cwd=demo, capture_output=True, text=True, check=True).stdout.splitlines()

    sql(f"CREATE DATABASE shop LOCATION '{tmp_path}/shop'")
    for number in (1, 2):
        zync("load", "raw", f"consume-{number}.jsonl", cwd=demo)
    zync("sync", "raw", "staging", cwd=demo)
    zync("sync-to", "tables", "staging", "--until-caught-up", cwd=demo)
    assert sql("SELECT customerID FROM shop.order ORDER BY 1", "DESCRIBE DETAIL shop.order")[0] == "(1,) (2,)"

    folder = f"{lake}/tables/_iceberg/order/metadata"
    with arrow_files(folder).open_input_stream("version-hint.text") as file:
        number = file.read().decode()
    properties = {
        "s3.endpoint": environment["AWS_ENDPOINT_URL"],
        "s3.access-key-id": environment["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": environment["AWS_SECRET_ACCESS_KEY"],
        "s3.region": environment["AWS_REGION"],
    }
    rows = StaticTable.from_metadata(f"{folder}/v{number}.metadata.json", properties).scan().to_arrow()
    assert sorted(rows["customerID"].to_pylist()) == [1, 2]
