"""JSON as the standard has it, not as Python's parser takes it."""

import pytest

from zync.text import Verbatim, strict_json


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": {"b": 1, "b": 2}}', 'the key "b" is there twice'),
        ("[NaN]", "NaN is no number in JSON"),
        ("-Infinity", "-Infinity is no number in JSON"),
        ("{} {}", "Extra data"),
        (b'"\xff"', "utf-8"),
        ("[" * 200_000, "it is nested too deep"),
    ],
)
def test_what_is_no_json_is_refused_with_the_cause(text: str | bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        strict_json(text)


def test_numbers_are_python_s_or_what_a_function_makes_of_their_text() -> None:
    assert strict_json(b'{"a": [1, 1.50, 1e3]}') == {"a": [1, 1.5, 1000.0]}
    assert strict_json('{"a": [1, 1.50, 1e3]}', Verbatim) == {"a": ["1", "1.50", "1e3"]}
