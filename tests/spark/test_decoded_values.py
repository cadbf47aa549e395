"""What keys and values are to rules: exactly what was sent, or set aside."""

import json
from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import Topic, Transactions
from zync.raw.jsonl import load


@pytest.fixture
def single(pipeline: Pipeline) -> Pipeline:
    """A pipeline in which each record is a transaction by itself."""
    pipeline.change(
        topics={"a": Topic("CAST(NULL AS STRING)", null_id="single")}, transactions=Transactions("count(*) = 1")
    )
    return pipeline


def put(pipeline: Pipeline, *records: dict[str, Any]) -> None:
    path = pipeline.folder / "in.jsonl"
    path.write_text("".join(json.dumps({"topic": "a", **one}) + "\n" for one in records))
    load(pipeline.raw, [str(path)])


def reasons(pipeline: Pipeline) -> dict[int, str]:
    return {row["seqno"]: row["reason"] for row in pipeline.of("quarantined")}


def test_a_key_is_one_json_value_or_the_text_that_it_is(single: Pipeline) -> None:
    keys = {
        '{"id":1}': {"id": 1},
        '{"id":1.5e3,"s":"]} 1e999"}': {"id": 1500.0, "s": "]} 1e999"},
        '{"id":"1e400"}': {"id": "1e400"},
        "[1,[2]]": [1, [2]],
        "5": "5",
        "1" * 45: "1" * 45,
        **{
            text: text
            for text in (
                '{"id":1},{"id":2}',
                '{"id":1},"x":5',
                '{"id":1}],[{"id":2}',
                '{"id":1}}',
                '{"id":1} x',
                '{"id":1,"id":2}',
                "[1],[2]",
                "[1]]",
            )
        },
    }
    changed = ['{"id":%s}' % ("1" * 39), '{"id":1e400}', '{"id":[1.%s]}' % ("1" * 40), '{"id":123456789012345678e1}']
    single.rules(out="SELECT seqno, record_seqno AS _order, key FROM a")
    put(single, *({"key": key, "value": "{}"} for key in (*keys, *changed)), {"key": changed[0], "value": None})
    single.sync()
    assert [row["key"] for row in single.values()] == [*keys.values()]
    first = len(keys) + 1
    assert reasons(single) == dict.fromkeys(range(first, first + 5), "key has a number that cannot be kept exactly")


def test_a_text_is_a_time_or_a_date_only_where_it_says_which_day(single: Pipeline) -> None:
    single.change(
        topics={"a": Topic("CAST(NULL AS STRING)", null_id="single", schema="t TIMESTAMP, d DATE, l ARRAY<TIMESTAMP>")}
    )
    single.rules(out="SELECT seqno, value.* FROM a")
    no_date, unfit = (
        "value does not fit the schema: a time of day without a date is no timestamp",
        "value does not fit the schema",
    )
    bad = {'{"t":"12:00:00"}': no_date, '{"t":"T12:00"}': no_date, '{"l":["3:4:5.6"]}': no_date}
    bad |= {'{"d":"5"}': unfit, '{"d":"-5"}': unfit, '{"d":"12:00:00"}': unfit, '{"t":"20260101"}': unfit}
    bad |= {'{"d":"20260101"}': unfit}
    good = ['{"t":"2026-01-01T12:00:00Z"}', '{"t":"2026-01-01"}', '{"d":"2026-01-01"}', '{"t":1767225600}']
    put(single, *({"value": value} for value in (*bad, *good)))
    single.sync()
    assert reasons(single) == dict(enumerate(bad.values(), 1))
    noon, midnight = "2026-01-01T12:00:00.000000Z", "2026-01-01T00:00:00.000000Z"
    assert [row["t"] or row["d"] for row in single.values()] == [noon, midnight, "2026-01-01", midnight]


def test_what_a_value_is_to_a_rule_is_not_always_to_the_letter_what_was_sent(single: Pipeline) -> None:
    """As docs/explanation/set-aside.md has it. Raw has each value byte for byte."""
    schema = "f FLOAT, d DOUBLE, t TIMESTAMP, day DATE, x INT"
    single.change(topics={**single.config.topics, "b": Topic("CAST(NULL AS STRING)", null_id="single", schema=schema)})
    single.rules(plain="SELECT seqno, to_json(value) AS x FROM a", typed="SELECT seqno, value.* FROM b")
    put(single, {"value": '{"b": 1.50, "a": 1.5e3, "c": 1e2}'})
    typed = {"f": 0.1234567890123, "t": "2026-01-02T03:04:05.123456789Z", "day": "2026-01-02T03:04:05Z", "X": 1, "y": 2}
    text = json.dumps(typed)[:-1] + ', "d": 0.12345678901234567890}'
    put(single, {"topic": "b", "value": text})
    single.sync()
    assert reasons(single) == {}
    assert single.values("plain") == [{"x": '{"a":1500.0,"b":1.5,"c":100.0}'}]
    assert single.values("typed") == [
        {"f": 0.12345679, "d": 0.12345678901234568, "t": "2026-01-02T03:04:05.123456Z", "day": "2026-01-02", "x": None}
    ]
