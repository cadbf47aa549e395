"""Loads JSON Lines into raw: numbered and committed like records from Kafka, with a single commit for each call."""

import base64
import gzip
import json
import re
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import pyarrow as pa
from deltalake import DeltaTable

from zync.errors import UsageError
from zync.kafka.partition import Partition
from zync.lake.types import YEAR_10000
from zync.raw.append import Appended, Appender
from zync.raw.batch import MOST_BYTES, RECORD_SCHEMA, Batch, Slice
from zync.raw.table import ensure_raw, next_seqno, stored_last, stored_position
from zync.text import byte_size, strict_json

_FIELDS = {"topic", "partition", "offset", "timestamp", "key", "value", "headers", "seqno", "kafka"}
_IGNORED_FIELDS = {"ingested"}
"""Fields that `zync cat raw` prints and `load` ignores: the load sets its own time of ingestion."""
_KAFKA_FIELDS = {"topic", "partition", "offset", "timestamp"}
_WHOLE = re.compile(r"-?\d{1,18}")
_NUMBERS = {
    "partition": range(2**31),
    "offset": range(10**18),
    "timestamp": range(YEAR_10000),
    "seqno": range(1, 10**18),
}


@dataclass(frozen=True)
class Line:
    """A checked record to load.

    Attributes:
        where: Its file:line.
        offset: Its offset; None for the partition's next.
        timestamp: Its timestamp in milliseconds since 1970; None for the present time.
        seqno: Its seqno; None for raw's next.
    """

    where: str
    partition: Partition
    offset: int | None = None
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    seqno: int | None = None


def load(location: str, files: Iterable[str]) -> Appended:
    """Appends the records of JSON Lines files to a raw.

    Args:
        location: The path or URI of raw, which is created if it does not exist.
        files: The paths of the files, `-` for standard input; `.gz` files are decompressed.

    Raises:
        UsageError: A line is not a record, its offset is below the partition's next, or its seqno is not raw's next.
            The message names file:line, and nothing was written.

    Example:
        >>> zync.load_jsonl("lake/raw", ["consume-1.jsonl"]).rows
        3
    """
    lines = read(files)
    ensure_raw(location)
    return Appender(location).append_planned(lambda table: as_batch(lines, table))


def read(files: Iterable[str]) -> list[Line]:
    """Reads the records of JSON Lines files.

    Args:
        files: As for `load`.

    Raises:
        UsageError: A line is not a record, or the records do not fit into a single batch. The message names file:line.
    """
    return list(_checked_size(line for name in files for line in _read(name)))


def _checked_size(lines: Iterable[Line]) -> Iterator[Line]:
    """Yields the lines, and checks that their keys and values fit into a single batch.

    Raises:
        UsageError: They do not; the message names the file:line of the first line too many.
    """
    keys = values = 0
    for line in lines:
        keys, values = keys + len(line.key or b""), values + len(line.value or b"")
        if max(keys, values) > MOST_BYTES:
            msg = (
                f"{line.where}: up to here there are more than {byte_size(MOST_BYTES)} of keys or values, which no "
                "commit can hold: load the files in several calls, and split a larger one. Nothing was loaded"
            )
            raise UsageError(msg)
        yield line


def as_batch(lines: list[Line], table: DeltaTable) -> Batch:
    """Converts lines to a batch that begins at the positions of `table`.

    Raises:
        UsageError: A line's offset is below its partition's next, or its seqno is not raw's next.
    """
    batch, seqno = Batch(), next_seqno(table)
    offsets, now = [], time.time_ns() // 1000
    for line in lines:
        if line.seqno is not None and line.seqno != seqno:
            msg = f"{line.where}: seqno {line.seqno} is not raw's next, {seqno}: nothing was loaded"
            raise UsageError(msg)
        if line.partition not in batch.slices:
            stored = stored_position(table, line.partition)
            batch.slices[line.partition] = Slice(
                stored, stored or 0, begin_last=stored_last(table, line.partition, stored)
            )
        part = batch.slices[line.partition]
        offset = part.next if line.offset is None else line.offset
        if offset < part.next:
            msg = (
                f"{line.where}: offset {offset} of {line.partition} is below its next, {part.next}: nothing was loaded"
            )
            raise UsageError(msg)
        offsets.append(offset)
        part.next = offset + 1
        seqno += 1
    if lines:
        batch.add(_rows(lines, offsets, now))
    return batch


