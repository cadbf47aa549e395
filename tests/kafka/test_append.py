"""The commit protocol of raw, on real tables: what no longer fits is refused, whoever tries, and however late."""

import multiprocessing
import shutil
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.conftest import TopicMaker, produce, rows
from tests.kafka.conftest import Lake, batch, value
from zync.config.model import Config
from zync.errors import UsageError
from zync.kafka.partition import Partition
from zync.lake.table import refresh
from zync.operate.verify import verify
from zync.raw import append as protocol
from zync.raw.append import Appender
from zync.raw.batch import Batch, Slice
from zync.raw.jsonl import load
from zync.raw.table import Gap, ensure_raw, stored_position

A, B, C = Partition("a", 0), Partition("a", 1), Partition("b", 0)


def test_a_slice_from_an_old_position_is_refused_and_nothing_is_written(plain: Lake) -> None:
    Appender(plain.raw).append(batch((A, None, 5)))
    version = plain.table().version()
    for begin in (None, 3, 7):
        late = Appender(plain.raw).append(batch((A, begin, 9)))
        assert late.refused == {A: 5}
        assert (late.rows, late.committed) == (0, {})
    assert plain.table().version() == version
    assert plain.offsets("a") == [*range(5)]


def test_an_appender_whose_table_has_grown_old_is_refused(plain: Lake) -> None:
    zombie = Appender(plain.raw)
    zombie.append(batch((A, None, 5)))
    Appender(plain.raw).append(batch((A, 5, 9)))
    assert zombie.append(batch((A, 5, 7))).refused == {A: 9}
    assert plain.offsets("a") == [*range(9)]


def test_an_appender_whose_own_entry_of_the_log_was_cleaned_up_is_refused(plain: Lake) -> None:
    zombie = Appender(plain.raw)
    zombie.append(batch((A, None, 5)))
    handle = plain.table()
    own = handle.version()
    for begin in (5, 6, 7):
        Appender(plain.raw).append(batch((A, begin, begin + 1)))
    plain.table().create_checkpoint()
    for version in range(own + 2):  # its own, and the one behind it
        Path(plain.raw, "_delta_log", f"{version:020}.json").unlink()
    refresh(handle)
    assert stored_position(handle, A) == 8
    assert zombie.append(batch((A, 5, 7))).refused == {A: 8}
    assert plain.offsets("a") == [*range(8)]


class _Counting(DeltaTable):
    """A handle that counts how often the log was listed."""

    listed = 0

    def update_incremental(self) -> None:
        self.listed += 1
        super().update_incremental()


def test_the_log_is_listed_only_when_there_is_something_new_in_it(plain: Lake) -> None:
    table = _Counting(plain.raw)
    refresh(table)
    assert table.listed == 0
    Appender(plain.raw).append(batch((A, None, 5)))
    Appender(plain.raw).append(batch((A, 5, 9)))
    refresh(table)
    assert (table.listed, stored_position(table, A)) == (1, 9)
    refresh(table)
    assert table.listed == 1


