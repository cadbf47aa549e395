"""The image, built and run. It takes minutes, root and Debian: `make test-image`."""

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.cdc.conftest import running_postgres
from tests.conftest import TopicMaker, produce
from tests.deploy.image import CHECKOUT, USER, Image
from tests.deploy.test_compose import DEPLOY, SERVICES
from zync.demo.bank import SUMS, consistent_sums
from zync.demo.postgres import Debezium, Postgres
from zync.kafka.dev_broker import free_port
from zync.resources import data_folder

pytestmark = pytest.mark.skipif("ZYNC_TEST_IMAGE" not in os.environ, reason="takes minutes and root: make test-image")

TRANSACTIONS = 200
CONFIG = """lake: /lake
kafka: {{bootstrap.servers: "{broker}"}}
topics: {{{topic}: {{id: "value:txn", as: t}}}}
transactions: {{done: "count(*) = max(value:n::int)"}}
outputs: [{{topic: out, sql: out.sql, key: [txn]}}]
deliver: {{tables: {{}}}}
"""
_HEALTH = ("python", "/opt/zync/share/zync/healthcheck.py")


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    folder = Path(os.environ.get("ZYNC_TEST_IMAGE_FOLDER") or tempfile.mkdtemp(prefix="zync-image-"))
    image = Image(folder)
    try:
        if not (folder / "images").exists():
            began = time.monotonic()
            image.build()
            print(f"\nbuilt in {time.monotonic() - began:.0f} s")
        assert image.root.is_dir()  # before any test looks at the time
        yield image
    finally:
        if "ZYNC_TEST_IMAGE_FOLDER" not in os.environ:
            image.buildah("rm", "--all")
            shutil.rmtree(folder)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the demo's config and records."""
    shutil.copytree(data_folder("demo"), tmp_path / "project")
    config = tmp_path / "project" / "zync.yaml"
    config.write_text(config.read_text().replace("lake: ./lake", "lake: /lake"))
    return tmp_path / "project"


@pytest.fixture
def database() -> Iterator[Postgres]:
    with running_postgres() as database:
        yield database


def test_it_runs_what_spark_on_kubernetes_calls_by_its_words(image: Image) -> None:
    """As far as it goes without Spark's variables; tests/deploy/test_executors.py has them, without the image."""
    for word, missing in (("executor", "SPARK_EXECUTOR_MEMORY"), ("driver", "SPARK_DRIVER_BIND_ADDRESS")):
        assert f"KeyError: '{missing}'" in image.run(word).stderr


def test_it_says_what_it_is_and_shows_the_help_by_default(image: Image) -> None:
    assert "sync-from" in image.run().stdout
    assert image.run("--version").stdout.split()[:2] == ["zync", version("zync")]
    labels = image.config["Labels"]
    assert (labels["org.opencontainers.image.version"], labels["org.opencontainers.image.revision"]) == ("1.2.3", "abc")
    assert image.config["User"] == f"{USER}:{USER}"
    assert image.config["Healthcheck"]["Test"] == ["CMD", *_HEALTH]


def test_records_go_from_kafka_to_tables_in_it(
    image: Image, broker: str, topic: TopicMaker, tmp_path: Path, lake: Path
) -> None:
    name, project = topic(partitions=2), tmp_path / "project"
    project.mkdir()
    (project / "zync.yaml").write_text(CONFIG.format(broker=broker, topic=name))
    (project / "out.sql").write_text("SELECT seqno, value:txn::int AS txn FROM t WHERE value:first::boolean")
    records = [
        (name, part, {"txn": txn, "n": 2, "first": part == 0}) for txn in range(TRANSACTIONS) for part in range(2)
    ]
    produce(broker, records)
    for words in (
        ("sync-from", "kafka", "raw", "--until-caught-up"),
        ("sync", "raw", "staging"),
        ("sync-to", "tables", "staging", "--until-caught-up"),
        ("verify", "raw", "staging", "--kafka"),
    ):
        began = time.monotonic()
        done = image.run(*words, network=True, project=project, lake=lake)
        print(f"\n{' '.join(words)}: {time.monotonic() - began:.1f} s\n{done.stdout}{done.stderr}")
        assert done.returncode == 0
    table = DeltaTable(str(lake / "tables" / "out")).to_pyarrow_table()
    assert Counter(table["txn"].to_pylist()) == Counter(range(TRANSACTIONS))
    assert {path.stat().st_uid for path in lake.rglob("*")} == {USER}


