"""Options of the command line are read as what they are, or refused with how to write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer

from zync.cli.options import parsed, partition_offset, starting_point
from zync.config.units import duration
from zync.ingest import memory

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T12:00:00", NOON),
        ("2026-01-31T13:00:00+01:00", NOON.astimezone(timezone(timedelta(hours=1)))),
        ("2026-01-31", NOON.replace(hour=0)),
        ("1769860800000", NOON),
        ("0", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_start_is_a_word_or_a_time(text: str, expected: str | datetime) -> None:
    assert starting_point(text) == expected


@pytest.mark.parametrize("text", ["", "newest", "2026-13-01", "noon", "9" * 30, "-1", "1e3"])
def test_what_is_no_start_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="neither earliest nor latest nor a time like 2026-01-31T12:00:00Z"):
        starting_point(text)


def test_a_time_before_1970_is_one_that_kafka_does_not_have() -> None:
    with pytest.raises(typer.BadParameter, match="before 1970"):
        starting_point("1969-12-31T23:59:59Z")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("orders:0=1200", (("orders", 0), 1200)), ("a:b:12=0", (("a:b", 12), 0)), ("a=b:1=2", (("a=b", 1), 2))],
)
def test_an_offset_of_a_partition_has_a_topic_before_it(text: str, expected: tuple[tuple[str, int], int]) -> None:
    assert partition_offset(text) == expected


@pytest.mark.parametrize("text", ["orders=1200", "orders:0", ":0=1", "orders:x=1", "orders:0=-1", "orders:0=", ""])
def test_what_is_no_offset_of_a_partition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not TOPIC:PARTITION=OFFSET, like orders:0=1200"):
        partition_offset(text)


def test_a_value_is_read_once_and_a_default_is_a_value_already() -> None:
    assert parsed(duration, "5s") == timedelta(seconds=5)
    assert parsed(duration, timedelta(seconds=5)) == timedelta(seconds=5)
    with pytest.raises(typer.BadParameter, match="is not a length of time"):
        parsed(duration, "5")


def test_memory_is_300_mb_at_least_and_shared_out() -> None:
    assert memory.limit("300MB") == 300_000_000
    with pytest.raises(ValueError, match="too little to work with: 300MB is the least"):
        memory.limit("299MB")
    with pytest.raises(typer.BadParameter, match="is not a size"):
        parsed(memory.limit, "much")
    assert 0 < memory.share(memory.LEAST) < memory.share(memory.DEFAULT) < memory.DEFAULT // 20


@pytest.mark.parametrize("limit", [memory.LEAST, memory.DEFAULT, 2**62])
def test_librdkafka_is_told_to_fetch_what_it_can_be_told(limit: int) -> None:
    told = memory.properties(memory.share(limit))
    assert 1_000_000 <= int(told["fetch.max.bytes"]) <= 2**31 - 1
    assert 0 < int(told["queued.max.messages.kbytes"]) <= 2_097_151
