"""What Spark writes as an output row's JSON, a delivery to tables can read: else one row would stop it for good."""

from typing import Any

import pytest

from zync.deliver.tables.apply import FROM_JSON
from zync.rules.json_text import JSON_OPTIONS
from zync.sql import literal, options

LAST = "timestamp_micros(9223372036854775807)"
BEFORE_CHRIST = "timestamp_seconds(-65000000000)"
DEEP = "999 + CAST(id AS INT)"
"""As deep as parse_json reads. Of a row's own, so that a task makes it, as a sync does: the optimizer, which folds
constants, stands deep in its own recursion already, and has had too little stack left for it."""
VALUES = [
    (LAST, "TIMESTAMP"),
    (BEFORE_CHRIST, "TIMESTAMP"),
    (f"CAST({LAST} AS TIMESTAMP_NTZ)", "TIMESTAMP_NTZ"),
    (f"CAST({BEFORE_CHRIST} AS TIMESTAMP_NTZ)", "TIMESTAMP_NTZ"),
    ("date_from_unix_date(2147483647)", "DATE"),
    ("date_from_unix_date(-2147483648)", "DATE"),
    ("double('NaN')", "DOUBLE"),
    ("float('-Infinity')", "FLOAT"),
    ("CAST('1E-38' AS DECIMAL(38, 38))", "DECIMAL(38, 38)"),
    ("X'00ff'", "BINARY"),
    ("INTERVAL '1-2' YEAR TO MONTH", "INTERVAL YEAR TO MONTH"),
    ("repeat('x', 21000000)", "STRING"),
    (f"struct(array(parse_json(repeat('[', {DEEP}) || repeat(']', {DEEP}))) AS a)", "STRUCT<a: ARRAY<VARIANT>>"),
    (f"CAST({LAST} AS VARIANT)", "VARIANT"),
]


def test_threads_have_the_stack_that_json_of_any_depth_takes(spark: Any) -> None:
    """Whether a value 999 deep fits into Java's own megabyte differs from run to run, by how its code is compiled."""
    java = spark._jvm.java.lang  # noqa: SLF001 - the JVM's own options
    diagnostics = java.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    option = java.management.ManagementFactory.getPlatformMXBean(diagnostics).getVMOption("ThreadStackSize")
    assert int(option.getValue()) == 4096  # KiB


@pytest.mark.parametrize(("value", "kind"), VALUES)
def test_what_is_written_can_be_read(spark: Any, value: str, kind: str) -> None:
    written = f"to_json(struct({value} AS x), {options(JSON_OPTIONS)})"
    read = f"from_json({written}, {literal(f'x {kind}')}, {options(FROM_JSON)})"
    (row,) = spark.range(1).selectExpr(f"{written} = to_json({read}, {options(JSON_OPTIONS)}) AS same").collect()
    assert row["same"]
