"""What a lake in S3 costs: requests by commit, sync, look and command, and seconds beside a local lake.

The store is S3Mock behind a proxy, which counts requests and delays each by `DELAY`.
"""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from bench.commits import _rows
from bench.harness import ZYNC, Result, log
from tests.store.proxy import Proxy, running_proxy
from tests.store.s3 import BUCKET, running_s3
from zync.kafka.partition import Partition
from zync.lake.table import existing_table, poll, poll_seconds
from zync.project.load import load
from zync.raw.append import Appender
from zync.raw.batch import Batch, Slice
from zync.raw.table import ensure_raw
from zync.spark.session import session
from zync.staging.table import ensure_staging
from zync.sync.syncer import Syncer

DELAY = 0.02
COMMITS = (100, 1_000)
"""At so many commits of raw it is measured."""
TIMES = 10
IDLE_SECONDS = 10
_PARTITION = Partition("t", 0)
_CONFIG = """\
lake: {lake}
topics: {{t: {{id: "value:txn"}}}}
transactions: {{done: "count(*) = 4"}}
outputs: [{{topic: out, sql: out.sql, key: [id]}}]
"""


class _Lake:
    """A lake, and what is asked of its store."""

    def __init__(self, folder: Path, location: str, proxy: Proxy | None) -> None:
        self.folder, self.location, self.proxy = folder, location, proxy
        folder.mkdir()
        (folder / "zync.yaml").write_text(_CONFIG.format(lake=location))
        (folder / "out.sql").write_text("SELECT seqno, value:txn::int AS id FROM t")
        ensure_raw(f"{location}/raw")
        ensure_staging(f"{location}/staging")
        self.appender, self.commits = Appender(f"{location}/raw"), 0

    def commit(self) -> None:
        """A commit of a transaction of four records."""
        at = self.commits * 4
        batch = Batch(slices={_PARTITION: Slice(at or None, at + 4)})
        rows: pa.RecordBatch = _rows(at, [b'{"txn":%d,"n":4}' % self.commits] * 4)
        batch.add(rows)
        self.appender.append(batch)
        self.commits += 1

    def measure(self, work: Callable[[], object], times: int) -> dict[str, float]:
        """Requests, bytes sent and seconds of each of so many times."""
        if self.proxy:
            self.proxy.requests.clear()
        started = time.monotonic()
        for _ in range(times):
            work()
        seconds = (time.monotonic() - started) / times
        requests = self.proxy.requests if self.proxy else []
        sent = sum(request.body_bytes for request in requests)
        return {"requests": len(requests) / times, "bytes": sent / times, "seconds": seconds}

    def idle(self) -> dict[str, float]:
        """As a process that waits for a new version."""
        table = existing_table(f"{self.location}/raw", "bench")
        poll(table)

        def second() -> None:
            until = time.monotonic() + 1
            while time.monotonic() < until:
                time.sleep(poll_seconds(self.location))
                poll(table)

        return self.measure(second, IDLE_SECONDS)

    def command(self, *words: str) -> Callable[[], object]:
        return lambda: subprocess.run([*ZYNC, *words], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)


def run(folder: Path) -> list[Result]:
    """Requests as raw grows, and a commit's and a sync's seconds by those of a local lake."""
    store = folder / "s3"
    store.mkdir()
    with running_s3(store) as variables, running_proxy(variables["AWS_ENDPOINT_URL"]) as proxy:
        os.environ.update(variables)
        local, far = (
            _Lake(folder / "local", str(folder / "lake"), None),
            _Lake(folder / "far", f"s3://{BUCKET}/lake", proxy),
        )
        os.environ["AWS_ENDPOINT_URL"] = proxy.url
        far.appender = Appender(f"{far.location}/raw")
        spark, results = session(lake=far.location), []
        for lake in (local, far):
            where = "S3" if lake.proxy else "local"
            for commits in COMMITS:
                proxy.seconds = 0.0
                while lake.commits < commits:
                    lake.commit()
                proxy.seconds = DELAY
                syncer = Syncer(
                    load(lake.folder / "zync.yaml"), f"{lake.location}/raw", f"{lake.location}/staging", spark
                )
                syncer.sync()
                figures = {"commit": lake.measure(lake.commit, TIMES)}
                syncer.sync()

                def sync(lake: _Lake = lake, syncer: Syncer = syncer) -> None:
                    lake.commit()
                    syncer.sync()

                figures["commit and sync"] = lake.measure(sync, TIMES)
                figures["idle second"] = lake.idle()
                figures["status"] = lake.measure(lake.command("status"), 1)
                figures["cat raw --limit 1"] = lake.measure(lake.command("cat", "raw", "--limit", "1"), 1)
                for what, figure in figures.items():
                    log(f"{where}, {commits} commits, {what}: {figure}")
                    name = f"{what}, {where}, raw has {commits:,} commits"
                    goal = 1.2 if what == "idle second" else None
                    if lake.proxy:
                        results.append(Result(name, figure["requests"], "requests", goal, details=figure))
                    else:
                        results.append(Result(name, figure["seconds"], "s", details=figure))
        return results
