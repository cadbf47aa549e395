"""How far a sync reads: no further than the limit, nor than the bytes of raw's files allow."""

import random
from pathlib import Path
from typing import Literal

import pytest

from tests.conftest import Loader
from zync.raw.table import existing_raw
from zync.sync.backlog import sync_end
from zync.sync.outcome import Outcome, describe


@pytest.fixture
def raw(tmp_path: Path) -> str:
    """A raw of three commits of ten records: the middle one's are 2 kB that do not compress, the others' are small."""
    location = str(tmp_path / "raw")
    loader, draw = Loader(location), random.Random(1)
    for size in (0, 2000, 0):
        loader.load([{"topic": "a", "value": draw.randbytes(size // 2).hex()} for _ in range(10)])
    return location


@pytest.mark.parametrize(
    ("head", "limit", "end"), [(0, "auto", 30), (0, 7, 7), (7, 7, 14), (28, 7, 30), (30, 7, 30), (30, "auto", 30)]
)
def test_a_sync_reads_as_many_records_as_the_limit_says(
    raw: str, head: int, limit: int | Literal["auto"], end: int
) -> None:
    assert sync_end(existing_raw(raw), head, limit) == end


def test_by_itself_it_reads_no_more_than_some_bytes_of_files(raw: str) -> None:
    table = existing_raw(raw)
    ends = [0]
    while ends[-1] < 30:
        ends.append(sync_end(table, ends[-1], file_bytes=12_000))
    assert ends == sorted(set(ends))
    assert 10 < ends[1] < 20, "it ends amid the large ones"
    assert ends[2] > 20
    large = [sync_end(table, head, file_bytes=1) for head in (10, 11, 19, 20)]
    assert large == [11, 12, 20, 21], "a record is always read"


def test_the_outcomes_of_several_syncs_are_added_up() -> None:
    first = Outcome(
        1, 5, 9, records=9, transactions=2, outputs={"a": 2, "b": 1}, in_flight=1, set_aside={"late": 1},
        seconds={"read": 0.1}, syncs=1, behind=3,
    )  # fmt: skip
    second = Outcome(2, 12, 12, records=3, transactions=1, outputs={"b": 2}, seconds={"read": 0.2}, syncs=1)
    total = first.followed_by(second)
    assert total == Outcome(
        2, 12, 12, records=12, transactions=3, outputs={"a": 2, "b": 3}, set_aside={"late": 1},
        seconds={"read": 0.3}, syncs=2,
    )  # fmt: skip
    assert describe(first).endswith("head 9; 3 records left for the next syncs")
    assert describe(total).startswith(
        "2 syncs, the last of them 2: 3 transactions of 12 records; output rows: a 2, b 3"
    )
    assert total.followed_by(Outcome(2, 12, 12)).syncs == 2
