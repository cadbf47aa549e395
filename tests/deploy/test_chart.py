"""The chart: what Helm makes of it for seven sets of values fits Kubernetes, and zync."""

import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.deploy import helm
from tests.docs.pages import parse

pytestmark = pytest.mark.usefixtures("_helm")

OPERATOR = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus Operator, whose schemas are not Kubernetes'."""
by_name = pytest.mark.parametrize("values", helm.CASES, ids=lambda path: path.stem)


def case(name: str) -> Path:
    return helm.CHART / "ci" / f"{name}.yaml"


def of_kind(documents: list[dict[str, Any]], *kinds: str) -> dict[str, dict[str, Any]]:
    """The manifests of those kinds by name."""
    return {one["metadata"]["name"]: one for one in documents if one["kind"] in kinds}


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """The spec of the pods that a manifest makes."""
    spec: dict[str, Any] = manifest["spec"]
    if manifest["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return spec if manifest["kind"] == "Pod" else spec["template"]["spec"]


def pods(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pod_of(one) for one in of_kind(documents, "StatefulSet", "Deployment", "CronJob", "Pod").values()]


def test_there_are_seven_sets_of_values() -> None:
    assert len(helm.CASES) == 7


@by_name
def test_lint_has_nothing_to_say(values: Path) -> None:
    done = helm.run("lint", helm.CHART, "--strict", "--values", values, "--kube-version", f"{helm.VERSIONS[0]}.0")
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@by_name
@pytest.mark.parametrize("version", helm.VERSIONS)
def test_every_manifest_fits_the_schemas_of_kubernetes(values: Path, version: str) -> None:
    documents = helm.manifests(values, version=version)
    assert documents
    for document in documents:
        if document["kind"] not in OPERATOR:
            kubernetes_validate.validate(document, version, strict=True)


@by_name
def test_every_container_runs_a_command_that_zync_has(values: Path) -> None:
    containers = [container for pod in pods(helm.manifests(values)) for container in pod["containers"]]
    assert containers
    for container in containers:
        line = " ".join(["zync", *container["args"]])
        parse(line.replace("--log-format json", ""))  # to parse that one makes this process log so


@by_name
def test_every_pod_is_what_the_restricted_profile_asks_for_and_keeps_nothing(values: Path) -> None:
    for pod in pods(helm.manifests(values)):
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        assert {kind for volume in pod["volumes"] for kind in volume} - {"name"} <= {"configMap", "emptyDir", "secret"}
        assert [volume["name"] for volume in pod["volumes"] if "emptyDir" in volume] == ["tmp"]
        makes_executors = any(arg.startswith("k8s://") for one in pod["containers"] for arg in one["args"])
        assert pod["automountServiceAccountToken"] == makes_executors


@by_name
def test_selectors_choose_the_pods_of_one_part(values: Path) -> None:
    documents = helm.manifests(values)
    workloads = of_kind(documents, "StatefulSet", "Deployment")
    labels = {name: one["spec"]["template"]["metadata"]["labels"] for name, one in workloads.items()}
    for name, workload in workloads.items():
        wanted = workload["spec"]["selector"]["matchLabels"].items()
        assert [other for other, has in labels.items() if wanted <= has.items()] == [name]
    for name, budget in of_kind(documents, "PodDisruptionBudget").items():
        assert budget["spec"]["selector"] == workloads[name]["spec"]["selector"]


def test_the_name_of_a_pod_is_the_instance_of_its_sync_from() -> None:
    (workload,) = of_kind(helm.manifests(case("minimal")), "StatefulSet").values()
    (container,) = pod_of(workload)["containers"]
    instance = {"name": "ZYNC_INSTANCE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert instance in container["env"]
    assert workload["spec"]["podManagementPolicy"] == "Parallel"


def test_one_pod_makes_way_before_the_next_and_a_standby_takes_over() -> None:
    alone = of_kind(helm.manifests(case("minimal")), "Deployment")
    assert {name: (one["spec"]["replicas"], one["spec"]["strategy"]["type"]) for name, one in alone.items()} == {
        "shop-zync-sync": (1, "Recreate")
    }
    documents = helm.manifests(case("debezium-standby"))
    for name in ("bank-sync", "bank-sync-to-kafka", "bank-sync-to-tables"):
        spec = of_kind(documents, "Deployment")[name]["spec"]
        assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
        assert "--standby" in spec["template"]["spec"]["containers"][0]["args"]
        assert spec["template"]["spec"]["topologySpreadConstraints"]
    assert len(of_kind(documents, "PodDisruptionBudget")) == 4


def test_probes_ask_the_port_of_the_metrics() -> None:
    documents = helm.manifests(case("azure"))
    workloads = of_kind(documents, "StatefulSet", "Deployment").values()
    for container in (container for one in workloads for container in pod_of(one)["containers"]):
        assert container["args"][container["args"].index("--metrics") + 1] == "[::]:9000"
        assert container["ports"] == [{"name": "metrics", "containerPort": 9000}]
        paths = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert paths == {
            "startup": {"path": "/healthz", "port": "metrics"},
            "liveness": {"path": "/healthz", "port": "metrics"},
            "readiness": {"path": "/readyz", "port": "metrics"},
        }


def test_the_files_of_the_config_are_where_it_names_them_and_a_change_restarts_the_pods(tmp_path: Path) -> None:
    documents = helm.manifests(case("minimal"))
    (config,) = of_kind(documents, "ConfigMap").values()
    for pod in pods(documents):
        (items,) = (one["configMap"]["items"] for one in pod["volumes"] if one["name"] == "config")
        assert {one["path"] for one in items} == {"zync.yaml", "etl/order.sql"}
        assert {one["key"] for one in items} == set(config["data"])
    assert config["data"]["etl__order.sql"] == "SELECT seqno, value:qty::int AS qty FROM `order`\n"

    (tmp_path / "other.sql").write_text("SELECT seqno FROM `order`")
    changed = helm.manifests(case("minimal"), "--set-file", f"config.files.etl/order\\.sql={tmp_path}/other.sql")
    before, after = (
        one["shop-zync-sync"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for one in (of_kind(documents, "Deployment"), of_kind(changed, "Deployment"))
    )
    assert before != after


def test_secrets_are_in_the_environment_or_in_files() -> None:
    for pod in pods(helm.manifests(case("debezium-standby"))):
        for container in pod["containers"]:
            assert container["envFrom"] == [{"secretRef": {"name": "bank-keys"}}]
            assert "secrets" not in {one["name"] for one in container["volumeMounts"]}
    for pod in pods(helm.manifests(case("secret-files"))):
        assert {"name": "secrets", "secret": {"secretName": "shop-keys"}} in pod["volumes"]
        for container in pod["containers"]:
            assert "envFrom" not in container
            mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
            assert mounts["secrets"] == "/etc/zync-secrets"


def test_a_part_may_differ_from_what_all_pods_have() -> None:
    documents = helm.manifests(case("debezium-standby"))
    specs = {name: pod_of(one) for name, one in of_kind(documents, "StatefulSet", "Deployment").items()}
    assert {name for name, one in specs.items() if "nodeSelector" in one} == {"bank-sync"}
    assert {one["priorityClassName"] for one in specs.values()} == {"data"}
    volumes = {name: one["volumes"][0] for name, one in specs.items()}
    assert volumes["bank-sync"] == {"name": "tmp", "emptyDir": {"sizeLimit": "50Gi"}}
    assert volumes["bank-sync-from"] == {"name": "tmp", "emptyDir": {}}


def test_a_network_policy_lets_the_metrics_be_asked_for_and_nothing_else() -> None:
    (policy,) = of_kind(helm.manifests(case("azure")), "NetworkPolicy").values()
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "metrics", "protocol": "TCP"}]}]
    (policy,) = of_kind(helm.manifests(case("watched")), "NetworkPolicy").values()
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert {one["port"] for one in policy["spec"]["egress"][0]["ports"]} == {53}


