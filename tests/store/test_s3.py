"""A lake in S3: `lake: s3://bucket/lake` and the usual environment are all that it takes."""

import json
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector

from tests.conftest import ZYNC
from tests.store.s3 import BUCKET
from zync.lake.storage import arrow_files, spark_properties
from zync.lake.table import existing_table

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(demo: Path) -> Run:
    """Runs a command to its end, in a process of its own, on the demo's lake in S3."""
    config = (demo / "zync.yaml").read_text().replace("lake: ./lake", f"lake: s3://{BUCKET}/{demo.parent.name}")
    (demo / "zync.yaml").write_text(f"{config}\ndeliver: {{tables: {{}}}}\n")

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run([*ZYNC, *words], cwd=demo, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert "s3cr3t-of-the-store" not in done.stdout + done.stderr
        return done

    return run


@pytest.mark.usefixtures("s3")
def test_the_demo_runs_on_s3_and_each_command_ends_cleanly(
    run: Run, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By keys in the environment, and then by a profile: Spark, delta-rs and Arrow all find both."""
    lake = f"s3://{BUCKET}/{demo.parent.name}"
    run("load", "raw", "consume-1.jsonl")
    run("sync", "raw", "staging")
    another = arrow_files(f"{lake}/staging")
    another.create_dir("sync-00000002-another")
    with another.open_output_stream("sync-00000002-another/rows.zstd.parquet") as file:
        file.write(b"of a sync beside it, which has not committed yet")

    (demo / "credentials").write_text("[team]\naws_access_key_id = test\naws_secret_access_key = s3cr3t-of-the-store\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(demo / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(key)
    run("load", "raw", "consume-2.jsonl")
    assert json.loads(run("sync", "raw", "staging", "--json").stdout)["outputs"] == {"order": 1}
    folders = {info.base_name for info in another.get_file_info(FileSelector(""))}
    assert "sync-00000002-another" in folders  # no lock says that its sync is dead

    run("sync-to", "tables", "staging", "--until-caught-up")
    rows = [json.loads(line) for line in run("cat", "staging", "--kind", "output").stdout.splitlines()]
    orders = existing_table(f"{lake}/tables/order", "the test").to_pyarrow_table().to_pylist()
    assert sorted(row["customerID"] for row in orders) == sorted(row["key"]["customerID"] for row in rows) == [1, 2]
    assert run("snapshot").stdout.startswith("sync 2")
    run("maintain", "staging")
    run("maintain", "tables")
    run("status")
    run("verify")


@pytest.mark.usefixtures("s3")
def test_two_writers_at_once_each_get_their_own_seqnos(run: Run, demo: Path) -> None:
    """By the store's conditional put: there is no lock that both could hold."""
    values = [json.loads(line)["value"] for line in (demo / "consume-1.jsonl").read_text().splitlines()]
    run("load", "raw", "consume-1.jsonl")
    loads = []
    for number in range(4):
        name = f"more-{number}.jsonl"
        records = [json.dumps({"topic": f"t{number}", "value": value}) for value in values]
        (demo / name).write_text("\n".join(records))
        loads.append(subprocess.Popen([*ZYNC, "load", "raw", name], cwd=demo))
    assert [load.wait(120) for load in loads] == [0] * 4
    rows = [json.loads(line)["seqno"] for line in run("cat", "raw").stdout.splitlines()]
    assert rows == list(range(1, 5 * len(values) + 1))
    run("verify", "raw")


_NAMES = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def _processes_that_show(secret: str) -> Iterator[str]:
    """Yields the command lines and environments of all processes that have a secret in them."""
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                text = (folder / name).read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended, or is another user's
                continue
            if secret in text:
                yield f"{folder.name} {name}: {text}"


def test_the_config_alone_says_how_the_store_is_reached(
    environment: dict[str, str], run: Run, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of AWS's is in the environment, and no process has the secret in its command line or environment."""
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    endpoint, region, key, _ = (environment[name] for name in _NAMES)
    secret = uuid.uuid4().hex  # no other test's
    (demo / "secret").write_text(f"{secret}\n")
    config = (demo / "zync.yaml").read_text()
    section = (
        f"{{endpoint: '{endpoint}', region: {region}, access_key_id: {key}, secret_access_key: '${{file:secret}}'}}"
    )
    (demo / "zync.yaml").write_text(f"{config}storage: {section}\n")
    shown = set[str]()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            shown.update(_processes_that_show(secret))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run("load", "raw", "consume-1.jsonl")
        run("sync", "raw", "staging")
        assert run("query", "SELECT count(*) AS n FROM raw").stdout.strip()
        assert secret not in run("explain").stdout
        run("verify")
        run("cat", "staging")
    finally:
        done.set()
        watcher.join()
    assert shown == set()


def test_spark_gets_what_the_environment_says_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    properties = spark_properties("s3://bucket/lake")
    assert spark_properties("s3a://bucket/lake") == properties
    assert properties["spark.hadoop.fs.s3a.endpoint"] == "https://store.example"
    assert properties["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert "s3cr3t" not in str(properties)
    assert spark_properties("/local/lake") == {}
