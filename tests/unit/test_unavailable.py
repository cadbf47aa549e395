"""The forms of Debezium's placeholder, and how the config names another."""

from pathlib import Path

import pytest

from zync.config.model import UNAVAILABLE_VALUE
from zync.debezium.unavailable import Placeholder, placeholder
from zync.errors import UsageError
from zync.project.load import load

PRESET = "transactions: {{preset: debezium, topic: shop.transaction{more}}}\n"


def config(folder: Path, text: str) -> Path:
    (folder / "zync.yaml").write_text(text)
    return folder / "zync.yaml"


def test_the_uuid_is_the_one_that_java_makes_of_the_text() -> None:
    assert Placeholder(UNAVAILABLE_VALUE).uuid == "b68a35a7-17ad-35b3-af2a-ae46edb4545a"


def test_each_form_leaves_a_trace_in_json() -> None:
    one = Placeholder("größer 'als'")
    for form in (*one.json, str(one.numbers), str([float(number) for number in one.numbers])):
        if not form.startswith(('["19', '["1970')):  # dates, which are numbers in what comes
            assert any(trace in form for trace in (*one.traces, *one.array_traces)), form


def test_other_formats_have_the_placeholder_as_bytes_and_numbers_as_varints() -> None:
    traces = Placeholder("__d").bytes_traces
    assert {b"__d", b"\xbe\x01\xbe\x01\xc8\x01", b"\x02_\x02_\x02d"} <= {*traces}


def test_another_placeholder_is_named_in_the_config(tmp_path: Path) -> None:
    said = load(config(tmp_path, PRESET.format(more=", unavailable_value: not sent")))
    assert placeholder(said).text == "not sent"
    usual = load(config(tmp_path, PRESET.format(more="")))
    assert placeholder(usual).text == UNAVAILABLE_VALUE
    assert said.digests["config"] != usual.digests["config"]
    assert said.digests["transactions"] == usual.digests["transactions"]


@pytest.mark.parametrize(
    "text",
    ['topics: {a: {id: "1"}}\ntransactions: {unavailable_value: x}\n', PRESET.format(more=", unavailable_value: ''")],
)
def test_what_names_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="unavailable_value"):
        load(config(tmp_path, text))
