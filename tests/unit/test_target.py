"""The table of an output is one that Delta, Spark and a reader can have; and what it may become later."""

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from zync.config.model import Deliver, DeliveredTable
from zync.deliver.tables import pruning
from zync.deliver.tables.schema_changes import as_made, changes
from zync.deliver.tables.target import TableTarget, check_columns
from zync.errors import UsageError
from zync.rules.type_changes import is_wider


def target(columns: dict[str, DataType], *, key: tuple[str, ...] = ("id",), **said: Any) -> TableTarget:
    struct = StructType()
    for name, kind in {"id": LongType(), **columns}.items():
        struct.add(name, kind)
    return TableTarget("order", "/lake/tables/order", struct, key, DeliveredTable(**said))


def test_rows_with_a_key_are_upserted_and_others_appended_unless_the_config_says_otherwise() -> None:
    assert target({}).apply == "upsert"
    assert target({}, key=()).apply == "append"
    assert target({}, apply="history").apply == "history"


def test_where_deleted_keys_are_remembered_is_beside_the_table() -> None:
    assert target({}).deleted == "/lake/tables/_deleted/order"
    assert target({}, key=()).deleted is None


def test_what_a_table_is_made_with_cannot_be_another_later_but_its_clustering_can() -> None:
    made = target({"day": DateType()}, cluster_by=("day",))
    assert made.made_with == {"zync.apply": "upsert", "zync.key": "id"}
    assert made.properties == {**made.made_with, "zync.cluster_by": "day"}


def test_a_table_has_the_properties_of_the_config_and_their_names() -> None:
    settings = Deliver(tables={"a": DeliveredTable(properties={"t.x": "1"})}, table_properties={"t.x": "2", "t.y": "3"})
    assert settings.table("a").properties == {"t.x": "1", "t.y": "3"}
    assert settings.table("b").properties == {"t.x": "2", "t.y": "3"}
    made = target({}, properties=settings.table("a").properties)
    assert made.properties == {
        **made.made_with,
        "zync.cluster_by": "",
        "t.x": "1",
        "t.y": "3",
        "zync.properties": "t.x, t.y",
    }


