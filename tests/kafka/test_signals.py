"""Being stopped is not an error: what is in hand is committed first."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ZYNC, TopicMaker, produce, zync
from tests.kafka.conftest import Lake, wait_until
from zync.staging.table import ensure_staging


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_commits_what_is_in_hand_and_prints_the_summary(lake: Lake, topic: TopicMaker, number: int) -> None:
    name = topic()
    produce(lake.broker, [(name, 0, {"n": n}) for n in range(50)])
    lake.config()
    args = ("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "60s", "--commit-rows", "50", "--json")
    args += ("--log-format", "json")
    process = subprocess.Popen(
        [*ZYNC, *args], cwd=lake.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: lake.count() == 50)  # so it reads; by number of rows, which the next ones do not reach
        produce(lake.broker, [(name, 0, {"n": n}) for n in range(50, 57)])
        time.sleep(1)  # nothing outside tells that it has them in hand
        assert lake.count() == 50
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert [json.loads(value)["n"] for value in lake.values()] == [*range(57)]
    summary = json.loads(out)
    assert (summary["records"], summary["commits"], summary["lag"]) == (57, 2, 0)
    lines = [json.loads(line) for line in err.splitlines()]
    assert [(one["level"], one["event"], one.get("records") or one["partitions"]) for one in lines] == [
        ("info", "assigned", [f"{name}/0"]),
        ("info", "commit", 50),
        ("info", "commit", 7),
    ]
    zync("verify", "raw", "--kafka", cwd=lake.folder)


def test_a_second_ctrl_c_ends_it_at_once(lake: Lake) -> None:
    """Of an attempt that hangs: nobody answers at that address."""
    lake.config()
    code = (
        "import os; from zync.cli.options import stop_on_signals as on; on(); [os.kill(os.getpid(), 2) for _ in '12']"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=lake.folder, timeout=30, check=False)
    assert done.returncode == 130


def test_a_signal_amid_waiting_for_it_is_not_waited_for(tmp_path: Path) -> None:
    """The lock that an event has while it is waited for, or set, is there when the handler runs."""
    code = (
        "import os, signal; from zync.cli.options import stop_on_signals as on; stop = on()\n"
        "with stop._cond: signal.raise_signal(signal.SIGTERM), signal.raise_signal(signal.SIGTERM)\n"
        "os._exit(0 if stop.wait(20) else 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=30, check=False).returncode == 0


@pytest.mark.parametrize("command", [("sync-from", "kafka", "raw"), ("sync-to", "kafka", "staging")])
def test_ctrl_c_while_no_broker_answers_is_a_clean_end(command: tuple[str, ...], tmp_path: Path) -> None:
    ensure_staging(str(tmp_path / "lake" / "staging"), None)
    with socket.create_server(("localhost", 0)) as mute:
        servers = f"localhost:{mute.getsockname()[1]}"
        config = f"lake: lake\nkafka: {{bootstrap.servers: '{servers}'}}\ntopics: {{t: {{id: value:x}}}}\n"
        (tmp_path / "zync.yaml").write_text(config)
        process = subprocess.Popen([*ZYNC, *command, "--until-caught-up"], cwd=tmp_path, stderr=subprocess.PIPE)
        try:
            mute.settimeout(30)
            connection, _ = mute.accept()  # so it asks, and waits
            with connection:
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0, said


def test_after_two_ctrl_c_amid_commits_nothing_is_lost_or_doubled(lake: Lake, topic: TopicMaker) -> None:
    name, sent = topic(), 0
    lake.config(session_timeout_ms=6000)  # which the next waits for, where the one before did not leave the group
    for wait in (0.0, 0.001, 0.01, 0.03):
        produce(lake.broker, [(name, 0, {"n": n}) for n in range(sent, sent + 2000)])
        sent += 2000
        args = [*ZYNC, "sync-from", "kafka", "raw", "--topic", name, "--commit-rows", "10"]
        process = subprocess.Popen(args, cwd=lake.folder, stderr=subprocess.DEVNULL)
        try:
            before = lake.count() if (lake.folder / "lake" / "raw").exists() else 0
            wait_until(lambda before=before: lake.count() > before)  # type: ignore[misc]
            process.send_signal(signal.SIGINT)
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) in (0, 130)
        finally:
            process.kill()
    zync("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", cwd=lake.folder)
    assert lake.offsets(name) == [*range(sent)]
    zync("verify", "raw", "--kafka", cwd=lake.folder)


def test_a_ctrl_c_when_all_is_over_does_not_change_how_it_ended() -> None:
    """In the last that Python does, when it has let go of handlers: objects of the first module end."""
    late = """
import os, signal, sys
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)
late = Late()
sys.argv = ["zync", "--version"]
from zync.__main__ import main
main()
"""
    assert subprocess.run([sys.executable, "-c", late], check=False, capture_output=True).returncode == 0


def killed_and_begun_again(lake: Lake, name: str) -> "subprocess.CompletedProcess[str]":
    """Takes one record, is killed, and the next takes what came meanwhile."""
    killed = subprocess.Popen([*ZYNC, "sync-from", "kafka", "raw", "--topic", name], cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 1)
    finally:
        killed.kill()
        killed.wait(10)
    produce(lake.broker, [(name, 0, {"n": 2})])
    return zync("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", cwd=lake.folder)


def test_after_a_kill_the_next_says_what_it_waits_for(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    produce(lake.broker, [(name, 0, {"n": 1})])
    lake.config(session_timeout_ms=15000)
    done = killed_and_begun_again(lake, name)
    assert [line[:24] for line in done.stderr.splitlines() if "kafka.session.timeout.ms" in line] == [
        "zync: no partitions yet:"
    ]
    assert lake.offsets(name) == [0, 1]


def test_a_member_that_keeps_its_name_goes_on_at_once_after_a_kill(lake: Lake, topic: TopicMaker) -> None:
    """Kafka's static membership: 45 s of session timeout are not waited for."""
    name = topic()
    produce(lake.broker, [(name, 0, {"n": 1})])
    lake.config(group_instance_id="first")
    done = killed_and_begun_again(lake, name)
    assert "no partitions yet" not in done.stderr
    assert lake.offsets(name) == [0, 1]


def test_of_two_members_of_one_name_the_first_ends_and_says_why(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    produce(lake.broker, [(name, 0, {"n": 1})])
    lake.config(group_instance_id="same")
    args = ("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms")
    first = subprocess.Popen([*ZYNC, *args], cwd=lake.folder, stderr=subprocess.PIPE, text=True)
    second = None
    try:
        wait_until(lambda: lake.count() == 1)
        second = subprocess.Popen([*ZYNC, *args], cwd=lake.folder)
        _, said = first.communicate(timeout=60)
        produce(lake.broker, [(name, 0, {"n": 2})])
        wait_until(lambda: lake.count() == 2)
    finally:
        first.kill()
        if second:
            second.kill()
    assert first.returncode == 1
    begun, committed, why = said.splitlines()
    assert begun == f"zync: now read here: {name}/0"
    assert committed.startswith("committed 1 record")
    assert "another sync-from came with the same --instance (group.instance.id)" in why
    assert lake.offsets(name) == [0, 1]
