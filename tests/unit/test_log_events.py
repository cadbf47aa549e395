"""The page of log lines has each event that the code logs, with its fields, and no other."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from zync.deliver.kafka.delivery import Delivered
from zync.sync.outcome import Outcome
from zync.sync.progress import Progress

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "logs.md"


def logged() -> Iterator[tuple[str, set[str]]]:
    """Each event that the code names, with the fields that are named beside it."""
    for path in sorted((ROOT / "zync").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                named = {word.arg: word.value for word in node.keywords if word.arg}
                function = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if function == "event" and node.args and isinstance(node.args[0], ast.Constant):
                    yield str(node.args[0].value), set(named)
                elif function == "log_partitions":
                    yield str(ast.literal_eval(node.args[1])), {"partitions"}
                elif function == "progress" and isinstance(named.get("event"), ast.Constant):
                    yield str(ast.literal_eval(named["event"])), set(named) - {"event"}
            elif isinstance(node, ast.Dict):
                keys = {
                    key.value: value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
                if isinstance(keys.get("event"), ast.Constant):
                    yield str(ast.literal_eval(keys["event"])), {str(key) for key in keys} - {"event"}


@pytest.fixture(scope="module")
def described() -> dict[str, set[str]]:
    """The fields of each event, by the page."""
    rows = re.findall(r"^\| `(\w+)` \| (?:info|warning|error)[^|]*\|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    return {event: set(re.findall(r"`(\w+)`", text)) for event, text in rows}


def test_each_event_that_is_logged_is_on_the_page_with_its_fields(described: dict[str, set[str]]) -> None:
    events = list(logged())
    missing = {(event, field) for event, named in events for field in named - described.get(event, set())}
    assert not missing
    assert {event for event, _ in events} == set(described)


@pytest.mark.parametrize(("event", "kind"), [("sync", Outcome), ("progress", Progress), ("delivered", Delivered)])
def test_a_result_that_is_logged_has_all_its_fields_on_the_page(
    described: dict[str, set[str]], event: str, kind: type
) -> None:
    assert {field.name for field in fields(kind)} <= described[event]
