"""Records in formats beside JSON, for tests: their schemas, and how they come into raw."""

import base64
import json
from typing import Any

from tests.spark.conftest import Pipeline
from zync.raw.jsonl import load


def put(pipeline: Pipeline, *records: tuple[str, bytes | str | None, bytes | str | None]) -> None:
    """Records (topic, key, value) into raw."""

    def field(data: bytes | str | None) -> Any:
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
