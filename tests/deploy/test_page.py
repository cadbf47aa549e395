"""The values on the page about Kubernetes make a release, whose config zync reads."""

from pathlib import Path

import pytest

from tests.deploy import helm
from tests.docs.pages import blocks
from zync.project.load import load

PAGE = "docs/how-to/kubernetes.md"
VALUES = {block.title: block.text for block in blocks("yaml") if block.page == PAGE and block.title}


@pytest.fixture
def values(tmp_path: Path) -> list[str]:
    """The options that name the page's values."""
    for name, text in VALUES.items():
        (tmp_path / str(name)).write_text(text)
    return [f"--values={tmp_path}/{name}" for name in VALUES]


@pytest.mark.usefixtures("_helm")
def test_the_values_of_the_page_make_a_release_with_the_names_that_it_uses(tmp_path: Path, values: list[str]) -> None:
    assert set(VALUES) == {"image.yaml", "values.yaml", "executors.yaml", "watched.yaml", "observed.yaml"}
    documents = helm.manifests(tmp_path / "values.yaml", *values)
    names = {(one["kind"], one["metadata"]["name"]) for one in documents}
    wanted = {("StatefulSet", "shop-zync-sync-from"), ("Deployment", "shop-zync-sync"), ("PodMonitor", "shop-zync")}
    wanted |= {("Role", "shop-zync-executors")}
    assert wanted <= names


@pytest.mark.usefixtures("_helm")
def test_the_config_of_the_page_is_read(tmp_path: Path, values: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    documents = helm.manifests(tmp_path / "values.yaml", *values)
    (data,) = (one["data"] for one in documents if one["metadata"]["name"] == "shop-zync-config")
    for key, text in data.items():
        path = tmp_path / "etc" / key.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    config = load(tmp_path / "etc" / "zync.yaml")
    assert config.kafka["sasl.password"] == "secret"
    assert [output.topic for output in config.outputs] == ["order"]
