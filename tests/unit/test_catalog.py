"""The names and types that delivered tables have in a catalog."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
)

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


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (LongType(), "bigint"),
        (DecimalType(10, 2), "decimal(10,2)"),
        (MapType(StringType(), TimestampNTZType()), "map<string,timestamp>"),
        (StructType([StructField("e", ArrayType(VariantType()))]), "struct<e:array<string>>"),
    ],
)
def test_types_are_those_of_hive(kind: DataType, name: str) -> None:
    assert entries.hive_type(kind) == name


@pytest.mark.parametrize("other", ["/lake/tables/o", "file:/lake/tables/o", "file:///lake/tables/o/"])
def test_a_location_is_known_however_a_catalog_writes_it(other: str) -> None:
    assert entries.same_location(other, "/lake/tables/o")
    assert not entries.same_location(other, "/lake/tables/p")
    assert entries.same_location("s3a://bucket/a%20b/", "s3://bucket/a b")
