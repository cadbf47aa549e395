"""The examples in the docstrings of what `zync` exports give what they say."""

import doctest
import inspect
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import zync
from tests.conftest import TopicMaker, produce
from zync.lake.storage import delta_options

IN_ORDER = (
    "load_config",
    "spark_session",
    "explain",
    "load_jsonl",
    "sync_once",
    "status",
    "list_transactions",
    "show_transaction",
    "cat",
    "query",
    "undecided",
    "decide",
    "Syncer",
    "verify",
    "maintain",
    "replay",
    "diff",
    "sync_to_tables",
    "query_tables",
    "sync_to_kafka",
)
"""A day of the demo's lake: each example begins with what those before it left."""
OF_KAFKA = ("load_config", "sync_from_kafka", "follow")
OF_A_STORE = ("use_storage",)


@pytest.fixture
def shop(demo: Path, broker: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's project with a broker and deliveries, in the working directory."""
    with (demo / "zync.yaml").open("a") as config:
        config.write(f"kafka: {{bootstrap.servers: '{broker}'}}\n")
        config.write("deliver: {tables: {}, kafka: {topics: {order: {as: order.whole}}}}\n")
    monkeypatch.chdir(demo)
    return demo


def run(names: tuple[str, ...]) -> None:
    """Runs the examples with each other's variables; an AssertionError has the report of all that fail."""
    report: list[str] = []
    variables: dict[str, Any] = {"zync": zync, "Path": Path, "threading": threading}
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for name in names:
        text = inspect.getdoc(getattr(zync, name)) or ""
        example = doctest.DocTestParser().get_doctest(text, variables, f"zync.{name}", None, None)
        assert example.examples, f"{name} has no example"
        runner.run(example, out=report.append, clear_globs=False)
        variables |= example.globs
    assert not report, "".join(report)


@pytest.mark.usefixtures("shop", "spark")
def test_the_examples_of_a_lake() -> None:
    run(IN_ORDER)


@pytest.mark.usefixtures("spark")
def test_the_examples_of_kafka(shop: Path, broker: str, topic: TopicMaker) -> None:
    lines = [
        json.loads(line) for part in ("1", "2") for line in (shop / f"consume-{part}.jsonl").read_text().splitlines()
    ]
    for name in ("order", "menu"):
        topic.create(name)
    produce(broker, [(line["kafka"]["topic"], 0, line["value"]) for line in lines])
    try:
        run(OF_KAFKA)
    finally:
        for name in ("order", "menu"):
            topic.delete(name)


def test_the_example_of_a_store() -> None:
    try:
        run(OF_A_STORE)
        assert (delta_options("s3://bucket/lake") or {})["aws_endpoint_url"] == "https://store.example"
    finally:
        zync.use_storage(zync.Storage())


def test_every_function_has_an_example() -> None:
    functions = {name for name in zync.__all__ if inspect.isfunction(getattr(zync, name))}
    assert functions <= {*IN_ORDER, *OF_KAFKA, *OF_A_STORE}
