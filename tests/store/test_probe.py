"""A store is proved before it is trusted: of two commits at once it must refuse one."""

import http.client
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import ZYNC
from tests.store.refusing import Gate, Refusal
from tests.store.s3 import BUCKET
from tests.store.test_errors import record


@pytest.fixture
def variables(gate: Gate) -> Iterator[dict[str, str]]:
    keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu"}
    yield {**os.environ, **keys, "AWS_ENDPOINT_URL": gate.proxy.url}
    gate.reset()


def load(variables: dict[str, str], folder: Path, lake: str) -> "subprocess.CompletedProcess[str]":
    words = ("load", "raw", record(folder), "--lake", f"s3://{BUCKET}/{lake}")
    return subprocess.run(
        [*ZYNC, *words], cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=120
    )


def paths(gate: Gate, *methods: str) -> list[str]:
    """The paths of the requests with one of the methods, or of all."""
    return [request.path for request in gate.proxy.requests if not methods or request.method in methods]


def probe_objects(gate: Gate) -> set[str]:
    """The probe's objects that are in the bucket."""
    server = http.client.HTTPConnection(urlsplit(gate.proxy.url).netloc)
    server.request("GET", f"/{BUCKET}?list-type=2")
    text = server.getresponse().read().decode()
    server.close()
    return {part.split("</Key>")[0] for part in text.split("<Key>")[1:] if "zync-probe" in part.split("</Key>")[0]}


def test_a_store_that_refuses_the_second_put_is_taken_and_proved_once(
    gate: Gate, variables: dict[str, str], tmp_path: Path
) -> None:
    first = load(variables, tmp_path, "proved")
    assert first.returncode == 0, first.stderr
    assert any("zync-probe" in path for path in paths(gate))
    assert probe_objects(gate) == set()
    gate.proxy.requests.clear()
    assert load(variables, tmp_path, "proved").returncode == 0
    assert not any("zync-probe" in path for path in paths(gate))


def test_a_store_that_ignores_the_condition_is_refused(gate: Gate, variables: dict[str, str], tmp_path: Path) -> None:
    gate.ignore_conditions()
    done = load(variables, tmp_path, "ignoring")
    assert done.returncode == 2
    assert "the store of s3://lake/ignoring takes two puts of the same object under If-None-Match: *" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert probe_objects(gate) == set()
    assert not any("/raw/" in path for path in paths(gate, "PUT"))


def test_check_proves_the_store_as_well(gate: Gate, variables: dict[str, str], demo: Path) -> None:
    config = (demo / "zync.yaml").read_text().replace("lake: ./lake", f"lake: s3://{BUCKET}/checked")
    (demo / "zync.yaml").write_text(config)
    gate.ignore_conditions()
    done = subprocess.run(
        [*ZYNC, "check"], cwd=demo, env=variables, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 2
    assert "takes two puts of the same object" in done.stderr
    assert probe_objects(gate) == set()


def test_a_store_from_which_nothing_may_be_deleted_is_refused_by_name(
    gate: Gate, variables: dict[str, str], tmp_path: Path
) -> None:
    gate.refusal = Refusal(403, "AccessDenied", "Access Denied", ("DELETE", "POST"))
    done = load(variables, tmp_path, "kept")
    assert done.returncode == 1
    assert "no permission to delete s3://lake" in done.stderr
    assert "grant s3:DeleteObject" in done.stderr


def test_the_server_of_these_tests_takes_one_of_several_puts_at_once(gate: Gate) -> None:
    """S3Mock by itself takes both in five of six times."""
    for number in range(20):
        answers: list[int] = []
        start = threading.Barrier(3)

        def put(path: str, start: threading.Barrier = start, answers: list[int] = answers) -> None:
            server = http.client.HTTPConnection(urlsplit(gate.proxy.url).netloc)
            server.connect()
            start.wait()
            server.request("PUT", path, b"", {"If-None-Match": "*"})
            answers.append(server.getresponse().status)
            server.close()

        threads = [threading.Thread(target=put, args=(f"/{BUCKET}/at-once-{number}",)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [200, 412, 412]
