"""Deliveries that are killed at any moment lose and repeat nothing, and no snapshot is half there."""

import os
import random
import time
from typing import Any

import pytest

from tests.conftest import BRISK
from tests.deliver.tables.conftest import Lake, account, assert_together, kill_when, transfers, version_of
from zync.deliver.tables import apply, batch, delivery, snapshots
from zync.errors import ConflictError
from zync.project.load import load
from zync.staging.table import existing_staging, open_staging

_KILLS = int(os.environ.get("ZYNC_TEST_KILLS", "3"))


@pytest.mark.parametrize("after", ["the first table", "all tables"])
def test_who_was_killed_in_between_goes_on_and_no_snapshot_is_half(
    lake: Lake, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.staging.sync(transfers(4, 0))
    lake.deliver()

    class KilledError(Exception):
        pass

    with monkeypatch.context() as patch:
        if after == "all tables":
            patch.setattr(snapshots, "take", lambda *_: (_ for _ in ()).throw(KilledError()))
        else:
            real = batch.deliver

            def once(spark: Any, target: Any, *rest: Any, **more: Any) -> int:
                if target.topic == "history":
                    raise KilledError
                return real(spark, target, *rest, **more)

            patch.setattr(batch, "deliver", once)
        lake.staging.sync(transfers(4, 4))
        with pytest.raises(KilledError):
            lake.deliver()
    assert len(lake.versions()) == 1
    lake.staging.sync(transfers(4, 8))
    snapshot = lake.deliver()
    assert [one.sync for one in lake.versions()] == [1, 2, 3]
    assert snapshot.sync == 3
    assert_together(lake)
    assert len(lake.rows("history")) == 12


@pytest.mark.timeout(300)
def test_kill_9_of_the_real_process(lake: Lake) -> None:
    lake.config(BRISK)
    lake.staging.sync(transfers(6, 0))
    kill_when(lake, lambda: version_of(lake, "accounts") > 0)
    assert not (lake.staging.folder / "spark-warehouse").exists()  # Spark's own would be left where the user works
    lake.deliver()
    assert_together(lake)
    assert len(lake.rows("history")) == 6


@pytest.mark.timeout(300 + 90 * _KILLS)
def test_kill_9_at_random_moments_loses_and_repeats_nothing_and_no_snapshot_is_half(lake: Lake) -> None:
    """In or between two tables' commits, or before their snapshot; one of them keeps all versions of its rows."""
    lake.config(f"deliver: {{tables: {{accounts: {{apply: history}}}}}}\n{BRISK}")
    chance, count = random.Random(11), 0

    def more() -> None:
        nonlocal count
        lake.staging.sync(transfers(6, count))
        count += 6

    def for_some_time() -> None:
        until = time.monotonic() + chance.uniform(0, 5)
        while time.monotonic() < until:
            more()
            time.sleep(0.1)

    for _ in range(_KILLS):
        more()
        before = max(version_of(lake, "accounts"), 0)
        kill_when(lake, lambda before=before: version_of(lake, "accounts") > before, for_some_time)
    lake.deliver()
    assert len(lake.versions()) > _KILLS
    assert_together(lake)
    assert [row["id"] for row in lake.rows("history")] == list(range(count))
    assert len({row["_seqno"] for row in lake.rows("accounts")}) == len(lake.rows("accounts")) == count


@pytest.mark.timeout(300)
def test_kill_9_when_a_delete_is_on_record_and_not_done(lake: Lake) -> None:
    lake.staging.sync([[account(1, "1"), account(2, "2")]])
    lake.deliver()
    lake.staging.sync([[account(2, None)]])
    lake.config(BRISK)
    kill_when(lake, lambda: version_of(lake, "_deleted/accounts") > 0)
    lake.deliver()
    assert [one["id"] for one in lake.rows("accounts")] == [1]


def test_a_delivery_that_knows_less_of_staging_than_a_table_has_reads_it_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another delivery, in an object store, is ahead: the sync would be on record without its rows."""
    lake.staging.sync(transfers(4, 0))
    previous = lake.deliver()
    stale = existing_staging(lake.staging.path)
    lake.staging.sync(transfers(4, 4))

    class KilledError(Exception):
        pass

    def killed(spark: Any, target: Any, *rest: Any) -> int:
        if target.topic == "history":
            raise KilledError
        return apply.deliver(spark, target, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(batch, "deliver", killed)
        with pytest.raises(KilledError):
            lake.deliver()
    config = load(lake.staging.folder / "zync.yaml")
    staging = open_staging(lake.staging.path)
    assert staging
    tables = delivery._targets(lambda: lake.spark, config, staging, str(lake.folder))  # noqa: SLF001
    with pytest.raises(ConflictError, match="another process delivered sync 2, and .* was read through sync 1"):
        batch.deliver_batch(
            lambda: lake.spark, config, stale, [*tables.values()], str(lake.folder), previous, 1, lambda: True
        )
    assert lake.deliver().sync == 2
    assert len(lake.rows("history")) == 8
