"""A lake in Azure: `lake: az://container/lake` and the usual environment are all that it takes."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.azure import ACCOUNT, CONTAINER, KEY, running_azure, sas_token
from tests.store.clouds import check_commits, check_delivered, check_writers, commit_by_spark, failure, record, runner
from tests.store.proxy import Answer, Proxy, Request, running_proxy
from tests.store.test_s3 import _processes_that_show
from zync.lake.storage import arrow_files

pytestmark = pytest.mark.timeout(1500)  # the server may have to be fetched or built

HOST = f"{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"
"""The container with its account, as `abfs://` locations name it; the endpoint is http, so Spark needs that scheme."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which zync finds a running server with the container CONTAINER."""
    with running_azure(tmp_path_factory.mktemp("azure")) as variables:
        yield variables


@pytest.fixture
def azure(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets these variables for this process and those that it starts."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def proxied(environment: dict[str, str]) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """A proxy in front of the server, and the environment with a token: a key's signature is over the headers, too."""
    endpoint = environment["AZURE_STORAGE_ENDPOINT"].removesuffix(f"/{ACCOUNT}")
    with running_proxy(endpoint) as proxy:
        variables = {**os.environ, **environment, "AZURE_STORAGE_ENDPOINT": f"{proxy.url}/{ACCOUNT}"}
        del variables["AZURE_STORAGE_ACCOUNT_KEY"]
        yield proxy, {**variables, "AZURE_STORAGE_SAS_TOKEN": sas_token()}


def test_the_demo_runs_by_a_key_and_by_the_config_alone_and_shows_no_secret(
    environment: dict[str, str], demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lake = f"abfs://{HOST}/{demo.parent.name}"
    run = runner(demo, f"az://{CONTAINER}/{demo.parent.name}", KEY)
    run("load", "raw", "consume-1.jsonl")
    run("load", "raw", "consume-2.jsonl")
    assert json.loads(run("sync", "raw", "staging", "--json").stdout)["outputs"] == {"order": 2}

    for name in ("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name)
    (demo / "key").write_text(f"{KEY}\n")
    endpoint = environment["AZURE_STORAGE_ENDPOINT"]
    with (demo / "zync.yaml").open("a") as file:
        file.write(f"storage: {{endpoint: '{endpoint}', account: {ACCOUNT}, account_key: '${{file:key}}'}}\n")
    shown, done = set[str](), threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            texts = _processes_that_show(KEY)
            shown.update(text for text in texts if "AZURE_STORAGE_ACCOUNT_KEY" not in text)  # another test's

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run("sync-to", "tables", "staging", "--until-caught-up")
    finally:
        done.set()
        watcher.join()
    assert shown == set()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    check_delivered(run, lake)


@pytest.mark.usefixtures("azure")
def test_two_writers_at_once_each_get_their_own_seqnos(tmp_path: Path) -> None:
    """By the condition of delta-rs's put: there is no lock that both could hold."""
    check_writers(f"az://{CONTAINER}/{tmp_path.name}", tmp_path)


@pytest.mark.usefixtures("azure")
def test_of_two_commits_by_spark_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a shared access signature, as the demo has a key."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", sas_token())
    location = f"abfs://{HOST}/{tmp_path.name}/table"

    def write_version_6() -> None:
        with arrow_files(location).open_output_stream("_delta_log/00000000000000000006.json") as file:
            file.write(b"by another process")

    check_commits(commit_by_spark(location, "AzureLogStore", write_version_6))


@pytest.mark.parametrize(
    ("methods", "part", "text"),
    [
        (("GET",), "comp=list", "no permission to list what is in the store: grant Microsoft.Storage/"),
        (("PUT",), "", "no permission to write {}/.zync-probe-"),
        (("DELETE", "POST"), "", "no permission to delete what is in the store: grant Microsoft.Storage/"),
    ],
)
def test_what_is_not_permitted_is_said_in_a_line(
    proxied: tuple[Proxy, dict[str, str]], tmp_path: Path, methods: tuple[str, ...], part: str, text: str
) -> None:
    proxy, variables = proxied
    refusal = "<Error><Code>AuthorizationPermissionMismatch</Code><Message>Not authorized.</Message></Error>"

    def answer(request: Request, _: object) -> Answer | None:
        return Answer(403, refusal.encode()) if request.method in methods and part in request.path else None

    proxy.rule = answer
    name = f"{tmp_path.parent.name}-{methods[0]}"
    words = ("load", "raw", record(tmp_path), "--lake", f"az://{CONTAINER}/{name}")
    assert text.format(name) in failure(words, tmp_path, variables)


def test_no_container_a_wrong_key_no_account_and_no_store_are_said_in_a_line(
    environment: dict[str, str], tmp_path: Path
) -> None:
    variables = {**os.environ, **environment}
    line = failure(("cat", "raw", "--lake", "az://nowhere/lake"), tmp_path, variables)
    assert "the store has no container nowhere: create it, or correct the lake's address" in line
    wrong = {**variables, "AZURE_STORAGE_ACCOUNT_KEY": "czNjcjN0LXdyb25n"}
    line = failure(
        ("cat", "raw", "--lake", f"az://{CONTAINER}/lake"), tmp_path, wrong, wrong["AZURE_STORAGE_ACCOUNT_KEY"]
    )
    assert "the store refuses the credentials: correct AZURE_STORAGE_ACCOUNT_KEY" in line
    away = {**variables, "AZURE_STORAGE_ENDPOINT": f"http://localhost:1/{ACCOUNT}"}
    line = failure(("cat", "raw", "--lake", f"az://{CONTAINER}/lake"), tmp_path, away)
    assert "the store at http://localhost:1 does not answer (Connection refused)" in line
    del variables["AZURE_STORAGE_ACCOUNT_NAME"]
    line = failure(("cat", "raw", "--lake", f"az://{CONTAINER}/lake"), tmp_path, variables)
    assert "does not say in which storage account the container is: set storage.account" in line
