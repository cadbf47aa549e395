"""Text for people and programs: compact JSON, counted nouns, sizes, names that are safe on a terminal."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from zync.text import Verbatim, amount, byte_size, listed, printable, to_json


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        ({"a": [1, 2.5, "x"], "b": {}}, '{"a":[1,2.5,"x"],"b":{}}'),
        ((1, 2), "[1,2]"),
        ("naïve €", '"naïve €"'),
        ({1: "number as key"}, '{"1":"number as key"}'),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), '"2026-01-31T12:00:00+00:00"'),
        (Path("/a"), '"/a"'),
        (True, "true"),
    ],
)
def test_json_is_compact_and_takes_any_value(value: object, expected: str) -> None:
    assert to_json(value) == expected
    json.loads(to_json(value))


def test_what_is_json_already_goes_out_as_it_is() -> None:
    assert to_json({"n": Verbatim("1.50"), "rows": [Verbatim('{"a":1}')]}) == '{"n":1.50,"rows":[{"a":1}]}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain €", "plain €"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u2028b\x85c", "a\\u2028b\\x85c"),
        ("tab\tbell\x07", "tab\\tbell\\x07"),
    ],
)
def test_a_terminal_is_told_nothing_by_ids_and_values(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_nouns_are_counted() -> None:
    assert [amount(n, "record") for n in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]
    assert amount(2, "topic of Kafka", "topics of Kafka") == "2 topics of Kafka"


def test_of_many_names_some_are_listed() -> None:
    assert listed([]) == ""
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert listed(["a", "b"], most=1) == "a and 1 more"


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"), (5 << 40, "5,120.0 GiB"),
    ],
)  # fmt: skip
def test_sizes_have_the_unit_that_suits_them(count: int, expected: str) -> None:
    assert byte_size(count) == expected
