"""What a shell is told at TAB, by the program that it asks: the right words, in time, and nothing else."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent


def asked(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The program's answer to a shell's script, which asks by the environment."""
    return run([BIN / "zync"], folder, **variables)


def run(command: list[str | Path], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs it, in silence."""
    done = subprocess.run(
        command, cwd=folder, env=environment(**variables), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    return done


def environment(**variables: str) -> dict[str, str]:
    """The environment of a shell whose answers may take as long as a busy machine needs for them."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("ZYNC_") or key == "ZYNC_CACHE"}
    return {**ours, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "ZYNC_COMPLETION_SECONDS": "30", **variables}


def bash(folder: Path, line: str, **variables: str) -> list[str]:
    """What is offered for the last word of the line, asked as the script for bash does."""
    return asked(folder, **by_bash(line), **variables).stdout.split()


def by_bash(line: str) -> dict[str, str]:
    """How the script for bash asks."""
    return {
        "_ZYNC_COMPLETE": "complete_bash",
        "COMP_WORDS": line.replace(" ", "\n"),
        "COMP_CWORD": str(line.count(" ")),
    }


@pytest.fixture
def shop(demo: Path, warm: Any) -> Path:
    """A lake with transactions that are done, in flight and set aside."""
    values = [{"txn": "571:53195832"}, {"txn": "571:60"}, {"txn": "$(touch pwned)"}, "no JSON"]
    lines = [json.dumps({"topic": "order", "value": value}) for value in values]
    (demo / "more.jsonl").write_text("\n".join(lines))
    warm("load", "raw", "consume-1.jsonl", "more.jsonl", cwd=demo)
    warm("sync", "raw", "staging", cwd=demo)
    return demo


def test_shells_complete_what_a_sync_left(shop: Path) -> None:
    assert bash(shop, "zync txn show ") == ["10001", "571:53195832", "571:60", "order/0/5", "10000"]
    assert bash(shop, "zync txn release 571:60 ") == ["10001", "571:53195832"]
    assert bash(shop, "zync dlq drop o") == ["order/0/5"]
    assert bash(shop, "zync cat --lake lake sta") == ["staging"]

    zsh = asked(shop, _ZYNC_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="zync txn discard 5")
    assert '"571\\\\:60":"in flight"' in zsh.stdout
    assert "touch" not in zsh.stdout  # it evaluates what it is told
    fish = {"_ZYNC_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": "zync txn show 571"}
    told = asked(shop, **fish, _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert told.stdout.splitlines() == ["571:53195832\tin flight", "571:60\tin flight"]
    nothing = {**fish, "_TYPER_COMPLETE_ARGS": "zync txn show no"}
    assert asked(shop, **nothing, _TYPER_COMPLETE_FISH_ACTION="is-args").returncode == 1  # files, then

    assert in_bash(shop, ["zync", "txn", "show", "571", ":", "5"]) == ["53195832"]
    assert in_bash(shop, ["zync", "dlq", "show", ""]) == ["order/0/5"]
    assert not (shop / "pwned").exists()


def in_bash(folder: Path, words: list[str]) -> list[str]:
    """What bash itself offers for the last of the words, as it cuts a line up, by the script that zync gives it."""
    script = f"""
        eval "$(_ZYNC_COMPLETE=source_bash zync)"
        [[ $(complete -p zync) == *_zync_completion* ]] || exit 1
        COMP_WORDS=({shlex.join(words)})
        COMP_CWORD={len(words) - 1}
        _zync_completion zync
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return run(["bash", "--norc", "-c", script], folder).stdout.split()


def test_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    assert in_bash(tmp_path, ["zync", "sync-"]) == ["sync-from", "sync-to"]
    assert in_bash(tmp_path, ["zync", "sync-to", ""]) == ["kafka", "tables"]
    assert in_bash(tmp_path, ["zync", "maintain", ""]) == ["tables", "raw", "staging"]
    assert in_bash(tmp_path, ["zync", "cat", "--ki"]) == ["--kind"]
    assert in_bash(tmp_path, ["zync", "cat", "staging", "--kind", "p"]) == ["pending"]
    (tmp_path / "zync.yaml").write_text("topics: {order: {id: x}}")
    assert in_bash(tmp_path, ["zync", "sync-from", "kafka", "raw", "--topic", ""]) == ["order"]


def test_each_shell_has_a_script_and_it_is_installed(tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = asked(tmp_path, _ZYNC_COMPLETE=f"source_{shell}")
        assert (script.returncode, f"complete_{shell} " in script.stdout) == (0, True), script
    command = ["bash", "-c", "zync --install-completion; true"]  # which asks what it runs in
    subprocess.run(command, env=environment(HOME=str(tmp_path)), capture_output=True, check=True)
    (installed,) = (tmp_path / ".bash_completions").iterdir()
    assert "complete_bash" in installed.read_text()
    assert str(installed) in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize("config", ["topics: [", "topics: {a: {}}", "lake: zync.yaml", "lake: '${NOT_SET_AT_ALL}'"])
def test_whatever_is_wrong_a_shell_is_told_nothing(tmp_path: Path, config: str) -> None:
    (tmp_path / "zync.yaml").write_text(config)
    for line in ("zync txn show ", "zync sync-from kafka raw --topic "):
        assert bash(tmp_path, line) == []


def test_a_line_that_makes_no_sense_is_answered_in_silence(tmp_path: Path) -> None:
    for odd in ("zync no-such-command ", "zync cat --no-such-option x ", "zync txn show 'a", "zync cat --limit x "):
        bash(tmp_path, odd)


def test_a_shell_waits_for_a_second_at_most(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "zync.yaml")  # to read it takes for ever
    for limit in ("1", "a second"):
        begin = time.monotonic()
        assert bash(tmp_path, "zync txn show ", ZYNC_COMPLETION_SECONDS=limit) == []
        assert time.monotonic() - begin < 10  # of a machine that is busy


def test_no_completion_loads_spark(shop: Path) -> None:
    code = """
import os, sys
from zync.cli import main
end = os._exit
os._exit = lambda code: (print("pyspark" in sys.modules, flush=True), end(code))
sys.argv = ["zync"]
main()
"""
    for words in ("zync txn show ", "zync cat ", "zync txn list --state ", "zync cat staging --kind "):
        done = run([sys.executable, "-c", code], shop, **by_bash(words))
        *offered, spark = done.stdout.split()
        assert (bool(offered), spark) == (True, "False"), words


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish_completes_values(tmp_path: Path) -> None:
    script = "_ZYNC_COMPLETE=source_fish zync | source; complete -C 'zync cat staging --kind p'"
    assert run(["fish", "-c", script], tmp_path, HOME=str(tmp_path)).stdout.split() == ["pending"]
