"""Before a sync it is estimated whether it fits into memory."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from zync.staging.bookkeeping import Bookkeeping
from zync.sync import memory
from zync.sync.memory import MemoryCheck, available_bytes

MEMINFO = "MemTotal: 24000000 kB\nMemAvailable: 2000000 kB\n"


def system(root: Path, **files: str) -> Path:
    (root / "proc").mkdir()
    (root / "proc" / "meminfo").write_text(MEMINFO)
    (root / "sys" / "fs" / "cgroup").mkdir(parents=True)
    for name, text in files.items():
        (root / "sys" / "fs" / "cgroup" / f"memory.{name}").write_text(text)
    return root


def test_a_containers_limit_counts_where_it_is_less_and_its_cache_is_free(tmp_path: Path) -> None:
    stat = "anon 100\ninactive_file 30000000\nactive_file 5\n"
    root = system(tmp_path, max="1000000000\n", current="600000000\n", stat=stat)
    assert available_bytes(root) == 430_000_000


@pytest.mark.parametrize("limit", ["max\n", "9000000000000\n"])
def test_without_a_limit_or_with_a_larger_one_it_is_the_machines(tmp_path: Path, limit: str) -> None:
    root = system(tmp_path, max=limit, current="600000000\n", stat="inactive_file 3\n")
    assert available_bytes(root) == 2_048_000_000


def test_where_nothing_is_known_nothing_is_said(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None


def bookkeeping(in_flight: int) -> Bookkeeping:
    empty = Bookkeeping()
    rows = [pa.nulls(in_flight, kind) for kind in empty.in_flight.schema.types]
    return Bookkeeping(empty.cursor, empty.settled, pa.table(rows, names=empty.in_flight.column_names))


def test_what_may_not_fit_is_told_once_with_what_takes_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 500_000_000)
    check = MemoryCheck(lambda: 0)
    with caplog.at_level(logging.WARNING):
        check(bookkeeping(10), 1_000_000)
        assert not caplog.messages
        check(bookkeeping(1_000_000), 10)
        check(bookkeeping(1_000_000), 10)
    assert caplog.messages == [
        "the next sync may take 572.2 MiB of memory, most of it for 1,000,000 transactions in flight (zync txn list), "
        "and Spark's heap 0 B more; 476.8 MiB are free"
    ]
    check(bookkeeping(10), 10)
    check(bookkeeping(10), 3_000_000)
    assert ", most of it for 3,000,000 new records (limits.records_per_sync), " in caplog.messages[1]


def test_what_sparks_heap_will_still_grow_by_is_not_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 3 << 30)
    with caplog.at_level(logging.WARNING):
        MemoryCheck(lambda: 1 << 30)(bookkeeping(1_000_000), 10)
        assert not caplog.messages
        MemoryCheck(lambda: (5 << 30) // 2)(bookkeeping(1_000_000), 10)
    assert caplog.messages[0].endswith("and Spark's heap 2.5 GiB more; 3.0 GiB are free")
