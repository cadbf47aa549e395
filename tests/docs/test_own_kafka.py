"""The commands for one's own Kafka run as the page has them."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TopicMaker, produce, rows
from tests.docs.pages import environment, has, page, shell
from tests.kafka.conftest import wait_until

OWN_KAFKA = {
    "zync init": "wrote zync.yaml, etl/paid_orders.sql; next: zync check",
    "$EDITOR zync.yaml etl/paid_orders.sql": "",
    "zync check": "the config and its rules can run",
    "zync run": "committed 2 records.*sync 1: 1 transaction of 2 records; output rows: paid_orders 1; in flight 0",
    "zync status": r"head 2, .*cursor 2, head 2\b.*in flight 0.*set aside none.*gaps +none.*lag +\S+ 0, \S+ 0",
}
"""Commands of the page's first block, and what each prints."""
_INSTALL = "pip install ."
"""And the one that is not run: test_wheel.py installs it, somewhere else."""


@pytest.fixture
def in_background(tmp_path: Path) -> Iterator[Callable[[str], tuple["subprocess.Popen[bytes]", Path]]]:
    """Starts a command that is left running, and says where its output goes; what still runs in the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def go(command: str) -> tuple["subprocess.Popen[bytes]", Path]:
        log = tmp_path / f"{len(started)}.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=tmp_path, env=environment(), stdout=out, stderr=out
            )
        started.append(process)
        return process, log

    yield go
    for process in started:
        process.kill()
        process.wait()


def test_the_commands_for_ones_own_kafka_run_as_written(
    tmp_path: Path, broker: str, topic: TopicMaker, in_background: Any
) -> None:
    orders, payments = topic("orders"), topic("payments")
    produce(broker, [(orders, 0, {"txn": "t1", "n": 2, "orderID": 7, "item": "tea"})])
    produce(broker, [(payments, 0, {"txn": "t1", "n": 2, "amount": 2.5})])
    editor = tmp_path / "editor"  # what a user changes: the broker, and what the topics are called there
    editor.write_text(
        f"""#!/bin/sh
        sed -i -e 's/localhost:9092/{broker}/' -e 's/^  orders:/  {orders}:/' -e 's/# as: orders/as: orders/' "$1"
        sed -i -e 's/payments: {{id: "value:txn"}}/{payments}: {{id: "value:txn", as: payments}}/' "$1"
        test -f "$2"
        """
    )
    editor.chmod(0o755)

    (block,) = (one for one in page("docs/how-to/own-kafka.md").blocks if "zync init" in one.commands)
    assert set(block.commands) == {*OWN_KAFKA, _INSTALL}
    running = {}
    for command, comment in block.commands.items():
        if command == _INSTALL:
            continue
        if "leave it running" in comment:
            running[command] = in_background(command)
            continue
        for begun, (process, log) in running.items():
            wait_until(lambda log=log, begun=begun: has(log.read_text(), OWN_KAFKA[begun]), 120)  # type: ignore[misc]
            assert process.poll() is None
        done = shell(command, tmp_path, EDITOR=str(editor))
        assert done.returncode == 0, done.stderr
        assert has(done.stdout, OWN_KAFKA[command]), done.stdout
    assert running.keys() == {"zync run"}
    for process, log in running.values():
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, log.read_text()
    (output,) = (row for row in rows(tmp_path / "lake" / "staging") if row["kind"] == "output")
    assert (output["key"], output["value"]) == ('{"orderID":7}', '{"orderID":7,"item":"tea","amount":2.50}')
