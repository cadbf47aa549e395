"""Real processes whose receivers hang, or that go on until they are stopped, or that fail."""

import os
import signal

import pytest

from tests.conftest import start, zync
from tests.deliver.conftest import Staging, assert_all_there, committed, row
from tests.kafka.conftest import wait_until
from tests.observe.receivers import assert_valid, attributes, receiving


@pytest.fixture
def staging(staging: Staging) -> Staging:
    """Three transactions, for a topic that no other test has."""
    staging.sync([[row(f"rows-{staging.folder.name}", number)] for number in range(3)])
    return staging


def test_a_delivery_whose_receivers_hang_delivers_all_the_same(staging: Staging) -> None:
    with receiving(hanging=True) as received:
        env = {**os.environ, **received.traces, **received.lineage}
        done = staging.zync("--until-caught-up", env=env)
    assert received.asked >= 2
    assert_all_there(committed(staging.broker, f"rows-{staging.folder.name}"), staging)
    away = [line for line in done.stderr.splitlines() if "does not answer; the work goes on without it" in line]
    assert len(away) == 2
    assert "Traceback" not in done.stderr


def test_a_delivery_that_goes_on_is_one_run_which_completes_when_it_is_stopped(staging: Staging) -> None:
    with receiving() as received:
        env = {**os.environ, **received.traces, **received.lineage, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        running = start("sync-to", "kafka", "staging", cwd=staging.folder, env=env)
        try:
            wait_until(lambda: len(received.spans) == 1)
            staging.sync([[row(f"rows-{staging.folder.name}", 3)]])
            wait_until(lambda: len(received.spans) == 2)
            running.send_signal(signal.SIGTERM)
            assert running.wait(30) == 0
        finally:
            running.kill()
    assert [attributes(span)["zync.sync"] for span in received.spans] == [1, 2]
    begun, ended = received.events
    assert (begun["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert begun["run"]["runId"] == ended["run"]["runId"]
    assert ended["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert ended["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 4
    for event in received.events:
        assert_valid(event)


def test_a_delivery_that_fails_says_so_and_says_no_secret(staging: Staging) -> None:
    """A message is too large for its topic: the error's message names the topic and the key."""
    staging.sync([[row(f"rows-{staging.folder.name}", "hunter2", text=os.urandom(1_200_000).hex())]])
    with receiving() as received:
        env = {**os.environ, **received.traces, **received.lineage}
        done = zync(
            "sync-to", "kafka", "staging", "--until-caught-up", "--one-by-one", cwd=staging.folder, env=env, check=False
        )
    assert done.returncode == 1
    assert "hunter2" in done.stderr
    *_, failed = received.spans
    assert (failed.status.code, failed.status.message) == (2, "ZYNC-FAILED ZyncError")
    assert received.events[-1]["eventType"] == "FAIL"
    assert received.events[-1]["run"]["facets"]["errorMessage"]["message"] == "ZYNC-FAILED ZyncError"
    assert "hunter2" not in f"{received.events}{received.requests}"
