"""Executors on Kubernetes: what the chart says of them, by Spark itself, with a server that runs pods as processes."""

import json
import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.conftest import BRISK, QUICK, zync
from tests.deploy import helm
from tests.deploy.kubernetes import SPARK, running_kubernetes
from tests.deploy.test_chart import of_kind, pod_of
from zync.kafka.dev_broker import free_port

pytestmark = pytest.mark.usefixtures("_helm")

CASE = helm.CHART / "ci" / "executors.yaml"
_STATIC = r"executors.conf.spark\.dynamicAllocation\.enabled=false"
RULE = """\
from pyspark.sql import functions as sf

import tax


@sf.udf("int")
def taxed(x):
    return tax.added(x)


def rule(records):
    return records.select("seqno", taxed(sf.expr("value:x::int")).alias("x"))
"""


def submitted(container: dict[str, Any], **fields: str) -> str:
    """The words for spark-submit in a container's environment, as a kubelet expands them."""
    (words,) = (one["value"] for one in container["env"] if one["name"] == "PYSPARK_SUBMIT_ARGS")
    for name, value in fields.items():
        words = words.replace(f"$({name})", value)
    return str(words)


def properties(words: str) -> dict[str, str]:
    pairs = [word for word in shlex.split(words) if "=" in word]
    return dict(pair.split("=", 1) for pair in pairs)


def test_the_parts_with_a_spark_make_executors_and_no_other_part_has_a_token() -> None:
    documents = helm.manifests(CASE)
    for name, workload in of_kind(documents, "Deployment", "StatefulSet", "CronJob", "Pod").items():
        pod = pod_of(workload)
        (args, *_) = (container["args"] for container in pod["containers"])
        is_driver = name in ("shop-zync-sync", "shop-zync-sync-to-tables")
        assert pod["automountServiceAccountToken"] == is_driver
        assert ("k8s://https://kubernetes.default.svc" in args) == is_driver
    (template,) = (one["data"] for name, one in of_kind(documents, "ConfigMap").items() if "executors" in name)
    pod = yaml.safe_load(template["executor.yaml"])
    assert not pod["spec"]["automountServiceAccountToken"]
    assert pod["spec"]["nodeSelector"] == {"disk": "nvme"}
    assert pod["metadata"]["labels"]["team"] == "data"


def test_properties_of_ones_own_go_before_the_charts_and_keep_their_quotes() -> None:
    documents = helm.manifests(CASE, "--set-string", r"executors.conf.spark\.driver\.port=7999")
    (container,) = pod_of(of_kind(documents, "Deployment")["shop-zync-sync"])["containers"]
    seen = properties(submitted(container, POD_IP="10.0.0.1", POD_NAME="shop-zync-sync-x"))
    assert seen["spark.driver.port"] == "7999"
    assert seen["spark.driver.host"] == "10.0.0.1"
    assert seen["spark.kubernetes.driver.pod.name"] == "shop-zync-sync-x"
    assert seen["spark.executor.extraJavaOptions"] == "-Dnote='quoted'"
    assert seen["spark.dynamicAllocation.enabled"] == "true"


def test_the_network_policy_lets_executors_and_their_part_reach_each_other() -> None:
    (policy,) = of_kind(helm.manifests(CASE), "NetworkPolicy").values()
    release = {"app.kubernetes.io/name": "zync", "app.kubernetes.io/instance": "shop"}
    peers = [{"podSelector": {"matchLabels": release}}]
    ports = [{"port": 7078, "protocol": "TCP"}, {"port": 7079, "protocol": "TCP"}]
    assert policy["spec"]["ingress"][1] == {"ports": ports, "from": peers}
    assert policy["spec"]["egress"][1] == {"ports": ports, "to": peers}
    assert policy["spec"]["podSelector"]["matchLabels"] == release