def test_the_bank_of_compose_lands_in_it(
    image: Image, broker: str, topic: TopicMaker, tmp_path: Path, lake: Path, database: Postgres
) -> None:
    connector = json.loads((DEPLOY / "compose/connector.json").read_text())
    here = {"database.hostname": "localhost", "database.port": str(database.port), "database.password": ""}
    debezium = Debezium(tmp_path / "connect", broker, database, "bank", options={**connector, **here})
    for table in SUMS:
        topic.create(f"bank.public.pgbench_{table}", partitions=3)
    topic.create("bank.transaction")
    project = tmp_path / "project"
    shutil.copytree(data_folder("demo") / "bank" / "etl", project / "etl")
    config = (DEPLOY / "compose/zync.yaml").read_text()
    (project / "zync.yaml").write_text(config.replace("kafka:9092", broker))
    database.pgbench("-i", "-q").wait()
    database.sql("DELETE FROM pgbench_accounts WHERE aid > 2000")
    debezium.start()
    command = [word.replace("9464", str(free_port())) for word in SERVICES["zync"]["command"]]
    try:
        with image.container(*command, network=True, project=project, lake=lake) as container:
            transfers = ("-c", "4", "-R", "50", "-T", "30", "-f", str(CHECKOUT / "demo/bank/transfer.sql"))
            assert database.pgbench(*transfers).wait() == 0
            ((truth,),) = database.sql("SELECT sum(abalance) FROM pgbench_accounts")
            ((transferred,),) = database.sql("SELECT count(*) FROM pgbench_history")
            until, sums = time.monotonic() + 240, None
            while (sums := consistent_sums(lake.parent)) is None or set(sums[0].values()) != {int(truth)}:
                assert time.monotonic() < until, (sums, truth)
                assert sums is None or len(set(sums[0].values())) == 1, sums
                time.sleep(0.5)
            print(f"\n{sums[2]} transfers in sync {sums[1]}")
            assert sums[2] == int(transferred) > 0
            assert container.execute(*_HEALTH).stdout == "alive\n"
            assert container.stop().returncode == 0
    finally:
        debezium.kill()


def test_it_starts_without_a_network_and_by_the_class_archive(image: Image, project: Path, lake: Path) -> None:
    loaded = image.run("load", "raw", "consume-1.jsonl", project=project, lake=lake)
    assert loaded.returncode == 0, loaded.stderr
    with (project / "zync.yaml").open("a") as config:  # the JVM does not start with an archive that does not fit it
        config.write('spark: {spark.driver.extraJavaOptions: "-Xshare:on"}\n')
    began = time.monotonic()
    done = image.run("sync", "raw", "staging", project=project, lake=lake)
    print(f"\nsync without a network: {time.monotonic() - began:.1f} s\n{done.stdout}{done.stderr}")
    assert done.returncode == 0
    assert DeltaTable(str(lake / "staging")).to_pyarrow_table().num_rows


def test_only_tmp_and_the_lake_are_written_to(image: Image) -> None:
    script = "for folder in / /project /opt/zync /opt/zync/cache /tmp; do test -w $folder && echo $folder; done; id -u"
    assert image.run(script, entrypoint=("sh", "-c")).stdout.split() == ["/tmp", str(USER)]


def test_it_says_whether_it_is_healthy_and_ends_by_sigterm(image: Image, project: Path, lake: Path) -> None:
    image.run("load", "raw", "consume-1.jsonl", project=project, lake=lake)
    words = ("sync", "raw", "staging", "--follow", "--metrics", "0.0.0.0:9464")
    with image.container(*words, project=project, lake=lake) as container:
        until = time.monotonic() + 120
        while (health := container.execute(*_HEALTH)).returncode:
            assert time.monotonic() < until, health
            time.sleep(0.5)
        assert health.stdout == "alive\n"
        done = container.stop()
        assert done.returncode == 0, done.stderr
    with image.container("broker", "run", "--folder", "/tmp/broker") as container:
        until = time.monotonic() + 60
        while (health := container.execute(*_HEALTH)).returncode:
            assert time.monotonic() < until, health
        assert health.stdout == "no --metrics: nothing to ask\n"


def test_the_demo_works_in_it_without_a_network(image: Image) -> None:
    done = image.run("demo", "/tmp/demo", "--seconds", "10")
    print(f"\n{done.stdout}{done.stderr}")
    assert done.returncode == 0
    assert "0 times in zync's tables" in done.stdout
    assert "all transfers are there, whole and once" in done.stdout


def test_the_bill_of_materials_lists_packages_and_jars(image: Image) -> None:
    bill = json.loads((image.root / "opt/zync/share/zync/sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", "1.2.3")
    urls = {component["purl"] for component in bill["components"] if "purl" in component}
    for lock in (CHECKOUT / "deploy/image/requirements.lock").read_text().splitlines():
        if "==" in lock and ";" not in lock:
            name, version = lock.split()[0].split("==")
            assert f"pkg:pypi/{name}@{version}" in urls
    assert any(url.startswith("pkg:deb/debian/openjdk-17-jre-headless@") for url in urls)
    assert "pkg:maven/org.apache.hadoop/hadoop-aws@3.5.0" in urls
    jars = {component["bom-ref"] for component in bill["components"] if component["bom-ref"].endswith(".jar")}
    assert jars == {f"/{path.relative_to(image.root)}" for path in (image.root / "opt").rglob("*.jar")}
    print(f"\n{len(bill['components'])} components, {len(jars)} of them jars")


def test_its_size_is_what_the_page_says(image: Image) -> None:
    contents = (CHECKOUT / "deploy/image/contents.py").read_text()
    measured = image.run("-c", contents, entrypoint=("python3",)).stdout
    print(f"\n{measured}")
    gigabytes = f"{int(measured.splitlines()[-1].split()[0].replace(',', '')) / 1000:.1f} GB"
    assert all(gigabytes in (CHECKOUT / page).read_text() for page in ("README.md", "docs/how-to/image.md")), gigabytes
    assert not any((image.root / path).exists() for path in ("opt/tools", "source", "root/.cache", "root/.ivy2"))
