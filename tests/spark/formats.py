"""Records in formats beside JSON, for tests: their schemas, and how they come into raw."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.registry import RunningRegistry
from tests.spark.conftest import Pipeline
from zync.config.model import RegistryAccess, Topic, Transactions
from zync.raw.jsonl import load

Sent = bytes | str | None
Records = list[Sent | tuple[Sent, Sent]]
"""Values, or keys with values."""
Seen = dict[str, list[Any]]
"""Of each case's records, in order, what a rule made of it, or why it was set aside."""


def put(pipeline: Pipeline, *records: tuple[str, Sent, Sent]) -> None:
    """Records (topic, key, value) into raw."""

    def field(data: Sent) -> Any:
        return {"base64": base64.b64encode(data).decode()} if isinstance(data, bytes) else data

    lines = [{"topic": topic, "key": field(key), "value": field(value)} for topic, key, value in records]
    path = pipeline.folder / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    load(pipeline.raw, [str(path)])


def reasons(pipeline: Pipeline) -> list[str]:
    return [row["reason"] for row in sorted(pipeline.of("quarantined"), key=lambda row: row["seqno"])]


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields.items()]}


JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}}


def connect(kind: str, optional: bool = True, **more: Any) -> dict[str, Any]:
    """A schema as Kafka Connect writes it."""
    return {"type": kind, "optional": optional, **more}


def logical(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return connect(kind, name=f"org.apache.kafka.connect.data.{name}", version=1, parameters=parameters)


def of_connect(schema: Any, payload: Any) -> str:
    return json.dumps({"schema": schema, "payload": payload})


def compact(schema: Any, payload: Any) -> str:
    """As Connect itself has it."""
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":"))


def struct(**fields: dict[str, Any]) -> dict[str, Any]:
    return connect("struct", fields=[{"field": one, **schema} for one, schema in fields.items()])


@dataclass(frozen=True)
class Case:
    """Records that have a topic to themselves, each a transaction, and what a rule selects of each."""

    records: Callable[[Any], Records]
    columns: str
    topic: dict[str, Any]


class Cases:
    """Cases that go through one sync together, for most of the time that a small sync takes is its planning."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}

    def case(self, columns: str, **topic: Any) -> Callable[[Callable[[Any], Records]], None]:
        """Adds the records that a function of the registry returns, under its name; `topic`: how they are read."""

        def add(records: Callable[[Any], Records]) -> None:
            self._cases[records.__name__] = Case(records, columns, topic)

        return add

    def sync(self, pipeline: Pipeline, registry: RunningRegistry | None = None) -> Seen:
        """Syncs all of them, and returns what was seen of each, by its name."""
        topics = {
            name: Topic("CAST(NULL AS STRING)", null_id="single", **case.topic) for name, case in self._cases.items()
        }
        pipeline.change(topics=topics, transactions=Transactions("count(*) = 1"))
        if registry:
            pipeline.change(registry=RegistryAccess(registry.url))
        pipeline.rules(**{name: f"SELECT seqno, {case.columns} FROM {name}" for name, case in self._cases.items()})  # noqa: S608
        sent = [
            (name, *(record if isinstance(record, tuple) else (None, record)))
            for name, case in self._cases.items()
            for record in case.records(registry)
        ]
        put(pipeline, *sent)
        pipeline.sync()
        outcomes = {name: pipeline.outcomes(name) for name in self._cases}
        seen: Seen = {name: [] for name in self._cases}
        for seqno, (name, *_) in enumerate(sent, 1):
            seen[name].append(outcomes[name][seqno])
        return seen
