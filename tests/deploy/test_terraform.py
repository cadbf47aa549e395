"""The modules of deploy/terraform, by OpenTofu: with providers that only know their schemas, and with mocks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import helm, tofu
from tests.deploy.providers import running_providers
from tests.deploy.test_chart import of_kind, pods
from tests.docs.pages import blocks
from tests.store.s3 import BUCKET
from tests.store.test_rights import listed_rights
from zync.project.load import load

pytestmark = pytest.mark.usefixtures("_tofu")

PAGE = "docs/how-to/terraform.md"
FOLDERS = [f"modules/{name}" for name in ("release", *tofu.CLOUDS)] + [f"examples/{cloud}" for cloud in tofu.CLOUDS]
ANNOTATIONS = {
    "eks": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/data-shop"},
    "gke": {"iam.gke.io/gcp-service-account": "data-shop@shop-project.iam.gserviceaccount.com"},
    "aks": {"azure.workload.identity/client-id": "11111111-1111-1111-1111-111111111111"},
}
LAKES = {
    "eks": "s3://shop-lake/shop",
    "gke": "gs://shop-lake/shop",
    "aks": "abfss://lake@shoplake.dfs.core.windows.net/shop",
}


@pytest.fixture(scope="module")
def providers() -> Iterator[dict[str, str]]:
    with running_providers() as variables:
        yield variables


def resource(cloud: str, address: str, run: str = "least") -> dict[str, Any]:
    """The arguments of a resource, as the module gave them to the provider in a run of its tests."""
    values: dict[str, Any] = tofu.mocked_applies(cloud)[run][address]
    return values


def validate(folder: Path, providers: dict[str, str]) -> str:
    """Returns what `tofu validate` has to say, and nothing if all is well."""
    init = tofu.run(folder, "init", "-input=false", "-no-color", **providers)
    assert init.returncode == 0, init.stderr
    answer = json.loads(tofu.run(folder, "validate", "-json", **providers).stdout)
    return "\n".join(f"{one['summary']}: {one['detail']}" for one in answer["diagnostics"])


def test_the_files_are_formatted() -> None:
    done = tofu.run(tofu.TERRAFORM, "fmt", "-check", "-recursive", "-diff")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_module_and_each_example_is_valid(folder: str, tmp_path: Path, providers: dict[str, str]) -> None:
    assert validate(tofu.copy(tmp_path) / folder, providers) == ""


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("bucket_key_enabled", "bucket_keys_enabled", "Unsupported argument"),
        ("days_after_initiation = 7", 'days_after_initiation = "seven"', "a number is required"),
        ('    sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"\n', "", "Missing required argument"),
        ("aws_s3_bucket.lake.region", "aws_s3_bucket.lake.place", "Unsupported attribute"),
    ],
)
def test_a_mistake_is_found(right: str, wrong: str, said: str, tmp_path: Path, providers: dict[str, str]) -> None:
    folder = tofu.copy(tmp_path) / "modules" / "eks"
    text = (folder / "main.tf").read_text()
    assert right in text
    (folder / "main.tf").write_text(text.replace(right, wrong))
    assert said in validate(folder, providers)


def test_the_module_on_the_page_is_valid(tmp_path: Path, providers: dict[str, str]) -> None:
    (block,) = (block for block in blocks("hcl") if block.page == PAGE)
    (values,) = (block for block in blocks("yaml") if block.page == PAGE)
    folder = tofu.copy(tmp_path) / "examples"
    source = "git::https://git.example/zync.git//deploy/terraform/modules/eks?ref=v0.8.0"
    assert source in block.text
    (folder / str(block.title)).write_text(block.text.replace(source, "../modules/eks"))
    (folder / str(values.title)).write_text(values.text)
    assert values.text in (folder / "values.yaml").read_text()
    assert validate(folder, providers) == ""


@pytest.mark.parametrize("cloud", tofu.CLOUDS)
def test_its_own_tests_pass(cloud: str) -> None:
    assert set(tofu.mocked_applies(cloud)) == {"least", "most"}


def test_the_role_may_do_what_the_page_of_s3_lists() -> None:
    listed = json.loads(json.dumps(listed_rights()).replace(f":::{BUCKET}", ":::shop-lake"))
    policy = json.loads(resource("eks", "aws_iam_role_policy.lake")["policy"])
    assert policy["Statement"] == listed

    with_key = json.loads(resource("eks", "aws_iam_role_policy.lake", "most")["policy"])
    key = {
        "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
        "Resource": ["arn:aws:kms:eu-central-1:123456789012:key/lake"],
    }
    assert with_key["Statement"] == [*listed, {"Effect": "Allow", **key}]


def test_nothing_but_the_service_account_of_the_release_gets_the_identity() -> None:
    (statement,) = json.loads(resource("eks", "aws_iam_role.zync")["assume_role_policy"])["Statement"]
    issuer = "oidc.eks.eu-central-1.amazonaws.com/id/EXAMPLE"
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert statement["Principal"] == {"Federated": f"arn:aws:iam::123456789012:oidc-provider/{issuer}"}
    wanted = {f"{issuer}:aud": "sts.amazonaws.com", f"{issuer}:sub": "system:serviceaccount:data:shop"}
    assert statement["Condition"] == {"StringEquals": wanted}

    binding = "google_service_account_iam_member.pods"
    assert resource("gke", binding)["member"] == "serviceAccount:shop-project.svc.id.goog[data/shop]"
    assert resource("gke", binding, "most")["member"] == "serviceAccount:fleet-project.svc.id.goog[data/shop]"
    assert resource("gke", binding)["role"] == "roles/iam.workloadIdentityUser"

    federated = resource("aks", "azurerm_federated_identity_credential.pods")
    assert federated["subject"] == "system:serviceaccount:data:shop"
    assert federated["audience"] == ["api://AzureADTokenExchange"]


def test_the_roles_of_google_and_azure_hold_on_the_bucket_and_the_container_only() -> None:
    member = resource("gke", "google_storage_bucket_iam_member.lake")
    assert member["bucket"] == "shop-lake"
    assert member["role"] == "projects/shop-project/roles/zync_shop_lake"
    assert member["member"] == "serviceAccount:data-shop@shop-project.iam.gserviceaccount.com"
    scope = resource("aks", "azurerm_role_assignment.lake")["scope"]
    assert scope.endswith("/storageAccounts/shoplake/blobServices/default/containers/lake")

    def actions(run: str) -> list[str]:
        (permissions,) = resource("aks", "azurerm_role_definition.lake", run)["permissions"]
        return sorted(action.partition("/containers/blobs/")[2] for action in permissions["data_actions"])

    assert actions("least") == ["delete", "read", "write"]
    assert actions("most") == ["delete", "move/action", "read", "write"]


def test_the_bucket_is_private_and_kept() -> None:
    assert not resource("eks", "aws_s3_bucket.lake")["force_destroy"]
    block = resource("eks", "aws_s3_bucket_public_access_block.lake")
    switches = ("block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets")
    assert all(block[name] for name in switches)
    assert "aws_s3_bucket_versioning.lake[0]" not in tofu.mocked_applies("eks")["least"]
    (versioning,) = resource("eks", "aws_s3_bucket_versioning.lake[0]", "most")["versioning_configuration"]
    assert versioning["status"] == "Enabled"

    bucket = resource("gke", "google_storage_bucket.lake")
    assert not bucket["force_destroy"]
    assert bucket["public_access_prevention"] == "enforced"
    assert bucket["uniform_bucket_level_access"]

    account = resource("aks", "azurerm_storage_account.lake")
    assert not account["allow_nested_items_to_be_public"]
    assert not account["shared_access_key_enabled"]
    assert resource("aks", "azurerm_storage_container.lake")["container_access_type"] == "private"
    assert (tofu.TERRAFORM / "modules/aks/main.tf").read_text().count("prevent_destroy = true") == 2


def test_parts_of_uploads_that_were_killed_are_deleted() -> None:
    rules = resource("eks", "aws_s3_bucket_lifecycle_configuration.lake")["rule"]
    uploads = [one["days_after_initiation"] for rule in rules for one in rule["abort_incomplete_multipart_upload"]]
    assert uploads == [7]
    assert {rule["status"] for rule in rules} == {"Enabled"}
    rules = resource("gke", "google_storage_bucket.lake")["lifecycle_rule"]
    ages = [one["condition"][0]["age"] for one in rules if one["action"][0]["type"] == "AbortIncompleteMultipartUpload"]
    assert ages == [7]


@pytest.mark.usefixtures("_helm")
@pytest.mark.parametrize("run", ["least", "most"])
@pytest.mark.parametrize("cloud", tofu.CLOUDS)
def test_the_chart_makes_a_release_of_the_values(cloud: str, run: str, tmp_path: Path) -> None:
    release = resource(cloud, "module.release.helm_release.zync", run)
    assert (release["name"], release["namespace"]) == ("shop", "data")
    for number, text in enumerate(release["values"]):
        (tmp_path / f"{number}.yaml").write_text(text)
    more = (f"--values={tmp_path}/{number}.yaml" for number in range(1, len(release["values"])))
    documents = helm.manifests(tmp_path / "0.yaml", *more)

    (account,) = of_kind(documents, "ServiceAccount").values()
    assert account["metadata"]["name"] == "shop"
    assert account["metadata"]["annotations"] == ANNOTATIONS[cloud]
    for pod in pods(documents):
        assert pod["serviceAccountName"] == "shop"
        for container in pod["containers"]:
            assert {"name": "ZYNC_LAKE", "value": LAKES[cloud]} in container["env"]
    labels = of_kind(documents, "Deployment")["shop-zync-sync"]["spec"]["template"]["metadata"]["labels"]
    assert labels.get("azure.workload.identity/use") == ("true" if cloud == "aks" else None)
    assert labels.get("team") == ("shop" if (cloud, run) == ("aks", "most") else None)


def test_variables_of_the_pods_are_added_to_those_that_are_given() -> None:
    def environment(run: str) -> list[tuple[str, str | None]]:
        last = yaml.safe_load(resource("eks", "module.release.helm_release.zync", run)["values"][-1])
        return [(one["name"], one.get("value")) for one in last["pod"]["env"]]

    lake = ("ZYNC_LAKE", LAKES["eks"])
    assert environment("least") == [("AWS_REGION", "eu-central-1"), lake]
    assert environment("most") == [lake, ("AWS_REGION", "eu-west-1"), ("OTHER", None)]


@pytest.mark.parametrize("cloud", tofu.CLOUDS)
def test_the_namespace_is_created_or_is_there(cloud: str) -> None:
    (metadata,) = resource(cloud, "module.release.kubernetes_namespace_v1.zync[0]")["metadata"]
    assert metadata["name"] == "data"
    assert metadata["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    assert "module.release.kubernetes_namespace_v1.zync[0]" not in tofu.mocked_applies(cloud)["most"]


@pytest.mark.usefixtures("_helm")
def test_the_project_of_the_examples_is_read_and_makes_a_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    folder = tofu.TERRAFORM / "examples" / "shop"
    config = load(folder / "zync.yaml")
    assert [output.topic for output in config.outputs] == ["order"]
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    (tmp_path / "files.yaml").write_text(yaml.safe_dump({"config": {"files": files}}))
    documents = helm.manifests(tofu.TERRAFORM / "examples" / "values.yaml", f"--values={tmp_path}/files.yaml")
    assert "shop-zync-sync-to-tables" in of_kind(documents, "Deployment")
