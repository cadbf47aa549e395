"""`zync load`: JSON Lines become records of raw as Kafka's do; one commit a call, or nothing."""

import base64
import gzip
import io
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import zync
from tests.kafka.conftest import Lake
from zync.errors import UsageError
from zync.kafka.partition import Partition
from zync.lake.table import existing_table
from zync.raw.append import Appended
from zync.raw.jsonl import load

DATA = Path(__file__).parent.parent / "data"
DEEP = 900 if sys.version_info < (3, 12) else 5000
"""Levels of JSON that Python parses, and then cannot write: later ones take fewer calls for a level."""


def load_text(lake: Lake, text: str | bytes, name: str = "in.jsonl") -> Appended:
    path = lake.folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(lake.raw, [str(path)])


def stored(lake: Lake, line: dict[str, Any] | str) -> dict[str, Any]:
    """The row that one line becomes."""
    load_text(lake, line if isinstance(line, str) else json.dumps(line))
    return lake.rows()[-1]


def test_one_call_is_one_commit_of_all_its_files_in_order(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "")
    (tmp_path / "one.jsonl").write_text('{"topic":"a","value":"1"}\n\n{"topic":"b","value":"2"}')
    (tmp_path / "two.jsonl.gz").write_bytes(gzip.compress(b'{"topic":"a","value":"3"}\n', mtime=0))
    done = zync("load", "raw", "one.jsonl", "-", "two.jsonl.gz", cwd=tmp_path, input='{"topic":"a","value":"-"}')
    assert done.stdout == "loaded 4 records, seqno 1 to 4\n"
    assert lake.values() == [b"1", b"2", b"-", b"3"]
    assert lake.table().version() == 1
    assert lake.positions().next == {Partition("a", 0): 3, Partition("b", 0): 1}
    again = zync("load", "raw", "one.jsonl", "--json", cwd=tmp_path)
    assert json.loads(again.stdout) | {"bytes": 0} == {"records": 2, "bytes": 0, "first_seqno": 5}


def test_a_load_of_nothing_is_no_commit(plain: Lake) -> None:
    assert load_text(plain, "\n").rows == 0
    assert plain.table().version() == 0


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ('"text"', b"text"),
        ('""', b""),
        ("null", None),
        ('"{\\"a\\": 1}"', b'{"a": 1}'),
        ('{"b": 1.50, "a": [1e400, -0.0, 12345678901234567890, true, null]}', None),
        ('{"ü": "\\u00fc\\ud83d\\ude00\\n"}', '{"ü":"ü😀\\n"}'.encode()),
        ("[ ]", b"[]"),
        ("1.50", b"1.50"),
        ("false", b"false"),
        ('{"base64": "AP8="}', b"\x00\xff"),
        ('{"base64": ""}', b""),
        ('{"base64": "AP8=", "more": 1}', b'{"base64":"AP8=","more":1}'),
    ],
)
def test_a_value_is_text_bytes_or_compact_json_as_it_was_written(plain: Lake, given: str, held: bytes | None) -> None:
    if given.startswith('{"b"'):
        held = given.replace(" ", "").encode()
    row = stored(plain, f'{{"topic": "t", "key": {given}, "value": {given}, "headers": [["h", {given}], ["h", "2"]]}}')
    assert row["key"] == row["value"] == held
    assert row["headers"] == [{"key": "h", "value": held}, {"key": "h", "value": b"2"}]


