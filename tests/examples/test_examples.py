"""The examples run as their READMEs say: each command of a README is run, and prints what stands below it."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from zync.project.load import load as load_config

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
NOT_RUN = {"zync broker start --port 9092": "the broker of the tests' run is there"}
LONGEST = 60
"""Lines of an example's README, for it to be read while the commands run."""
Warm = Callable[..., "subprocess.CompletedProcess[str]"]


def steps(readme: str) -> list[tuple[str, str]]:
    """The commands of a README's console blocks, each with the output that is quoted below it."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            found.append((command, output.rstrip()))
    return found


def is_quoted_by(output: str, quoted: str) -> bool:
    """Whether the output is what is quoted, in which `…` stands for anything within a line."""
    return re.fullmatch(".*".join(map(re.escape, quoted.split("…"))), output.rstrip()) is not None


def test_there_are_four_examples_and_the_overview_names_each() -> None:
    assert NAMES == ["avro-registry", "debezium-bank", "orders", "outbox"]
    assert set(re.findall(r"^\| \[([\w-]+)\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)) == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_its_readme_quotes(
    name: str, tmp_path: Path, warm: Warm, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("lake", ".zync"))
    readme = (folder / "README.md").read_text()
    assert len(readme.splitlines()) <= LONGEST
    given = {
        "BOOTSTRAP_SERVERS": lambda: str(request.getfixturevalue("broker")),
        "REGISTRY_URL": lambda: str(request.getfixturevalue("registry").url),
    }
    for command, quoted in steps(readme):
        if command in NOT_RUN:
            continue
        if exported := re.fullmatch(r"export (\w+)=\S+", command):
            monkeypatch.setenv(exported[1], given[exported[1]]())
            continue
        program, *words = shlex.split(command)
        if program == "zync":
            output = warm(*words, cwd=folder).stdout
        else:
            assert program == "python", command
            output = subprocess.run(
                [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=True, timeout=60
            ).stdout
        assert is_quoted_by(output, quoted), f"$ {command}\n{output}\nis not what {name}/README.md quotes:\n{quoted}"


@pytest.mark.parametrize("name", NAMES)
def test_a_readme_names_no_file_that_is_not_there_and_leaves_none_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = EXAMPLES / name
    readme = (folder / "README.md").read_text()
    for target in re.findall(r"\]\(([^)]+)\)", readme):
        assert (folder / target).is_file(), target
    for variable in ("BOOTSTRAP_SERVERS", "REGISTRY_URL"):
        monkeypatch.setenv(variable, "http://localhost:1")
    rules = {rule.file for rule in load_config(folder / "zync.yaml").outputs}
    there = {path for path in folder.rglob("*") if path.is_file() and not {"lake", ".zync"} & {*path.parts}}
    told = {folder / word for word in re.findall(r"[\w./-]+\.(?:yaml|sql|csv|jsonl|py)", readme)}
    assert there <= {*rules, *told, folder / "README.md"}


def test_other_output_than_the_quoted_would_be_noticed() -> None:
    assert steps("```console\n$ one\nsays … so\n$ two\n```\n") == [("one", "says … so"), ("two", "")]
    assert is_quoted_by("says 12 s, so\n", "says … so")
    assert not is_quoted_by("says 12 s\nso\n", "says … so")
    assert not is_quoted_by("says 12 s, so, and more\n", "says … so")
