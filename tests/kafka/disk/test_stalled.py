"""While its disk stalls, a sync-from reads no more than it may hold, and keeps its group."""

import json
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path

from confluent_kafka import Consumer

from tests.conftest import ZYNC, TopicMaker, produce, zync
from tests.kafka.conftest import Lake, figures, get, wait_until
from tests.kafka.harmed import assert_whole, begin, end, random, said
from tests.kafka.harms import MB, frozen
from zync.ingest.consume import Ingest, sync_from_kafka
from zync.ingest.metrics import IngestMetrics
from zync.kafka.dev_broker import free_port
from zync.metrics.server import serving


def stall(lake: Lake, name: str, port: int | None = None, size: int = 900_000) -> None:
    """Lets the disk stand still for twelve seconds, in which 60 records come that are more than may be in hand.

    `port`: of metrics, which say so meanwhile.
    """
    with frozen(lake.folder / "lake"):
        for _ in range(12):
            produce(lake.broker, [(name, 0, value) for value in random(5, size)], **{"message.max.bytes": 6 * MB})
            time.sleep(1)
        if port:
            wait_until(lambda: figures(port)["zync_ingest_lag_offsets", name, "0"] == 60)


def most_memory(pid: int) -> int:
    """The bytes that the process has had at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return max((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), default=0)


def test_memory_stays_near_what_is_asked_for_whatever_the_messages_size(lake: Lake, topic: TopicMaker) -> None:
    name, most = topic(max_message_bytes=str(6 * MB)), 300 * MB
    for value in random(60, 5 * MB):
        produce(lake.broker, [(name, 0, value)], **{"message.max.bytes": 6 * MB})
    lake.config()
    running, peak = begin(lake, name, "--until-caught-up", "--max-memory", "300MB"), 0
    while running.poll() is None:
        peak = max(peak, most_memory(running.pid))
        time.sleep(0.02)
    assert running.returncode == 0, said(lake)
    assert 100 * MB < peak < 1.2 * most
    assert_whole(lake, name, 60)


def test_while_the_disk_stalls_nothing_more_is_read_and_the_group_is_kept(small: Lake, topic: TopicMaker) -> None:
    """Longer than Kafka waits for the next poll of a consumer."""
    name = topic()
    small.config(max_poll_interval_ms=6000, session_timeout_ms=6000)
    produce(small.broker, [(name, 0, value) for value in random(10, 1000)])
    port = free_port()
    running = begin(small, name, "--max-memory", "300MB", "--json", "--metrics", f"localhost:{port}")
    try:
        wait_until(lambda: small.count() == 10)
        stall(small, name, port)
        wait_until(lambda: small.count() == 70)
        assert most_memory(running.pid) < 1.2 * 300 * MB
    finally:
        lines = end(small, running).splitlines()
    assert {line[:9] for line in lines if line.startswith("zync: ")} == {"zync: now", "zync: raw", "zync: a c"}, lines
    assert json.loads(lines[-1])["rebalances"] <= 2  # the first, and that it leaves
    committed = [int(line.split()[1]) for line in lines if line.startswith("committed")]
    assert max(committed) <= 25, committed  # of 60 that came meanwhile, in a commit a dozen
    assert_whole(small, name, 70)


def test_while_the_disk_stalls_memory_stays_near_what_is_asked_for(roomy: Lake, topic: TopicMaker) -> None:
    """Of messages that together are more than that."""
    name, most = topic(max_message_bytes=str(6 * MB)), 300 * MB
    roomy.config(max_poll_interval_ms=6000, session_timeout_ms=6000)
    produce(roomy.broker, [(name, 0, b"first")])
    running = begin(roomy, name, "--max-memory", "300MB")
    try:
        wait_until(lambda: roomy.count() == 1)
        stall(roomy, name, size=5 * MB)
        wait_until(lambda: roomy.count() == 61)
        assert 100 * MB < most_memory(running.pid) < 1.2 * most
    finally:
        end(roomy, running)
    assert_whole(roomy, name, 61)


def test_while_the_disk_stalls_partitions_may_go_and_come_back(small: Lake, topic: TopicMaker) -> None:
    """The group is not kept waiting for a commit, and keeps who waits for it."""
    name = topic(partitions=2)
    small.config(max_poll_interval_ms=6000, session_timeout_ms=6000)
    produce(small.broker, [(name, number % 2, b"%d" % number) for number in range(10)])
    running = begin(small, name)
    try:
        wait_until(lambda: small.count() == 10)
        with frozen(small.folder / "lake"):
            produce(small.broker, [(name, number % 2, b"%d" % number) for number in range(10, 20)])
            other = Consumer(
                {
                    "bootstrap.servers": small.broker,
                    "group.id": f"zync-{small.table().metadata().id}",
                    "partition.assignment.strategy": "cooperative-sticky",
                }
            )
            other.subscribe([name])
            wait_until(lambda: other.poll(0.1) or other.assignment())
            other.close()
            time.sleep(8)
        wait_until(lambda: small.count() == 20)
    finally:
        lines = end(small, running).splitlines()
    text = "\n".join(lines)
    assert f"now read by others: {name}/" in text
    assert f"now read here: {name}/" in text
    assert "maximum poll interval" not in text
    assert "lost" not in text
    assert (small.offsets(name), small.offsets(name, 1)) == ([*range(10)], [*range(10)])
    zync("verify", "raw", cwd=small.folder)


def test_while_the_disk_stalls_it_is_not_ready(small: Lake, topic: TopicMaker) -> None:
    name, stop, metrics = topic(), threading.Event(), IngestMetrics(stuck_after=2)
    ingest = Ingest(small.raw, {"bootstrap.servers": small.broker}, (name,), commit_every=timedelta(milliseconds=50))
    running = threading.Thread(target=sync_from_kafka, args=(ingest, stop), kwargs={"metrics": metrics})
    with serving("localhost:0", metrics) as port:
        running.start()
        try:
            wait_until(lambda: get(port, "/readyz")[0] == 200)
            with frozen(small.folder / "lake"):
                produce(small.broker, [(name, 0, b"1")])
                wait_until(lambda: get(port, "/readyz")[0] == 503)
                assert get(port, "/healthz")[0] == 200
            wait_until(lambda: get(port, "/readyz")[0] == 200)
            wait_until(lambda: small.count() == 1)
        finally:
            stop.set()
            running.join()


def test_what_was_lost_to_the_group_while_the_disk_stalled_is_read_once_it_is_back(
    small: Lake, topic: TopicMaker
) -> None:
    """Its log is on that disk, too, so not even the group hears of it."""
    name = topic()
    small.config(max_poll_interval_ms=6000, session_timeout_ms=6000)
    produce(small.broker, [(name, 0, value) for value in random(10, 1000)])
    with (small.folder / "lake" / "log").open("w") as log:
        args = [*ZYNC, "sync-from", "kafka", "raw", "--topic", name, "--commit-every", "50ms", "--max-memory", "300MB"]
        running = subprocess.Popen(args, cwd=small.folder, stdout=log, stderr=log)
    try:
        wait_until(lambda: small.count() == 10)
        stall(small, name)
        wait_until(lambda: small.count() == 70)
    finally:
        running.terminate()
        assert running.wait(60) == 0
    assert "maximum poll interval" in (small.folder / "lake" / "log").read_text()
    assert_whole(small, name, 70)
