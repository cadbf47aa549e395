"""Records that are gone from Kafka before they were read: never skipped in silence."""

import signal
import subprocess
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conftest import TopicMaker, produce, rows, start, zync
from tests.kafka.conftest import Lake, wait_until
from tests.kafka.harms import delete_below, make_anew
from zync.errors import GapError, UsageError
from zync.ingest.committer import Committer
from zync.ingest.start_position import Begin
from zync.kafka import admin
from zync.kafka.admin import Brokers
from zync.kafka.dev_broker import DevKafka
from zync.kafka.partition import Partition
from zync.raw.append import Appended, Appender
from zync.raw.batch import RECORD_SCHEMA, Batch, Slice
from zync.raw.table import Gap, stored_id


def numbers(topic: str, numbers: range, partition: int = 0) -> list[tuple[str, int, bytes]]:
    return [(topic, partition, b"%d" % number) for number in numbers]


def suspend(process: "subprocess.Popen[str]") -> None:
    """Stops it until SIGCONT; what it had asked Kafka for last is answered when this returns (fetch.wait.max.ms)."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)


def read_then_anew(lake: Lake, topic: TopicMaker, then: range) -> str:
    """A topic of which five records were read, and then it was made anew, with others."""
    name = topic()
    produce(lake.broker, numbers(name, range(5)))
    lake.sync_from(name)
    make_anew(topic, name)
    produce(lake.broker, numbers(name, then))
    return name


def test_records_deleted_before_they_were_read_stop_it_and_nothing_is_written(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    produce(lake.broker, numbers(name, range(10)))
    lake.sync_from(name)
    produce(lake.broker, numbers(name, range(10, 30)))
    delete_below(topic, name, 20)
    version = lake.table().version()
    lake.config()
    done = zync("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", cwd=lake.folder, check=False)
    assert done.returncode == 1
    assert f"{name}/0" in done.stderr
    assert "offsets 10 to 19" in done.stderr
    assert "--on-gap skip" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2  # and that it reads the partition
    assert lake.table().version() == version


def test_records_deleted_while_it_was_suspended_stop_it(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    lake.config()
    produce(lake.broker, numbers(name, range(10)))
    process = start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 10)
        suspend(process)
        produce(lake.broker, numbers(name, range(10, 30)))
        delete_below(topic, name, 20)
        process.send_signal(signal.SIGCONT)
        assert process.wait(30) == 1
    finally:
        process.kill()
    (log,) = lake.folder.glob("sync-from-*.log")
    assert "offsets 10 to 19 were deleted before they were read" in log.read_text()
    assert lake.offsets(name) == [*range(10)]
    zync("verify", "raw", cwd=lake.folder)


def test_on_gap_skip_goes_on_and_the_gap_is_on_record(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    produce(lake.broker, numbers(name, range(10)))
    lake.sync_from(name)
    produce(lake.broker, numbers(name, range(10, 30)))
    delete_below(topic, name, 20)
    lake.config()
    args = ("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", "--on-gap", "skip")
    done = zync(*args, cwd=lake.folder)
    assert "offsets 10 to 19" in done.stderr
    assert lake.offsets(name) == [*range(10), *range(20, 30)]
    assert lake.positions().gaps == (Gap(Partition(name, 0), 10, 20),)
    assert lake.sync_from(name).commits == 0
    assert "ok" in zync("verify", "raw", "--kafka", cwd=lake.folder).stdout


def test_a_gap_up_to_the_very_end_is_a_gap_too(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    produce(lake.broker, numbers(name, range(10)))
    lake.sync_from(name)
    produce(lake.broker, numbers(name, range(10, 30)))
    delete_below(topic, name, 30)
    with pytest.raises(GapError, match="offsets 10 to 29"):
        lake.sync_from(name)
    lake.sync_from(name, on_gap="skip")
    assert lake.positions().next == {Partition(name, 0): 30}
    assert lake.positions().gaps == (Gap(Partition(name, 0), 10, 30),)


def test_other_partitions_go_on_from_where_they_stood_after_a_gap(lake: Lake, topic: TopicMaker) -> None:
    name = topic(partitions=2)
    produce(lake.broker, [*numbers(name, range(10)), *numbers(name, range(10), 1)])
    lake.sync_from(name)
    produce(lake.broker, [*numbers(name, range(10, 30)), *numbers(name, range(10, 30), 1)])
    delete_below(topic, name, 20)
    with pytest.raises(GapError, match=f"{name}/0"):
        lake.sync_from(name)
    lake.sync_from(name, on_gap="skip")
    assert lake.offsets(name, 1) == [*range(30)]
    assert lake.offsets(name, 0) == [*range(10), *range(20, 30)]


def test_what_was_deleted_before_the_first_reading_is_no_gap(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    produce(lake.broker, numbers(name, range(10)))
    delete_below(topic, name, 4)
    lake.sync_from(name)
    assert lake.offsets(name) == [*range(4, 10)]
    assert lake.positions().gaps == ()


@pytest.mark.parametrize("length", [0, 3, 10, 25], ids=["empty", "shorter", "as long", "longer"])
def test_a_topic_made_anew_stops_it_and_skip_goes_on_from_its_beginning(
    lake: Lake, topic: TopicMaker, length: int
) -> None:
    name = topic()
    produce(lake.broker, numbers(name, range(10)))
    lake.sync_from(name)
    make_anew(topic, name)
    produce(lake.broker, numbers(name, range(100, 100 + length)))
    version = lake.table().version()
    with pytest.raises(GapError, match=f"{name}.* was deleted and made anew"):
        lake.sync_from(name)
    assert lake.table().version() == version
    lake.sync_from(name, on_gap="skip")
    assert lake.values() == [b"%d" % number for number in (*range(10), *range(100, 100 + length))]
    assert lake.positions().gaps == (Gap(Partition(name, 0), 10, 0),)
    produce(lake.broker, numbers(name, range(200, 203)))
    lake.sync_from(name)
    assert lake.offsets(name)[10:] == [*range(length + 3)]
    lake.config()
    zync("verify", "raw", "--kafka", cwd=lake.folder)


def test_verify_names_a_partition_that_a_topic_made_anew_does_not_have(lake: Lake, topic: TopicMaker) -> None:
    name = topic(partitions=2)
    produce(lake.broker, [(name, partition, partition) for partition in (0, 1)])
    lake.sync_from(name)
    make_anew(topic, name)
    lake.sync_from(name, on_gap="skip")
    lake.config()
    seen = zync("verify", "raw", "--kafka", cwd=lake.folder, check=False)
    said = f"{name}/1: the topic was made anew since raw read it, without such a partition"
    assert (seen.returncode, said in seen.stdout, f"{name}/0:" in seen.stdout) == (1, True, False)


@pytest.mark.parametrize("length", [3, 25], ids=["shorter", "longer"])
def test_a_topic_made_anew_is_recognised_while_it_is_being_read(lake: Lake, topic: TopicMaker, length: int) -> None:
    name = topic()
    produce(lake.broker, numbers(name, range(10)))
    lake.config(topic_metadata_refresh_interval_ms=500)
    process = start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 10)
        make_anew(topic, name)
        produce(lake.broker, numbers(name, range(100, 100 + length)))
        assert process.wait(30) == 1
    finally:
        process.kill()
    assert lake.values() == [b"%d" % number for number in range(10)]
    zync("verify", "raw", cwd=lake.folder)
    seen = zync("verify", "raw", "--kafka", cwd=lake.folder, check=False)
    assert (seen.returncode, "the topic was made anew since raw read it" in seen.stdout) == (1, True)


def test_what_was_read_lands_only_once_it_is_known_of_which_topic_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No broker answers when what was read of two topics is to be committed, of which one was made anew meanwhile."""
    monkeypatch.setattr(admin, "_TIMEOUT", 1.0)
    kafka = DevKafka(tmp_path / "broker")
    lake = Lake(tmp_path, kafka.start())
    topic, stop, there, anew = TopicMaker(lake.broker), threading.Event(), Partition("there", 0), Partition("anew", 0)
    brokers = Brokers({"bootstrap.servers": lake.broker}, stop)
    committer = Committer(lake.raw, brokers)
    try:
        for name, _ in (there, anew):
            topic.create(name)
            produce(lake.broker, numbers(name, range(10)))
        lake.sync_from(there.topic, anew.topic)
        ids = brokers.topic_ids([there.topic, anew.topic])
        make_anew(topic, anew.topic)
        kafka.stop()

        def commits() -> None:
            read = [(partition, ids[partition.topic]) for partition in (there, anew)]
            committer.start(
                Batch(slices={partition: Slice(10, 20, topic_id=one, begin_id=one) for partition, one in read})
            )
            wait_until(lambda: "wait until Kafka says" in caplog.text)
            assert not committer.done()

        commits()
        stop.set()
        assert committer.result() == Appended()
        assert "what was in hand is left there" in caplog.text
        stop.clear()
        caplog.clear()
        commits()
        assert kafka.start(int(lake.broker.rpartition(":")[2])) == lake.broker
        done = committer.result()
        assert done
        assert (done.committed, done.refused) == ({there: 20}, {anew: None})
    finally:
        committer.close()
        kafka.stop()


