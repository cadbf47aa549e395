"""What is set aside is listed by kind: values are masked, and one of them is told as an example."""

from typing import Any

import pytest

from zync.operate.dlq import describe, kind_of, values_in

CAST = '[CAST_INVALID_INPUT] The value {} of the type "STRING" cannot be cast to "{}" because it is malformed.'
JSON = (
    "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record parsing: {}. "
    "Parse Mode: FAILFAST. To process malformed records as null result, try setting the option 'mode' as 'PERMISSIVE'."
)
VARIANT = (
    "[INVALID_VARIANT_CAST] The variant value `{}` cannot be cast into `{}`. Please use `try_variant_get` instead."
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The value 'three' cannot be cast", "The value 'o\\'neil' cannot be cast"),
        ('column "a" of 7', 'column "b\\"c" of 12'),
        (CAST.format("'three'", "INT"), CAST.format("'it\\'s 4'", "INT")),
        (JSON.format("{no json, 'x'"), JSON.format("17")),
        (VARIANT.format('"one"', "INT"), VARIANT.format("12.5", "INT")),
        ("bad order-17 of 2026-11-28 10:00:00", "bad order-5 of 2026-01-01 23:59:59.25"),
    ],
)
def test_errors_that_differ_in_their_values_are_of_one_kind(one: str, other: str) -> None:
    assert kind_of(one) == kind_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (CAST.format("'three'", "INT"), CAST.format("'three'", "BIGINT")),
        (CAST.format("'three'", "DECIMAL(10,2)"), CAST.format("'three'", "DECIMAL(38,0)")),
        (VARIANT.format('"one"', "INT"), VARIANT.format('"one"', "DATE")),
        ("[_LEGACY_ERROR_TEMP_2097] it failed", "[_LEGACY_ERROR_TEMP_2105] it failed"),
    ],
)
def test_errors_of_other_types_or_conditions_are_of_other_kinds(one: str, other: str) -> None:
    assert kind_of(one) != kind_of(other)


@pytest.mark.parametrize(
    ("error", "kind", "values"),
    [
        (CAST.format("'three'", "INT"), CAST.format("…", "INT"), ["'three'"]),
        (JSON.format("{no json"), JSON.format("…"), ["{no json"]),
        ("its transaction was settled already", "its transaction was settled already", []),
        ("KeyError: 'price'", "KeyError: …", ["'price'"]),
    ],
)
def test_what_is_masked_are_values(error: str, kind: str, values: list[str]) -> None:
    assert (kind_of(error), values_in(error)) == (kind, values)


def group(**other: Any) -> dict[str, Any]:
    error = CAST.format("'three'", "INT")
    example = {"id": "1", "error": error, "values": values_in(error)}
    return {
        "state": "quarantined",
        "count": 2,
        "decided": 0,
        "rule": "out.sql",
        "error": kind_of(error),
        "example": example,
        "ids": ["1", "3"],
        "places": ["a/0/0"],
        **other,
    }


def test_a_kind_is_a_line_with_one_value_that_is_said_to_be_an_example() -> None:
    line = describe(group())
    assert line == (
        '2 quarantined  rule out.sql: [CAST_INVALID_INPUT] The value … of the type "STRING" cannot be cast to "INT" '
        "because it is malformed.  (ids 1, 3; for example 'three' in 1, at a/0/0)"
    )


def test_a_kind_without_values_names_the_first_place() -> None:
    late = "its transaction was settled already"
    example = {"id": "7", "error": late, "values": []}
    line = describe(group(state="late", rule=None, error=late, example=example, ids=["7", "8"], count=9, decided=1))
    assert line == (
        "9 late  its transaction was settled already  (ids 7, 8, …; the first at a/0/0; decided about: 1, on which the "
        "next sync acts)"
    )
