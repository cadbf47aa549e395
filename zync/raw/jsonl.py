"""JSON Lines into raw: numbered and committed exactly like records from Kafka, one commit a call."""

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
from zync.kafka.partition import Source
from zync.lake.types import YEAR_10000
from zync.raw.append import Appended, Appender
from zync.raw.batch import MOST_BYTES, RECORD_SCHEMA, Batch, Slice
from zync.raw.table import ensure_raw, next_seqno, stored_last, stored_position
from zync.text import byte_size

_FIELDS = {"topic", "partition", "offset", "timestamp", "key", "value", "headers", "seqno", "kafka"}
_OF_RAW = {"ingested"}
"""What `zync cat raw` has beside them: when it was taken in there, which is another time here."""
_PLACE = {"topic", "partition", "offset", "timestamp"}
_WHOLE = re.compile(r"-?\d{1,18}")
_NUMBERS = {
    "partition": range(2**31),
    "offset": range(10**18),
    "timestamp": range(YEAR_10000),
    "seqno": range(1, 10**18),
}


@dataclass(frozen=True)
class Line:
    """A record to load, checked; `where` is its file:line. None: the next offset and seqno, the present time."""

    where: str
    source: Source
    offset: int | None = None
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    seqno: int | None = None


def load(location: str, files: Iterable[str]) -> Appended:
    """Appends the records of the JSON Lines `files` (`-`: standard input; `.gz` too) to the raw at `location`.

    Raises:
        UsageError: a line is not a record, its offset is below the partition's next, or its seqno is not
            the next one; the message names file:line, and nothing was written.
    """
    lines = list(_within_a_batch(line for name in files for line in _read(name)))
    ensure_raw(location)
    return Appender(location).append_planned(lambda table: as_batch(lines, table))


def _within_a_batch(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines; UsageError, naming file:line, at the first with which they are too many for one batch."""
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
    """The lines as a batch that begins where `table` stands; UsageError where one does not fit."""
    batch, seqno = Batch(), next_seqno(table)
    offsets, now = [], time.time_ns() // 1000
    for line in lines:
        if line.seqno is not None and line.seqno != seqno:
            msg = f"{line.where}: seqno {line.seqno} is not raw's next, {seqno}: nothing was loaded"
            raise UsageError(msg)
        if line.source not in batch.slices:
            stored = stored_position(table, line.source)
            batch.slices[line.source] = Slice(stored, stored or 0, begin_last=stored_last(table, line.source, stored))
        one = batch.slices[line.source]
        offset = one.next if line.offset is None else line.offset
        if offset < one.next:
            msg = f"{line.where}: offset {offset} of {line.source} is below its next, {one.next}: nothing was loaded"
            raise UsageError(msg)
        offsets.append(offset)
        one.next = offset + 1
        seqno += 1
    if lines:
        batch.add(_rows(lines, offsets, now))
    return batch


def _rows(lines: list[Line], offsets: list[int], now: int) -> pa.RecordBatch:
    kafka = [
        {
            "topic": line.source.topic,
            "partition": line.source.partition,
            "offset": offset,
            "timestamp": now if line.timestamp is None else line.timestamp * 1000,
        }
        for line, offset in zip(lines, offsets, strict=True)
    ]
    headers = [[{"key": name, "value": value} for name, value in line.headers] for line in lines]
    columns = [kafka, [line.key for line in lines], [line.value for line in lines], headers]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, one.type) for column, one in zip(columns, RECORD_SCHEMA, strict=True)], schema=RECORD_SCHEMA
    )


def _read(name: str) -> Iterator[Line]:
    """The records of one file; UsageError names file:line of the first line that is none."""
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
        fields = json.loads(
            text,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_no_constant,
            object_pairs_hook=_without_repeats,
        )
    except (ValueError, RecursionError) as error:
        fail(f"not JSON ({error})")
    if not isinstance(fields, dict):
        fail("a line must be a JSON object with at least a topic")
    place = fields.get("kafka", {})
    if not isinstance(place, dict):
        fail("kafka must be an object")
    unknown = sorted({*(fields.keys() - _FIELDS - _OF_RAW), *(f"kafka.{key}" for key in place.keys() - _PLACE)})
    if unknown:
        fail(f"unknown field {unknown[0]!r} (known are {', '.join(sorted(_FIELDS))})")
    if twice := sorted(name for name in place.keys() & fields.keys() if place[name] != fields[name]):
        fail(f"{twice[0]} is one in kafka and another beside it")
    fields = {**place, **fields}
    topic = fields.get("topic")
    if not isinstance(topic, str) or not topic or "/" in topic:
        fail("a record needs a topic, a string without /")
    numbers: dict[str, int | None] = {}
    for name, allowed in _NUMBERS.items():
        given = fields.get(name)
        number = int(given.text) if isinstance(given, _Number) and _WHOLE.fullmatch(given.text) else None
        if given is not None and (number is None or number not in allowed):
            fail(f"{name} must be a whole number from {allowed[0]:,} to {allowed[-1]:,}")
        numbers[name] = number
    headers = fields.get("headers")
    if headers is not None and not (isinstance(headers, list) and all(map(_is_header, headers))):
        fail("headers must be a list of [name, value]")
    try:
        topic.encode()
        return Line(
            where,
            Source(topic, numbers["partition"] or 0),
            numbers["offset"],
            numbers["timestamp"],
            _bytes(fields.get("key")),
            _bytes(fields.get("value")),
            tuple((name, _bytes(value)) for name, value in headers or ()),
            numbers["seqno"],
        )
    except RecursionError:
        fail("nested too deeply")
    except ValueError as error:  # no base64, or half a surrogate pair
        fail(str(error))


def _is_header(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)  # noqa: PLR2004 - name and value


def _no_constant(text: str) -> NoReturn:
    msg = f"{text} is none"
    raise ValueError(msg)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        msg = f"{next(name for name in names if names.count(name) > 1)!r} is there twice"
        raise ValueError(msg)
    return found


@dataclass(slots=True)
class _Number:
    """A JSON number as it was written: 1.50 stays 1.50."""

    text: str


def _bytes(value: Any) -> bytes | None:
    """A message's bytes: of a string its text, of {"base64": …} what that says, of other JSON its compact text."""
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
