"""What a store refuses, and that it is away, is said in one line that names what to do."""

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from tests.conftest import ZYNC
from tests.store.proxy import Answer, Request
from tests.store.refusing import ERROR, Gate, Refusal
from tests.store.s3 import BUCKET

LAKE = f"s3://{BUCKET}/refusals"
SECRET = "s3cr3t-of-the-store"  # noqa: S105


@pytest.fixture
def variables(gate: Gate) -> Iterator[dict[str, str]]:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ZYNC_LAKE"))}
    keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    yield {**others, **keys, "AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": gate.proxy.url}
    gate.reset()


def failure(variables: dict[str, str], folder: Path, *words: str) -> str:
    """The one line that a command prints to standard error as it fails."""
    done = subprocess.run(
        [*ZYNC, *words], cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 1, f"{done.returncode}\n{done.stdout}{done.stderr}"
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert SECRET not in lines[0]
    return lines[0]


def record(folder: Path) -> str:
    (folder / "one.jsonl").write_text(json.dumps({"topic": "t", "value": {"a": 1}}))
    return "one.jsonl"


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (Refusal(403, "AccessDenied", "Access Denied"), "no permission to read s3://lake/refusals/raw/_delta_log/"),
        (
            Refusal(403, "AccessDenied", "Access Denied", only=lambda path: "list-type" in path),
            "no permission to list s3://lake/refusals/raw/_delta_log/: grant s3:ListBucket on the bucket",
        ),
        (
            Refusal(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
            "the store does not know the access key id: correct AWS_ACCESS_KEY_ID",
        ),
        (
            Refusal(403, "SignatureDoesNotMatch", "The request signature we calculated does not match."),
            "the secret is not that of the access key id: correct AWS_SECRET_ACCESS_KEY",
        ),
        (
            Refusal(400, "ExpiredToken", "The provided token has expired."),
            "the store's credentials have expired: renew them, and run the command again",
        ),
        (
            Refusal(404, "NoSuchBucket", "The specified bucket does not exist"),
            "the store has no bucket lake: create it, or correct the lake's address",
        ),
        (
            Refusal(
                301, "PermanentRedirect", "Use the specified endpoint", headers=(("x-amz-bucket-region", "us-east-1"),)
            ),
            "the bucket lake is in another region: correct AWS_REGION or storage.region",
        ),
        (
            Refusal(503, "SlowDown", "Please reduce your request rate."),
            "the store fails or is overloaded, also after several attempts (503 Service Unavailable)",
        ),
    ],
    ids=lambda value: value.code if isinstance(value, Refusal) else "",
)
def test_what_a_store_refuses_is_said_in_a_line(
    gate: Gate, variables: dict[str, str], tmp_path: Path, refusal: Refusal, said: str
) -> None:
    gate.refusal = refusal
    line = failure(variables, tmp_path, "load", "raw", record(tmp_path), "--lake", LAKE)
    assert line.startswith("zync: ")
    assert said in line


def test_a_write_that_is_refused_is_said_without_a_panic(gate: Gate, variables: dict[str, str], tmp_path: Path) -> None:
    load = ("load", "raw", record(tmp_path), "--lake", f"{LAKE}-written")
    subprocess.run([*ZYNC, *load], cwd=tmp_path, env=variables, check=True, timeout=240)
    gate.refusal = Refusal(403, "AccessDenied", "Access Denied", ("PUT",))
    line = failure(variables, tmp_path, *load)
    assert re.search(r"no permission to write s3://lake/refusals-written/raw/part-\S+: grant s3:PutObject on it", line)


def test_a_clock_that_is_off_by_an_hour_is_named(gate: Gate, variables: dict[str, str], tmp_path: Path) -> None:
    """A store allows for a quarter of an hour between its clock and the time in a request's signature."""
    ahead = timedelta(hours=1)

    def answer(request: Request, _: Callable[[], None]) -> Answer | None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        signed = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        now = datetime.now(UTC) + ahead
        if abs(now - signed) < timedelta(minutes=15):
            return None
        text = ERROR.format(code="RequestTimeTooSkewed", message="The difference is too large.")
        more = (("Content-Type", "application/xml"), ("Date", format_datetime(now, usegmt=True)))
        return Answer(403, text.encode(), more)

    with gate.ruled_by(answer):
        line = failure(variables, tmp_path, "load", "raw", record(tmp_path), "--lake", f"{LAKE}-skewed")
        assert line.endswith("the clock of this host differs too much from the store's: set it")
        ahead = timedelta(minutes=5)
        load = [*ZYNC, "load", "raw", record(tmp_path), "--lake", f"{LAKE}-skewed"]
        assert subprocess.run(load, cwd=tmp_path, env=variables, check=False, timeout=240).returncode == 0


def test_without_credentials_it_says_where_they_may_be(variables: dict[str, str], tmp_path: Path) -> None:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    without = {name: value for name, value in variables.items() if name not in names}
    line = failure(without | {"HOME": str(tmp_path)}, tmp_path, "cat", "raw", "--lake", LAKE)
    assert "there are no credentials for the store: set AWS_ACCESS_KEY_ID and" in line


def test_a_store_that_is_away_ends_a_command_soon(variables: dict[str, str], tmp_path: Path) -> None:
    variables["AWS_ENDPOINT_URL"] = "http://localhost:1"
    began = time.monotonic()
    line = failure(variables, tmp_path, "cat", "raw", "--lake", LAKE)
    assert "the store at http://localhost:1 does not answer (Connection refused)" in line
    assert time.monotonic() - began < 60


def test_a_store_that_takes_requests_and_never_answers_ends_a_command(
    variables: dict[str, str], tmp_path: Path
) -> None:
    """Within the bounds that the config sets; by default 30 s for a request, and no more after 20 s."""
    with socket.create_server(("localhost", 0)) as silent:
        held: list[socket.socket] = []

        def hold() -> None:
            try:
                while True:
                    held.append(silent.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        endpoint = f"http://localhost:{silent.getsockname()[1]}"
        (tmp_path / "zync.yaml").write_text(
            f"lake: {LAKE}\nstorage: {{endpoint: '{endpoint}', timeout: 1s, retry_timeout: 2s}}\n"
        )
        began = time.monotonic()
        line = failure(variables, tmp_path, "cat", "raw")
        assert f"the store at {endpoint} does not answer" in line
        assert time.monotonic() - began < 30
        silent.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


def test_spark_says_it_in_a_line_as_well(gate: Gate, variables: dict[str, str], demo: Path) -> None:
    config = (demo / "zync.yaml").read_text().replace("lake: ./lake", f"lake: {LAKE}-spark")
    (demo / "zync.yaml").write_text(config)
    load = [*ZYNC, "load", "raw", "consume-1.jsonl"]
    subprocess.run(load, cwd=demo, env=variables, check=True, timeout=240)
    gate.refusal = Refusal(403, "AccessDenied", "Access Denied", ("PUT", "POST"), lambda path: "/staging/sync-" in path)
    line = failure(variables, demo, "sync", "raw", "staging")
    assert re.search(r"no permission to write \S*refusals-spark/staging/sync-\S*: grant s3:PutObject on it", line)
    gate.refusal = Refusal(403, "AccessDenied", "Access Denied", ("GET",), lambda path: "/raw/part-" in path)
    line = failure(variables, demo, "query", "SELECT count(value) FROM raw")
    assert "no permission to read s3://lake/refusals-spark/raw/part-" in line
