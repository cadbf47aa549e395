"""What `--metrics` answers while sync-from runs: figures that are so, in names that Prometheus takes."""

import re
import signal
import time
from pathlib import Path

from confluent_kafka import Producer

from tests.conftest import TopicMaker, produce, start, zync
from tests.kafka.conftest import Lake, figures, get, transaction, wait_until
from zync.kafka.dev_broker import free_port
from zync.metrics.base import Metrics
from zync.metrics.server import serving
from zync.sync.metrics import SyncMetrics


def test_sync_froms_figures_are_so_while_it_runs(lake: Lake, topic: TopicMaker) -> None:
    name, port = topic(partitions=2), free_port()
    produce(lake.broker, [(name, number % 2, b"%d" % number) for number in range(100)])
    lake.config()
    args = ("--topic", name, "--commit-every", "50ms", "--metrics", f"localhost:{port}")
    process = start("sync-from", "kafka", "raw", *args, cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 100)
        wait_until(lambda: figures(port).get(("zync_ingest_records_total",)) == 100)
        wait_until(lambda: {("zync_ingest_lag_offsets", name, one) for one in "01"} <= figures(port).keys())
        found = figures(port)
        assert found["zync_raw_head_seqno",] == 100
        assert found["zync_ingest_commits_total",] == found["zync_ingest_commit_seconds_count",] >= 1
        assert found["zync_ingest_file_rows_sum",] == 100
        assert found["zync_ingest_rebalances_total",] == 1
        assert found["zync_ingest_gaps",] == 0
        for partition in ("0", "1"):
            assert found["zync_ingest_lag_offsets", name, partition] == 0
            assert found["zync_ingest_lag_seconds", name, partition] == 0
        assert get(port, "/healthz") == (200, "alive\n")
        wait_until(lambda: get(port, "/readyz") == (200, "ready\n"))  # by librdkafka's figures, which come now and then
        assert get(port, "/else")[0] == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()


def test_lag_is_of_what_is_not_in_raw_in_offsets_and_in_seconds(lake: Lake, topic: TopicMaker) -> None:
    name, port = topic(), free_port()
    producer = Producer({"bootstrap.servers": lake.broker})
    producer.produce(name, b"1", timestamp=int((time.time() - 3 * 3600) * 1000))  # then nothing for long
    producer.flush()
    lake.config()
    args = ("--topic", name, "--commit-every", "4s", "--metrics", f"localhost:{port}")
    process = start("sync-from", "kafka", "raw", *args, cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 1)
        produce(lake.broker, [(name, 0, b"2")] * 3)
        wait_until(lambda: figures(port).get(("zync_ingest_lag_offsets", name, "0")) == 3)
        assert 0 < figures(port)["zync_ingest_lag_seconds", name, "0"] < 60
        wait_until(lambda: figures(port)["zync_ingest_lag_offsets", name, "0"] == 0)
        assert figures(port)["zync_ingest_lag_seconds", name, "0"] == 0
        assert lake.count() == 4
    finally:
        process.kill()


def test_lag_in_seconds_grows_while_an_open_transaction_keeps_records_from_being_read(
    lake: Lake, topic: TopicMaker
) -> None:
    name, port = topic(), free_port()
    produce(lake.broker, [(name, 0, b"1")])
    lake.config()
    args = ("--topic", name, "--commit-every", "50ms", "--metrics", f"localhost:{port}")
    process = start("sync-from", "kafka", "raw", *args, cwd=lake.folder)
    try:
        wait_until(lambda: lake.count() == 1)
        with transaction(lake.broker, name) as producer:
            producer.produce(name, b"2")
            producer.flush()
            wait_until(lambda: figures(port).get(("zync_ingest_lag_offsets", name, "0"), 0) > 0)
            wait_until(lambda: figures(port)["zync_ingest_lag_seconds", name, "0"] > 2)
        wait_until(lambda: lake.count() == 2)
        wait_until(lambda: figures(port)["zync_ingest_lag_seconds", name, "0"] == 0)
    finally:
        process.kill()


def test_what_does_not_get_on_is_alive_and_not_ready() -> None:
    metrics = Metrics(stuck_after=0.3)
    with serving("localhost:0", metrics) as port:
        assert get(port, "/readyz")[0] == 200
        time.sleep(0.5)
        code, why = get(port, "/readyz")
        assert code == 503
        assert re.fullmatch(r"stuck: nothing was done for \d+ s\n", why)
        assert get(port, "/healthz")[0] == 200
        metrics.turn()
        assert get(port, "/readyz")[0] == 200


def test_an_address_that_is_none_or_taken_is_the_users_mistake(lake: Lake, topic: TopicMaker) -> None:
    lake.config()
    name = topic()
    with serving("localhost:0", SyncMetrics()) as port:
        for address in (f"localhost:{port}", "nowhere", ":9464", "localhost:99999999"):
            args = ("--topic", name, "--until-caught-up", "--metrics", address)
            done = zync("sync-from", "kafka", "raw", *args, cwd=lake.folder, check=False)
            assert done.returncode == 2, done.stderr
            assert done.stderr.startswith(f"zync: --metrics {address}: ")
            assert "give HOST:PORT" in done.stderr
    assert not Path(lake.raw).exists()