def test_a_part_that_is_not_enabled_is_not_there() -> None:
    documents = helm.manifests(case("one-part"))
    assert set(of_kind(documents, "StatefulSet", "Deployment", "CronJob")) == {"shop-zync-sync-to-tables"}
    (pod,) = (pod_of(one) for one in of_kind(documents, "Deployment").values())
    assert pod["containers"][0]["image"].startswith("zync@sha256:")


def test_delivered_tables_are_maintained_where_there_are_any() -> None:
    for name, tables in (("watched", {"raw", "staging", "tables"}), ("minimal", {"raw", "staging"})):
        jobs = of_kind(helm.manifests(case(name)), "CronJob").values()
        assert {pod_of(job)["containers"][0]["args"][1] for job in jobs} == tables


def test_the_notes_say_that_no_volume_is_kept_and_name_what_is_there(tmp_path: Path) -> None:
    """Helm shows the notes only of what it installs, so they are a template of a copy here."""
    chart = shutil.copytree(helm.CHART, tmp_path / "chart")
    notes = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "_notes.tpl").write_text(f'{{{{ define "notes" }}}}{notes}{{{{ end }}}}')
    (chart / "templates" / "notes.yaml").write_text('{kind: Notes, text: {{ include "notes" . | toJson }}}\n')
    (text,) = (one["text"] for one in helm.manifests(case("debezium-standby"), chart=chart) if one["kind"] == "Notes")
    assert "There is no volume to keep" in text
    assert "Deployment  bank-sync-to-kafka: sync-to kafka staging, with a standby" in text
    assert "kubectl --namespace data exec deployment/bank-sync -- zync status" in text
    (text,) = (one["text"] for one in helm.manifests(case("one-part"), chart=chart) if one["kind"] == "Notes")
    assert "exec deployment/shop-zync-sync-to-tables -- zync status" in text