@pytest.mark.timeout(600)
def test_spark_makes_executors_of_the_chart_within_the_rights_of_its_role(tmp_path: Path) -> None:
    documents = helm.manifests(CASE, "--set", f"executors.instances=1,executors.memory=1g,{_STATIC}")
    (role,) = of_kind(documents, "Role").values()
    driver = pod_of(of_kind(documents, "Deployment")["shop-zync-sync"])
    (template,) = (one["data"] for name, one in of_kind(documents, "ConfigMap").items() if "executors" in name)
    (tmp_path / "executor.yaml").write_text(template["executor.yaml"])
    (tmp_path / "rule.py").write_text(RULE)
    (tmp_path / "tax.py").write_text("def added(x):\n    return x + 10\n")
    ports = ("spark.driver.port", "spark.driver.blockManager.port", "spark.blockManager.port")
    own = {name: str(free_port()) for name in ports} | {
        "spark.kubernetes.executor.podTemplateFile": str(tmp_path / "executor.yaml"),
        "spark.executor.extraJavaOptions": QUICK,
    }
    (tmp_path / "zync.yaml").write_text(
        'topics: {a: {id: "value:txn"}}\ntransactions: {done: "count(*) = 1"}\n'
        "outputs: [{topic: out, python: rule.py}]\n"
        + BRISK.replace("}", "".join(f', {name}: "{value}"' for name, value in own.items()) + "}")
    )
    lines = [json.dumps({"topic": "a", "value": {"txn": n, "x": n}}) for n in range(3)]
    zync("load", "raw", "-", cwd=tmp_path, input="\n".join(lines))
    (tmp_path / "pods").mkdir()
    with running_kubernetes(tmp_path / "pods", role["rules"]) as kubernetes:
        name = "shop-zync-sync-5d8f"
        metadata = {"name": name, "namespace": "data", "uid": "of-the-driver"}
        kubernetes.put("ADDED", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": driver})
        words = submitted(driver["containers"][0], POD_IP="127.0.0.1", POD_NAME=name)
        result = zync(
            "sync", "raw", "staging", "--json", "--master", f"k8s://{kubernetes.url}", cwd=tmp_path, check=False,
            env=os.environ | {"PYSPARK_SUBMIT_ARGS": words},
        )  # fmt: skip
        logs = "\n".join(log.read_text() for log in (tmp_path / "pods").glob("*.log"))
        assert result.returncode == 0, result.stdout + result.stderr + logs
        assert json.loads(result.stdout)["outputs"] == {"out": 3}
        assert list(kubernetes.pods) == [name]
    assert kubernetes.refused == set()
    assert {resource for _, resource in kubernetes.asked} == {"pods"}
    (pod,) = kubernetes.created
    kubernetes_validate.validate(pod, helm.VERSIONS[-1], strict=True)
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "of-the-driver"
    assert pod["spec"]["serviceAccountName"] == "shop-zync"
    assert not pod["spec"]["automountServiceAccountToken"]
    (container,) = pod["spec"]["containers"]
    assert container["image"].startswith("zync:")
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["envFrom"] == [{"secretRef": {"name": "shop-keys"}}]
    assert container["resources"]["requests"] == {"cpu": "4", "memory": f"{3 * 1024}Mi"}
    values = [
        json.loads(line)["value"]
        for line in zync("cat", "staging", "--kind", "output", cwd=tmp_path).stdout.splitlines()
    ]
    assert values == [{"x": 10}, {"x": 11}, {"x": 12}]


def test_the_images_driver_runs_an_application(demo: Path) -> None:
    """By the words and variables that Spark gives the pod of a driver in cluster mode, but for its master."""
    zync("load", "raw", "consume-1.jsonl", "consume-2.jsonl", cwd=demo)
    (demo / "application.py").write_text(
        "import zync\n\n"
        f"config = zync.load_config('{demo}/zync.yaml')\n"
        "print(zync.sync_once(config, f'{config.lake}/raw', f'{config.lake}/staging').transactions)\n"
    )
    jars = subprocess.run([sys.executable, "-m", "zync.java", "jars"], capture_output=True, text=True, check=True)
    settings = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": jars.stdout.strip(),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.ui.enabled": "false",
    }
    (demo / "spark.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (demo / "local").mkdir()
    variables = {"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1", "SPARK_LOCAL_DIRS": str(demo / "local")}
    words = ("--properties-file", str(demo / "spark.properties"), "--class", "org.apache.spark.deploy.PythonRunner")
    result = subprocess.run(
        [sys.executable, SPARK, "driver", *words, f"local://{demo}/application.py"],
        env={**os.environ, **variables, "PYSPARK_PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.stdout == "2\n", result.stderr


def test_an_executor_is_started_as_sparks_own_image_starts_it() -> None:
    variables = {
        "SPARK_JAVA_OPT_10": "-Dlast=1",
        "SPARK_JAVA_OPT_2": "-Dnote=two words",
        "SPARK_CLASSPATH": "/extra.jar",
        "SPARK_CONF_DIR": "/opt/spark/conf",
        "SPARK_EXECUTOR_MEMORY": "1024m",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_EXECUTOR_POD_NAME": "shop-exec-3",
        "SPARK_RESOURCE_PROFILE_ID": "0",
    }
    command = runpy.run_path(str(SPARK))["executor"](variables, Path("/spark"))
    assert command[:5] == ["java", "-Dnote=two words", "-Dlast=1", "-Xms1024m", "-Xmx1024m"]
    assert command[5:7] == ["-cp", "/opt/spark/conf:/extra.jar:/spark/jars/*"]
    assert dict(zip(command[8::2], command[9::2], strict=True))["--executor-id"] == "3"


def test_the_entry_point_runs_zync_but_for_the_two_words_of_spark(tmp_path: Path) -> None:
    for program in ("zync", "python3"):
        (tmp_path / program).write_text(f"#!/bin/sh\necho {program} $@\n")
        (tmp_path / program).chmod(0o755)

    def run(*words: str) -> str:
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(
            [SPARK.parent / "entrypoint.sh", *words], env=path, capture_output=True, text=True, check=True
        ).stdout

    assert run("sync", "raw", "staging") == "zync sync raw staging\n"
    assert run() == "zync\n"
    for word in ("executor", "driver"):
        assert run(word, "x") == f"python3 /opt/zync/share/zync/spark.py {word} x\n"
