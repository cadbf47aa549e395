"""`zync maintain`: small files become large ones, and nothing else changes, whoever writes or reads."""

import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import rows, zync
from tests.kafka.conftest import wait_until
from tests.spark.conftest import Pipeline
from tests.spark.maintained import DAYS, age, assert_sound, files, in_steps, tidy
from zync.errors import UsageError
from zync.lake.files import DataFile, data_files
from zync.lake.lock import owned
from zync.lake.table import open_table
from zync.operate import maintain as engine
from zync.operate import rewrite
from zync.operate.maintain import groups
from zync.operate.verify import verify
from zync.raw.table import RAW_SCHEMA


def test_the_same_rows_are_in_fewer_files_in_order_and_syncs_go_on(pipeline: Pipeline, txn: Any) -> None:
    in_steps(pipeline, txn)
    before = rows(Path(pipeline.raw)), pipeline.of("output"), pipeline.of("done")
    assert files(pipeline.raw) == 12
    raw = tidy(pipeline, pipeline.raw)
    staging = tidy(pipeline, pipeline.staging)
    assert (raw.files, raw.compacted, raw.into, raw.files_after) == (12, 12, 1, 1)
    assert staging.files > staging.files_after == 1
    assert (rows(Path(pipeline.raw)), pipeline.of("output"), pipeline.of("done")) == before
    (file,) = data_files(DeltaTable(pipeline.raw), "seqno")
    assert (file.lowest, file.highest) == (1, len(before[0]))
    numbers = DeltaTable(pipeline.raw).to_pyarrow_table()["seqno"].to_pylist()
    assert numbers == sorted(numbers)
    assert_sound(pipeline)
    pipeline.load(*(("b", txn(f"5-{n}", 2, x=n)) for n in range(3)))
    assert pipeline.sync().transactions == 3
    assert_sound(pipeline)


def test_entries_of_the_log_from_long_ago_go_and_those_of_today_stay(pipeline: Pipeline, txn: Any) -> None:
    in_steps(pipeline, txn)
    logs = [Path(one) / "_delta_log" for one in (pipeline.raw, pipeline.staging)]
    tables = [pipeline.raw, pipeline.staging]
    before, last = rows(Path(pipeline.raw)), [DeltaTable(str(one)).version() for one in tables]
    for log in logs:
        for entry in log.iterdir():
            os.utime(entry, times=(time.time() - 40 * 86400,) * 2)
    for table in tables:
        tidy(pipeline, table, compact=False, vacuum=False)
    for log, version in zip(logs, last, strict=True):
        assert min(one.name for one in log.glob("*.json")) >= f"{version:020}.json"
        assert [one.name[:20] for one in log.glob("*.checkpoint.parquet")] == [f"{version:020}"]
    assert rows(Path(pipeline.raw)) == before
    assert_sound(pipeline)
    in_steps(pipeline, txn)
    kept = [len([*log.glob("*.json")]) for log in logs]
    for table in tables:
        tidy(pipeline, table, compact=False, vacuum=False)
    assert [len([*log.glob("*.json")]) for log in logs] == kept
    assert_sound(pipeline)


def test_readers_are_told_that_no_data_changed(pipeline: Pipeline, txn: Any) -> None:
    in_steps(pipeline, txn, 2, sync=False)
    tidy(pipeline, pipeline.raw, vacuum=False)
    table = DeltaTable(pipeline.raw)
    log = Path(pipeline.raw) / "_delta_log" / f"{table.version():020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    changes = [one["dataChange"] for action in actions for kind, one in action.items() if kind in ("add", "remove")]
    assert len(changes) == 5
    assert not any(changes)


@pytest.mark.parametrize(
    ("sizes", "made"),
    [
        ([1, 1, 1, 1, 1], [[0, 1, 2, 3]]),
        ([2, 2, 2, 2], [[0, 1], [2, 3]]),
        ([1, 1, 3, 1, 1], [[0, 1], [3, 4]]),
        ([1, 3, 1, 9, 1], []),
        ([2, 1, 2, 1], [[0, 1], [2, 3]]),
        ([], []),
    ],
)
def test_what_is_large_stays_and_neighbours_make_files_of_a_sensible_size(
    sizes: list[int], made: list[list[int]]
) -> None:
    files = [DataFile("", "", "", size, 1, place, place) for place, size in enumerate(sizes)]
    assert [[one.lowest for one in group] for group in groups(files, 4)] == made


def test_a_dry_run_says_what_would_be_done_and_does_nothing(pipeline: Pipeline, txn: Any) -> None:
    in_steps(pipeline, txn, 2, sync=False)
    version = DeltaTable(pipeline.raw).version()
    done = tidy(pipeline, pipeline.raw, dry_run=True)
    assert (done.compacted, done.into, done.files_after) == (4, 1, 1)
    assert DeltaTable(pipeline.raw).version() == version
    assert len(list(Path(pipeline.raw).glob("*.parquet"))) == 4


