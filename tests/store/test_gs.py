"""A lake in Google Cloud Storage: `lake: gs://bucket/lake` and the usual environment are all that it takes."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.clouds import check_commits, check_delivered, check_writers, commit_by_spark, failure, record, runner
from tests.store.gs import BUCKET, running_gs
from tests.store.proxy import Answer, Proxy, Request, running_proxy
from zync.lake.storage import arrow_files

pytestmark = pytest.mark.timeout(1500)  # the server may have to be fetched or built


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which Google's clients find a running server with the bucket BUCKET."""
    with running_gs(tmp_path_factory.mktemp("gs")) as variables:
        yield variables


@pytest.fixture
def gs(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets these variables for this process and those that it starts."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def proxy(environment: dict[str, str]) -> Iterator[Proxy]:
    with running_proxy(environment["STORAGE_EMULATOR_HOST"]) as proxy:
        yield proxy


@pytest.mark.usefixtures("gs")
def test_the_demo_runs_and_each_command_ends_cleanly(demo: Path) -> None:
    lake = f"gs://{BUCKET}/{demo.parent.name}"
    run = runner(demo, lake, secret="Bearer")  # noqa: S106 - no secret
    run("load", "raw", "consume-1.jsonl")
    run("load", "raw", "consume-2.jsonl")
    assert json.loads(run("sync", "raw", "staging", "--json").stdout)["outputs"] == {"order": 2}
    run("sync-to", "tables", "staging", "--until-caught-up")
    check_delivered(run, lake)


@pytest.mark.usefixtures("gs")
def test_two_writers_at_once_each_get_their_own_seqnos(tmp_path: Path) -> None:
    """By the precondition of delta-rs's put: there is no lock that both could hold."""
    check_writers(f"gs://{BUCKET}/{tmp_path.name}", tmp_path)


@pytest.mark.usefixtures("gs")
def test_of_two_commits_by_spark_one_is_refused(tmp_path: Path) -> None:
    location = f"gs://{BUCKET}/{tmp_path.name}/table"

    def write_version_6() -> None:
        with arrow_files(location).open_output_stream("_delta_log/00000000000000000006.json") as file:
            file.write(b"by another process")

    check_commits(commit_by_spark(location, "GcsLogStore", write_version_6))


def test_a_store_that_ignores_the_precondition_is_refused(proxy: Proxy, tmp_path: Path) -> None:
    proxy.dropped_headers = frozenset({"x-goog-if-generation-match"})
    words = ("load", "raw", record(tmp_path), "--lake", f"gs://{BUCKET}/{tmp_path.name}")
    line = failure(words, tmp_path, {**os.environ, "STORAGE_EMULATOR_HOST": proxy.url})
    assert f"the store of gs://{BUCKET}/{tmp_path.name} takes two puts of the same object" in line


def _refuse(proxy: Proxy, methods: tuple[str, ...], part: str) -> None:
    text = "<Error><Code>AccessDenied</Code><Message>Access denied.</Message></Error>"

    def answer(request: Request, _: object) -> Answer | None:
        return Answer(403, text.encode()) if request.method in methods and part in request.path else None

    proxy.rule = answer


@pytest.mark.parametrize(
    ("methods", "part", "text"),
    [
        (("GET",), "list-type", "no permission to list gs://lake/{}/raw/_delta_log/: grant storage.objects.list"),
        (("PUT",), "", "no permission to write gs://lake/{}/.zync-probe-"),
        (("DELETE",), "", "no permission to delete gs://lake/{}/.zync-probe-"),
    ],
)
def test_what_is_not_permitted_is_said_in_a_line(
    proxy: Proxy, tmp_path: Path, methods: tuple[str, ...], part: str, text: str
) -> None:
    _refuse(proxy, methods, part)
    name = f"{tmp_path.parent.name}-{methods[0]}"
    words = ("load", "raw", record(tmp_path), "--lake", f"gs://{BUCKET}/{name}")
    line = failure(words, tmp_path, {**os.environ, "STORAGE_EMULATOR_HOST": proxy.url})
    assert text.format(name) in line


def test_no_bucket_no_credentials_and_no_store_are_said_in_a_line(environment: dict[str, str], tmp_path: Path) -> None:
    variables = {**os.environ, **environment, "HOME": str(tmp_path)}
    variables.pop("GOOGLE_APPLICATION_CREDENTIALS", None)  # a test of a config may have set it
    line = failure(("cat", "raw", "--lake", "gs://nowhere/lake"), tmp_path, variables)
    assert "the store has no bucket nowhere: create it, or correct the lake's address" in line
    variables["STORAGE_EMULATOR_HOST"] = "http://localhost:1"
    line = failure(("cat", "raw", "--lake", "gs://lake/lake"), tmp_path, variables)
    assert "the store at http://localhost:1 does not answer (Connection refused)" in line
    del variables["STORAGE_EMULATOR_HOST"]
    line = failure(("cat", "raw", "--lake", "gs://lake/lake"), tmp_path, variables)
    assert "there are no credentials for the store: set GOOGLE_APPLICATION_CREDENTIALS" in line
