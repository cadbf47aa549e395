"""A large sync says how far it is while it runs."""

import json
import os
import pty
import re
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ZYNC
from tests.spark.conftest import Pipeline
from zync.raw.jsonl import load
from zync.spark.sizing import SMALL
from zync.sync.progress import Progress
from zync.sync.syncer import STAGES, Syncer

RECORDS = SMALL + 2


def load_many(raw: str, folder: Path, topic: str) -> None:
    path = folder / "many.jsonl"
    values = (json.dumps({"topic": topic, "value": {"txn": number // 2, "n": 2, "x": 1}}) for number in range(RECORDS))
    path.write_text("\n".join(values))
    load(raw, [str(path)])


def test_each_stage_of_a_large_sync_is_reported_and_its_end(pipeline: Pipeline) -> None:
    load_many(pipeline.raw, pipeline.folder, "a")
    reports: list[Progress | None] = []
    syncer = Syncer(pipeline.config, pipeline.raw, str(pipeline.staging), pipeline.spark, reports.append)
    assert syncer.sync().records == RECORDS
    assert reports.pop() is None
    steps = [step for step in reports if step]
    assert len(steps) == len(reports)
    assert {step.records for step in steps} == {RECORDS}
    numbers = [step.number for step in steps]
    assert numbers == sorted(numbers)
    assert {step.stage for step in steps} <= {stage.__name__ for stage in STAGES}
    assert any(step.tasks for step in steps)
    assert all(step.done <= step.tasks for step in steps)
    pipeline.load(("a", {"txn": "small", "n": 1, "x": 1}))
    syncer.sync()
    assert len(reports) == len(steps), "a small sync says nothing"


PROJECT = """
topics: {a: {id: "value:txn"}}
transactions: {done: "count(*) = max(value:n::int)"}
outputs: [{topic: out, sql: out.sql}]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "zync.yaml").write_text(PROJECT)
    (tmp_path / "out.sql").write_text("SELECT seqno, value:x::int AS x FROM a")
    load_many(str(tmp_path / "lake" / "raw"), tmp_path, "a")
    return tmp_path


def test_a_large_backlog_is_told_in_lines_before_spark_has_started(project: Path, warm: Callable[..., Any]) -> None:
    lines = warm("sync", "raw", "staging", cwd=project).stderr.splitlines()
    begun = f"sync of {RECORDS:,} records: "
    assert lines[0] == f"{begun}Spark starts"
    assert len(lines) > 1
    stages = "|".join(stage.__name__ for stage in STAGES)
    for line in lines[1:]:
        assert re.fullmatch(rf"{re.escape(begun)}({stages}) \(\d of 5\)(, \d+ of \d+ tasks?)?, \d+ s so far.*", line)


def on_a_terminal(folder: Path, *words: str) -> tuple[int, str, str]:
    """Runs the command line with a terminal for standard error; returns exit code, output and what the terminal got."""
    terminal, ours = pty.openpty()
    process = subprocess.Popen(
        [*ZYNC, *words], cwd=folder, stdout=subprocess.PIPE, stderr=ours, text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )  # fmt: skip
    os.close(ours)
    printed: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the process has ended
            while data := os.read(terminal, 4096):
                printed.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    output = process.communicate(timeout=240)[0]
    reader.join()
    os.close(terminal)
    return process.returncode, output, b"".join(printed).decode()


def test_on_a_terminal_it_is_a_bar_that_goes_away(project: Path) -> None:
    code, output, text = on_a_terminal(project, "sync", "raw", "staging")
    assert code == 0, text
    assert output.startswith("sync 1:"), output
    assert f"sync of {RECORDS:,} records: Spark starts" in text
    assert "━" in text
    assert "apply_rules (4 of 5)" in text or "judge (3 of 5)" in text
    assert text.endswith("\x1b[2K"), "the bar is gone"
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h"), "the cursor is there again"


def test_the_bar_goes_away_if_spark_does_not_start(project: Path) -> None:
    code, _, text = on_a_terminal(project, "sync", "raw", "staging", "--master", "no-master")
    assert code == 1
    assert "Spark starts" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is there again"
    assert "zync: Spark does not start on no-master" in text.splitlines()[-1]
