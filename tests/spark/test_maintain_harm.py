"""Maintenance that is killed, comes between a sync and its commit, or lost the end of the log."""

import contextlib
import random
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.conftest import rows, start, zync
from tests.spark.conftest import Pipeline, maintain_and_die
from tests.spark.maintained import assert_sound, files, in_steps, tidy
from zync.errors import OwnedError, ZyncError
from zync.operate import maintain as engine
from zync.operate import rewrite


def test_a_sync_whose_staging_is_compacted_before_it_commits_lands(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zync.sync import commit as stage

    in_steps(pipeline, txn, 3)
    commit, between = stage.commit_files, []

    def after_maintenance(*args: Any, **more: Any) -> None:
        between.append(tidy(pipeline, pipeline.staging).compacted)
        commit(*args, **more)

    monkeypatch.setattr(stage, "commit_files", after_maintenance)
    pipeline.load(*(("b", txn(f"2-{n}", 2, x=n)) for n in range(3)))
    assert pipeline.sync().transactions == 3
    assert between[0] > 2
    assert_sound(pipeline)
    pipeline.load(("a", txn("x", 1, x=1)))
    assert pipeline.sync().transactions == 1
    assert_sound(pipeline)


def test_a_sync_whose_files_were_deleted_before_it_commits_does_not_land(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a vacuum, of one that runs for days."""
    from zync.sync import commit as stage

    commit = stage.commit_files

    def too_late(table: DeltaTable, folder: str, *args: Any, **more: Any) -> None:
        next((pipeline.staging / folder).glob("part-*.parquet")).unlink()
        commit(table, folder, *args, **more)

    pipeline.load(("a", txn(1, 1, x=1)))
    monkeypatch.setattr(stage, "commit_files", too_late)
    with pytest.raises(ZyncError, match="rows that were written .* are not there"):
        pipeline.sync()
    monkeypatch.setattr(stage, "commit_files", commit)
    assert pipeline.sync().transactions == 1
    assert_sound(pipeline)


def test_files_that_another_replaced_meanwhile_are_not_replaced_again(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where no lock keeps two apart."""
    in_steps(pipeline, txn, 2, sync=False)
    before, replace = rows(Path(pipeline.raw)), rewrite._replace  # noqa: SLF001

    def too_late(*args: Any, **more: Any) -> None:
        monkeypatch.setattr(rewrite, "_replace", replace)
        monkeypatch.setattr(engine, "owned", lambda *_, **__: contextlib.nullcontext())
        assert tidy(pipeline, pipeline.raw).compacted == 4
        replace(*args, **more)

    monkeypatch.setattr(rewrite, "_replace", too_late)
    with pytest.raises(OwnedError, match="another maintains"):
        tidy(pipeline, pipeline.raw)
    assert rows(Path(pipeline.raw)) == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_its_commit_it_changes_nothing_but_the_files(
    pipeline: Pipeline, txn: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """What it leaves behind goes with the next vacuum."""
    in_steps(pipeline, txn, 4, sync=False)
    raw = Path(pipeline.raw)
    before = rows(raw)
    maintain_and_die(pipeline.raw, when, "compact")
    assert rows(raw) == before
    assert files(raw) == (8 if when == "before" else 1)
    pipeline.load(("a", txn("after", 1, x=1)))
    monkeypatch.setattr(engine, "LEAST_RETAIN", timedelta(0))
    tidy(pipeline, raw, retain=timedelta(0))
    assert len(rows(raw)) == len(before) + 1
    assert len(list(raw.glob("*.parquet"))) == files(raw) == 1
    pipeline.sync()
    assert_sound(pipeline)


def test_killed_at_any_moment_it_changes_nothing(pipeline: Pipeline, txn: Any) -> None:
    """At random, from before it writes until after it ends."""
    in_steps(pipeline, txn, 4)
    chance = random.Random(5)
    for number, table in enumerate(["raw", "staging"] * 6):
        before = rows(Path(pipeline.raw)), pipeline.of("output"), pipeline.of("done")
        process = start("maintain", table, cwd=pipeline.folder)
        time.sleep(chance.uniform(0.2, 1.2))
        process.kill()
        process.wait()
        assert (rows(Path(pipeline.raw)), pipeline.of("output"), pipeline.of("done")) == before
        pipeline.load(("a", txn(f"after {number}", 1, x=1)))
        if number % 4 == 3:
            pipeline.sync()
    pipeline.sync()
    assert_sound(pipeline)


@pytest.mark.parametrize("which", ["raw", "staging"])
def test_its_entry_of_the_log_that_was_cut_off_is_refused_and_nothing_is_written(
    pipeline: Pipeline, txn: Any, which: str
) -> None:
    """Killed between its commit and the checkpoint that follows, on a disk that lost the entry's end."""
    in_steps(pipeline, txn, 3)
    table = Path(pipeline.raw) if which == "raw" else pipeline.staging
    maintain_and_die(str(table), "after", "compact")
    entry = max((table / "_delta_log").glob("*.json"))
    lines = entry.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 1 + 6  # what it says of itself, a file, and those for which that stands
    (pipeline.folder / "more.jsonl").write_text('{"topic": "a", "value": {"txn": "more", "n": 1}}\n')
    words = ["maintain", which], ["verify"], ["status"], ["cat", which]
    for cut in range(1, len(lines)):
        entry.write_bytes(b"".join(lines[:cut]))
        before = sorted(pipeline.folder.rglob("*"))
        for command in (*words, ["load", "raw", "more.jsonl"]) if which == "raw" else words:
            done = zync(*command, cwd=pipeline.folder, check=False)
            assert (done.returncode, "was cut off" in done.stderr) == (1, True), (command, cut, done.stderr)
        with pytest.raises(ZyncError, match="was cut off"):
            pipeline.sync()
        assert sorted(pipeline.folder.rglob("*")) == before
    entry.write_bytes(b"".join(lines))
    assert_sound(pipeline)


def test_a_syncs_entry_of_the_log_that_was_cut_off_is_refused_and_nothing_is_written(
    pipeline: Pipeline, txn: Any
) -> None:
    in_steps(pipeline, txn, 2)
    entry = max((pipeline.staging / "_delta_log").glob("*.json"))
    lines = entry.read_bytes().splitlines(keepends=True)
    assert any(b'"txn"' in line for line in lines)
    pipeline.load(("a", txn("more", 1, x=1)))
    for cut in range(len(lines)):
        entry.write_bytes(b"".join(lines[:cut]) or lines[0][:20])
        before = sorted(pipeline.folder.rglob("*"))
        for command in (["maintain", "staging"], ["verify"], ["status"], ["cat", "staging"]):
            done = zync(*command, cwd=pipeline.folder, check=False)
            assert (done.returncode, "lake/staging" in done.stderr) == (1, True), (command, cut, done.stderr)
        with pytest.raises(ZyncError):
            pipeline.sync()
        assert sorted(pipeline.folder.rglob("*")) == before
    entry.write_bytes(b"".join(lines))
    assert pipeline.sync().transactions == 1
    assert_sound(pipeline)