@pytest.mark.parametrize(
    ("columns", "said", "expected"),
    [
        ({"_seqno": LongType()}, {}, "selects '_seqno', which is a column of zync's own"),
        ({"_Position": LongType()}, {}, "selects '_Position', which is a column of zync's own"),
        ({"valid_from": LongType()}, {"apply": "history"}, "selects 'valid_from', which is a column of zync's own"),
        (
            {"v": ArrayType(VariantType())},
            {"iceberg": True},
            "'v' is array<variant>, and Iceberg has no VARIANT",
        ),
        ({"a b": LongType()}, {}, "tables have no ' ' in the name of a column"),
        ({"a=b": LongType()}, {}, "tables have no '=' in the name of a column"),
        ({"m": MapType(LongType(), StringType())}, {}, "is map<bigint,string>: cast its keys to string"),
        ({"day": DateType()}, {"partition_by": ("dya",)}, "deliver.tables.order.partition_by: 'dya' is no column"),
        ({"b": BinaryType()}, {"partition_by": ("b",)}, "'b' is binary, by which Delta does not lay out a table"),
        ({"a": ArrayType(LongType())}, {"cluster_by": ("a",)}, "'a' is array, by which Delta does not lay out"),
        ({"a.b": LongType()}, {"partition_by": ("a.b",)}, "'a.b' has a dot in its name"),
        (
            {n: LongType() for n in "abcde"},
            {"cluster_by": tuple("abcde")},
            "Delta clusters by 4 columns at most, not 5",
        ),
    ],
)
def test_columns_that_no_table_can_have_are_refused(
    columns: dict[str, DataType], said: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        check_columns(target(columns, **said), "output order: rule order.sql")


def test_a_key_is_a_single_value() -> None:
    with pytest.raises(UsageError, match="by which no row is found: cast it"):
        check_columns(target({"tags": ArrayType(StringType())}, key=("tags",)), "output order")


def test_columns_that_a_table_can_have_are_taken() -> None:
    columns: dict[str, DataType] = {"day": DateType(), "valid_from": TimestampType(), "naïve": StringType()}
    check_columns(target(columns, partition_by=("DAY",), cluster_by=()), "output order")


D = DecimalType


@pytest.mark.parametrize(
    ("to", "was", "wider", "wider_key"),
    [
        (LongType(), IntegerType(), True, True),
        (IntegerType(), LongType(), False, False),
        (DoubleType(), IntegerType(), True, False),
        (DoubleType(), LongType(), False, False),
        (DoubleType(), FloatType(), False, False),
        (D(12, 2), D(10, 2), True, True),
        (D(12, 4), D(10, 2), True, False),
        (D(10, 4), D(10, 2), False, False),
        (D(10, 0), ShortType(), True, True),
        (D(4, 0), IntegerType(), False, False),
        (LongType(), D(5, 0), False, False),
        (StringType(), LongType(), True, False),
        (ArrayType(LongType()), ArrayType(IntegerType()), True, True),
        (MapType(StringType(), LongType()), MapType(StringType(), IntegerType()), True, True),
        (MapType(LongType(), LongType()), MapType(IntegerType(), LongType()), False, False),
        (StructType().add("a", LongType()).add("b", LongType()), StructType().add("a", IntegerType()), True, False),
        (StructType().add("b", LongType()), StructType().add("a", LongType()), False, False),
    ],
)
def test_a_type_is_wider_where_it_writes_every_value_alike(
    to: DataType, was: DataType, wider: bool, wider_key: bool  # noqa: FBT001
) -> None:  # fmt: skip
    assert is_wider(to, was, is_key=False) is wider
    assert is_wider(to, was, is_key=True) is wider_key


def test_a_table_gets_new_columns_and_wider_types_and_is_told_of_dropped_ones() -> None:
    there = StructType().add("id", "long").add("n", "integer").add("old", "string").add("_seqno", "long")
    wider, more, dropped = changes(target({"n": LongType(), "new": StringType()}), there)
    assert (wider, [one.name for one in more], dropped) == ({"n": LongType()}, ["new"], ["old"])


@pytest.mark.parametrize(
    ("columns", "said", "expected"),
    [
        ({"N": IntegerType()}, {}, "select 'N', and the table at /lake/tables/order has 'n': call it that"),
        ({"n": DateType()}, {}, "make 'n' a date, and the table at /lake/tables/order has it as int: cast it"),
        ({"n": LongType()}, {"schema_changes": "fail"}, "schema_changes is fail: cast it in the rule"),
        ({"n": IntegerType(), "m": LongType()}, {"schema_changes": "fail"}, "select 'm', which .* does not have"),
        ({}, {"schema_changes": "fail"}, "do not select 'n' any more"),
    ],
)
def test_a_table_that_cannot_become_what_rules_want_is_refused(
    columns: dict[str, DataType], said: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        changes(target(columns, **said), StructType().add("id", "long").add("n", "integer"))


def test_a_delivery_has_the_columns_that_syncs_made_and_rules_do_not_any_more() -> None:
    made = {"order": {"value": StructType().add("id", "long").add("old", "string").jsonValue()}}
    assert as_made(target({"new": StringType()}), {3: made}).columns.names == ["id", "new", "old"]
    with pytest.raises(
        UsageError, match="sync 3 made 'old' as string, and by the rules, as read here, it is 'old', bi"
    ):
        as_made(target({"old": LongType()}), {3: made})


def test_files_are_left_out_by_a_range_of_keys_that_is_somewhat_wider() -> None:
    (one,) = pruning.between(target({}), [("1000", "1090", 0)])
    assert one == "t.`id` BETWEEN CAST('992' AS bigint) AND CAST('1104' AS bigint)"
    (one,) = pruning.between(target({}), [(str(-(2**63)), str(2**63 - 1), 0)])
    assert one == f"t.`id` BETWEEN CAST('{-(2**63)}' AS bigint) AND CAST('{2**63 - 1}' AS bigint)"


def test_no_file_is_left_out_where_a_key_is_null_or_has_no_order() -> None:
    assert pruning.between(target({}), [("1", "2", 1)]) == []
    assert pruning.between(target({}), [(None, None, 0)]) == []
    assert pruning.ends(target({"f": DoubleType()}, key=("f",)), str) == []


def test_values_of_a_key_are_literals_in_sql() -> None:
    (one,) = pruning.between(target({"name": StringType()}, key=("name",)), [("o'clock", "z\\", 0)])
    assert one == r"t.`name` BETWEEN CAST('o\'clock' AS string) AND CAST('z\\' AS string)"


def test_a_field_may_be_called_variant_in_a_table_of_iceberg() -> None:
    column = StructType([StructField("variant_id", LongType())])
    check_columns(target({"s": column}, iceberg=True), "output order: rule order.sql")
