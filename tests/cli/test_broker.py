"""`zync broker`: a Kafka for development."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.conftest import start, zync
from tests.kafka.conftest import wait_until
from zync.kafka.dev_broker import DevKafka


def test_the_broker_holds_none_of_the_callers_pipes(tmp_path: Path) -> None:
    started = json.loads(zync("broker", "start", "--json", cwd=tmp_path).stdout)
    try:
        assert list(started) == ["bootstrap_servers"]
        state = json.loads(zync("broker", "status", "--json", cwd=tmp_path).stdout)
        assert next(iter(state)) == "bootstrap_servers"
        assert state["bootstrap_servers"] == started["bootstrap_servers"]
        os.kill(state["pid"], 0)
    finally:
        assert json.loads(zync("broker", "stop", "--json", cwd=tmp_path).stdout) == {"stopped": True}
    command = Path(f"/proc/{state['pid']}/cmdline")
    assert not command.exists() or command.read_bytes() == b""  # gone, or waiting for init to take note
    assert json.loads(zync("broker", "status", "--json", cwd=tmp_path).stdout)["bootstrap_servers"] is None


def test_a_broker_is_not_started_on_a_port_that_another_has(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as other:
        port = str(other.getsockname()[1])
        for command in ("start", "run"):
            done = zync("broker", command, "--port", port, cwd=tmp_path, check=False)
            assert (done.returncode, f"port {port} is taken" in done.stderr) == (2, True)
    assert json.loads(zync("broker", "status", "--json", cwd=tmp_path).stdout)["running"] is False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_in_the_foreground_ends_with_its_command(tmp_path: Path, number: int) -> None:
    running = start("broker", "run", cwd=tmp_path)
    broker = DevKafka(tmp_path / ".zync" / "broker")
    wait_until(broker.pid)
    pid = broker.pid()
    running.send_signal(number)
    assert running.wait(30) == 0
    assert pid
    assert broker.pid() is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
