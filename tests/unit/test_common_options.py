"""Options that commands share come after a command's own, and their values in one argument."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from zync.cli.common import Common, common_options

seen: list[tuple[Common, int]] = []


def invoke(*words: str, log_format: bool = False, lake: bool = True, as_json: bool = True) -> str:
    app = typer.Typer()

    @app.command()
    @common_options(log_format=log_format, lake=lake, as_json=as_json)
    def command(common: Common, number: int = 1) -> None:
        """Do nothing."""
        seen.append((common, number))

    return CliRunner().invoke(app, words).output


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    seen.clear()
    for name in ("ZYNC_LAKE", "ZYNC_CONFIG", "ZYNC_LOG_FORMAT", "ZYNC_DEBUG"):
        monkeypatch.delenv(name, raising=False)


def test_the_command_has_their_values() -> None:
    invoke("--number", "2", "--lake", "there", "--json", "--config", "a.yaml")
    assert seen == [(Common("there", Path("a.yaml"), as_json=True), 2)]


def test_without_them_it_has_defaults() -> None:
    invoke()
    assert seen == [(Common(), 1)]


def test_they_come_after_its_own() -> None:
    lines = [line.replace("│", " ").split() for line in invoke("--help", log_format=True).splitlines()]
    options = [words[0] for words in lines if words and words[0].startswith("--")]
    assert options[:6] == ["--number", "--log-format", "--lake", "--config", "--json", "--debug"]


def test_a_command_may_have_some_only() -> None:
    assert "No such option: --lake" in invoke("--lake", "there", lake=False)
    assert "No such option: --json" in invoke("--json", as_json=False)
    assert not seen
