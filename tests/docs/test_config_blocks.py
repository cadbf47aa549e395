"""The configs and rules in pages: each part of a config loads, and each whole example can run."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import CHECKOUT, PAGES, Block, Page, blocks
from zync.config.model import Config, Topic
from zync.project.load import load as read_config

EXAMPLES = [page for page in PAGES if any(block.title == "zync.yaml" for block in page.blocks)]
"""Pages with a whole example: a zync.yaml, and the files that it names, by their titles."""
_FILES = re.compile(r"[\w/.-]+\.(?:sql|py|csv|json|avsc|pem)\b")


def write_files(folder: Path, page: Page) -> None:
    """The files that the page shows, in a folder."""
    for block in page.blocks:
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)


def set_variables(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets each variable of the environment that a config reads."""
    for name in re.findall(r"\$\{(\w+)\}", text):
        monkeypatch.setenv(name, "secret")


CONFIGS = [
    block for block in blocks("yaml") if block.page not in {"docs/how-to/kubernetes.md", "docs/how-to/terraform.md"}
]
"""Blocks of the config; those of the chart's values are tested in tests/deploy."""


@pytest.mark.parametrize("block", CONFIGS, ids=lambda block: f"{block.page}-{block.text.split(':')[0]}")
def test_each_part_of_a_config_loads(tmp_path: Path, block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zync.yaml").write_text(block.text)
    for name in _FILES.findall(block.text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    set_variables(block.text, monkeypatch)
    assert read_config(tmp_path / "zync.yaml") != Config(path=tmp_path / "zync.yaml")


def test_a_value_from_the_environment_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (page,) = (one for one in EXAMPLES if one.name.endswith("own-kafka.md"))
    write_files(tmp_path, page)
    set_variables(page.text, monkeypatch)
    config = read_config(tmp_path / "zync.yaml")
    assert config.kafka["sasl.password"] == "secret"
    assert config.topics["menu"].as_ == "menu"


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.name)
def test_a_whole_example_can_run(tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch, warm: Any) -> None:
    write_files(tmp_path, page)
    set_variables(page.text, monkeypatch)
    monkeypatch.delenv("ZYNC_CONFIG", raising=False)
    printed = warm("check", cwd=tmp_path).stdout
    assert "the config and its rules can run" in printed
    assert "warning" not in printed


def test_the_keys_of_topics_that_are_named_exist() -> None:
    named = {key for page in PAGES for key in re.findall(r"`(\w+): \"[^`]*\"`", page.prose)}
    assert "schema" in named
    assert named <= {one.metadata.get("key", one.name) for one in fields(Topic)}


_RULES = [rule for folder in ("demo", "examples") for rule in (CHECKOUT / folder).glob("**/*.sql")]


@pytest.mark.parametrize("block", [one for one in blocks("sql") if not one.title], ids=lambda block: block.page)
def test_a_rule_that_a_page_quotes_is_in_the_repository(block: Block) -> None:
    assert any(block.text.strip() in rule.read_text() for rule in _RULES)