def test_a_record_says_where_it_comes_from_itself_or_in_kafka(plain: Lake) -> None:
    place = {"topic": "a.b-c", "partition": 3, "offset": 7, "timestamp": 1_700_000_000_123}
    at = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    held = {**place, "timestamp": at}
    assert stored(plain, place)["kafka"] == held
    assert stored(plain, {"kafka": {**place, "offset": 9}, "seqno": 2})["kafka"] == held | {"offset": 9}
    assert stored(plain, {"topic": "a.b-c", "kafka": {"partition": 3}})["kafka"]["offset"] == 10
    least = stored(plain, {"topic": "t"})
    assert (least["key"], least["value"], least["headers"]) == (None, None, [])
    assert (least["kafka"]["partition"], least["kafka"]["offset"]) == (0, 0)
    assert abs(least["kafka"]["timestamp"] - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("no json", "not JSON"),
        ('{"topic": "t"', "not JSON"),
        ('{"topic": "t", "value": NaN}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"topic": "t", "value": ' + "[" * DEEP + "]" * DEEP + "}", "nested too deeply"),
        ('{"topic": "t", "value": {"a": {"x": 1, "x": 2}}}', 'the key "x" is there twice'),
        ('{"topic": "t", "topic": "u"}', 'the key "topic" is there twice'),
        ('{"topic": "t", "kafka": {"topic": "u"}}', "topic is one in kafka and another beside it"),
        ('{"topic": "t", "offset": 1, "kafka": {"offset": 2}}', "offset is one in kafka and another beside it"),
        ("[1]", "must be a JSON object"),
        ('{"topic": "t", "vlaue": 1}', "unknown field 'vlaue'"),
        ('{"topic": "t", "kafka": {"key": 1}}', "unknown field 'kafka.key'"),
        ('{"topic": "t", "kafka": 5}', "kafka must be"),
        ('{"value": 1}', "needs a topic"),
        ('{"topic": 5}', "needs a topic"),
        ('{"topic": "a/0/id"}', "needs a topic"),
        ('{"topic": "\\ud800"}', "surrogates"),
        ('{"topic": "t", "partition": "0"}', "partition must be a whole number"),
        ('{"topic": "t", "partition": 2147483648}', "partition must be a whole number"),
        ('{"topic": "t", "offset": -1}', "offset must be a whole number"),
        ('{"topic": "t", "offset": 1.0}', "offset must be a whole number"),
        ('{"topic": "t", "offset": true}', "offset must be a whole number"),
        ('{"topic": "t", "timestamp": "now"}', "timestamp must be a whole number"),
        ('{"topic": "t", "timestamp": 999999999999999999}', "timestamp must be a whole number"),
        ('{"topic": "t", "seqno": 0}', "seqno must be a whole number"),
        ('{"topic": "t", "seqno": 3}', "seqno 3 is not raw's next, 2"),
        ('{"topic": "t", "headers": {"ab": 1}}', "headers must be"),
        ('{"topic": "t", "headers": ["ab"]}', "headers must be"),
        ('{"topic": "t", "headers": [[1, "b"]]}', "headers must be"),
        ('{"topic": "t", "headers": false}', "headers must be"),
        ('{"topic": "t", "value": {"base64": "?"}}', "base64"),
        ('{"topic": "t", "value": {"base64": "ü"}}', "ASCII"),
        ('{"topic": "t", "value": "\\ud800"}', "surrogates"),
        (b'{"topic": "t", "value": "\xff"}', "not JSON"),
    ],
)
def test_what_is_no_record_is_refused_by_file_and_line_and_nothing_is_written(
    tmp_path: Path, line: str | bytes, says: str
) -> None:
    lake = Lake(tmp_path, "")
    text = line.encode() if isinstance(line, str) else line
    with pytest.raises(UsageError) as refused:
        load_text(lake, b'{"topic": "good"}\n' + text + b"\n")
    assert says in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path}/in.jsonl:2: ")
    assert lake.table().version() == 0


def test_an_offset_below_the_next_is_refused_by_file_and_line_and_nothing_is_written(plain: Lake) -> None:
    load_text(plain, '{"topic": "t", "offset": 5}')
    (plain.folder / "late.jsonl").write_text('{"topic": "t"}\n{"topic": "t", "offset": 6}\n')
    done = zync("load", "raw", "late.jsonl", cwd=plain.folder, check=False)
    assert done.returncode == 2
    assert "late.jsonl:2: offset 6 of t/0 is below its next, 7" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert plain.offsets("t") == [5]


@pytest.mark.parametrize(
    "content", [None, b"no gzip", gzip.compress(b'{"topic":"t"}' * 99, mtime=0)[:-20], b"\x1f\x8b\x08\x00" * 9]
)
def test_a_file_that_cannot_be_read_is_refused_by_name(plain: Lake, content: bytes | None) -> None:
    path = plain.folder / "bad.jsonl.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"bad\.jsonl\.gz cannot be read"):
        load(plain.raw, [str(path)])
    assert plain.table().version() == 0


def test_a_debezium_capture_loads_as_it_is(plain: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = DATA / "debezium-misc.jsonl.gz"
    lines = [json.loads(line) for line in gzip.decompress(capture.read_bytes()).splitlines()]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    assert load(plain.raw, [str(capture), "-"]).rows == len(lines)
    for line, row in zip(lines, plain.rows(), strict=True):
        assert [row["kafka"][name] for name in ("topic", "partition", "offset")] == [
            line["topic"],
            line["partition"],
            line["offset"],
        ]
        assert round(row["kafka"]["timestamp"].timestamp() * 1000) == line["timestamp"]
        assert [row[name] and row[name].decode() for name in ("key", "value")] == [line["key"], line["value"]]
        assert [[one["key"], one["value"].decode()] for one in row["headers"]] == line["headers"]


def test_what_cat_shows_of_one_raw_another_takes(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "")
    like_bytes = base64.b64encode(b'{"base64":"aGk="}').decode()
    load_text(
        lake,
        '{"topic":"t","key":"k","value":{"x":1.10},"headers":[["a",null]]}\n{"topic":"t","value":null}\n'
        f'{{"topic":"t","value":{{"base64":"{like_bytes}"}}}}',
    )
    shown = zync("cat", "raw", cwd=tmp_path).stdout
    zync("load", "raw", "-", "--lake", "other", cwd=tmp_path, input=shown)
    same = zync("cat", "raw", "--lake", "other", cwd=tmp_path).stdout
    first, second = ([json.loads(line) for line in text.splitlines()] for text in (shown, same))
    assert [{**one, "ingested": None} for one in first] == [{**one, "ingested": None} for one in second]
    assert all(one["ingested"] < other["ingested"] for one, other in zip(first, second, strict=True))
    values = existing_table(str(tmp_path / "other" / "raw"), "").to_pyarrow_table().sort_by("seqno")["value"]
    assert values.to_pylist() == [b'{"x":1.10}', None, b'{"base64":"aGk="}']
