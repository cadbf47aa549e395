"""The names and types that delivered tables have in a catalog."""

import pytest
from pyspark.sql.types import StructType

from zync.config.catalog import Catalog
from zync.deliver.catalog import entries


@pytest.mark.parametrize(
    ("topic", "patterns", "name"),
    [
        ("orders", {}, "zync.orders"),
        ("shop.public.Orders-2", {}, "zync.shop_public_orders_2"),
        ("shop.public.orders", {"database": "{parent}", "table": "{name}"}, "shop_public.orders"),
        ("orders", {"database": "lake_{topic}", "table": "t{name}"}, "lake_orders.torders"),
        ("größe`; DROP", {}, "zync.gr__e___drop"),
    ],
)
def test_a_table_is_named_by_patterns_in_letters_that_every_catalog_takes(
    topic: str, patterns: dict[str, str], name: str
) -> None:
    assert str(Catalog("hive", **patterns).table_name(topic)) == name


def test_views_are_beside_the_tables_unless_the_config_says_where() -> None:
    assert str(Catalog("hive", database="shop").view_name("orders")) == "shop.orders_consistent"
    assert str(Catalog("hive", view_database="bi", view="{topic}").view_name("orders")) == "bi.orders"
    assert list(Catalog("hive").names("orders")) == ["table"]
    assert list(Catalog("hive", views=True).names("orders")) == ["table", "view"]


def test_types_are_those_of_hive() -> None:
    columns = StructType.fromDDL(
        "a BIGINT, b DECIMAL(10, 2), c MAP<STRING, TIMESTAMP_NTZ>, d STRUCT<e: ARRAY<VARIANT>>"
    )
    types = [entries.hive_type(field.dataType) for field in columns.fields]
    assert types == ["bigint", "decimal(10,2)", "map<string,timestamp>", "struct<e:array<string>>"]


@pytest.mark.parametrize("other", ["/lake/tables/o", "file:/lake/tables/o", "file:///lake/tables/o/"])
def test_a_location_is_known_however_a_catalog_writes_it(other: str) -> None:
    assert entries.same_location("/lake/tables/o", other)
    assert not entries.same_location("/lake/tables/p", other)
    assert entries.same_location("s3://bucket/o", "s3a://bucket/o/")