def test_a_partition_that_ends_before_what_was_read_stops_it(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    produce(lake.broker, numbers(name, range(3)))
    Path(lake.folder / "one.jsonl").write_text(f'{{"topic": "{name}", "offset": 9}}\n')
    zync("load", "raw", "one.jsonl", cwd=lake.folder)
    with pytest.raises(GapError, match=f"{name}/0: .* offset 10, .* ends at 3"):
        lake.sync_from(name)


@pytest.mark.parametrize("on_gap", ["stop", "skip"])
def test_a_topic_that_is_deleted_while_it_is_read_is_told_of(lake: Lake, topic: TopicMaker, on_gap: str) -> None:
    """The group takes its partitions away as if others read them; what it held and nobody read is lost."""
    gone, other = topic(), topic()
    lake.config(topic_metadata_refresh_interval_ms=500)
    produce(lake.broker, [*numbers(gone, range(5)), *numbers(other, range(5))])
    by_regex = f"^({gone}|{other})$"
    args = ("--topic", by_regex, "--commit-every", "50ms", "--on-gap", on_gap)
    process = start("sync-from", "kafka", "raw", *args, cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 10)
        suspend(process)
        produce(lake.broker, numbers(gone, range(5, 9)))
        topic.admin.delete_topics([gone], operation_timeout=10)[gone].result(20)
        process.send_signal(signal.SIGCONT)
        (log,) = lake.folder.glob("sync-from-kafka-*.log")
        wait_until(lambda: "is gone from" in log.read_text())
        if on_gap == "skip":
            produce(lake.broker, numbers(other, range(5, 8)))
            wait_until(lambda: lake.count() == 13)
            process.terminate()
        assert process.wait(30) == (0 if on_gap == "skip" else 1)
    finally:
        process.kill()
    said = next(line for line in log.read_text().splitlines() if "is gone from" in line)
    assert f"topic '{gone}' is gone from {lake.broker}: raw has {gone}/0 below offset 5" in said
    assert ("going on, as --on-gap skip says" if on_gap == "skip" else "--on-gap skip` goes on") in said
    again = zync("sync-from", "kafka", "raw", "--topic", by_regex, "--until-caught-up", cwd=lake.folder)
    assert f"1 topic of which raw has records: gone from {lake.broker}" in again.stderr
    seen = zync("verify", "raw", "--kafka", cwd=lake.folder).stdout
    assert f"positions are within what Kafka has, but for what is not there any more: {gone}: 1" in seen


def test_force_does_not_move_what_is_another_topic_now(lake: Lake, topic: TopicMaker) -> None:
    """What it would leave on record, offsets passed over, would be of neither the old topic nor the new."""
    name = read_then_anew(lake, topic, range(100, 108))
    for at in (5, 6):
        begin = Begin(offsets={Partition(name, 0): at}, force=True)
        with pytest.raises(UsageError, match=f"{name}' was deleted and made anew: .*/0 below offset 5"):
            lake.sync_from(name, begin=begin)
    lake.sync_from(name, on_gap="skip")
    assert lake.positions().gaps == (Gap(Partition(name, 0), 5, 0),)


def test_verify_sees_what_is_there_twice_also_after_reading_went_back(lake: Lake, topic: TopicMaker) -> None:
    name = read_then_anew(lake, topic, range(100, 103))
    lake.sync_from(name, on_gap="skip")
    assert zync("verify", "raw", cwd=lake.folder).returncode == 0
    newest = rows(Path(lake.raw))[-1]["kafka"]
    twice = Slice(
        3, 3, stored_id(lake.table(), Partition(name, 0)), begin_id=stored_id(lake.table(), Partition(name, 0))
    )
    batch = Batch(slices={Partition(name, 0): twice})
    batch.add(pa.RecordBatch.from_pylist([{"kafka": newest, "value": b"twice", "headers": []}], RECORD_SCHEMA))
    assert Appender(lake.raw).append(batch).rows == 1
    seen = zync("verify", "raw", cwd=lake.folder, check=False)
    assert (seen.returncode, f"{name}/0, offsets 2 to 2" in seen.stdout) == (1, True)
