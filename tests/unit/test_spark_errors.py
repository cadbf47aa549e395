"""What Spark says of an error is one line for people: no Java, no plan, no stack."""

import pytest

from zync.spark.errors import message_of


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("it failed", "it failed"),
        ("it failed  \n  in two lines", "it failed in two lines"),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", "[DIVIDE_BY_ZERO] Division by zero."),
        ("it failed\n== SQL ==\nSELECT 1", "it failed"),
        ("it failed\n\tat org.apache.spark.Thing.go(Thing.scala:1)", "it failed"),
        ("it failed\n\nJVM stacktrace:\norg.apache.spark.SparkException", "it failed"),
        ("it failed;\n'Project ['a]", "it failed"),
        ("An error occurred while calling o12.collect.\n: it failed", "it failed"),
        ("", "ValueError"),
    ],
)
def test_a_message_is_what_it_says_before_java_does(said: str, expected: str) -> None:
    assert message_of(ValueError(said)) == expected


def test_a_message_is_not_as_long_as_the_record_that_it_quotes() -> None:
    assert len(message_of(ValueError("Malformed records are detected: " + "x" * 1_000_000))) == 2_001


def test_an_exception_in_a_python_worker_is_the_one_that_the_rule_raised() -> None:
    said = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n  File \"rule.py\", line 3, in price\nKeyError: 'price'\n"
    )
    assert message_of(ValueError(f"Python worker failed\n{said}")) == "KeyError: 'price'"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("COLUMN_IS_NOT_VARIANT_TYPE", "takes a value out of a VARIANT, and the column is of another type; out of"),
        ("SOME_OTHER_CONDITION", "some other condition"),
    ],
)
def test_an_error_that_spark_knows_only_by_name_is_told_in_words(condition: str, expected: str) -> None:
    said = f"An error occurred while calling o1.sql.\n: [INTERNAL_ERROR] Cannot find main error class '{condition}'"
    found = message_of(ValueError(f"{said} SQLSTATE: XX000\n\tat org.apache.spark.ErrorClassesJsonReader"))
    assert found.startswith(f"[{condition}] ")
    assert expected in found
    assert "main error class" not in found
