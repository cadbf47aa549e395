"""What keys and values are to rules: exactly what was sent, or set aside."""

import json
from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync.config.model import Topic, Transactions
from zync.raw.jsonl import load

KEYS = {
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
CHANGED_KEYS = ['{"id":%s}' % ("1" * 39), '{"id":1e400}', '{"id":[1.%s]}' % ("1" * 40), '{"id":123456789012345678e1}']

_UNFIT = "value does not fit the schema"
_NO_DATE = f"{_UNFIT}: a time of day without a date is no timestamp"
BAD_TIMES = {
    '{"t":"12:00:00"}': _NO_DATE,
    '{"t":"T12:00"}': _NO_DATE,
    '{"l":["3:4:5.6"]}': _NO_DATE,
    '{"d":"5"}': _UNFIT,
    '{"d":"-5"}': _UNFIT,
    '{"d":"12:00:00"}': _UNFIT,
    '{"t":"20260101"}': _UNFIT,
    '{"d":"20260101"}': _UNFIT,
}
_NOON, _MIDNIGHT = "2026-01-01T12:00:00.000000Z", "2026-01-01T00:00:00.000000Z"
TIMES = {
    '{"t":"2026-01-01T12:00:00Z"}': _NOON,
    '{"t":"2026-01-01"}': _MIDNIGHT,
    '{"d":"2026-01-01"}': "2026-01-01",
    '{"t":1767225600}': _MIDNIGHT,
}

PLAIN = '{"b": 1.50, "a": 1.5e3, "c": 1e2}'
TYPED = (
    '{"f": 0.1234567890123, "t": "2026-01-02T03:04:05.123456789Z", "day": "2026-01-02T03:04:05Z", "X": 1, "y": 2,'
    ' "d": 0.12345678901234567890}'
)
SCHEMAS = {
    "keys": None,
    "times": "t TIMESTAMP, d DATE, l ARRAY<TIMESTAMP>",
    "plain": None,
    "typed": "f FLOAT, d DOUBLE, t TIMESTAMP, day DATE, x INT",
}
RECORDS: dict[str, list[dict[str, Any]]] = {
    "keys": [*({"key": key, "value": "{}"} for key in (*KEYS, *CHANGED_KEYS)), {"key": CHANGED_KEYS[0], "value": None}],
    "times": [{"value": value} for value in (*BAD_TIMES, *TIMES)],
    "plain": [{"value": PLAIN}],
    "typed": [{"value": TYPED}],
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> dict[str, list[Any]]:
    """Of each topic's records, in order, what a rule made of it, or why it was set aside: all of them in one sync."""
    pipeline = Pipeline(tmp_path_factory.mktemp("decoded"), spark)
    pipeline.change(
        topics={one: Topic("CAST(NULL AS STRING)", null_id="single", schema=its) for one, its in SCHEMAS.items()},
        transactions=Transactions("count(*) = 1"),
    )
    pipeline.rules(
        keys="SELECT seqno, key FROM keys",
        times="SELECT seqno, value.* FROM times",
        plain="SELECT seqno, to_json(value) AS x FROM plain",
        typed="SELECT seqno, value.* FROM typed",
    )
    lines = [{"topic": topic, **record} for topic, records in RECORDS.items() for record in records]
    path = pipeline.folder / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    load(pipeline.raw, [str(path)])
    pipeline.sync()
    outcomes = {topic: pipeline.outcomes(topic) for topic in RECORDS}
    found: dict[str, list[Any]] = {topic: [] for topic in RECORDS}
    for seqno, line in enumerate(lines, 1):
        found[line["topic"]].append(outcomes[line["topic"]][seqno])
    return found


def test_a_key_is_one_json_value_or_the_text_that_it_is(seen: dict[str, list[Any]]) -> None:
    kept, changed = seen["keys"][: len(KEYS)], seen["keys"][len(KEYS) :]
    assert {text: row["key"] for text, row in zip(KEYS, kept, strict=True)} == KEYS
    assert changed == ["key has a number that cannot be kept exactly"] * (len(CHANGED_KEYS) + 1)


def test_a_text_is_a_time_or_a_date_only_where_it_says_which_day(seen: dict[str, list[Any]]) -> None:
    bad, good = seen["times"][: len(BAD_TIMES)], seen["times"][len(BAD_TIMES) :]
    assert dict(zip(BAD_TIMES, bad, strict=True)) == BAD_TIMES
    assert {text: row["t"] or row["d"] for text, row in zip(TIMES, good, strict=True)} == TIMES


def test_what_a_value_is_to_a_rule_is_not_always_to_the_letter_what_was_sent(seen: dict[str, list[Any]]) -> None:
    """As docs/explanation/set-aside.md has it. Raw has each value byte for byte."""
    assert seen["plain"] == [{"x": '{"a":1500.0,"b":1.5,"c":100.0}'}]
    assert seen["typed"] == [
        {"f": 0.12345679, "d": 0.12345678901234568, "t": "2026-01-02T03:04:05.123456Z", "day": "2026-01-02", "x": None}
    ]
