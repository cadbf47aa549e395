"""The files that the image is built of, without building it."""

import re
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest

from tests.docs.pages import CHECKOUT

IMAGE = CHECKOUT / "deploy" / "image"


def pins(name: str) -> dict[str, str]:
    """A lock's packages, each with its version, its hashes, and where it is wanted."""
    return dict(re.findall(r"(?m)^([\w.-]+==\S+(?: ;[^\\\n]+)?) ((?:\\\n +\S+ ?)+)", (CHECKOUT / name).read_text()))


@pytest.fixture(scope="module")
def healthcheck() -> ModuleType:
    spec = spec_from_file_location("healthcheck", IMAGE / "healthcheck.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_image_has_the_versions_of_a_checkout_and_all_dependencies() -> None:
    own, all_ = pins("deploy/image/requirements.lock"), pins("requirements.lock")
    assert len(own) > 40
    assert {name.split(" ")[0] for name in own} <= {name.split(" ")[0] for name in all_}
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = ("glue", "iceberg", "lineage", "protobuf", "traces")
    wanted = [
        *project["dependencies"],
        *(one for name in extras for one in project["optional-dependencies"][name]),
    ]
    names = {pin.split("==")[0] for pin in own}
    assert {re.split(r"[\[<>=]", one)[0].lower() for one in wanted} <= names
    assert not names & {"pytest", "ruff", "mkdocs-material", "moto"}


@pytest.mark.parametrize(
    ("command", "address"),
    [
        ("zync\0run\0--metrics\x000.0.0.0:9464\0", "127.0.0.1:9464"),
        ("python\0/opt/zync/bin/zync\0run\0--metrics=[::]:9464\0", "[::1]:9464"),
        ("zync\0sync\0raw\0staging\0--follow\0--metrics\0localhost:1\0--standby\0", "localhost:1"),
        ("zync\0status\0", None),
        ("zync\0run\0", None),
    ],
)
def test_the_health_check_asks_where_metrics_are_served(
    healthcheck: ModuleType, command: str, address: str | None
) -> None:
    assert healthcheck.metrics_address(command.encode()) == address
