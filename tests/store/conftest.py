"""A store for the tests of a folder: a server that speaks S3, and the environment by which clients find it."""

from collections.abc import Iterator

import pytest

from tests.golang import NotBuiltError
from tests.store.choice import running_store
from tests.store.refusing import Gate, refusing_s3
from tests.store.s3 import running_s3
from tests.store.versity import Versity, running_versity


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which the usual clients find a running server: S3Mock, or another (`choice.SERVER`)."""
    folder = tmp_path_factory.mktemp("store") / "s3"
    folder.mkdir()
    with running_store(folder) as variables:
        yield variables


@pytest.fixture(scope="session")
def versity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versity]:
    """Another server, which gives its user only the rights that a test says."""
    try:
        with running_versity(tmp_path_factory.mktemp("versity")) as server:
            yield server
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """A proxy that refuses what a test says, in front of a server that no other file has."""
    folder = tmp_path_factory.mktemp("refusing") / "s3"
    folder.mkdir()
    with running_s3(folder) as variables, refusing_s3(variables["AWS_ENDPOINT_URL"]) as server:
        yield server


@pytest.fixture
def s3(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets these variables for this process and those that it starts."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