def test_a_commit_between_comparing_and_committing_is_noticed(plain: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_TURN_SECONDS", 0.0)
    others = [batch((A, None, 5)), batch((C, None, 1))]
    compared = []

    def plan(table: DeltaTable) -> Batch:
        """Compares, and then, twice, somebody else commits."""
        compared.append(stored_position(table, A))
        mine = batch((A, None, 3), (B, None, 3))
        mine.drop([A] if compared[-1] is not None else [])
        if others:
            Appender(plain.raw).append(others.pop(0))
        return mine

    done = Appender(plain.raw).append_planned(plan)
    assert compared == [None, 5, 5]
    assert (done.committed, done.retries, done.first_seqno) == ({B: 3}, 2, 7)
    assert plain.values() == [value(A, at) for at in range(5)] + [value(C, 0)] + [value(B, at) for at in range(3)]


def test_a_partly_stale_batch_commits_the_rest_renumbered_without_a_hole(plain: Lake) -> None:
    Appender(plain.raw).append(batch((B, None, 4)))
    done = Appender(plain.raw).append(batch((A, None, 3), (B, None, 2), (C, None, 2)))
    assert (done.rows, done.first_seqno) == (5, 5)
    assert done.committed == {A: 3, C: 2}
    assert done.refused == {B: 4}
    whence = [(A, range(3)), (C, range(2))]
    assert plain.values()[4:] == [value(partition, at) for partition, offsets in whence for at in offsets]


def test_partitions_may_be_dropped_from_a_batch_one_after_the_other(plain: Lake) -> None:
    """As when the group takes them in two steps: the first may leave nothing of what the second looks through."""
    mine = batch((A, None, 5), (B, None, 3))
    mine.drop([A])
    mine.drop([B])
    mine.drop([B])
    assert (mine.slices, mine.num_rows) == ({}, 0)
    assert Appender(plain.raw).append(mine).rows == 0


def test_a_slice_of_a_topic_that_is_no_more_is_refused_though_the_position_is_the_same_again(plain: Lake) -> None:
    def of(
        topic_id: int, begin: int | None, end: int, begin_id: int | None, gap: tuple[int, int] | None = None
    ) -> Batch:
        made = batch((A, begin, end))
        made.slices[A] = Slice(begin, end, topic_id, gap, begin_id)
        return made

    Appender(plain.raw).append(of(1, None, 5, None))
    zombie = of(1, 5, 8, 1)
    anew = batch((A, 0, 5))
    anew.slices[A] = Slice(5, 5, 2, (5, 0), 1)
    assert Appender(plain.raw).append(anew).committed == {A: 5}
    assert Appender(plain.raw).append(zombie).refused == {A: 5}
    assert plain.positions().gaps == (Gap(A, 5, 0),)
    assert Appender(plain.raw).append(of(2, 5, 8, 2)).committed == {A: 8}


def test_a_commit_has_no_more_rows_or_bytes_than_it_may(lake: Lake, topic: TopicMaker) -> None:
    name = topic(partitions=2)
    produce(lake.broker, [(name, number % 2, b"x" * 1000) for number in range(2500)])

    def committed(**options: Any) -> list[int]:
        shutil.rmtree(lake.raw, ignore_errors=True)
        lake.sync_from(name, commit_every=timedelta(hours=1), **options)
        return sorted(pa.table(lake.table().get_add_actions())["num_records"].to_pylist())

    assert committed(commit_rows=1000) == [500, 1000, 1000]
    of_bytes = committed(commit_bytes=100_000)
    assert sum(of_bytes) == 2500
    assert 80 < of_bytes[-1] <= 100


def test_a_position_moves_without_rows(plain: Lake) -> None:
    only_markers = Batch(slices={A: Slice(None, 7)})
    done = Appender(plain.raw).append(only_markers)
    assert (done.rows, done.committed) == (0, {A: 7})
    assert plain.positions().next == {A: 7}
    assert plain.count() == 0


@pytest.fixture
def raises_after_landing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit lands, and raises all the same, as a failing checkpoint or a lost answer makes it."""
    real, failures = protocol.write_deltalake, [DeltaError("the answer was lost")]

    def write(*args: Any, **options: Any) -> None:
        real(*args, **options)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(protocol, "write_deltalake", write)


def test_a_clock_that_is_set_back_does_not_make_ingested_fall(plain: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ten minutes, between two commits of one process and of another; it stands still till the clock is there."""
    now = time.time_ns()
    for minute, begin in ((10, None), (0, 2), (11, 4)):
        monkeypatch.setattr("zync.raw.append.time.time_ns", lambda minute=minute: now + minute * 60 * 10**9)
        Appender(plain.raw).append(batch((A, begin, (begin or 0) + 2)))
    stamps = [row["ingested"] for row in plain.rows()]
    assert stamps[0] == stamps[3]
    assert stamps[4] - stamps[3] == timedelta(minutes=1)
    assert not [one for one in verify(plain.raw, None, Config(), every_version=False, kafka=False) if one.violations]


@pytest.mark.usefixtures("raises_after_landing")
def test_an_exception_after_the_commit_landed_doubles_nothing(plain: Lake) -> None:
    done = Appender(plain.raw).append(batch((A, None, 5)))
    assert (done.committed, done.refused, done.first_seqno) == ({A: 5}, {}, 1)
    assert plain.offsets("a") == [*range(5)]


@pytest.mark.usefixtures("raises_after_landing")
def test_a_load_whose_commit_raises_after_landing_is_not_loaded_twice(plain: Lake) -> None:
    Path(plain.folder / "two.jsonl").write_text('{"topic": "a"}\n{"topic": "a"}\n')
    assert load(plain.raw, [str(plain.folder / "two.jsonl")]).first_seqno == 1
    assert plain.offsets("a") == [0, 1]


def test_a_table_that_is_gone_ends_it_with_a_message(plain: Lake) -> None:
    appender = Appender(f"{plain.folder}/lake/elsewhere")
    with pytest.raises(UsageError, match="there is no table"):
        appender.append(batch((A, None, 1)))


COMMITS = 40


def commit_many(location: str, partition: int, ready: Any) -> None:
    """Small batches to a partition of one's own, and to one that all share: there, whoever comes late starts again."""
    own, shared, appender = Partition("own", partition), Partition("shared", 0), Appender(location)
    ensure_raw(location)
    ready.wait(30)
    at: dict[Partition, int | None] = {own: None, shared: None}
    for _ in range(COMMITS):
        done = appender.append(batch(*((partition, begin, (begin or 0) + 2) for partition, begin in at.items())))
        assert own in done.committed
        at.update(done.committed)
        at.update(done.refused)


def test_three_processes_that_commit_at_once_lose_nothing_and_leave_no_hole(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "")
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(3)
    writers = [context.Process(target=commit_many, args=(lake.raw, number, ready)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    for number in range(3):
        assert lake.offsets("own", number) == [*range(2 * COMMITS)]
    shared = lake.offsets("shared")
    assert shared == [*range(len(shared))]
    assert len(shared) >= 2
    for version in range(lake.table().version() + 1):  # at none a batch is partly there
        found = rows(Path(lake.raw), version)
        assert [row["seqno"] for row in found] == [*range(1, len(found) + 1)]
        counts = Counter(Partition(row["kafka"]["topic"], row["kafka"]["partition"]) for row in found)
        assert not [partition for partition, count in counts.items() if count % 2]


def make_tables(locations: list[str], ready: Any) -> None:
    for location in locations:
        ready.wait(30)
        ensure_raw(location)


def test_a_raw_that_several_processes_make_at_once_is_made_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, locations = context.Barrier(3), [f"{tmp_path}/lake/raw{number}" for number in range(10)]
    makers = [context.Process(target=make_tables, args=(locations, ready)) for _ in range(3)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert [maker.exitcode for maker in makers] == [0, 0, 0]
    assert {DeltaTable(location).version() for location in locations} == {0}


def test_rows_stand_in_their_file_in_order_of_seqno(plain: Lake) -> None:
    Appender(plain.raw).append(batch(*((Partition("a", partition), None, 5_000) for partition in range(10))))
    (file,) = plain.table().file_uris()
    seqnos = pq.read_table(file.removeprefix("file://"), columns=["seqno"])["seqno"].to_pylist()
    assert seqnos == [*range(1, 50_001)]