def _rows(lines: list[Line], offsets: list[int], now: int) -> pa.RecordBatch:
    kafka = [
        {
            **line.partition._asdict(),
            "offset": offset,
            "timestamp": now if line.timestamp is None else line.timestamp * 1000,
        }
        for line, offset in zip(lines, offsets, strict=True)
    ]
    headers = [[{"key": name, "value": value} for name, value in line.headers] for line in lines]
    columns = [kafka, [line.key for line in lines], [line.value for line in lines], headers]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)],
        schema=RECORD_SCHEMA,
    )


def _read(name: str) -> Iterator[Line]:
    """Yields the records of a file.

    Raises:
        UsageError: The file cannot be read, or a line is no record; the message names file:line.
    """
    try:
        with _open(name) as source:
            for number, text in enumerate(source, start=1):
                if text.strip():
                    yield _line(text, f"{'standard input' if name == '-' else name}:{number}")
    except (OSError, EOFError, zlib.error) as error:
        msg = f"{name} cannot be read: {error}"
        raise UsageError(msg) from error


def _open(name: str) -> AbstractContextManager[IO[bytes]]:
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    if name.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(name, "rb"))
    return Path(name).open("rb")


def _line(text: bytes, where: str) -> Line:
    def fail(message: str) -> NoReturn:
        msg = f"{where}: {message}: nothing was loaded"
        raise UsageError(msg) from None

    try:
        fields = strict_json(text, _Number)
    except ValueError as error:
        fail(f"not JSON ({error})")
    if not isinstance(fields, dict):
        fail("a line must be a JSON object with at least a topic")
    kafka = fields.get("kafka", {})
    if not isinstance(kafka, dict):
        fail("kafka must be an object")
    unknown_fields = fields.keys() - _FIELDS - _IGNORED_FIELDS
    unknown = sorted({*unknown_fields, *(f"kafka.{key}" for key in kafka.keys() - _KAFKA_FIELDS)})
    if unknown:
        fail(f"unknown field {unknown[0]!r} (known are {', '.join(sorted(_FIELDS))})")
    if conflicts := sorted(name for name in kafka.keys() & fields.keys() if kafka[name] != fields[name]):
        fail(f"{conflicts[0]} is one in kafka and another beside it")
    fields = {**kafka, **fields}
    topic = fields.get("topic")
    if not isinstance(topic, str) or not topic or "/" in topic:
        fail("a record needs a topic, a string without /")
    numbers: dict[str, int | None] = {}
    for name, allowed in _NUMBERS.items():
        value = fields.get(name)
        number = int(value.text) if isinstance(value, _Number) and _WHOLE.fullmatch(value.text) else None
        if value is not None and (number is None or number not in allowed):
            fail(f"{name} must be a whole number from {allowed[0]:,} to {allowed[-1]:,}")
        numbers[name] = number
    headers = fields.get("headers")
    if headers is not None and not (isinstance(headers, list) and all(map(_is_header, headers))):
        fail("headers must be a list of [name, value]")
    try:
        topic.encode()
        return Line(
            where,
            Partition(topic, numbers["partition"] or 0),
            numbers["offset"],
            numbers["timestamp"],
            _bytes(fields.get("key")),
            _bytes(fields.get("value")),
            tuple((name, _bytes(value)) for name, value in headers or ()),
            numbers["seqno"],
        )
    except RecursionError:
        fail("nested too deeply")
    except ValueError as error:  # invalid base64, or a lone surrogate
        fail(str(error))


def _is_header(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)  # noqa: PLR2004 - name and value


@dataclass(slots=True)
class _Number:
    """A JSON number with its text in the file: 1.50 stays 1.50."""

    text: str


def _bytes(value: Any) -> bytes | None:
    """Returns a key's or value's bytes: a string's text, the decoded {"base64": …}, or other JSON as compact text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        return base64.b64decode(value["base64"], validate=True)
    return _compact(value).encode()


def _compact(value: Any) -> str:
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_compact(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
