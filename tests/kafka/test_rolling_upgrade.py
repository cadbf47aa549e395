"""Versions of zync side by side on one raw; and a raw whose format a newer one changed."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from tests.conftest import TopicMaker, produce, start, zync
from tests.kafka.conftest import Lake, wait_until
from tests.kafka.test_exactly_once import assert_each_landed_once, more_arrives, producing
from tests.other_versions import OTHER, environment, upgrade
from zync.errors import FormatError

PRESENT = Path(__file__).parents[2]


@pytest.mark.skipif(not OTHER, reason="ZYNC_TEST_OTHER names no checkout of another version")
@pytest.mark.parametrize("order", [(Path(OTHER), PRESENT), (PRESENT, Path(OTHER))], ids=["upgrade", "rollback"])
def test_a_rolling_change_of_version_under_load_loses_and_repeats_nothing(
    lake: Lake, topic: TopicMaker, order: tuple[Path, Path]
) -> None:
    """Two processes of a version become two of another, one by one; some are killed."""
    name = topic(partitions=4)
    lake.config(session_timeout_ms=6000, heartbeat_interval_ms=500)
    admin = AdminClient({"bootstrap.servers": lake.broker})
    running: list[subprocess.Popen[str]] = []

    def members() -> int:
        group = f"zync-{lake.table().metadata().id}"
        described = admin.describe_consumer_groups([group])[group].result(20)
        return len([one for one in described.members if one.assignment.topic_partitions])

    def begin(checkout: Path) -> None:
        command = ("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "100ms")
        running.append(start(*command, cwd=lake.folder, env=environment(checkout, lake.folder)))
        wait_until(lambda: lake.count() and members() == len(running))
        more_arrives(lake, name, 4)

    def end(*, killed: bool) -> None:
        process = running.pop(0)
        (process.kill if killed else process.terminate)()
        assert killed or process.wait(60) == 0
        wait_until(lambda: members() == len(running))
        more_arrives(lake, name, 4)

    before, after = order
    try:
        with producing(lake.broker, name, 4) as sent:
            begin(before)
            begin(before)
            end(killed=True)
            begin(after)
            begin(after)
            end(killed=False)
            end(killed=True)
        end_of_all(running)
    finally:
        for process in running:
            process.kill()
    assert_each_landed_once(lake, name, sent)


def end_of_all(running: "list[subprocess.Popen[str]]") -> None:
    for process in running:
        process.terminate()
    assert [process.wait(60) for process in running] == [0] * len(running)


def test_a_process_that_runs_ends_when_a_newer_zync_changes_the_format(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    lake.config()
    produce(lake.broker, [(name, 0, {"n": 1})])
    process = start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 1)
        upgrade(lake.raw)
        produce(lake.broker, [(name, 0, {"n": 2})])
        assert process.wait(60) == FormatError.exit_code
    finally:
        process.kill()
    (log,) = lake.folder.glob("sync-from-*.log")
    assert log.read_text().strip().endswith("install zync 99.1.0 or newer")
    again = zync("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", cwd=lake.folder, check=False)
    assert again.stderr.strip().endswith("install zync 99.1.0 or newer")
    assert again.returncode == FormatError.exit_code
    assert DeltaTable(lake.raw).to_pyarrow_table().num_rows == 1
