"""What `zync check` warns of by the config's own names, and by what is in raw: nothing of it needs Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from zync.config.model import Config, Formats, Topic, Transactions
from zync.operate.config_warnings import warnings
from zync.raw.jsonl import load

LINES = {"shop.lines": Topic(id="value:txn", as_="lines"), "^pay": Topic(id="value:txn")}


def of_done(done: str) -> list[str]:
    return warnings(Config(lake="/nowhere", topics=LINES, transactions=Transactions(done=done)))


@pytest.mark.parametrize(
    "done",
    [
        "bool_or(topic = 'lines')",
        "bool_or('lines'==topic)",
        'count_if(topic <> "lines") > 1',
        "bool_or(topic in ('shop.lines', 'lines'))",
    ],
)
def test_a_views_name_where_done_wants_the_topics_is_warned_of(done: str) -> None:
    (warning,) = of_done(done)
    assert "'lines', which is the name of a view: the topic is 'shop.lines'" in warning


def test_a_name_that_no_topic_has_is_warned_of() -> None:
    (warning,) = of_done("bool_or(topic = 'line')")
    assert "'line', which is no topic of the config" in warning


@pytest.mark.parametrize(
    "done",
    [
        "bool_or(topic = 'shop.lines')",
        "bool_or(topic = 'payments')",
        "count(*) = max(value:n::int)",
        "bool_or(value:topic = 'lines' and value.topic in ('lines') and 'lines' = topic.x)",
    ],
)
def test_names_that_topics_have_are_not_warned_of(done: str) -> None:
    assert of_done(done) == []


def of_id(folder: Path, topic: Topic, values: list[Any], name: str = "t", **config: Any) -> list[str]:
    (folder / "records.jsonl").write_text("".join(json.dumps({"topic": "t", "value": one}) + "\n" for one in values))
    load(str(folder / "raw"), [str(folder / "records.jsonl")])
    return warnings(Config(lake=str(folder), topics={name: topic}, **config))


@pytest.mark.parametrize("name", ["t", "^t"])
def test_an_id_that_no_record_has_is_warned_of(tmp_path: Path, name: str) -> None:
    (warning,) = of_id(tmp_path, Topic(id="value:tx::string"), [{"txn": 1}, {"txn": 2, "n": 1}], name=name)
    assert warning == (
        f"topics.{name}.id: none of the newest 2 records in raw has value:tx (their fields are n, txn), so that each "
        "is set aside"
    )


def test_an_id_that_is_null_in_each_record_is_warned_of_where_each_is_by_itself(tmp_path: Path) -> None:
    (warning,) = of_id(tmp_path, Topic(id="value:a.b", null_id="single"), [{"a": {"b": None}}, {"a": 1}])
    assert "each is a transaction by itself" in warning


@pytest.mark.parametrize(
    ("topic", "values"),
    [
        (Topic(id="value:txn"), [{"n": 1}, {"txn": 5}]),
        (Topic(id="value:a.b[1]['c d']::int"), [{"a": {"b": [1, {"c d": 7}]}}]),
        (Topic(id="coalesce(value:tx, value:txn)"), [{"txn": 1}]),  # no mere path: only Spark can tell
        (Topic(id="value:tx", value="avro"), ["bytes"]),
        (Topic(id="value:tx"), ["no JSON", None]),
        (Topic(id="value:tx"), []),
    ],
)
def test_what_may_be_right_is_not_warned_of(tmp_path: Path, topic: Topic, values: list[Any]) -> None:
    assert of_id(tmp_path, topic, values) == []


def test_a_topic_in_another_format_is_not_looked_into(tmp_path: Path) -> None:
    assert of_id(tmp_path, Topic(id="value:tx"), [{"txn": 1}], formats=Formats(value="avro")) == []


def test_where_there_is_no_raw_and_no_kafka_nothing_is_said(tmp_path: Path) -> None:
    assert warnings(Config(lake=str(tmp_path), topics={"t": Topic(id="value:tx")})) == []
    away = {"bootstrap.servers": "localhost:1"}
    assert warnings(Config(lake=str(tmp_path), topics={"t": Topic(id="value:tx")}, kafka=away)) == []
