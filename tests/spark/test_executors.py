"""What Spark's executors need: a Python that has nothing of zync's, nor of a rule's, and a real standalone cluster."""

import base64
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster import SPARK, SPARK_HOME, Cluster, bare_python, running_cluster
from tests.conftest import zync
from tests.registry import RunningRegistry, classes, framed, packed

PROTO = 'syntax = "proto3"; package shop; message Order { string txn = 1; int32 n = 2; int32 x = 3; }'
RULE = """\
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType

import tax


@sf.udf(IntegerType())
def taxed(x):
    from rates.late import FEE

    return tax.added(x) + FEE


def rule(records):
    return records.select("seqno", taxed(sf.expr("value:x::int")).alias("x"))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A rule in Python with a module and a package beside it, and two records."""
    files = {"rule.py": RULE, "tax.py": "def added(x):\n    return x + 10\n", "rates/late.py": "FEE = 100\n"}
    for path, text in {**files, "rates/__init__.py": ""}.items():
        (tmp_path / "etl" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "etl" / path).write_text(text)
    return tmp_path


def configure(folder: Path, topics: dict[str, object], spark: dict[str, str], **more: object) -> None:
    config = {
        "topics": topics,
        "transactions": {"done": "count(*) = 1"},
        "outputs": [{"topic": "out", "python": "etl/rule.py"}],
        "spark": yaml.safe_load(SPARK)["spark"] | spark,
    }
    (folder / "zync.yaml").write_text(json.dumps(config | more))


def load(folder: Path, *records: tuple[str, bytes]) -> None:
    lines = [{"topic": topic, "value": {"base64": base64.b64encode(value).decode()}} for topic, value in records]
    zync("load", "raw", "-", cwd=folder, input="".join(json.dumps(line) + "\n" for line in lines))


def values(folder: Path) -> list[object]:
    lines = zync("cat", "staging", "--kind", "output", cwd=folder).stdout.splitlines()
    return [json.loads(line)["value"] for line in lines]


JSON = {"a": {"id": "value:txn"}}
RECORDS = [("a", b'{"txn": 1, "x": 4}'), ("a", b'{"txn": 2, "x": 5}')]


def test_executors_that_have_nothing_of_zync_run_a_rule_and_the_module_beside_it(
    project: Path, cluster: Cluster
) -> None:
    configure(project, JSON, {"spark.pyspark.python": bare_python(project / "bare")})
    load(project, *RECORDS)
    zync("sync", "raw", "staging", "--master", cluster.url, cwd=project)
    assert values(project) == [{"x": 114}, {"x": 115}]


APPLICATION = """\
import zync

print(zync.sync_once(zync.load_config("zync.yaml"), "lake/raw", "lake/staging").transactions)
"""


def test_spark_submit_of_an_application_needs_jars_and_nothing_on_executors(project: Path, cluster: Cluster) -> None:
    configure(project, JSON, {})
    load(project, *RECORDS)
    (project / "application.py").write_text(APPLICATION)
    jars = subprocess.run(
        [sys.executable, "-m", "zync.java", "jars"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = [
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        f"spark.pyspark.driver.python={sys.executable}",
        f"spark.pyspark.python={bare_python(project / 'bare')}",
        "spark.driver.host=127.0.0.1",
        "spark.executor.memory=1g",
    ]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, "--jars", jars]
    command += [word for option in options for word in ("--conf", option)]
    result = subprocess.run(
        [*command, "application.py"], cwd=project, env=os.environ | {"SPARK_HOME": str(SPARK_HOME)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.stdout == "2\n", result.stderr
    assert values(project) == [{"x": 114}, {"x": 115}]


def test_spark_refuses_the_cluster_mode_of_a_standalone_cluster(tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "spark://127.0.0.1:9", "--deploy-mode", "cluster"]
    environment = os.environ | {"SPARK_HOME": str(SPARK_HOME)}
    result = subprocess.run(
        [*submit, "application.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert "not supported for python applications on standalone clusters" in result.stdout + result.stderr


def test_packages_that_executors_lack_come_in_an_archive(
    project: Path, cluster: Cluster, registry: RunningRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpacking gzip in Python takes pyarrow, and messages of protobuf that and protobuf."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # the config's Python wins, as in spark-submit
    number = registry.register("executors-order", PROTO, "PROTOBUF")
    message = classes(PROTO)["Order"](txn="3", n=1, x=6).SerializeToString()
    topics = JSON | {
        "zipped": {"id": "value:txn", "compression": "gzip"},
        "proto": {"id": "value:txn", "value": "protobuf"},
    }
    load(project, *RECORDS[:1], ("zipped", packed('{"txn": 2, "x": 5}')), ("proto", framed(number, b"\0" + message)))
    python = {"spark.pyspark.python": bare_python(project / "bare", "pyarrow")}
    configure(project, topics, python, registry={"url": registry.url})
    failed = zync("sync", "raw", "staging", "--master", cluster.url, cwd=project, check=False)
    assert failed.returncode == 1
    assert "No module named 'google" in failed.stderr
    with tarfile.open(project / "packages.tar.gz", "w:gz") as archive:
        archive.add(Path(sysconfig.get_path("purelib")) / "google" / "protobuf", "google/protobuf")
        archive.add(Path(sysconfig.get_path("purelib")) / "google" / "_upb", "google/_upb")
    shipped = {
        "spark.archives": f"{project}/packages.tar.gz#packages",
        "spark.executorEnv.PYTHONPATH": "packages",
    }
    configure(project, topics, python | shipped, registry={"url": registry.url})
    zync("sync", "raw", "staging", "--master", cluster.url, cwd=project)
    assert values(project) == [{"x": 114}, {"x": 115}, {"x": 116}]
