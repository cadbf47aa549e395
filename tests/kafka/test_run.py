"""`zync run`: parts that are killed come back, parts whose run is gone end, and who watches is told."""

import json
import os
import pty
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.cdc.test_bank_run import part
from tests.conftest import BRISK, ZYNC, TopicMaker, produce, start, zync
from tests.deliver.conftest import Staging
from tests.kafka.conftest import Lake, get, wait_until
from zync.kafka.dev_broker import free_port
from zync.project.load import load
from zync.run import supervisor
from zync.run.supervisor import Part, parts


@pytest.fixture
def topic_of_transactions(lake: Lake, topic: TopicMaker) -> str:
    """A topic, and a config of transactions of two records in it, which is of no output."""
    name = topic()
    lake.config(session_timeout_ms=45000)
    with (lake.folder / "zync.yaml").open("a") as config:
        config.write(f'topics: {{{name}: {{id: "value:txn"}}}}\ntransactions: {{done: "count(*) = 2"}}\n{BRISK}')
    return name


def send(lake: Lake, name: str, txns: range) -> None:
    produce(lake.broker, [(name, 0, {"txn": txn}) for txn in txns for _ in range(2)])


def test_what_dies_is_started_again_and_what_lost_its_run_ends(lake: Lake, topic_of_transactions: str) -> None:
    name, port = topic_of_transactions, free_port()
    send(lake, name, range(5))
    running = start("run", "--commit-every", "100ms", "--metrics", f"localhost:{port}", cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 10)
        killed = part(running, "sync-from kafka")
        assert killed
        os.kill(killed, signal.SIGKILL)
        began = time.monotonic()
        send(lake, name, range(5, 10))
        wait_until(lambda: lake.count() == 20)
        assert time.monotonic() - began < 30  # less than Kafka waits for who was killed
        wait_until(lambda: 'zync_sync_transactions_total{part="sync"} 10.0' in get(port, "/metrics")[1], 180)
        said = get(port, "/metrics")[1]
        assert 'zync_run_restarts_total{part="sync-from"} 1.0' in said
        assert 'zync_run_up{part="sync"} 1.0' in said
        assert get(port, "/readyz") == (200, "ready\n")
        again = zync("run", cwd=lake.folder, check=False)
        assert again.returncode == 3
        assert f"another `zync run` is running on the lake {lake.folder}" in again.stderr
        left = [part(running, words) for words in ("sync-from kafka", "sync raw")]
        running.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), 30)
    finally:
        running.kill()
    log = next(lake.folder.glob("run---commit-*.log")).read_text()
    assert "sync-from killed by SIGKILL; started again in 1 s" in log
    assert "sync      sync 1: " in log
    assert log.count("sync-from starts\n") > 1


def test_a_lake_that_vanishes_under_it_ends_all_parts_by_name(lake: Lake, topic_of_transactions: str) -> None:
    """Started again, sync-from would begin anew in another raw, at seqno 1."""
    name = topic_of_transactions
    send(lake, name, range(5))
    running = start("run", "--commit-every", "100ms", cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 10)
        (lake.folder / "lake").rename(lake.folder / "elsewhere")
        send(lake, name, range(5, 10))
        assert running.wait(60) == 4
    finally:
        running.kill()
    log = next(lake.folder.glob("run---commit-*.log")).read_text()
    assert re.search(r"the table at .*/raw was deleted while zync used it: put it back", log), log
    assert "ended with exit code 4; all parts stop" in log
    assert not (lake.folder / "lake" / "raw").exists()


def test_on_a_terminal_it_shows_how_the_parts_do_and_ctrl_c_ends_them(lake: Lake, topic_of_transactions: str) -> None:
    send(lake, topic_of_transactions, range(5))
    ours, theirs = pty.openpty()
    command = [*ZYNC, "run", "--commit-every", "100ms"]
    environment = {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    running = subprocess.Popen(command, cwd=lake.folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = ""

    def shows(text: str) -> bool:
        nonlocal shown
        shown += os.read(ours, 100_000).decode()
        return text in shown

    try:
        wait_until(lambda: shows("zync run"))
        wait_until(lambda: shows("10 records"))
        wait_until(lambda: shows("5 transactions"), 180)
        wait_until(lambda: shows("a sync's stages: read"))
        rows = r"10 records +[\d,]+ +lag 0 \([\d.]+ s\)[^~]*5 transactions +[\d,]+ +in flight 0, set aside: none"
        wait_until(lambda: shows("zync run") and re.search(rows, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)))
        running.send_signal(signal.SIGINT)
        while running.poll() is None:
            try:
                shows("")
            except OSError:  # the terminal's other end is closed
                break
        assert running.wait(60) == 0
        assert "sync      stops as soon as it can" in shown
        assert "stopping" in shown
        assert "again in" not in shown
        assert "stopped; sync-from: 0 restarts" in shown
        assert "sync 1: " not in shown  # what the view shows as figures it does not print as well
    finally:
        running.kill()


def test_a_part_that_cannot_run_is_tried_again_and_the_rest_goes_on(lake: Lake, topic_of_transactions: str) -> None:
    with (lake.folder / "zync.yaml").open("a") as config:
        config.write("outputs: [{topic: out, sql: out.sql}]\n")
        config.write("deliver: {kafka: {properties: {bootstrap.servers: 'localhost:1'}}}\n")
    (lake.folder / "out.sql").write_text("SELECT seqno, value:txn::int AS n FROM records")
    send(lake, topic_of_transactions, range(5))
    running = start("run", "--commit-every", "100ms", "--log-format", "json", cwd=lake.folder)
    log = next(lake.folder.glob("run---commit-*.log"))

    def said() -> list[dict[str, object]]:
        return [json.loads(line) for line in log.read_text().splitlines()]

    try:
        wait_until(lambda: any(one.get("event") == "restart" for one in said()), 120)
        wait_until(lambda: lake.count() == 10)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) in (0, 1)  # the part may just have failed again
    finally:
        running.kill()
    (failed, *_) = [one for one in said() if one["level"] == "error"]
    assert failed["part"] == "to kafka"
    assert "localhost:1" in str(failed["message"])


