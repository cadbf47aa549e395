"""CHANGELOG.md is what Keep a Changelog says, and its newest release is the version that pyproject.toml has."""

import re
import tomllib
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
RELEASES = re.findall(r"^## \[(\d+)\.(\d+)\.(\d+)\] - (\S+)$", CHANGELOG, re.MULTILINE)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_version_is_that_of_the_newest_release() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == ".".join(RELEASES[0][:3])


def test_releases_stand_newest_first_each_with_its_date() -> None:
    headings = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert len(headings) == 1 + len(RELEASES)
    versions = [tuple(map(int, release[:3])) for release in RELEASES]
    assert versions == sorted(set(versions), reverse=True)
    days = [date.fromisoformat(day) for *_, day in RELEASES]
    assert days == sorted(days, reverse=True)


def test_changes_are_of_the_kinds_that_there_are() -> None:
    assert set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE)) <= KINDS
