"""The lease of a delivery to Kafka, in a real store: it is of one cluster, and only who can deliver takes it over."""

import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.conftest import start, zync
from tests.deliver.conftest import Staging, committed
from tests.deliver.kafka.conftest import names, transfers
from tests.kafka.conftest import wait_until
from tests.store.s3 import BUCKET
from zync.errors import UsageError
from zync.kafka.dev_broker import DevKafka
from zync.lake.lease import RENEW_SECONDS
from zync.staging.commit import add_rows

__all__ = ["names"]


class Stored(Staging):
    """A staging in the store."""

    @property
    def lake(self) -> str:
        return f"s3://{BUCKET}/{self.folder.name}"

    @property
    def path(self) -> str:
        return f"{self.lake}/staging"

    def write(self, table: DeltaTable, folder: str, pieces: list[pa.Table]) -> None:
        for number, piece in enumerate(pieces):
            add_rows(table, folder, piece, name=str(number))


@pytest.mark.usefixtures("s3")
def test_neither_one_to_another_cluster_nor_one_that_cannot_work_ends_a_delivery(
    tmp_path: Path, broker: str, names: list[str]
) -> None:
    staging = Stored(tmp_path, broker)
    staging.config()
    (tmp_path / "zync.yaml").write_text(f"lake: {staging.lake}\nkafka: {{bootstrap.servers: '{broker}'}}\n")
    (tmp_path / "out.sql").write_text("SELECT seqno FROM records")
    staging.sync(transfers(names, 3000))
    first = start("sync-to", "kafka", "staging", "--one-by-one", cwd=tmp_path)
    other = DevKafka(tmp_path / "other")
    try:
        wait_until(lambda: len(committed(broker, *names)) > 30)
        wrong = tmp_path / "wrong.yaml"
        outputs = f"outputs: [{{topic: {names[0]}, sql: out.sql}}]\n"
        topics = f"deliver: {{kafka: {{topics: {{{names[0]}: {{partitions: 7}}}}}}}}\n"
        wrong.write_text((tmp_path / "zync.yaml").read_text() + outputs + topics)
        refused = zync(
            "sync-to", "kafka", "staging", "--until-caught-up", "--config", str(wrong), cwd=tmp_path, check=False
        )
        assert refused.returncode == UsageError.exit_code, refused.stderr
        servers = other.start()
        elsewhere = start("sync-to", "kafka", "staging", "--bootstrap-servers", servers, cwd=tmp_path)
        try:
            wait_until(lambda: committed(servers, *names))
            time.sleep(RENEW_SECONDS + 2)  # both have renewed their leases since
            assert (first.poll(), elsewhere.poll()) == (None, None)
        finally:
            elsewhere.kill()
            elsewhere.wait()
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
    finally:
        first.kill()
        other.stop()
