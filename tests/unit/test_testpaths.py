"""`make test` runs every test: `testpaths` names each folder of them. Its order decides which of them begin first."""

import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_folder_of_tests_is_among_those_that_run() -> None:
    options = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    folders = {TESTS / file.relative_to(TESTS).parts[0] for file in TESTS.rglob("test_*.py")}
    assert TESTS / "unit" in folders
    assert folders == {TESTS.parent / path for path in options["testpaths"]}
