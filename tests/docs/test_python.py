"""The Python calls in pages run as written."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import zync
from tests.conftest import TopicMaker, produce
from tests.docs.pages import page
from zync.config.model import Topic, Transactions

PYTHON = page("docs/reference/python.md")
NAMED = {name for span in PYTHON.spans for name in re.findall(r"^zync\.(\w+)", span)}
LISTED = re.findall(r"(?m)^        - (\w+)$", PYTHON.text)


@pytest.mark.parametrize("name", sorted({*NAMED, *LISTED}))
def test_each_name_that_a_page_has_is_exported(name: str) -> None:
    assert hasattr(zync, name)


def test_each_name_that_is_exported_is_on_the_page() -> None:
    assert {*LISTED, "__version__"} == set(zync.__all__)


def test_the_example_runs_as_written(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: Any
) -> None:
    (block,) = (one for one in PYTHON.blocks if one.language == "python")
    monkeypatch.chdir(demo)
    exec(compile(block.text, PYTHON.name, "exec"), {})  # noqa: S102 - the page's own code
    assert capsys.readouterr().out == "1 {'order': 1}\n"


def test_records_from_kafka_are_synced_by_calls(demo: Path, broker: str, topic: TopicMaker, spark: Any) -> None:
    calls = {"sync_once": "config, raw, staging", "sync_from_kafka": "Ingest(…)"}
    assert dict(re.findall(r"`zync\.(\w+)\(([^`]*)\)`", PYTHON.text)) == calls

    order, menu = topic("order"), topic("menu")
    raw, staging = str(demo / "lake" / "raw"), str(demo / "lake" / "staging")
    config = replace(
        zync.load_config(demo / "zync.yaml"),
        topics={order: Topic("value:txn", as_="order"), menu: Topic("value:txn", as_="menu")},
        transactions=Transactions(done="count(*) = 2"),
    )
    produce(
        broker, [(order, 0, {"txn": 1, "customerID": 1, "qty": 2}), (menu, 0, {"txn": 1, "menuID": 2, "price": 1.5})]
    )
    ingest = zync.Ingest(raw, {"bootstrap.servers": broker}, (order, menu), until_caught_up=True)
    assert zync.sync_from_kafka(ingest).records == 2
    assert zync.sync_once(config, raw, staging).outputs == {"order": 1}
