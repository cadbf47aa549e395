"""What the command line promises: help, exit codes, one line for an error, also as JSON."""

import codecs
import json
import re
import subprocess
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ZYNC, zync
from zync.cli.console import ConsoleOutput
from zync.text import Verbatim, byte_size

if TYPE_CHECKING:
    pass
from tests.cli.conftest import one_line

COMMANDS = ("sync-from", "sync", "load", "cat", "query", "status", "explain", "check", "init", "demo", "config")


@pytest.mark.parametrize("word", COMMANDS)
def test_every_command_has_help(tmp_path: Path, word: str) -> None:
    assert "Usage:" in zync(word, "--help", cwd=tmp_path).stdout


def test_the_versions_are_one_line_and_the_help_has_the_commands(tmp_path: Path) -> None:
    said = zync("--version", cwd=tmp_path).stdout
    assert re.fullmatch(r"zync [0-9.]+ \(pyspark [0-9.]+, delta-spark [0-9.]+, deltalake [0-9.]+, .*\)\n", said)
    shown = zync("--help", cwd=tmp_path).stdout
    assert "Lands the transactions" in shown
    assert set(COMMANDS) <= set(re.findall(r"^  ([a-z-]+)  ", shown, re.MULTILINE))


def test_init_writes_what_runs_as_it_is_and_never_overwrites(tmp_path: Path, warm: Any) -> None:
    written = warm("init", cwd=tmp_path).stdout.splitlines()
    assert written[0] == "wrote zync.yaml, etl/paid_orders.sql; next: zync check"
    assert written[1].startswith("zync.schema.json: ")
    assert zync("config", "schema", cwd=tmp_path).stdout == (tmp_path / "zync.schema.json").read_text()
    said = json.loads(warm("check", "--json", cwd=tmp_path).stdout)
    assert said == {"ok": True, "warnings": [], "difference": None}
    assert "is there already" in one_line(warm("init", cwd=tmp_path, check=False), 2)
    for path in (tmp_path / "zync.yaml", tmp_path / "etl" / "paid_orders.sql"):
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())  # as editors on Windows may
        assert json.loads(warm("check", "--json", cwd=tmp_path).stdout) == said
        assert "is a file: give a folder" in one_line(warm("init", path, cwd=tmp_path, check=False), 2)


@pytest.mark.parametrize("secret", ["sup3rsecret", "a\"b'c\\d-sup3rsecret", "first\nsup3rsecret"])
@pytest.mark.parametrize(
    ("config", "command"),
    [
        ("kafka: {bootstrap.servers: 'localhost:9', security.protocol: '${PW}'}\n", "sync-from kafka raw --topic t"),
        ("kafka: {bootstrap.servers: 'localhost:9', security.protocol: '${PW}'}\n", "status"),
        ("topics: {t: {id: value:txn}}\ntransactions: {done: 'count(*) = ${PW}'}\n", "check"),
        ("topics: {t: {id: value:txn}}\ntransactions: {done: 'count(*) = ${PW}'}\n", "check --debug"),
        ("topics: {t: {id: 'value:txn = ( ${PW}'}}\ntransactions: {done: 'true'}\n", "check --debug"),
    ],
)
def test_no_error_says_what_was_read_from_the_environment(
    tmp_path: Path, warm: Any, monkeypatch: pytest.MonkeyPatch, config: str, command: str, secret: str
) -> None:
    """Nor in the way that an error quotes it."""
    monkeypatch.setenv("PW", secret)
    (tmp_path / "zync.yaml").write_text(config)
    (tmp_path / "in.jsonl").write_text('{"topic":"t","value":{}}')
    warm("load", "raw", "in.jsonl", cwd=tmp_path)
    done = warm(*command.split(), cwd=tmp_path, check=False)
    assert "sup3rsecret" not in done.stdout + done.stderr
    assert "${PW}" in done.stdout + done.stderr


def test_the_log_may_be_json(demo: Path) -> None:
    done = zync("sync", "nowhere", "staging", "--log-format", "json", cwd=demo, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    said = json.loads(line)
    assert said["level"] == "error"
    assert "no table at" in said["message"]
    assert said["code"] == "ZYNC-USAGE"
    assert datetime.fromisoformat(said["time"]).tzinfo
    done = zync("sync", "nowhere", "staging", "--log-format", "json", "--debug", cwd=demo, check=False)
    assert "UsageError: there is no table at" in json.loads(done.stderr.splitlines()[-1])["traceback"]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_error_is_a_line_of_text_on_standard_error_for_programs_too(tmp_path: Path, more: tuple[str, ...]) -> None:
    said = one_line(zync("cat", "raw", *more, cwd=tmp_path, check=False), 2)
    assert said.startswith("zync: there is no table at")


def test_a_reader_that_goes_away_is_no_error_of_many_lines(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"topic":"t","value":"x"}\n' * 20_000)
    zync("load", "raw", "in.jsonl", cwd=tmp_path)
    command = f"{ZYNC[0]} -m zync cat raw | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_output_writes_json_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleOutput().rows([{"a": Verbatim('{"x": 1.50}'), "b": [None, "é"]}])
    assert capsys.readouterr().out == '{"a":{"x": 1.50},"b":[null,"é"]}\n'
    assert [byte_size(n) for n in (0, 1023, 1536, 3 * 1024**3)] == ["0 B", "1,023 B", "1.5 KiB", "3.0 GiB"]
