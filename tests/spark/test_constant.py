"""A number that differs from sync to sync is no reason for Spark to compile a statement anew."""

from typing import Any

import pytest

from zync.spark.frames import setting
from zync.spark.functions import constant, register
from zync.spark.jvm import jvm_class


def generated_code(spark: Any, number: str) -> list[str]:
    """Returns the Java code that Spark generates for a statement with that number."""
    rows = spark.range(10).where(f"id > {number}").selectExpr(f"id + {number} AS more", f"{number} AS itself")
    debug = getattr(jvm_class(spark, "org.apache.spark.sql.execution.debug.package$"), "MODULE$")
    parts = debug.codegenStringSeq(rows._jdf.queryExecution().executedPlan())  # noqa: SLF001
    return [parts.apply(index)._2() for index in range(parts.length())]  # noqa: SLF001


@pytest.fixture
def compiling(spark: Any) -> Any:
    register(spark)
    whole_stage = setting(spark, "spark.sql.codegen.wholeStage", "true")
    with whole_stage, setting(spark, "spark.sql.codegen.factoryMode", "FALLBACK"):
        yield spark


def test_the_code_is_the_same_for_another_number(compiling: Any) -> None:
    assert generated_code(compiling, constant(7)) == generated_code(compiling, constant(8)) != []
    assert generated_code(compiling, "7L") != generated_code(compiling, "8L")


@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, 1_795_968_917_534_394])
@pytest.mark.parametrize("whole_stage", ["true", "false"])
def test_it_is_that_number(spark: Any, value: int, whole_stage: str) -> None:
    register(spark)
    with setting(spark, "spark.sql.codegen.wholeStage", whole_stage):
        rows = spark.range(2).selectExpr(f"{constant(value)} AS value", f"timestamp_micros({constant(7)}) AS moment")
        assert rows.schema["value"].nullable is False
        assert [row.value for row in rows.collect()] == [value] * 2
        assert spark.range(2).where(f"id < {constant(value)}").count() == max(0, min(2, value))
