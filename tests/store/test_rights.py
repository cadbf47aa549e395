"""The rights that docs/how-to/s3.md lists are those that it takes, on a server that refuses all others."""

import json
import re
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError

from tests.conftest import ZYNC
from tests.store.s3 import BUCKET
from tests.store.versity import ROOT, USER, Versity
from zync.lake import probe

pytestmark = pytest.mark.timeout(1800)  # the server may have to be built
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "s3.md"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def listed_rights() -> list[dict[str, Any]]:
    """The statements of the policy on the page, for the bucket of the tests and the lake `shop`."""
    policy = re.search(r"```json\n(\{.*?\"Statement\".*?)```", PAGE.read_text(), re.DOTALL)
    assert policy
    statements: list[dict[str, Any]] = json.loads(policy[1].replace(":::bucket", f":::{BUCKET}"))["Statement"]
    return statements


def without(action: str) -> list[dict[str, Any]]:
    statements = deepcopy(listed_rights())
    for statement in statements:
        statement["Action"] = [one for one in statement["Action"] if one != action]
    return [statement for statement in statements if statement["Action"]]


@pytest.fixture
def run(versity: Versity, demo: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command to its end, as the user, in a process of its own."""
    for name, value in versity.environment().items():
        monkeypatch.setenv(name, value)
    config = (demo / "zync.yaml").read_text().replace("lake: ./lake", f"lake: s3://{BUCKET}/shop/{demo.parent.name}")
    (demo / "zync.yaml").write_text(f"{config}\ndeliver: {{tables: {{}}}}\n")

    def run(*words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run([*ZYNC, *words], cwd=demo, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert USER[1] not in done.stdout + done.stderr
        return done

    return run


@pytest.mark.timeout(900)
def test_with_the_listed_rights_every_command_works(versity: Versity, run: Run) -> None:
    """On a second server, which is none of Adobe's, and without a proxy before it."""
    versity.allow(listed_rights())
    run("load", "raw", "consume-1.jsonl")
    run("sync", "raw", "staging")
    run("load", "raw", "consume-2.jsonl")
    run("sync", "raw", "staging")
    run("sync-to", "tables", "staging", "--until-caught-up")
    assert json.loads(run("query", "SELECT count(*) AS n FROM raw", "--json").stdout)["n"] == 4
    rows = [json.loads(line) for line in run("cat", "staging", "--kind", "output").stdout.splitlines()]
    assert sorted(row["key"]["customerID"] for row in rows) == [1, 2]
    for words in (
        ("status",),
        ("snapshot",),
        ("txn", "list"),
        ("dlq", "list"),
        ("maintain", "raw"),
        ("maintain", "staging"),
        ("maintain", "tables"),
    ):
        run(*words)
    run("verify")


@pytest.mark.parametrize(
    ("action", "words", "said"),
    [
        ("s3:ListBucket", ("status",), f"no permission to list s3://{BUCKET}/shop"),
        ("s3:GetObject", ("cat", "raw"), f"no permission to read s3://{BUCKET}/shop"),
        ("s3:PutObject", ("load", "raw", "consume-2.jsonl"), f"no permission to write s3://{BUCKET}/shop"),
        ("s3:DeleteObject", ("load", "another", "consume-1.jsonl"), "no permission to delete"),
    ],
)
def test_a_right_that_is_missing_is_named(
    versity: Versity, run: Run, action: str, words: tuple[str, ...], said: str
) -> None:
    assert any(action in statement["Action"] for statement in listed_rights())
    versity.allow(listed_rights())
    run("load", "raw", "consume-1.jsonl")
    versity.allow(without(action))
    lines = run(*words, code=1).stderr.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
    assert f"grant {action}" in lines[0]


def test_of_two_puts_at_once_the_server_takes_one(versity: Versity, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself: no proxy hands them on one after the other."""
    for name, value in versity.environment(ROOT).items():
        monkeypatch.setenv(name, value)
    rounds = [probe._create_at_once(f"s3://{BUCKET}/at-once/{number}") for number in range(25)]  # noqa: SLF001
    assert [len(errors) for errors in rounds] == [1] * 25
    refused_puts = [errors for errors in rounds if isinstance(errors[0], CommitFailedError)]
    assert refused_puts, "in no round the second had not seen the first's table"
