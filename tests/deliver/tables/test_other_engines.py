"""Engines that did not write delivered tables read the same rows of them: delta-rs, polars and DuckDB."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable

from tests.deliver.conftest import Staging, row
from tests.deliver.tables.conftest import Lake

RULE = (
    "SELECT seqno, value:id::int AS id, value:total::decimal(10, 2) AS total, value:day::string AS day, "
    "value:at::timestamp AS at, array(struct(value:note::string AS note)) AS lines FROM arriving"
)
CONFIG = """\
topics: {records: {id: "value:txn", as: arriving}}
outputs: [{topic: orders, sql: orders.sql, key: [id]}]
deliver: {tables: {orders: {partition_by: [day]}}}
"""
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> str:
    """A table with an order that changed, one that was deleted, one of another partition, and one of nulls."""
    lake = Lake(Staging(tmp_path_factory.mktemp("engines"), "localhost:1"), spark)
    lake.staging.config(CONFIG)
    (lake.staging.folder / "orders.sql").write_text(RULE)
    lines = [{"note": "größer"}]
    values = {"at": "2026-01-31T12:00:00.000000Z", "lines": lines}
    first = [row("orders", key, total="1.50", day=f"d{key % 2}", **values) for key in (1, 2, 3)]
    lake.staging.sync([[*first, row("orders", 4, total=None, day="d0", at=None, lines=None)]])
    lake.deliver()
    lake.staging.sync([[row("orders", 1, total="99999999.99", day="d1", **values)], [("orders", '{"id":2}', None)]])
    lake.deliver()
    return str(lake.folder / "orders")


def by_delta_rs(location: str) -> list[dict[str, Any]]:
    return DeltaTable(location).to_pyarrow_table().to_pylist()


def by_polars(location: str) -> list[dict[str, Any]]:
    return polars.scan_delta(location).collect().to_dicts()


def by_duckdb(location: str) -> list[dict[str, Any]]:
    """By Arrow: DuckDB's own `delta_scan` is an extension, which has to be fetched from the network."""
    rows = DeltaTable(location).to_pyarrow_dataset()
    assert rows is not None
    found = duckdb.connect().sql("SELECT * FROM rows ORDER BY id").to_arrow_table()
    return list(found.to_pylist())


@pytest.mark.parametrize("read", [by_delta_rs, by_polars, by_duckdb])
def test_each_engine_reads_the_same_rows(orders: str, read: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = sorted(read(orders), key=lambda one: one["id"])
    lines = [{"note": "größer"}]
    assert [(one["id"], one["total"], one["day"], one["lines"]) for one in rows] == [
        (1, Decimal("99999999.99"), "d1", lines),
        (3, Decimal("1.50"), "d1", lines),
        (4, None, "d0", None),
    ]
    assert [one["at"] and one["at"].astimezone(UTC) for one in rows] == [AT, AT, None]
