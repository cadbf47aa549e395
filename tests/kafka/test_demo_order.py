"""The worked example through a real Kafka: what comes out does not depend on which topic was taken first."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TopicMaker, produce, rows
from tests.kafka.conftest import Lake
from zync.project.load import load as read_config
from zync.resources import data_folder
from zync.sync.syncer import Syncer


@pytest.fixture
def topics(topic: TopicMaker) -> Iterator[None]:
    """The topics `order` and `menu`, as the demo's config names them; no other test has topics of these names."""
    names = ["order", "menu"]
    for name in names:
        topic.create(name)
    yield
    for gone in topic.admin.delete_topics(names).values():
        gone.result(20)


def send(lake: Lake, file: str) -> None:
    """Produces the records of one of the demo's files, in its order."""
    lines = (data_folder("demo") / file).read_text().splitlines()
    records = [json.loads(line) for line in lines]
    produce(lake.broker, [(one["kafka"]["topic"], one["kafka"]["partition"], one["value"]) for one in records])


def taken(lake: Lake) -> list[tuple[str, int]]:
    return [(row["kafka"]["topic"], json.loads(row["value"])["txn"]) for row in lake.rows()]


def outputs(staging: Path) -> list[tuple[Any, ...]]:
    found = [row for row in rows(staging) if row["kind"] == "output"]
    return [(row["seqno"], row["kafka"], row["key"], row["value"]) for row in found]


FIRST = ("order", '{"customerID":1}', '{"customerID":1,"menuID":200,"qty":2,"total":3.98}')
SECOND = ("order", '{"customerID":2}', '{"customerID":2,"menuID":100,"qty":1,"total":5.99}')


def row(seqno: int, offset: int, of: tuple[str, str, str]) -> tuple[Any, ...]:
    topic, key, value = of
    return (seqno, {"topic": topic, "partition": 0, "offset": offset}, key, value)


@pytest.mark.usefixtures("topics")
def test_the_worked_example_comes_out_the_same_whichever_topic_is_taken_first(
    tmp_path: Path, broker: str, spark: Any
) -> None:
    lakes = {one: Lake(tmp_path / one, broker) for one in ("order", "menu")}
    config = read_config(data_folder("demo") / "zync.yaml")
    staging = {one: lake.folder / "lake" / "staging" for one, lake in lakes.items()}
    syncers = {one: Syncer(config, lake.raw, str(staging[one]), spark) for one, lake in lakes.items()}

    def take_and_sync(file: str) -> dict[str, tuple[int, int, int]]:
        """Both lakes take the file's records from Kafka, one topic after the other; (cursor, head, in flight) each."""
        send(lakes["order"], file)
        for topic_ in ("order", "menu"):
            lakes["order"].sync_from(topic_)
        for topic_ in ("menu", "order"):
            lakes["menu"].sync_from(topic_)
        done = {one: syncer.sync() for one, syncer in syncers.items()}
        return {one: (outcome.cursor, outcome.head, outcome.in_flight) for one, outcome in done.items()}

    # 10001 is in flight, from its `order` record on: that is record 2 of the one raw, and 3 of the other
    assert take_and_sync("consume-1.jsonl") == {"order": (1, 3, 1), "menu": (2, 3, 1)}
    assert taken(lakes["order"]) == [("order", 10000), ("order", 10001), ("menu", 10000)]
    assert taken(lakes["menu"]) == [("menu", 10000), ("order", 10000), ("order", 10001)]
    assert outputs(staging["order"]) == [row(3, 0, FIRST)]
    assert outputs(staging["menu"]) == [row(2, 0, FIRST)]

    assert take_and_sync("consume-2.jsonl") == {"order": (4, 4, 0), "menu": (4, 4, 0)}
    assert outputs(staging["order"]) == [row(3, 0, FIRST), row(4, 1, SECOND)]
    assert outputs(staging["menu"]) == [row(2, 0, FIRST), row(4, 1, SECOND)]
