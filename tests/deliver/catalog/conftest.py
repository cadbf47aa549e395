"""A real metastore, and what a Spark that knows nothing but its address reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deliver.catalog.metastore import MetastoreServer
from tests.deliver.conftest import Staging
from tests.deliver.tables.conftest import Lake
from zync.spark.session import hive_session


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetastoreServer]:
    """A metastore for the tests of this folder."""
    metastore = MetastoreServer(tmp_path_factory.mktemp("metastore"))
    metastore.start()
    try:
        yield metastore
    finally:
        metastore.stop()


@pytest.fixture
def metastore(running: MetastoreServer) -> MetastoreServer:
    """The metastore, which answers."""
    running.wait()
    return running


@pytest.fixture
def lake(tmp_path: Path, spark: Any) -> Lake:
    return Lake(Staging(tmp_path, "localhost:1"), spark)


@pytest.fixture
def reader(metastore: MetastoreServer, spark: Any) -> Any:
    """A session that has the metastore's tables."""
    return hive_session(spark, {"hive.metastore.uris": metastore.uri})
