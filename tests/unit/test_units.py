"""Lengths of time, times and sizes are what the config and options write, and nothing that only looks like it."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from zync.config.units import duration, moment, size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        ("1.5 h", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        (" 1s ", timedelta(seconds=1)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "1 day", "1h30m", "1,5h", "1e3s", "nans", "infs"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a length of time: write it like 500ms, 30s"):
        duration(text)


def test_a_duration_is_a_century_at_most() -> None:
    assert duration("36500d") == timedelta(days=36_500)
    with pytest.raises(ValueError, match="longer than 36,500 days"):
        duration("36501d")
    with pytest.raises(ValueError, match="longer than 36,500 days"):
        duration("9" * 400 + "d")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024", 1024),
        ("10 B", 10),
        ("1kb", 1000),
        ("10MB", 10_000_000),
        ("1GB", 1_000_000_000),
        ("1 KiB", 1024),
        ("64 MiB", 64 << 20),
        ("1.5gib", 3 << 29),
        ("0", 0),
        ("9007199254740993", 9007199254740993),  # one more than a float can tell
    ],
)
def test_a_size_is_a_number_of_bytes_or_of_decimal_or_binary_units(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 TB", "1k", "1ki", "ten", "1e6", "1_000", "nan", "inf"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size: write it like 1048576, 64 MiB or 10MB"):
        size(text)


def test_a_size_fits_64_bits() -> None:
    assert size("8589934591 GiB") == 2**63 - (1 << 30)
    for text in ("8589934592 GiB", "9" * 400):
        with pytest.raises(ValueError, match="is 8 EiB or more"):
            size(text)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00"])
def test_a_time_without_a_zone_is_in_utc_wherever_the_process_runs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert moment(text) == datetime(2026, 1, 31, 12, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()
