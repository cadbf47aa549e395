"""What a collector of OpenTelemetry and a server of OpenLineage get of a pipeline's real runs."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import BRISK, TopicMaker, produce, zync
from tests.observe.receivers import Receiver, assert_valid, attributes, receiving
from zync.sync.syncer import STAGES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "traces.md"


@dataclass
class Observed:
    """A pipeline that has run once, from Kafka to Kafka and to a table, with traces and lineage."""

    folder: Path
    received: Receiver
    topic: str
    broker: str

    def spans(self, *names: str) -> list[Any]:
        return [span for span in self.received.spans if span.name in names]

    def runs(self, job: str) -> list[dict[str, Any]]:
        named = f"{job} {self.folder / 'lake' / 'staging'}"
        return [event for event in self.received.events if event["job"]["name"] == named]


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory, broker: str) -> Iterator[Observed]:
    folder, topic = tmp_path_factory.mktemp("observed"), TopicMaker(broker)("observed")
    (folder / "zync.yaml").write_text(
        f'lake: lake\nkafka: {{bootstrap.servers: "{broker}"}}\n{BRISK}'
        f'topics: {{{topic}: {{as: entry, id: "value:txn"}}}}\ntransactions: {{done: "count(*) = 2"}}\n'
        f"outputs: [{{topic: whole-{topic}, key: [id], sql: entry.sql}}]\ndeliver: {{kafka: {{}}, tables: {{}}}}\n"
    )
    (folder / "entry.sql").write_text(
        "SELECT seqno, value:txn::int AS id, count(*) AS entries FROM entry GROUP BY seqno, value:txn::int\n"
    )
    produce(broker, [(topic, 0, {"txn": txn}) for txn in range(3) for _ in range(2)])
    with receiving() as received:
        env = {**os.environ, **received.traces, **received.lineage, "OTEL_RESOURCE_ATTRIBUTES": "team=shop"}
        zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=folder, env=env)
        zync("sync", "raw", "staging", cwd=folder, env=env)
        zync("sync-to", "kafka", "staging", "--until-caught-up", cwd=folder, env=env)
        zync("sync-to", "tables", "staging", "--until-caught-up", cwd=folder, env=env)
        yield Observed(folder, received, topic, broker)


def version(table: Path) -> int:
    return DeltaTable(table).version()


def test_a_commit_to_raw_is_a_span(observed: Observed) -> None:
    (span,) = observed.spans("sync_from.commit")
    raw = observed.folder / "lake" / "raw"
    values = attributes(span)
    assert values.pop("zync.bytes") > 0
    assert values == {
        "zync.raw": str(raw),
        "zync.records": 6,
        "zync.first_seqno": 1,
        "zync.last_seqno": 6,
        "zync.version": version(raw),
        "zync.retries": 0,
        "zync.refused": 0,
    }


def test_a_sync_is_a_span_with_one_for_each_stage(observed: Observed) -> None:
    (sync,) = observed.spans("sync")
    values, staging = attributes(sync), observed.folder / "lake" / "staging"
    assert values == {
        "zync.raw": str(observed.folder / "lake" / "raw"),
        "zync.staging": str(staging),
        "zync.sync": 1,
        "zync.version": version(staging),
        "zync.cursor": 6,
        "zync.head": 6,
        "zync.behind": 0,
        "zync.records": 6,
        "zync.transactions": 3,
        "zync.rows": 3,
        "zync.topics": [f"whole-{observed.topic}"],
        "zync.in_flight": 0,
        "zync.set_aside": 0,
    }
    stages = [span for span in observed.received.spans if span.name.startswith("sync.")]
    assert [span.name for span in stages] == [f"sync.{stage.__name__}" for stage in STAGES]
    for stage in stages:
        assert (stage.parent_span_id, stage.trace_id) == (sync.span_id, sync.trace_id)
        assert sync.start_time_unix_nano <= stage.start_time_unix_nano
        assert stage.end_time_unix_nano <= sync.end_time_unix_nano
    assert not sync.parent_span_id


def test_deliveries_are_spans_with_counts_and_the_version_of_staging(observed: Observed) -> None:
    (kafka,), (tables,), (table,) = (observed.spans(f"sync_to.{name}") for name in ("kafka", "tables", "table"))
    staging, topics = observed.folder / "lake" / "staging", [f"whole-{observed.topic}"]
    values = attributes(kafka)
    assert values.pop("zync.delivery").startswith("zync-")
    assert values == {
        "zync.staging": str(staging),
        "zync.version": version(staging),
        "zync.sync": 1,
        "zync.seqno": 6,
        "zync.transactions": 3,
        "zync.rows": 3,
        "zync.topics": topics,
    }
    folder = observed.folder / "lake" / "tables"
    assert attributes(tables) == {
        "zync.staging": str(staging),
        "zync.version": version(staging),
        "zync.tables": str(folder),
        "zync.after": 0,
        "zync.sync": 1,
        "zync.rows": 3,
        "zync.topics": topics,
    }
    assert attributes(table) == {"zync.topic": topics[0], "zync.table": str(folder / topics[0]), "zync.rows": 3}
    assert table.parent_span_id == tables.span_id


def test_the_page_has_each_span_with_its_attributes(observed: Observed) -> None:
    rows = re.findall(r"(?m)^\| `(sync\S*)` \|(.*)\|$", PAGE.read_text())
    described = {name: {f"zync.{field}" for field in re.findall(r"`(\w+)`", text)} for name, text in rows}
    assert described == {span.name: set(attributes(span)) for span in observed.received.spans}


def test_the_resource_is_what_the_environment_says_and_zync_by_default(observed: Observed) -> None:
    for resource in observed.received.resources():
        assert (resource["service.name"], resource["team"]) == ("zync", "shop")


def test_each_event_fits_the_schemas_of_openlineage(observed: Observed) -> None:
    assert observed.received.events
    for event in observed.received.events:
        assert_valid(event)
        assert event["job"]["namespace"] == "zync"


@pytest.mark.parametrize("job", ["sync", "sync-to kafka", "sync-to tables"])
def test_a_run_begins_and_completes(observed: Observed, job: str) -> None:
    events = observed.runs(job)
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    assert events[0]["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def datasets(side: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(dataset["namespace"], dataset["name"]) for dataset in side]


def columns(dataset: dict[str, Any]) -> dict[str, str]:
    return {column["name"]: column["type"] for column in dataset["facets"]["schema"]["fields"]}


def test_lineage_goes_from_topics_to_topics_and_tables(observed: Observed) -> None:
    lake, kafka, target = str(observed.folder / "lake"), f"kafka://{observed.broker}", f"whole-{observed.topic}"
    sync, to_kafka, to_tables = (observed.runs(job)[-1] for job in ("sync", "sync-to kafka", "sync-to tables"))
    staging = ("file", f"{lake}/staging")
    assert datasets(sync["inputs"]) == [("file", f"{lake}/raw"), (kafka, observed.topic)]
    assert datasets(sync["outputs"]) == datasets(to_kafka["inputs"]) == datasets(to_tables["inputs"]) == [staging]
    assert datasets(to_kafka["outputs"]) == [(kafka, target)]
    assert datasets(to_tables["outputs"]) == [("file", f"{lake}/tables/{target}")]
    for event in (sync, to_kafka, to_tables):
        assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert columns(to_tables["outputs"][0]) == {"id": "int", "entries": "bigint"}
    assert columns(sync["outputs"][0])["seqno"] == "int64"