def test_vacuum_deletes_what_nobody_needs_and_keeps_what_may_be_needed(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was replaced is kept as long as said, though its file is old; what is not committed, while it is young."""
    in_steps(pipeline, txn, 3)
    staging = pipeline.staging
    age(staging, 3)
    young, old = staging / "sync-9-young", staging / "sync-9-old"
    for folder in (young, old):
        folder.mkdir()
        shutil.copy(next(staging.glob("sync-*/*.parquet")), folder / "part.parquet")
    os.utime(young / "part.parquet")
    age(old, 3)
    done = tidy(pipeline, staging, retain=timedelta(days=2))
    assert done.deleted == 1
    assert not (old / "part.parquet").exists()
    assert (young / "part.parquet").exists()
    assert_sound(pipeline)
    monkeypatch.setattr(engine, "LEAST_RETAIN", timedelta(0))
    replaced = done.files
    assert tidy(pipeline, staging, retain=timedelta(0)).deleted >= replaced
    assert len(list(staging.rglob("*.parquet"))) == files(staging) + len(list(staging.glob("_delta_log/*.parquet")))
    assert_sound(pipeline)
    pipeline.load(("a", txn("x", 1, x=1)))
    assert pipeline.sync().transactions == 1
    (staging / "_delta_log" / f"{2:020}.json").unlink()
    claims = verify(pipeline.raw, str(staging), pipeline.config, every_version=True, kafka=False)
    (broken,) = [one for one in claims if one.violations]
    assert broken.violations[0].startswith("version 2: ")


def test_appends_meanwhile_all_land(pipeline: Pipeline, txn: Any) -> None:
    """Each side may come between the other's reading and committing."""
    in_steps(pipeline, txn, 1, sync=False)
    before, stop = len(rows(Path(pipeline.raw))), threading.Event()
    loaded = []

    def load() -> None:
        while not stop.is_set():
            pipeline.load(("a", txn(f"more {len(loaded)}", 1, x=1)))
            loaded.append(1)

    writer = threading.Thread(target=load)
    writer.start()
    try:
        compacted = []
        while len(loaded) < 40 or sum(compacted) < 40:
            compacted.append(tidy(pipeline, pipeline.raw).compacted)
    finally:
        stop.set()
        writer.join()
    assert len(rows(Path(pipeline.raw))) == before + len(loaded)
    pipeline.sync()
    assert_sound(pipeline)


def test_what_was_replaced_long_ago_is_deleted_while_others_write_and_read(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps(pipeline, txn)
    tables, stop, seen = [Path(pipeline.raw), pipeline.staging], threading.Event(), list[int]()
    before = {table: len(rows(table)) for table in tables}
    with monkeypatch.context() as then:
        then.setattr(rewrite, "time", SimpleNamespace(time=lambda: time.time() - 8 * DAYS))
        assert all(tidy(pipeline, table, vacuum=False).compacted > 1 for table in tables)
    for table in tables:
        age(table, 8)

    def write() -> None:
        while not stop.wait(0.05):
            pipeline.load(("a", txn(f"more {len(seen)}", 1, x=1)))

    def read() -> None:
        while not stop.is_set():
            now = {table: len(rows(table)) for table in tables}
            assert all(now[table] >= before[table] for table in tables)
            seen.append(now[tables[0]])

    found = list[list[int]]()
    with ThreadPoolExecutor(2) as others:
        working = [others.submit(write), others.submit(read)]
        try:
            for _ in range(2):
                known = len(seen)
                wait_until(lambda known=known: len(seen) > known + 2 or any(one.done() for one in working))
                pipeline.sync()
                deleted = [tidy(pipeline, table, compact=False).deleted for table in tables]
                found.append(deleted)
        finally:
            stop.set()
        for one in working:
            one.result()
    assert seen[-1] > before[tables[0]]
    assert [all(deleted) for deleted in found] == [True, False]
    pipeline.sync()
    assert_sound(pipeline)


def test_of_two_at_once_the_second_is_sent_away(pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    in_steps(pipeline, txn, 1, sync=False)
    with owned(pipeline.raw, what="maintain", name="maintain"):
        done = zync("maintain", pipeline.raw, cwd=pipeline.folder, check=False)
    assert done.returncode == 3
    assert "another zync maintains" in done.stderr


def test_what_is_no_table_of_zyncs_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "other"), pa.table({"a": [1]}))
    more = RAW_SCHEMA.append(pa.field("team", pa.string())).empty_table()
    write_deltalake(str(tmp_path / "more"), more)
    for other in ("other", "more"):
        with pytest.raises(UsageError, match="neither a raw nor a staging"):
            tidy(pipeline, tmp_path / other)
    with pytest.raises(UsageError, match="there is no table"):
        tidy(pipeline, tmp_path / "none")


def test_the_command_by_itself_does_both_and_says_so(pipeline: Pipeline, txn: Any) -> None:
    in_steps(pipeline, txn, 2)
    done = zync("maintain", "staging", "--json", cwd=pipeline.folder)
    said = json.loads(done.stdout)
    assert said["files_after"] == 1
    assert set(said["seconds"]) == {"compact", "vacuum", "log"}
    table = open_table(str(pipeline.staging))
    assert table
    assert (pipeline.staging / "_delta_log" / f"{table.version():020}.checkpoint.parquet").exists()
