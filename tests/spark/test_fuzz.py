"""Bytes that nobody thought of, as config, as lines to load, as records: refused or set aside, never worse.

`make fuzz` does the same for longer, from another beginning each time.
"""

import base64
import json
import os
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.registry import avro, packed
from tests.spark.conftest import Pipeline
from zync.config.model import Topic
from zync.errors import UsageError
from zync.operate.verify import verify
from zync.project.load import load as read_config
from zync.project.template import init
from zync.raw.jsonl import load

TIMES = int(os.environ.get("ZYNC_TEST_FUZZ_TIMES", "150"))
SEED = int(time.time()) if "ZYNC_TEST_FUZZ_TIMES" in os.environ else 11
_BITS = [
    b"",
    b"\x00",
    b"\xff",
    b"\xc3\x28",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\n",
]
_BITS += [
    b"null",
    b"NaN",
    b"-0",
    b"1e999",
    b"9" * 40,
    b"-9223372036854775809",
    b"[" * 600,
    b"a" * 3000,
    b"'",
    b"$",
    b"&a",
    b"*a",
]
_LINES = [
    b'{"topic": "t", "partition": 1, "offset": 7, "timestamp": 1772000000000, "key": "k", "value": {"txn": 1, "n": 2}}',
    b'{"kafka": {"topic": "t", "partition": 0}, "key": {"base64": "AAE="}, "headers": [{"key": "h", "value": "v"}]}',
    b'{"topic": "t", "value": [1.5, true, "\\u00e9", {"a": {"b": []}}], "seqno": 1}',
]


def mutated(chance: random.Random, data: bytes) -> bytes:
    """A few bytes taken out, put in, doubled or changed."""
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(data) + 1)
        to = min(len(data), at + chance.choice([0, 1, 1, 4, 40]))
        data = data[:at] + chance.choice([chance.choice(_BITS), data[at:to] * 2, chance.randbytes(2)]) + data[to:]
    return data


def assert_one_line(error: UsageError, place: str, *how: object) -> None:
    assert place in str(error), how
    assert "\n" not in str(error), how


def test_a_config_is_read_or_refused_by_its_place(tmp_path: Path) -> None:
    init(tmp_path)
    path, chance, seen = tmp_path / "zync.yaml", random.Random(SEED), Counter[str]()
    whole = path.read_bytes()
    for number in range(TIMES):
        path.write_bytes(given := mutated(chance, whole))
        try:
            read_config(path)
            seen["read"] += 1
        except UsageError as error:
            assert_one_line(error, str(path), SEED, number, given)
            seen["refused"] += 1
    assert min(seen["read"], seen["refused"]) > TIMES / 20


def test_a_line_is_loaded_or_refused_by_its_place(tmp_path: Path) -> None:
    chance, seen = random.Random(SEED), Counter[str]()
    for number in range(TIMES):
        path, raw = tmp_path / "in.jsonl", tmp_path / f"raw-{number}"
        path.write_bytes(given := mutated(chance, chance.choice(_LINES)))
        try:
            load(str(raw), [str(path)])
            seen["loaded"] += 1
        except UsageError as error:
            assert_one_line(error, f"{path}:", SEED, number, given)
            seen["refused"] += 1
    assert min(seen["loaded"], seen["refused"]) > TIMES / 60


def test_a_record_decodes_or_is_set_aside_by_itself(pipeline: Pipeline) -> None:
    """In every format that needs no registry; records that decode by accident have an id, or are set aside for that."""
    order = {"type": "record", "name": "Order", "fields": [{"name": name, "type": "int"} for name in ("txn", "n", "x")]}
    order["fields"].append({"name": "items", "type": {"type": "array", "items": ["null", "string"]}})  # type: ignore[attr-defined]
    file = pipeline.folder / "order.avsc"
    file.write_text(json.dumps(order))
    value = {"txn": 1, "n": 1, "x": 2, "items": ["a", None, "b"]}
    text = json.dumps(value).encode()
    beside = {"type": "struct", "fields": [{"field": name, "type": "int32"} for name in ("txn", "n", "x")]}
    connect = json.dumps({"schema": beside, "payload": value}).encode()
    samples = {"a": text, "b": avro(order, value), "c": packed(text.decode()), "d": text, "e": connect}
    pipeline.change(
        topics={
            "a": Topic("value:txn"),
            "b": Topic("value:txn", value="avro", avro_schema=file),
            "c": Topic("value:txn", compression="gzip"),
            "e": Topic("value:txn", value="connect-json"),
            "d": Topic("value:txn", schema="txn INT, n INT, x DECIMAL(9,2), items ARRAY<STRING>"),
        },
        limits=replace(pipeline.config.limits, max_quarantined=1.0),
    )
    chance, lines = random.Random(SEED), list[dict[str, Any]]()
    for _ in range(TIMES):
        for topic, sample in samples.items():
            data = sample if chance.random() < 0.2 else mutated(chance, sample)
            lines.append({"topic": topic, "value": {"base64": base64.b64encode(data).decode()}})
    path = pipeline.folder / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    load(pipeline.raw, [str(path)])
    outcome = pipeline.sync()
    assert outcome.records == len(lines) == 5 * TIMES, SEED
    assert len(pipeline.of("quarantined")) > TIMES, SEED
    assert pipeline.of("done"), SEED
    claims = verify(pipeline.raw, str(pipeline.staging), pipeline.config, every_version=False, kafka=False)
    assert not [one for one in claims if one.violations], SEED
