"""The commands of the development broker say which folder they mean."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from zync.cli import app


@pytest.mark.parametrize(("command", "expected"), [("status", "no broker runs in"), ("stop", "no broker ran in")])
def test_where_no_broker_is_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["broker", command]).stdout
    assert said == f"{expected} {tmp_path}/.zync/broker (--folder names another)\n"
    said = CliRunner().invoke(app, ["broker", command, "--folder", "elsewhere"]).stdout
    assert f"{tmp_path}/elsewhere" in said


def test_programs_read_whether_it_runs(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["broker", "status", "--folder", str(tmp_path), "--json"]).stdout
    assert said == '{"bootstrap_servers":null,"running":false,"pid":null}\n'
