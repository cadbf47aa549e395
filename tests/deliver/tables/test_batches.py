"""Many syncs are delivered in several batches, and a table that lacks many of them by several commits."""

import queue
import threading
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import BRISK
from tests.deliver.tables.conftest import Lake, account, assert_together, kill_when, transfers, version_of
from tests.kafka.conftest import wait_until
from zync.deliver.tables import batch, delivery
from zync.deliver.tables.batch import Batch
from zync.operate.maintain import maintain
from zync.project.load import load

SYNCS = 12
ROWS = 4
"""Rows of staging of a sync of one transfer: two of outputs, and two of bookkeeping."""


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MOST_ROWS", 5 * ROWS)


def syncs(lake: Lake, count: int = SYNCS, first: int = 0) -> None:
    for transfer in transfers(count, first):
        lake.staging.sync([transfer])


def batches(lake: Lake) -> list[Batch]:
    made: list[Batch] = []
    lake.deliver(on_batch=made.append)
    return made


def test_many_syncs_are_delivered_in_several_batches(lake: Lake) -> None:
    syncs(lake)
    made = batches(lake)
    assert len(made) > 1
    assert [batch.after for batch in made] == [0, *(batch.sync for batch in made[:-1])]
    assert made[-1].sync == SYNCS
    assert [snapshot.sync for snapshot in lake.versions()] == [batch.sync for batch in made]
    assert sum(batch.rows["history"] for batch in made) == len(lake.rows("history")) == SYNCS
    assert_together(lake)


def test_a_sync_that_has_more_rows_than_a_batch_is_one(lake: Lake) -> None:
    lake.staging.sync(transfers(40, 0))
    syncs(lake, 1, 40)
    made = batches(lake)
    assert (made[0].sync, made[-1].sync) == (1, 2)
    assert len(lake.rows("history")) == 41
    assert_together(lake)


def test_syncs_that_share_a_file_are_delivered_in_several_batches_too(lake: Lake) -> None:
    syncs(lake)
    maintain(lake.staging.path, compact=True, vacuum=False)
    assert len(batches(lake)) > 1
    assert [row["id"] for row in lake.rows("history")] == list(range(SYNCS))
    assert_together(lake)


@pytest.fixture
def known(lake: Lake) -> int:
    """How many snapshots there are of tables, to which the config now adds one that has rows in each sync."""
    for number, (balance, change) in enumerate(transfers(SYNCS, 0)):
        lake.staging.sync([[balance, change, ("later", f'{{"id":{number}}}', f'{{"id":{number},"balance":1}}')]])
    lake.deliver()
    lake.config("  - {topic: later, sql: accounts.sql, key: [id]}\n")
    return len(lake.versions())


def test_a_new_table_gets_what_came_before_by_several_commits(lake: Lake, known: int) -> None:
    lake.deliver()
    assert len(lake.versions()) == known + 1, "the others stay where they are"
    assert [row["id"] for row in lake.rows("later")] == list(range(SYNCS))
    assert version_of(lake, "later") > 2


def test_who_is_stopped_on_the_way_to_a_new_table_ends_after_a_commit_and_goes_on_there(
    lake: Lake, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, commit = threading.Event(), batch.deliver

    def commit_and_stop(*arguments: Any) -> int:
        stop.set()
        return commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(batch, "deliver", commit_and_stop)
        config = load(lake.staging.folder / "zync.yaml")
        delivery.sync_to_tables(lake.spark, config, lake.staging.path, str(lake.folder), stop)
    assert len(lake.versions()) == known
    assert 0 < len(lake.rows("later")) < SYNCS
    lake.deliver()
    assert [row["id"] for row in lake.rows("later")] == list(range(SYNCS))


def test_batches_follow_one_another_no_faster_than_the_config_says(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the tables are looked after."""
    monkeypatch.setattr(delivery, "_LOOK_AFTER_SECONDS", 0.5)
    lake.config("deliver: {table_interval: 1h}\n")
    lake.staging.sync([[account(1, "1")]])
    stop, batches = threading.Event(), queue.Queue[Batch]()
    config = load(lake.staging.folder / "zync.yaml")
    arguments = (lake.spark, config, lake.staging.path, str(lake.folder), stop, batches.put)
    following = threading.Thread(target=delivery.sync_to_tables, args=arguments)
    following.start()
    try:
        assert batches.get(timeout=100).sync == 1
        lake.staging.sync([[account(2, "2")]])
        with pytest.raises(queue.Empty):
            batches.get(timeout=5)
        DeltaTable(str(lake.folder / "accounts")).alter.set_table_description("by another")
        wait_until(lambda: lake.versions()[-1].versions["accounts"] == version_of(lake, "accounts"), 30)
    finally:
        stop.set()
        following.join(30)
    assert not following.is_alive()
    assert lake.deliver().sync == 2


@pytest.mark.timeout(300)
def test_a_batch_that_was_killed_after_its_deletes_is_delivered_as_far_though_batches_are_smaller_now(
    lake: Lake,
) -> None:
    lake.staging.sync([[account(1, "1"), account(2, "2")]])
    lake.deliver()
    for number in range(SYNCS):
        lake.staging.sync([[account(1, str(number)), account(2, None)]])
    lake.config(BRISK)
    kill_when(lake, lambda: version_of(lake, "_deleted/accounts") > 0)  # whose batches are large
    lake.deliver()
    assert [row["id"] for row in lake.rows("accounts")] == [1]
    assert lake.versions()[-1].sync == SYNCS + 1