def test_a_mistyped_topic_ends_the_run_with_2_after_a_few_tries(lake: Lake) -> None:
    lake.config()
    with (lake.folder / "zync.yaml").open("a") as config:
        config.write(f'topics: {{mistyped: {{id: "value:txn"}}}}\n{BRISK}')
    done = zync("run", cwd=lake.folder, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert len([line for line in lines if "there is no topic 'mistyped'" in line]) == 3
    assert len([line for line in lines if line.startswith("sync-from ended with exit code 2; started again")]) == 2
    assert "sync-from ended with exit code 2, 3 times in a row: not started again" in done.stderr
    assert "stopped; sync-from: 2 restarts" in lines[-1]


def test_a_topic_that_is_made_meanwhile_is_no_mistake(lake: Lake, topic: TopicMaker) -> None:
    """As by who deploys the pipeline together with what sends to it."""
    name = f"late-{lake.folder.name}"
    lake.config()
    with (lake.folder / "zync.yaml").open("a") as config:
        config.write(f'topics: {{{name}: {{id: "value:txn"}}}}\n{BRISK}')
    running = start("run", "--commit-every", "100ms", cwd=lake.folder)
    log = next(lake.folder.glob("run---commit-*.log"))
    try:
        wait_until(lambda: "started again" in log.read_text())
        topic.create(name)
        produce(lake.broker, [(name, 0, {"txn": 1})])
        wait_until(lambda: lake.count() == 1)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    finally:
        running.kill()
    assert "not started again" not in log.read_text()


def test_a_run_that_is_stopped_before_its_parts_have_begun_ends_well(lake: Lake, topic_of_transactions: str) -> None:
    running = start("run", cwd=lake.folder)
    try:
        wait_until(lambda: bool(Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text()))
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    finally:
        running.kill()


def test_what_runs_is_what_the_config_names(tmp_path: Path) -> None:
    def names(text: str) -> list[str]:
        (tmp_path / "zync.yaml").write_text(text)
        return [one.name for one in parts(load(tmp_path / "zync.yaml"), str(tmp_path), {})]

    assert names("lake: l") == ["sync-from", "sync"]
    assert names("deliver: {kafka: {}}") == ["sync-from", "sync", "to kafka"]
    assert names("deliver: {tables: {}, kafka: {}}") == ["sync-from", "sync", "to kafka", "to tables"]
    behind = [one.name for one in parts(load(tmp_path / "zync.yaml"), str(tmp_path), {}) if one.behind]
    assert behind == ["to tables"]


def test_what_nothing_waits_for_lets_the_others_go_first_once_it_is_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging(tmp_path, "localhost:1")
    (tmp_path / "t.sql").write_text("SELECT seqno, value:x::int AS x FROM r")
    told = (
        f'topics: {{r: {{id: "value:txn"}}}}\noutputs: [{{topic: t, sql: t.sql}}]\ndeliver: {{tables: {{}}}}\n{BRISK}'
    )
    staging.config(told)
    monkeypatch.setenv("ZYNC_CONFIG", str(tmp_path / "zync.yaml"))
    (behind,) = [one for one in parts(load(tmp_path / "zync.yaml"), str(tmp_path / "lake"), {}) if one.behind]
    made = (Part("ahead", ("status", "--watch", "--lake", str(tmp_path))), behind)
    runner = supervisor.Pipeline(made, threading.Event(), lambda *_: None)

    def nice() -> dict[str, set[int]]:
        """Of each part that of all its threads, and of its session where Linux weighs those."""
        found = {}
        for one in made:
            runner._tend(one)  # noqa: SLF001
            assert one.process
            of = Path(f"/proc/{one.process.pid}")
            found[one.name] = {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in (of / "task").iterdir()}
            if (of / "autogroup").exists():  # there the process's own niceness does nothing
                found[one.name].add(int((of / "autogroup").read_text().split()[-1]) + os.nice(0))
        return found

    ours = os.nice(0)
    not_yet = {"ahead": {ours}, behind.name: {ours}}
    try:
        monkeypatch.setattr(supervisor, "_COLD_SECONDS", 0.0)
        for _ in range(2):
            assert nice() == not_yet  # it has delivered nothing
        staging.sync([[("t", None, '{"x":1}')]])
        monkeypatch.setattr(supervisor, "_COLD_SECONDS", 600.0)
        wait_until(lambda: behind.delivered, 120)
        assert nice() == not_yet
        monkeypatch.setattr(supervisor, "_COLD_SECONDS", 0.0)
        assert nice() == {"ahead": {ours}, behind.name: {ours + 5}}
        assert behind.process
        os.setpriority(os.PRIO_PGRP, behind.process.pid, ours + 9)  # as an operator may
        runner._tend(behind)  # noqa: SLF001
        assert os.getpriority(os.PRIO_PROCESS, behind.process.pid) == ours + 9
    finally:
        runner._end(lambda: None)  # noqa: SLF001
