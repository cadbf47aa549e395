"""Each result has a text for people and JSON for programs, and lines on standard error are the same with both."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from zync.cli.common import output
from zync.cli.console import ConsoleOutput
from zync.cli.output import Output
from zync.deliver.kafka.delivery import Delivered
from zync.ingest.outcome import Ingested
from zync.operate.decide import Undecided
from zync.operate.txn import Transaction
from zync.raw.append import Appended

Capture = pytest.CaptureFixture[str]


def both(capsys: Capture, method: str, *args: Any) -> tuple[list[str], list[Any]]:
    """The lines of text and the JSON objects that a method prints."""
    printed = []
    for as_json in (False, True):
        getattr(output(as_json=as_json), method)(*args)
        printed.append(capsys.readouterr().out.splitlines())
    text, lines = printed
    return text, [json.loads(line) for line in lines]


def test_every_result_has_both(capsys: Capture) -> None:
    for method in Output.__abstractmethods__:
        for as_json in (False, True):
            assert callable(getattr(output(as_json=as_json), method))
    output(as_json=True).clear()
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_at_a_terminal_is_told_what_takes_time_and_a_script_is_not() -> None:
    for stream, lines in ((Terminal(), ["starting Spark takes some seconds"]), (io.StringIO(), [])):
        ConsoleOutput(err=stream).spark_starts()
        assert stream.getvalue().splitlines() == lines


def test_what_was_loaded(capsys: Capture) -> None:
    text, values = both(capsys, "loaded", Appended(rows=3, num_bytes=120, first_seqno=5))
    assert text == ["loaded 3 records, seqno 5 to 7"]
    assert values == [{"records": 3, "bytes": 120, "first_seqno": 5}]


def test_rates_are_of_the_whole_time(capsys: Capture) -> None:
    text, [values] = both(capsys, "ingested", Ingested(records=8, num_bytes=2048, seconds=2, commits=1, lag=0))
    assert text == ["8 records, 2.0 KiB in 2.0 s (4 records/s), 1 commit, lag 0"]
    assert (values["bytes"], values["rate"], "num_bytes" in values) == (2048, 4, False)
    text, [values] = both(capsys, "delivered", Delivered(transactions=2, rows={"a": 3}, commits=1, seconds=2, seqno=7))
    assert text == ["delivered 2 transactions, rows: a 3; through seqno 7, in 1 Kafka transaction, 2.0 s (2 rows/s)"]
    assert values["rate"] == 2
    assert both(capsys, "delivered", Delivered())[1][0]["rate"] == 0


def test_nothing_delivered_yet(capsys: Capture) -> None:
    assert both(capsys, "delivered_snapshot", None) == (["nothing was delivered yet"], [{}])


def test_a_decision_names_what_it_left_alone(capsys: Capture) -> None:
    candidates = Undecided({"15": None}, in_flight_again=["16"], decided=["17"], head=9)
    text, values = both(capsys, "decided", "drop", candidates)
    assert text == [
        "drop: 1 transaction on record; the next sync acts on it; left alone, as they are in flight again: 16; "
        "left alone, as a decision about them is on record that no sync has met: 17"
    ]
    assert values == [{"decision": "drop", "transactions": ["15"], "in_flight_again": ["16"], "decided": ["17"]}]
    assert both(capsys, "decided", "drop", Undecided({}, [], [], 9)) == (
        ["none"],
        [{"decision": "drop", "transactions": []}],
    )


def test_an_id_cannot_write_to_the_terminal(capsys: Capture) -> None:
    transaction = Transaction("\x1b[31m", "late", 1, ((1, 1),), 1, datetime(2026, 1, 31, tzinfo=UTC), topics={"a": 1})
    text, values = both(capsys, "transactions", [transaction])
    assert "\x1b" not in text[0]
    assert text[0].endswith("since 2026-01-31 00:00:00  seqno 1  a 1")
    assert (values[0]["txn"], "so_far" in values[0], "id" in values[0]) == ("\x1b[31m", False, False)
    assert both(capsys, "transactions", []) == (["none"], [])


def test_progress_does_not_depend_on_json(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for log_format, expected in (("text", "committed 3 records (120 B) from seqno 5"), ("json", '"event":"commit"')):
        monkeypatch.setenv("ZYNC_LOG_FORMAT", log_format)
        for as_json in (False, True):
            output(as_json=as_json).committed(Appended(rows=3, num_bytes=120, first_seqno=5))
            printed = capsys.readouterr()
            assert (printed.out, expected in printed.err) == ("", True)
