"""What a sync does not do: go on with damaged tables, mixed-up ones, or after another took its turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.spark.conftest import Pipeline
from zync.errors import UsageError, ZyncError
from zync.operate.verify import verify
from zync.raw.jsonl import load
from zync.sync.syncer import Syncer


@pytest.mark.parametrize("gone", [True, False])
def test_a_file_of_raw_that_cannot_be_read_is_named(pipeline: Pipeline, txn: Any, gone: bool) -> None:
    pipeline.load(("a", txn(1)))
    (file,) = Path(pipeline.raw).rglob("*.parquet")
    file.unlink() if gone else file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(ZyncError, match=f"{file.name} of .* cannot be read: .*. Nothing was committed"):
        pipeline.sync()


@contextmanager
def without_the_first(raw: str) -> Iterator[None]:
    """While its only file lacks a record that the log has."""
    (file,) = Path(raw).glob("*.parquet")
    there = pq.read_table(file)
    pq.write_table(there.slice(1), file)
    yield
    pq.write_table(there, file)


@pytest.mark.parametrize("count", [3, 6000])  # read by zync itself, and by Spark
def test_a_raw_that_lacks_a_record_stops_the_sync(pipeline: Pipeline, txn: Any, count: int) -> None:
    pipeline.load(*[("a", txn(one, x=one)) for one in range(count)])
    missing = f"{count - 1:,} records came of the {count:,} that .*zync verify"
    with without_the_first(pipeline.raw), pytest.raises(ZyncError, match=missing):
        pipeline.sync()
    assert not pipeline.of("cursor")
    assert pipeline.sync().transactions == count


def test_a_transaction_does_not_go_out_without_a_record_of_its_own(pipeline: Pipeline, txn: Any) -> None:
    """One that came so long ago that only its state is known: by that it is whole."""
    pipeline.load(("a", txn(1, 3, x=1)), ("a", txn(1, 3, x=2)), *[("a", txn(one)) for one in range(2, 1100)])
    assert pipeline.sync().in_flight == 1
    with without_the_first(pipeline.raw):
        pipeline.load(("b", txn(1, 3, x=3)))
        with pytest.raises(ZyncError, match="1 records came of the 2 that .*zync verify"):
            pipeline.sync()
    assert len(pipeline.of("cursor")) == 1
    assert pipeline.sync().transactions == 1


def test_a_sync_that_lost_the_race_says_that_it_did_not_land(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.load(("a", txn(1, x=1)))
    pipeline.sync()
    pipeline.load(("a", txn(2, x=2)))
    from zync.sync import commit as engine

    real = engine.commit_files

    def beaten(*args: Any, **more: Any) -> None:
        Syncer(pipeline.config, pipeline.raw, str(pipeline.staging), pipeline.spark).sync()
        real(*args, **more)

    calls = iter([beaten, real])

    def commit(*args: Any, **more: Any) -> None:
        next(calls)(*args, **more)

    monkeypatch.setattr(engine, "commit_files", commit)
    with pytest.raises(ZyncError, match="did not land"):
        pipeline.sync()
    assert pipeline.values() == [{"x": 1}, {"x": 2}]


def test_tables_that_were_mixed_up_are_refused_and_left_alone(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    raw, staging = pipeline.raw, str(pipeline.staging)
    versions = [DeltaTable(one).version() for one in (raw, staging)]
    for one, other in ((raw, raw), (staging, raw), (staging, staging)):
        with pytest.raises(UsageError, match=r"is no (raw|staging): it has no column"):
            Syncer(pipeline.config, one, other, pipeline.spark).sync()
    with pytest.raises(UsageError, match="is no raw"):
        load(staging, [str(pipeline.folder / "in.jsonl")])
    for one, other in ((raw, raw), (staging, staging)):
        with pytest.raises(UsageError, match="is no"):
            verify(one, other, pipeline.config, every_version=False, kafka=False)
    assert [DeltaTable(one).version() for one in (raw, staging)] == versions


def test_staging_of_another_raw_is_refused(pipeline: Pipeline, txn: Any) -> None:
    pipeline.load(("a", txn(1)))
    pipeline.sync()
    other = str(pipeline.folder / "other")
    load(other, [str(pipeline.folder / "in.jsonl")])
    with pytest.raises(UsageError, match="another raw"):
        Syncer(pipeline.config, other, str(pipeline.staging), pipeline.spark).sync()
