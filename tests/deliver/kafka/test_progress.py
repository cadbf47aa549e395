"""How far a delivery is: a topic that may be deleted, made anew, or of another staging."""

import logging
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.conftest import TopicMaker, start
from tests.deliver.conftest import Staging, assert_all_there, committed
from tests.deliver.kafka.conftest import transfers
from tests.kafka.conftest import wait_until
from zync.deliver.kafka.producer import Sender, TransactionAbortedError
from zync.errors import UsageError, ZyncError
from zync.raw.table import ensure_raw


@pytest.mark.parametrize("anew", [False, True])
def test_a_progress_topic_that_is_deleted_meanwhile_is_told_again(
    staging: Staging, names: list[str], topic: TopicMaker, *, anew: bool
) -> None:
    """Also where somebody made it otherwise, which ends the run: it is not compacted."""
    progress = f"{names[0]}.p"
    staging.config(f"deliver: {{kafka: {{progress_topic: {progress}}}}}\n")
    staging.sync(transfers(names, 2))
    process = start("sync-to", "kafka", "staging", cwd=staging.folder)
    try:
        wait_until(lambda: len(committed(staging.broker, *names)) == 6)
        topic.delete(progress)
        if anew:
            topic.create(progress, cleanup_policy="delete")
        staging.sync(transfers(names, 1, first=2))
        if anew:
            assert process.wait(60) == 2
        else:
            wait_until(lambda: len(committed(staging.broker, *names)) == 9)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        process.kill()
    said = next(staging.folder.glob("sync-to-*.log")).read_text()
    assert f"topic {progress} was deleted, or made anew: it is told again how far" in said
    if anew:
        assert "is there with cleanup_policy delete, and not compact" in said
        change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, progress, incremental_configs=[change])
        topic.admin.incremental_alter_configs([resource])[resource].result(20)
    assert staging.deliver().transactions == (1 if anew else 0)
    assert_all_there(committed(staging.broker, *names), staging)


@pytest.mark.parametrize("anew", [False, True])
def test_that_progress_is_gone_after_a_transaction_that_did_not_go_through_ends_it(
    staging: Staging, names: list[str], topic: TopicMaker, monkeypatch: pytest.MonkeyPatch, *, anew: bool
) -> None:
    """Whether that was committed is not known then: to send all again in silence would be worse than to end."""
    staging.config(f"deliver: {{kafka: {{progress_topic: {names[0]}.p}}}}\n")
    staging.sync(transfers(names, 2))
    commit = Sender.commit

    def fails_once(sender: Sender, meanwhile: Callable[[], Any]) -> Any:
        done = commit(sender, meanwhile)
        monkeypatch.undo()
        topic.delete(f"{names[0]}.p")
        if anew:
            topic.create(f"{names[0]}.p", cleanup_policy="compact")
        monkeypatch.setattr(Sender, "commit", fails)
        return done

    def fails(sender: Sender, meanwhile: Callable[[], Any]) -> Any:
        monkeypatch.undo()
        msg = "the broker went away"
        raise TransactionAbortedError(msg)

    monkeypatch.setattr(Sender, "commit", fails_once)
    with pytest.raises(UsageError, match=r"does not say any more how far .* was through sync 1 \(seqno 1\)"):
        staging.deliver(group_rows=1)


def test_a_progress_topic_that_is_not_compacted_is_refused(
    staging: Staging, names: list[str], topic: TopicMaker
) -> None:
    topic.create(f"{names[0]}.p", cleanup_policy="delete")
    staging.config(f"deliver: {{kafka: {{progress_topic: {names[0]}.p}}}}\n")
    staging.sync(transfers(names, 1))
    with pytest.raises(UsageError, match="is there with cleanup_policy delete, .*: change it, and do not"):
        staging.deliver()


def test_that_all_is_sent_for_want_of_progress_is_said(
    staging: Staging, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "zync")
    staging.sync(transfers(names, 2))
    staging.deliver()
    assert not caplog.records
    staging.config(f"deliver: {{kafka: {{name: {names[0]}}}}}\n")
    assert staging.deliver().transactions == 2
    (said,) = caplog.messages
    assert f"there is no progress of the delivery {names[0]}" in said
    assert f"topics that have records: {', '.join(sorted(names))}" in said


def test_another_staging_or_an_older_one_is_refused(staging: Staging, names: list[str], tmp_path: Path) -> None:
    staging.config(f"deliver: {{kafka: {{name: {names[0]}}}}}\n")
    staging.sync(transfers(names, 1))
    staging.sync(transfers(names, 1, first=1))
    staging.deliver()
    last = Path(staging.path) / "_delta_log" / f"{2:020}.json"
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(ZyncError, match="ends with sync 1, and was delivered through sync 2"):
        staging.deliver()
    last.write_bytes(kept)
    other = Staging(tmp_path / "other", staging.broker)
    other.folder.mkdir()
    other.sync(transfers(names, 1))
    other.config(f"deliver: {{kafka: {{name: {names[0]}}}}}\n")
    process = start("sync-to", "kafka", "staging", cwd=staging.folder)
    try:
        staging.sync(transfers(names, 1, first=2))
        wait_until(lambda: len(committed(staging.broker, *names)) == 9)
        with pytest.raises(UsageError, match="is of another staging"):
            other.deliver()
        staging.sync(transfers(names, 1, first=3))  # and does not end the one that has the name
        wait_until(lambda: len(committed(staging.broker, *names)) == 12)
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert_all_there(committed(staging.broker, *names), staging)


def test_no_broker_is_said_in_a_line(staging: Staging, names: list[str]) -> None:
    staging.sync(transfers(names, 1))
    gone = staging.zync("--until-caught-up", "--bootstrap-servers", "localhost:1", check=False)
    assert gone.returncode == 1
    assert re.fullmatch(r"zync: no Kafka broker answers at localhost:1 .*\n", gone.stderr)


def test_no_staging_is_the_users_mistake(staging: Staging) -> None:
    none = staging.zync("--until-caught-up", check=False)
    assert none.returncode == 2
    assert "there is no table at" in none.stderr


def test_a_raw_is_no_staging_nor_waited_for_as_one(staging: Staging) -> None:
    ensure_raw(staging.path)
    raw = staging.zync(check=False)
    assert (raw.returncode, "is no staging" in raw.stderr) == (2, True)


def test_someone_elses_open_transaction_is_waited_for(staging: Staging, names: list[str]) -> None:
    """Progress is read to the end of its topic, whatever stands there uncommitted before."""
    staging.sync(transfers(names, 1))
    staging.deliver()
    other = Producer({"bootstrap.servers": staging.broker, "transactional.id": f"other-{names[0]}"})
    other.init_transactions(20)
    other.begin_transaction()
    other.produce("__zync_progress", b"{}", f"other-{names[0]}")
    other.flush(20)
    staging.sync(transfers(names, 1, first=1))
    process = start("sync-to", "kafka", "staging", "--until-caught-up", cwd=staging.folder)
    time.sleep(3)
    assert process.poll() is None
    other.abort_transaction(20)
    assert process.wait(60) == 0
    assert_all_there(committed(staging.broker, *names), staging)
