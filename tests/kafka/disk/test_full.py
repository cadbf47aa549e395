"""A disk that is full, may not be written to, or lost the end of a file: a message, and nothing lost."""

import json
from pathlib import Path

from tests.conftest import TopicMaker, produce, start, zync
from tests.kafka.conftest import Lake, batch, wait_until
from tests.kafka.harmed import assert_whole, begin, random, said
from tests.kafka.harms import full, read_only
from zync.errors import ZyncError
from zync.kafka.partition import Partition
from zync.raw.append import Appender
from zync.raw.table import stored_position


def test_a_full_disk_ends_it_with_a_message_and_with_room_again_it_goes_on(small: Lake, topic: TopicMaker) -> None:
    name = topic()
    small.config()
    produce(small.broker, [(name, 0, value) for value in random(10, 1000)])
    running = begin(small, name)
    try:
        wait_until(lambda: small.count() == 10)
        with full(small.folder / "lake"):
            produce(small.broker, [(name, 0, value) for value in random(100, 10_000)])
            assert running.wait(60) == 1
    finally:
        running.kill()
    begun, line = [line for line in said(small).splitlines() if line.startswith("zync: ")]
    assert begun == f"zync: now read here: {name}/0"
    assert "cannot be written" in line
    assert "No space left" in line
    zync("verify", "raw", cwd=small.folder)
    zync("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", cwd=small.folder)
    assert_whole(small, name, 110)


def test_at_whatever_a_commit_runs_out_of_room_the_message_says_so_and_nothing_is_there_twice(small: Lake) -> None:
    """The rows, the log's entry, or neither: each has a message of its own."""
    small.table()
    partition, landed, said = Partition("t", 0), 0, set[str]()
    for blocks in range(8):
        with full(small.folder / "lake", 4096 * blocks):
            for _ in range(3):
                try:
                    begin = stored_position(small.table(), partition)
                    landed += Appender(small.raw).append(batch((partition, begin, (begin or 0) + 200))).rows
                except ZyncError as error:
                    said.add(str(error))
    assert small.offsets("t") == [*range(landed)]
    assert landed
    assert len(said) > 1
    for one in said:
        assert one.startswith(f"raw at {small.raw} cannot be written: ")
        assert one.endswith("No space left on device (os error 28)")


def test_a_lake_that_may_not_be_written_to_ends_it_with_a_message(small: Lake, topic: TopicMaker) -> None:
    name = topic()
    small.config()
    produce(small.broker, [(name, 0, b"1")])
    process = start("sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", cwd=small.folder)
    try:
        wait_until(lambda: small.count() == 1)
        with read_only(small.folder / "lake"):
            produce(small.broker, [(name, 0, b"2")])
            assert process.wait(30) == 1
    finally:
        process.kill()
    (log,) = small.folder.glob("sync-from-*.log")
    line = log.read_text().splitlines()[-1]
    assert line.startswith(f"zync: raw at {small.raw} cannot be written: ")
    assert "Read-only file system" in line
    zync("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", cwd=small.folder)
    assert_whole(small, name, 2)


def test_a_full_disk_stops_a_sync_which_sets_nothing_aside_and_with_room_again_goes_on(small: Lake) -> None:
    """And its files are as the umask says, as those of `load` are."""
    (small.folder / "zync.yaml").write_text(
        'topics: {t: {id: "value:txn"}}\ntransactions: {done: "count(*) = 1"}\noutputs: [{topic: out, sql: out.sql}]\n'
    )
    (small.folder / "out.sql").write_text("SELECT seqno, value:txn::int AS txn FROM t")
    lines = [json.dumps({"topic": "t", "value": {"txn": n}}) for n in range(3)]
    zync("load", "raw", "-", cwd=small.folder, input="\n".join(lines), umask=0o027)
    with full(small.folder / "lake"):
        done = zync("sync", "raw", "staging", cwd=small.folder, check=False, umask=0o027)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "No space left" in line
    done = zync("sync", "raw", "staging", "--json", cwd=small.folder, umask=0o027)
    assert (json.loads(done.stdout)["transactions"], json.loads(done.stdout)["set_aside"]) == (3, {})
    zync("verify", cwd=small.folder)
    tables = [small.folder / "lake" / one for one in ("raw", "staging")]
    modes = {path.stat().st_mode & 0o777 for table in tables for path in table.rglob("*") if path.is_file()}
    assert modes == {0o640}


def test_a_log_entry_that_was_cut_off_is_refused_and_nothing_is_written(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    lake.config()
    produce(lake.broker, [(name, 0, b"1")])
    args = ("sync-from", "kafka", "raw", "--topic", name, "--until-caught-up")
    zync(*args, cwd=lake.folder)
    entry = Path(lake.raw) / "_delta_log" / f"{1:020}.json"
    whole = entry.read_bytes()
    for cut in (len(whole) // 2, 0):
        entry.write_bytes(whole[:cut])
        before = sorted(Path(lake.raw).rglob("*"))
        for command in (args, ("verify", "raw"), ("status",), ("cat", "raw")):
            done = zync(*command, cwd=lake.folder, check=False)
            assert done.returncode == 1, (command, cut, done.stdout, done.stderr)
            (line,) = done.stderr.splitlines()
            assert line.startswith("zync: ")
            assert "lake/raw" in line
        assert sorted(Path(lake.raw).rglob("*")) == before
    lines = whole.splitlines(keepends=True)
    for cut in range(1, len(lines)):  # at the end of a line
        entry.write_bytes(b"".join(lines[:cut]))
        before = sorted(Path(lake.raw).rglob("*"))
        done = zync(*args, cwd=lake.folder, check=False)
        assert (done.returncode, "was cut off" in done.stderr) == (1, True), done.stderr
        assert sorted(Path(lake.raw).rglob("*")) == before
    entry.write_bytes(whole)
    produce(lake.broker, [(name, 0, b"2")])
    zync(*args, cwd=lake.folder)
    assert_whole(lake, name, 2)
