"""What can be said of deploy/terraform without OpenTofu."""

import re
from typing import Any

import pytest

from tests.deploy.providers import PROVIDERS
from tests.deploy.tofu import CLOUDS, TERRAFORM
from tests.docs.pages import page
from tests.store.test_rights import listed_rights

FOLDERS = ("release", *CLOUDS)
RIGHTS = {
    "gke": ("docs/how-to/gcs.md", r"`(storage\.objects\.\w+)`", r'"(storage\.objects\.\w+)"'),
    "aks": ("docs/how-to/azure.md", r"(?:containers/blobs|…/blobs)/([\w/]+)`", r"\{local\.blobs\}/([\w/]+)"),
}
"""Of each cloud the page, and how a right is written there and in the module."""


def text(folder: str, name: str) -> str:
    return (TERRAFORM / folder / name).read_text()


def version(words: str) -> tuple[int, ...]:
    return tuple(map(int, words.split(".")))


def ranges(folder: str, name: str) -> dict[str, str]:
    """The range of versions of each provider."""
    pattern = r"(\w+) += \{\s*source\s*= \"hashicorp/\w+\",?\s+version\s*= \"([^\"]+)\"\s*\}"
    return dict(re.findall(pattern, text(folder, name)))


def variables(cloud: str) -> dict[str, str]:
    """The text of each variable."""
    return dict(re.findall(r'(?ms)^variable "(\w+)" (\{\n.*?^\})', text(f"modules/{cloud}", "variables.tf")))


def test_the_actions_on_s3_are_those_of_the_page() -> None:
    listed = sorted(action for statement in listed_rights() for action in statement["Action"])
    assert sorted(re.findall(r'"(s3:\w+)"', text("modules/eks", "main.tf"))) == listed


@pytest.mark.parametrize("cloud", RIGHTS)
def test_the_rights_are_those_of_the_page(cloud: str) -> None:
    name, on_page, in_module = RIGHTS[cloud]
    (rights,) = re.findall(r"(?m)^\*\*Rights\.\*\* .*$", page(name).text)
    listed = re.findall(on_page, rights)
    assert len(listed) >= 4
    assert sorted(re.findall(in_module, text(f"modules/{cloud}", "main.tf"))) == sorted(listed)


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_resource_has_a_schema(folder: str) -> None:
    """Those of the data sources of the examples are compared by `tofu validate`."""
    kinds = {"resource": "resources", "data": "data"}
    used = re.findall(r'(?m)^(resource|data) "(\w+)"', text(f"modules/{folder}", "main.tf"))
    assert used
    for kind, type_ in used:
        assert type_ in PROVIDERS[type_.partition("_")[0]][kinds[kind]]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_versions_that_were_compared_are_in_the_ranges_of_each_module(cloud: str) -> None:
    wanted = ranges(f"modules/{cloud}", "versions.tf")
    assert len(wanted) == 3
    assert ranges(f"examples/{cloud}", "main.tf") == wanted
    assert ranges("modules/release", "versions.tf").items() <= wanted.items()
    for name, words in wanted.items():
        bounds = re.fullmatch(r">= ([\d.]+), < ([\d.]+)", words)
        assert bounds, name
        assert version(bounds[1]) <= version(PROVIDERS[name]["version"]) < version(bounds[2])


def test_the_page_says_with_which_providers_the_modules_were_compared() -> None:
    compared = page("docs/how-to/terraform.md").text
    for name, provider in PROVIDERS.items():
        major, minor, _ = provider["version"].split(".")
        assert f"{name} {major}.{minor}" in compared


def test_every_variable_has_a_type_and_a_meaning() -> None:
    for folder in FOLDERS:
        for name, body in variables(folder).items():
            assert re.search(r'(?m)^  description = ".+\."$', body), (folder, name)
            assert re.search(r"(?m)^  type        = ", body), (folder, name)


def test_what_the_modules_share_is_the_same_in_all() -> None:
    def shared(cloud: str) -> dict[str, Any]:
        return {name: body for name, body in variables(cloud).items() if name in variables("release")}

    assert set(shared("eks")) == {
        "release",
        "namespace",
        "create_namespace",
        "chart",
        "chart_version",
        "values",
        "timeout",
    }
    for cloud in CLOUDS:
        assert shared(cloud) == shared("eks")
