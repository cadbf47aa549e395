"""Two deliveries to one lake in S3, where no lease keeps them apart: no commit is lost, and no row is there twice."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.conftest import start
from tests.deliver.conftest import Staging
from tests.store.proxy import Answer, Proxy, Request, running_proxy
from tests.store.s3 import BUCKET
from zync.deliver.tables import snapshots
from zync.lake import storage
from zync.staging.commit import add_rows

CONFIG = """\
lake: s3://{bucket}/{name}
topics: {{records: {{id: "value:txn", as: arriving}}}}
outputs:
  - {{topic: changes, sql: changes.sql}}
  - {{topic: accounts, sql: accounts.sql, key: [id]}}
deliver: {{tables: {{changes: {{cluster_by: [id]}}}}}}  # Spark writes it, and delta-rs the other
spark:
  spark.driver.extraJavaOptions: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
  spark.hadoop.fs.s3a.connection.timeout: 300s  # a request that is held is not sent again
  spark.hadoop.fs.s3a.connection.request.timeout: 300s
{more}"""
COLUMNS = {"accounts": "value:id::int AS id, value:balance::int AS balance", "changes": "value:id::int AS id"}


class StagingInS3(Staging):
    """A staging in the store."""

    @property
    def path(self) -> str:
        return f"s3://{BUCKET}/{self.folder.name}/staging"

    @property
    def tables(self) -> str:
        return f"s3://{BUCKET}/{self.folder.name}/tables"

    def write(self, table: DeltaTable, folder: str, pieces: list[pa.Table]) -> None:
        for piece in pieces:
            add_rows(table, folder, piece)

    def config(self, text: str = "") -> None:
        (self.folder / "zync.yaml").write_text(CONFIG.format(bucket=BUCKET, name=self.folder.name, more=text))
        for topic, columns in COLUMNS.items():
            (self.folder / f"{topic}.sql").write_text(f"SELECT seqno, {columns} FROM arriving")  # noqa: S608 - a test's

    def add(self) -> None:
        """A sync with a transaction that sets the balance of account 1 to the sync's number, and adds a change."""
        number = self.seqno + 1
        account = f'{{"id":1,"balance":{number}}}'
        self.sync([[("accounts", '{"id":1}', account), ("changes", None, f'{{"id":{number}}}')]])

    def table(self, name: str, version: int | None = None) -> DeltaTable:
        location = f"{self.tables}/{name}"
        return DeltaTable(location, version=version, storage_options=storage.delta_options(location))

    def rows(self, topic: str, version: int | None = None) -> list[int]:
        """The balances of accounts, or the ids of changes, in order."""
        table = self.table(topic, version).to_pyarrow_table()
        return sorted(table["balance" if topic == "accounts" else "id"].to_pylist())


@pytest.fixture(scope="module")
def staging(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[StagingInS3]:
    """A staging whose first sync is delivered; each test goes on with it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        staging = StagingInS3(tmp_path_factory.mktemp("two"), "localhost:1")
        staging.config()
        staging.add()
        deliver(staging)
        yield staging


@contextmanager
def delivery(staging: StagingInS3, proxy: Proxy) -> Iterator["subprocess.Popen[str]"]:
    """A delivery until it has caught up, in a process of its own, through a proxy."""
    variables = dict(os.environ) | {"AWS_ENDPOINT_URL": proxy.url}
    words = ("sync-to", "tables", "staging", "--until-caught-up")
    process = start(*words, cwd=staging.folder, env=variables, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def deliver(staging: StagingInS3) -> None:
    with running_proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        proxy.rule = without_lease
        with delivery(staging, proxy) as process:
            assert process.wait(240) == 0, _log(staging)


def without_lease(request: Request, _: Callable[[], None]) -> Answer | None:
    """Refuses the puts of a lease, as a store that lacks If-Match does: a delivery goes on without one."""
    if request.method == "PUT" and request.path.endswith(".lease"):
        return Answer(501, b"<Error><Code>NotImplemented</Code></Error>")
    return None


def _log(staging: StagingInS3) -> str:
    return "\n".join(path.read_text() for path in sorted(staging.folder.glob("*.log")))


class Hold:
    """Holds the requests that match until they are let go, and refuses leases."""

    def __init__(self, matches: Callable[[Request], bool]) -> None:
        self.matches = matches
        self._held, self._let_go = threading.Event(), threading.Event()

    def __call__(self, request: Request, forward: Callable[[], None]) -> Answer | None:
        if self.matches(request):
            self._held.set()
            self._let_go.wait(280)
        return without_lease(request, forward)

    def wait(self) -> bool:
        """Waits until a request is held."""
        return self._held.wait(240)

    def let_go(self) -> None:
        self._let_go.set()


def log_entry(topic: str) -> Callable[[Request], bool]:
    """The put of an entry of a table's log."""
    return lambda request: (
        request.method == "PUT" and f"/tables/{topic}/_delta_log/0" in request.path and request.path.endswith(".json")
    )


def assert_whole(staging: StagingInS3) -> None:
    """Each change is in its table once, and at each snapshot the tables have the same transactions."""
    last = staging.seqno
    assert staging.rows("changes") == list(range(1, last + 1))
    assert staging.rows("accounts") == [last]
    rows = snapshots._all(snapshots._rows(staging.table(snapshots.NAME)))  # noqa: SLF001
    assert rows[-1].sync == last
    for snapshot in rows:
        assert staging.rows("changes", snapshot.versions["changes"]) == list(range(1, snapshot.sync + 1))
        assert staging.rows("accounts", snapshot.versions["accounts"]) == [snapshot.sync]


def by_spark(topic: str) -> Callable[[Request], bool]:
    """Any request of Spark's for a table: its batch is planned by then."""
    return lambda request: (
        "aws-sdk-java" in request.headers.get("User-Agent", "") and topic in request.path and "tables" in request.path
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("topic", ["changes", "accounts"])
def test_a_commit_that_was_held_for_long_overwrites_none(
    staging: StagingInS3, environment: dict[str, str], topic: str
) -> None:
    """By Delta's own log store, the older delivery's entry replaced the newer one's, and its rows were lost."""
    staging.add()
    with running_proxy(environment["AWS_ENDPOINT_URL"]) as proxy:
        proxy.rule = hold = Hold(log_entry(topic))
        with delivery(staging, proxy) as older:
            assert hold.wait(), _log(staging)
            staging.add()
            deliver(staging)
            hold.let_go()
            assert older.wait(240) == 0, _log(staging)
    assert_whole(staging)


@pytest.mark.timeout(900)
def test_rows_that_another_delivery_appends_after_the_batch_was_planned_are_not_appended_again(
    staging: StagingInS3, environment: dict[str, str]
) -> None:
    """Delta would let both commits land: the rows do not conflict, and the second has the later sync."""
    staging.add()
    endpoint = environment["AWS_ENDPOINT_URL"]
    with running_proxy(endpoint) as older_proxy, running_proxy(endpoint) as newer_proxy:
        older_proxy.rule = older_hold = Hold(log_entry("changes"))
        newer_proxy.rule = newer_hold = Hold(by_spark("changes"))
        with delivery(staging, older_proxy) as older:
            assert older_hold.wait(), _log(staging)
            staging.add()
            with delivery(staging, newer_proxy) as newer:
                assert newer_hold.wait(), _log(staging)
                older_hold.let_go()
                assert older.wait(240) == 0, _log(staging)
                assert staging.rows("changes") == list(range(1, staging.seqno))
                newer_hold.let_go()
                assert newer.wait(240) == 0, _log(staging)
    assert_whole(staging)
